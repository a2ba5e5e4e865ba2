"""Two losses: where they are the very same, where they part by more than their noise."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from statistics import median_low

from cockpit.core.compare.model import ALIKE, At, Losses
from cockpit.core.report.model import Curve

STRETCHES = 24
"""So many stretches of what both have are compared, each by its medians."""
EACH = 8
"""Values of each run in a stretch at least."""
APART = 1.5
"""So many times the noise of both medians are apart, of stretches that differ."""
SHOWN = 5
"""Places that are shown."""

_SIGMA = 1.4826
"""Times the median distance from the median: the standard deviation of what is normally distributed."""

Points = Sequence[tuple[float, float]]


def losses(before: Curve, after: Curve, by: str = "step", scales: tuple[float, float] = (1.0, 1.0)) -> Losses:
    """What there is to say of both.

    :param by: what places are
    :param scales: what a step of each run is of that
    """
    was, now = (_placed(one, scale) for one, scale in zip((before, after), scales, strict=True))
    first, last = max(was[0][0], now[0][0]), min(was[-1][0], now[-1][0])
    if first > last:
        return Losses(by)
    was, now = _within(was, first, last), _within(now, first, last)
    if not was or not now:
        return Losses(by)
    noise = math.hypot(_noise(was), _noise(now))
    stretches = _stretches(was, now, first, last)
    rows = [At(begin, was_there, now_there) for begin, was_there, now_there in stretches]
    alike = _alike_to(dict(was), dict(now)) if by == "step" else None
    ends = [*(begin for begin, *_ in stretches[1:]), last]
    apart = [
        (begin, end, _differ(one, other, noise))
        for (begin, one, other), end in zip(stretches, ends, strict=True)
    ]
    every = max(1, math.ceil((len(rows) - 1) / (SHOWN - 1)))
    shown = rows[::every] if (len(rows) - 1) % every == 0 else [*rows[::every], rows[-1]]
    parted = _most(apart, last)
    if parted is not None and alike is not None and alike >= parted[0] - (last - first) / len(stretches):
        # It is in that stretch, or in the one before.
        parted = next((at for at, _ in now if at > alike), alike), parted[1]
    return Losses(by, first, last, tuple(shown), noise, alike, parted)


def _placed(curve: Curve, scale: float) -> Points:
    """Its points in order; of a step that was done again after a restart the last value."""
    return sorted((step * scale, value) for step, value in dict(curve.points).items())


def _within(points: Points, first: float, last: float) -> Points:
    return points[bisect_left(points, (first, -math.inf)) : bisect_right(points, (last, math.inf))]


def _noise(points: Points) -> float:
    """How much values vary about what they head for: by second differences, which a trend does not have."""
    values = [value for _, value in points]
    second = [abs(a / 2 - b + c / 2) for a, b, c in zip(values, values[1:], values[2:], strict=False)]
    # Of numbers of one spread, a/2 - b + c/2 has sqrt(3/2) of it.
    return _SIGMA * median_low(second) / math.sqrt(1.5) if second else 0.0


def spread(values: Iterable[float]) -> float | None:
    """How much values vary about their median, robustly; None: there are too few to say."""
    found = list(values)
    if len(found) < 3:
        return None
    middle = median_low(found)
    return _SIGMA * median_low(abs(value - middle) for value in found)


def _stretches(was: Points, now: Points, first: float, last: float) -> list[tuple[float, float, float]]:
    """The first place of each that has values, and the medians of both in it; left out where one has none."""
    many = max(1, min(STRETCHES, min(len(was), len(now)) // EACH))
    if last <= first:
        many = 1
    found = []
    for place in range(many):
        begin, end = (first + (last - first) * part / many for part in (place, place + 1))
        end = math.inf if place == many - 1 else end
        one, other = ([each for each in points if begin <= each[0] < end] for points in (was, now))
        if one and other:
            was_there, now_there = (median_low(value for _, value in some) for some in (one, other))
            found.append((max(one[0][0], other[0][0]), was_there, now_there))
    return found


def _differ(one: float, other: float, noise: float) -> bool:
    return abs(one - other) > max(APART * noise, ALIKE / 10 * max(abs(one), abs(other)))


def _most(stretches: Iterable[tuple[float, float, bool]], last: float) -> tuple[float, float] | None:
    """The stretch that matters most."""
    found = []
    for differ, some in groupby(stretches, key=lambda one: one[2]):
        if differ:
            run = list(some)
            found.append((run[0][0], run[-1][1]))
    return max(found, key=lambda one: (one[1] == last, one[1] - one[0]), default=None)


def _alike_to(was: Mapping[float, float], now: Mapping[float, float]) -> float | None:
    alike = None
    for step in sorted(was.keys() & now.keys()):
        if was[step] != now[step]:
            break
        alike = step
    return alike
