"""The paces of two runs: steps, work, phases, throughput; and whether a step is as much in both."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from statistics import median_low

from cockpit.core.compare.losses import spread
from cockpit.core.compare.model import Amount, Difference, Measure
from cockpit.core.pace.phases import NAMES as PHASES
from cockpit.core.report.model import STEP_TIME, WORK, Curve, RunReport

SIZES = re.compile(
    r"batch|accum|(seq|context|block|max)[-_.]?(len|size|length)|(?<![a-z])(bs|mbs|gbs)(?![a-z])", re.I
)
"""Options that say how much goes through a step."""
THROUGHPUT = {"tokens": "tokens/s", "samples": "samples/s"}
"""What goes through a step, and the curves that say how much of it does in a second."""


def curves_of(report: RunReport) -> dict[str, Curve]:
    """Its curves by name."""
    return {curve.name: curve for curve in report.curves}


def amount(before: RunReport, after: RunReport, differences: Iterable[Difference]) -> Amount:
    """How much goes through a step of each, by their logs, where something may have changed that."""
    parts = [
        f"{one.name} {'not set' if one.before is None else one.before} → "
        f"{'not set' if one.after is None else one.after}"
        for one in differences
        if one.kind == "argument" and SIZES.search(one.name)
    ]
    if before.what.ranks != after.what.ranks:
        parts[:0] = [f"{before.what.ranks:,} → {after.what.ranks:,} ranks"]
    if not parts:
        return Amount()
    why, sides = "; ".join(parts), [curves_of(one) for one in (before, after)]
    for unit, name in THROUGHPUT.items():
        each = [_in_a_step(side, name) for side in sides]
        if each[0] is not None and each[1] is not None:
            return Amount(why, unit, each[0], each[1])
    return Amount(why)


def _in_a_step(curves: Mapping[str, Curve], name: str) -> float | None:
    speed, took = _usual(curves.get(name)), _usual(curves.get(STEP_TIME))
    return speed * took if speed is not None and took is not None and speed > 0 < took else None


def measures(before: RunReport, after: RunReport) -> tuple[Measure, ...]:
    """All numbers that one of them has."""
    was, now = curves_of(before), curves_of(after)
    step = was.get(STEP_TIME), now.get(STEP_TIME)
    found = [
        Measure("step, mean", "s", before.course.mean_s, after.course.mean_s, _spread(*step)),
        _measure("step, median", "s", *step),
        _measure("work", "s", was.get(WORK), now.get(WORK)),
    ]
    # Where the wait is not known, it is in the other phases.
    alike = ("wait" in before.course.phases) == ("wait" in after.course.phases)
    for name in PHASES if alike else ():
        means = before.course.phases.get(name), after.course.phases.get(name)
        found.append(Measure(name, "s", *means, _spread(was.get(name), now.get(name))))
    found += [_measure(name, "", was.get(name), now.get(name)) for name in THROUGHPUT.values()]
    if before.what.ranks != after.what.ranks:
        found += [
            _a_rank(one, before.what.ranks, after.what.ranks)
            for one in found
            if one.name in THROUGHPUT.values()
        ]
    found.append(Measure("first step finished after", "s", before.course.begun_s, after.course.begun_s))
    return tuple(one for one in found if one.before is not None or one.after is not None)


def _measure(name: str, unit: str, before: Curve | None, after: Curve | None) -> Measure:
    return Measure(name, unit, _usual(before), _usual(after), _spread(before, after))


def _a_rank(one: Measure, before: int, after: int) -> Measure:
    """The same of one rank."""
    was = None if one.before is None or not before else one.before / before
    now = None if one.after is None or not after else one.after / after
    varies = None if one.spread is None else one.spread / max(1, min(before, after))
    return Measure(f"{one.name} a rank", "", was, now, varies)


def _usual(curve: Curve | None) -> float | None:
    return median_low(value for _, value in curve.points) if curve is not None and curve.points else None


def _spread(*curves: Curve | None) -> float | None:
    """Of the one that varies more; None: that of one is not known."""
    each = [None if one is None else spread(value for _, value in one.points) for one in curves]
    known = [one for one in each if one is not None]
    return max(known) if len(known) == len(each) else None
