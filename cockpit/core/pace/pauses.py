"""Steps that began late: after a checkpoint, an evaluation, a stall."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cockpit.core.pace.heat import STALL
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.reached import PORTIONS_S
from cockpit.core.pace.step import Step

LATE_S = 2.0
"""Seconds that a line of a log may take until it is here."""


@dataclass(frozen=True)
class Pause:
    """Time in which no step went on.

    :param step: the one after it
    :param until: when that began, unix seconds; ``ended``: when it ended
    :param seconds: how long it was
    :param saved: a log named a checkpoint in it
    """

    step: int
    until: float
    ended: float
    seconds: float
    saved: bool


def pauses(pace: Pace, saves: Sequence[float], since: float) -> Iterator[Pause]:
    """Those that ended after a moment, newest first.

    :param saves: when logs named a checkpoint, unix seconds: nothing is called one without that
    :param since: unix seconds
    """
    usual = pace.usual()
    if usual is None:
        return
    after = _After()
    for step in pace.steps.newest():
        end, span = step.typical_end, step.typical_span
        if end <= since:
            return
        after.take(step)
        if span > STALL * usual and not (math.isnan(step.noted_span) and after.makes_up(span, usual)):
            saved = any(end - span - usual <= at <= end + LATE_S for at in saves)
            yield Pause(step.step, end - usual, end, span - usual, saved)


class _After:
    """The steps in the moments after one, as they are gone through from the newest on."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque()
        self._count = 0

    def take(self, step: Step) -> None:
        """The next older one."""
        self._steps.append(step)
        self._count += step.count
        while self._steps[0].typical_end > step.typical_end + PORTIONS_S:
            self._count -= self._steps.popleft().count

    def makes_up(self, span: float, usual: float) -> bool:
        """Whether so many came at once that a long step seems to have waited to be read.

        So it is where nobody read for a while: a link was lost, or the cockpit was suspended.
        """
        return self._count * usual - PORTIONS_S > span / 2
