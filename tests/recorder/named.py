"""Whom the pace of a run names when it is told this work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cockpit.core.pace.pace import Pace
from cockpit.core.pace.slow import Slow
from cockpit.core.recorder.work import Work

STEP_S = 2.0


def slow(works: Iterable[Work], stages: Mapping[int, int] | None = None, *, lag: bool = False) -> list[Slow]:
    """Ranks that are slow; or, of a run on NCCL, those whose CPUs enqueue late.

    :param stages: the stage of each rank in a pipeline; None: all are in one
    """
    told = list(works)
    pace = Pace({one.rank for one in told})
    for one in sorted(told, key=lambda one: one.step):
        pace.stepped(one.rank, one.step, STEP_S * (one.step + 1))
        if one.us is not None:
            pace.worked(one.rank, one.step, one.us / 1e6)
    pace.steps.staged(stages or {})
    pace.lag = lag
    return pace.late() if lag else pace.slow()
