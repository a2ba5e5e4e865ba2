"""Gaps in what is seen: a machine that slept, a process that was stopped, a clock that was set."""

from __future__ import annotations

LATE_S = 10.0
"""Looks this far apart, in seconds: nobody was looking."""
ALIKE_S = 5.0
"""Two clocks that have gone further apart than this, in seconds: one was set, or stood still in a sleep."""


class Gaps:
    """Tells from the times of looks, one a second or more, that there was none for a while."""

    def __init__(self) -> None:
        self._before: tuple[float, float] | None = None

    def since_last(self, at: float, ticks: float) -> bool:
        """Whether there is one between the look before and this one.

        :param at: unix seconds
        :param ticks: seconds of a clock that nobody sets
        """
        before, self._before = self._before, (at, ticks)
        if before is None:
            return False
        passed = ticks - before[1]
        return passed > LATE_S or abs(at - before[0] - passed) > ALIKE_S
