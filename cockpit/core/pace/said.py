"""Steps that logs tell of, of ranks that do not note them themselves."""

from __future__ import annotations

from cockpit.core.logs.metrics import Metrics
from cockpit.core.pace.pace import Pace


class SaidSteps:
    """Takes the steps that ranks print into a run's pace.

    :param pace: what a rank notes itself counts more there
    """

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._metrics = Metrics()

    def read(self, rank: int, data: bytes, at: float) -> None:
        """Read new bytes of a rank's log.

        :param at: when they arrived, unix seconds
        """
        # Lines of a rank that has a probe need not be read for this.
        if not self._pace.notes(rank) and self._metrics.feed(rank, data, at):
            step = self._metrics.latest_of(rank).step
            if step is not None:
                self._pace.stepped(rank, int(step), at, exact=False)
