"""Steps that began late: after a checkpoint, an evaluation, a stall."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cockpit.core.pace.heat import STALL
from cockpit.core.pace.pace import Pace

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
    for step in pace.steps.newest():
        end, span = step.typical_end, step.typical_span
        if end <= since:
            return
        if span > STALL * usual:
            saved = any(end - span - usual <= at <= end + LATE_S for at in saves)
            yield Pause(step.step, end - usual, end, span - usual, saved)
