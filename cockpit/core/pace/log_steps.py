"""Steps that logs tell of: of ranks that do not note them themselves, and of a run that was resumed."""

from __future__ import annotations

from cockpit.core.logs.metrics import Metrics
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.reached import OFF


def resumed(pace: Pace, said: float | None) -> bool:
    """Whether ranks count their steps from the start of the program, and the log counts further.

    :param said: the last step that the log tells; None: it tells none
    """
    front = pace.front
    return pace.relative and said is not None and front is not None and said - front[0] > OFF


def run_step(pace: Pace, said: float | None) -> float | None:
    """The step that a run is at: what its ranks count, or, if that is from the program's start, its log says.

    :param said: the last step that the log tells; None: it tells none
    """
    return said if pace.front is None or (pace.relative and said is not None) else pace.front[0]


class SaidSteps:
    """Takes the steps that ranks print into a run's pace.

    :param pace: what a rank notes itself counts more there
    """

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._metrics = Metrics()
        self._last: dict[int, tuple[float, float | None]] = {}
        """The last step that each rank told, and in which epoch."""

    def read(self, rank: int, data: bytes, at: float) -> None:
        """Read new bytes of a rank's log.

        :param at: when they arrived, unix seconds
        """
        # Lines of a rank that has a probe need not be read for this.
        if not self._pace.notes(rank) and self._metrics.feed(rank, data, at):
            told = self._metrics.latest_of(rank)
            if told.step is None:
                return
            step, epoch = self._last.get(rank, (told.step, told.epoch))
            anew = told.epoch is not None and epoch is not None and told.epoch // 1 > epoch // 1
            if told.step != step or rank not in self._last:  # the head of an epoch comes before its steps
                self._last[rank] = told.step, told.epoch
            self._pace.stepped(rank, int(told.step), at, exact=False, anew=anew)
