"""How long the end of a step takes a rank that waits for nobody there.

From the last collective to the end of its step a healthy rank may still compute (gradients, beside the
collective) while it waits for the last one to arrive. If only that last one got through without waiting, its
time is the measure for the others, who computed as long. But if it is slow just there, in its optimizer for
one, that measure hides it: it takes longer by exactly what the others wait for it. So:

- Where several got through in other steps, their share of a step is the measure.
- Else, where its own time leaves the others next to nothing to wait, they do wait: nobody goes on right after
  the last one arrives by chance in each step.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from statistics import median_low
from typing import NamedTuple

from cockpit.core.recorder.overlap import PLACES

ENOUGH = 4
"""Times that ranks got through together with others, from which their share of a step can be told."""

STEPS = 10
"""The newest steps by which a rank is judged that is always the last one."""

LEFT = 0.1
"""Less than this share of the time until the last one arrives is next to nothing."""


class Through(NamedTuple):
    """A rank got through the end of a step and waited for nobody.

    :param key: of the place and the step
    :param busy: how long it took, microseconds; ``step``: how long its whole step took
    """

    key: int
    rank: int
    busy: int
    step: int


class Held(NamedTuple):
    """A rank for which another one arrived later: ``took`` until the end, of it ``until`` it arrived."""

    key: int
    took: int
    until: int


class Ends:
    """What all ranks took at the ends of their steps."""

    def __init__(self) -> None:
        self.through: list[Through] = []
        self.held: list[Held] = []

    def least(self, alone: Container[int]) -> dict[int, int]:
        """The measure for each end that one rank alone got through without waiting; it may be zero.

        :param alone: the keys of those, of other gaps too
        """
        held: dict[int, list[Held]] = {}
        for each in self.held:
            held.setdefault(each.key, []).append(each)
        shares: dict[int, list[float]] = {}
        lone: dict[tuple[int, int], list[Through]] = {}
        for one in self.through:
            if one.key not in alone:
                shares.setdefault(one.key & PLACES, []).append(one.busy / max(one.step, 1))
            elif one.key in held:
                lone.setdefault((one.key & PLACES, one.rank), []).append(one)
        usual = {place: median_low(some) for place, some in shares.items() if len(some) >= ENOUGH}
        found: dict[int, int] = {}
        for (place, _), ends in lone.items():
            if place in usual:
                found.update((one.key, min(one.busy, int(usual[place] * one.step))) for one in ends)
                continue
            hides = _hides(sorted(ends)[-STEPS:], held)
            found.update((one.key, 0 if hides else one.busy) for one in ends)
        return found


def _hides(ends: Iterable[Through], held: dict[int, list[Held]]) -> bool:
    """Whether nobody would have waited, if all took as long as the last one."""
    left = until = 0
    for one in ends:
        for each in held[one.key]:
            left += min(each.until, max(0, each.took - one.busy))
            until += each.until
    return left < LEFT * until
