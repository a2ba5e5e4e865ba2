"""Two reports become a comparison; what stands out comes first, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from cockpit.core.compare.differences import TREE, differences, unrecorded
from cockpit.core.compare.losses import losses
from cockpit.core.compare.model import Amount, Comparison, Losses, Measure, Profiles
from cockpit.core.compare.pace import amount, curves_of, measures
from cockpit.core.pace.phases import NAMES as PHASES
from cockpit.core.report.model import RunReport
from cockpit.core.report.words import number
from cockpit.core.report.working_tree import between
from cockpit.core.text import counted

LARGE = 0.2
"""Part of what a step takes longer that a phase must have to be named for it."""


def compare(before: RunReport, after: RunReport, profiles: Profiles | None = None) -> Comparison:
    """Two runs side by side."""
    found = differences(before, after)
    many = amount(before, after, found)
    made = Comparison(
        before,
        after,
        found,
        unrecorded(before, after),
        many,
        measures(before, after),
        _loss(before, after, many),
        profiles,
        tree=between(before.what.diff, after.what.diff) if any(one.name == TREE for one in found) else (),
    )
    return replace(made, said=tuple(_said(made)))


def _loss(before: RunReport, after: RunReport, many: Amount) -> Losses | None:
    """By what went through, where a step of both is not as much and the logs say how much it is."""
    was, now = curves_of(before).get("loss"), curves_of(after).get("loss")
    if was is None or now is None:
        return None
    if many.same is False:
        return losses(was, now, many.unit, (many.before, many.after))
    return losses(was, now)


def _said(made: Comparison) -> Iterator[str]:
    count = len(made.differences)
    yield counted(count, "recorded difference") if count else "no recorded differences"
    yield from _amount(made.amount)
    yield from _pace(made.pace)
    if made.loss is not None:
        yield from loss_lines(made.loss)
    for name, side in (("before", made.before), ("after", made.after)):
        curve = curves_of(side).get("loss")
        if curve is not None and curve.odd and curve.odd_from is not None:
            steps = counted(curve.odd, "step")
            yield f"{name}: the loss is not a number in {steps}, from step {curve.odd_from:,.0f} on"


def _amount(many: Amount) -> Iterator[str]:
    if many.same is True and many.why:
        yield f"same number of {many.unit} per step in both, about {number(many.before)} ({many.why})"
    elif many.same is False:
        sizes = f"{number(many.before)} and {number(many.after)} {many.unit}"
        yield f"a step has {sizes} ({many.why}): losses are compared by {many.unit}"
    elif many.same is None:
        yield (
            f"a step may not be as much in both ({many.why}), and not both logs have tokens/s or "
            "samples/s: times and losses of a step may not be comparable"
        )


def _pace(measures: Sequence[Measure]) -> Iterator[str]:
    """Whether steps take longer, and where the time goes."""
    by_name = {one.name: one for one in measures}
    step = by_name.get("step, median")
    if step is None or step.ratio is None or step.more is None:
        return
    if not step.beyond:
        how = "within normal variation" if step.spread is not None else f"{step.ratio:.2f} times as long"
        yield f"a step takes {number(step.before or 0.0, 's')} and {number(step.after or 0.0, 's')}: {how}"
        return
    text = f"a step takes {step.ratio:.2f} times as long, beyond normal variation"
    more = {name: by_name[name].more or 0.0 for name in PHASES if name in by_name and by_name[name].beyond}
    whole = step.more
    name = max(more, key=lambda name: more[name] / whole, default=None)
    if name is not None and more[name] / whole >= LARGE:
        text += f"; of {_signed(whole)}, {_signed(more[name])} in {name}"
    yield text


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{number(abs(seconds), 's')}"


def place(at: float) -> str:
    """A step, or how many tokens or samples: ``1,204``."""
    return f"{at:,.0f}"


def loss_lines(found: Losses) -> Iterator[str]:
    """What stands out of both losses."""
    if found.first is None or found.last is None:
        yield f"losses: no {found.by}{'s' * (found.by == 'step')} that both have"
        return
    if found.alike_to is not None:
        yield f"losses: identical up to step {found.alike_to:,.0f}"
    here, last = f"{found.by} {place(found.last)}", found.rows[-1]
    ends = f"{number(last.before)} and {number(last.after)} near {here}"
    if found.apart is None:
        if found.alike_to is None or found.alike_to < found.last:
            yield f"losses: alike within their noise, {ends}"
    elif found.parted is not None:
        since = "from the start" if found.parted <= found.first else f"from {found.by} {place(found.parted)}"
        yield f"losses diverge {since}: {ends}"
    else:
        first, until = map(place, found.apart)
        yield f"losses differ from {found.by} {first} to {until}, then converge: {ends}"
