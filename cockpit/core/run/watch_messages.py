"""What the watch says: its events as sentences, and its findings on their way into an event and out of it."""

from __future__ import annotations

from cockpit.base.events import FoundStep, SavedFinding, Watched
from cockpit.base.stillness import Pause
from cockpit.core.finding import PROOFS, Finding, Step
from cockpit.core.masks import mask_of, ranks_of
from cockpit.core.rules.table import table
from cockpit.core.run.states import Run, Watching
from cockpit.core.text import one_line
from cockpit.core.time_text import rounded_span, span_text

MOVES = "moves"
"""The id of what a look has found if ranks move: no step is overdue because of a stall."""

_LONG = 300


def packed(found: Finding) -> SavedFinding:
    """A finding as an event has it."""
    return SavedFinding(
        found.id,
        found.what,
        tuple(ranks_of(found.ranks)),
        found.where,
        found.detail,
        found.evidence[:16],
        found.certainty,
        found.severity,
        found.nodes,
        found.since,
        found.proof,
        tuple(FoundStep(each.command, each.reason, each.node, each.action) for each in found.steps[:16]),
        found.rule,
    )


def unpacked(found: SavedFinding) -> Finding:
    """A finding as an event had it; its text harmless."""
    row = table().by_id.get(found.rule) if found.rule else None
    return Finding(
        found.id,
        one_line(found.what, limit=_LONG),
        mask_of(found.ranks),
        one_line(found.where, limit=_LONG),
        one_line(found.detail, limit=_LONG),
        tuple(one_line(text, limit=_LONG) for text in found.evidence),
        found.certainty,
        tuple(
            Step(
                one_line(each.command, limit=1000), one_line(each.reason, limit=_LONG), each.node, each.action
            )
            for each in found.steps
        ),
        found.nodes,
        found.severity,
        found.since,
        found.proof if found.proof in PROOFS else "",
        "" if row is None else row.id,
        "" if row is None else row.meaning(),
    )


def watching(fact: Watched, at: float) -> Watching:
    """What the model has of an event."""
    return Watching(
        fact.state,
        at,
        fact.since,
        fact.still_s,
        fact.step,
        fact.looking,
        fact.looks,
        fact.total,
        fact.looked,
        fact.next_at,
        None if fact.found is None else unpacked(fact.found),
        mask_of(fact.waiting),
        fact.snapshot,
        one_line(fact.why, limit=_LONG),
        fact.stuck,
        Pause(fact.before_s, fact.before_step),
        fact.ending,
    )


def news(watch: Watching) -> tuple[str, str]:
    """What an event says, and its level."""
    found = watch.finding
    if watch.state == "blind":
        return watch.why, "info"
    if watch.state == "going":
        return watch.why or f"steps continue, after {span_text(watch.still_s)} without one", "info"
    if watch.state == "stalled" and found is not None:
        doubt = "" if found.certainty == "sure" else f" ({found.certainty})"
        said, why = f"{head(watch, watch.still_s)}: {found.what}{doubt}", stuck(watch)
        if why and watch.stuck == "sure":
            said = f"{said}; {why}"
        elif why:
            said = f"{head(watch, watch.still_s)}, {why}: {found.what}{doubt}"
        return said, "warning"
    last = f", the last was {watch.step:,}" if watch.step is not None else ""
    if found is None:
        return f"{head(watch, watch.still_s)}{last}: inspecting all ranks", "info"
    if found.id == MOVES:
        return f"{head(watch, watch.still_s)}: {found.what}", "info"
    return f"{head(watch, watch.still_s)}: {found.what} ({found.certainty})", "info"


def stop_reason(watch: Watching, still_s: float | None) -> str:
    """Why the watch stops a run.

    :param still_s: seconds without a step and without movement, more than a person has named; None: it is
        proven that it does not go on
    """
    found = watch.finding
    if still_s is None and found is not None:
        return news(watch)[0]
    what = "" if found is None else f": {found.what}"
    return f"no step and no movement for {span_text(still_s or 0.0)}, longer than --stop-after allows{what}"


def stuck(watch: Watching) -> str:
    """How sure it is that a stalled run is stuck, in words; empty if that is not known.

    ``proof: a signal has stopped it``, ``longer than ever in this run``, ``as at step 200, which took 41 s``
    """
    found, before = watch.finding, watch.before
    if watch.stuck == "sure" and found is not None and found.proof:
        return f"proof: {PROOFS[found.proof]}"
    took = span_text(before.seconds)
    if watch.stuck == "waiting":
        return (
            f"as before, for {took}"
            if before.step is None
            else f"as at step {before.step:,}, which took {took}"
        )
    return "longer than ever in this run" if watch.stuck else ""


def head(watch: Watching, still_s: float) -> str:
    """``stalled 48 s``, ``no step for 48 s · in evaluate.py:31``, ``ending for 48 s``; else empty.

    :param still_s: seconds without a step
    """
    if watch.state == "stalled" and watch.stuck != "waiting":
        return f"stalled {span_text(still_s)}{' while ending' if watch.ending else ''}"
    if watch.state not in ("quiet", "stalled"):
        return ""
    found = watch.finding
    where = f" · in {found.where.split(' ')[0]}" if found is not None and found.where else ""
    if watch.ending:
        return f"ending for {span_text(still_s)}{where}"
    return f"no step {'yet, after' if watch.step is None else 'for'} {span_text(still_s)}{where}"


def standing(run: Run, now: float) -> str:
    """That a live run makes no step, and when that was seen; empty: it does, or nobody has seen it.

    :param now: unix seconds
    """
    watch = run.watch
    text = "" if run.over else ", ".join(filter(None, (head(watch, watch.for_s(now)), stuck(watch))))
    return text and f"{text} (seen {rounded_span(max(0.0, now - watch.at))} ago)"
