"""The failure policy: some time after a rank's recorded failure was shown, the rest of the run is stopped.

Only an end that its wrapper, its supervisor or the kernel recorded counts; that a node is silent, refuses or
has nothing to show of a rank any more stops nobody.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from cockpit.base.events import StopRequested
from cockpit.core.gaps import Gaps
from cockpit.core.run.failure import how
from cockpit.core.run.model import RunModel

_LOOK_S = 0.2
"""Between two looks for a failure."""


class FailurePolicy:
    """Stops a run after its first failure.

    :param wait_s: seconds that whoever watches has to decide otherwise
    :param stop: stops the run, for a reason
    :param stopping: whether somebody has asked for a stop already
    :param clock: unix seconds, and those of a clock that nobody sets
    """

    def __init__(
        self,
        model: RunModel,
        wait_s: float,
        *,
        stop: Callable[[str], Awaitable[None]],
        stopping: Callable[[], bool],
        clock: Callable[[], tuple[float, float]] | None = None,
    ) -> None:
        self._model = model
        self._wait_s = wait_s
        self._stop = stop
        self._stopping = stopping
        self._clock = clock or _now
        self._gaps = Gaps()
        self._unheld = ""
        """Why a supervisor stops its ranks by itself: what it depended on is gone."""
        self.stops_at: float | None = None
        """When the run will be stopped (unix seconds); None: it will not."""

    def stopped(self, node: str, fact: StopRequested) -> None:
        """The ranks of a node were told to stop."""
        if fact.by == "supervisor":
            self._unheld = f"{node}: {fact.reason}"

    async def mind(self) -> None:
        """Watch for the first failure until the run is over, stopped, or the policy set aside.

        The time to decide begins when a person could have seen the failure: not while nobody watched, the
        link was lost or this machine slept; whoever comes back to a run that failed long ago has all of it.
        """
        seen: float | None = None
        while not self._model.over:
            at, ticks = self._clock()
            if self._gaps.since_last(at, ticks):
                seen = None
            if self._unheld and not self._stopping():
                await self._stop(self._unheld)
            first = self._model.recorded_failure()
            if first is None:
                seen = None
                await asyncio.sleep(_LOOK_S)
                continue
            seen = ticks if seen is None else seen
            left_s = seen + self._wait_s - ticks
            self.stops_at = None if self._model.rest_kept or self._stopping() else at + left_s
            if self._model.rest_kept:
                return
            if left_s > 0:
                await asyncio.sleep(min(_LOOK_S, self._wait_s))
                continue
            self.stops_at = None
            if not self._stopping():
                await self._stop(f"rank {first.rank} on {first.node} {how(first)}")
            return
        self.stops_at = None


def _now() -> tuple[float, float]:
    """Unix seconds, and those of a clock that nobody sets."""
    return time.time(), time.monotonic()
