"""Pauses between steps: those that ranks made, and not those of whoever reads their logs."""

from __future__ import annotations

import pytest

from cockpit.core.pace.pace import Pace
from cockpit.core.pace.pauses import pauses

START = 1_800_000_000.0


def logged(ends: list[float]) -> Pace:
    pace = Pace(range(2))
    for step, end in enumerate(ends):
        for rank in range(2):
            pace.stepped(rank, step, START + end, exact=False)
    return pace


STEADY = [0.5 * step for step in range(30)]
"""Ends of steps, seconds."""


SINCE = [27.0 + 0.5 * step for step in range(60)]
"""The same after 12 seconds in which 24 more were made."""


@pytest.mark.parametrize(
    ("after", "found"),
    [
        ([14.5 + 12.0 + 0.5 * step for step in range(60)], 1),  # the ranks had stopped
        ([14.5 + 12.0 + 0.01 * step for step in range(24)] + SINCE, 0),  # nobody had read
    ],
)
def test_steps_that_come_all_at_once_were_only_read_late(after: list[float], found: int) -> None:
    assert len(list(pauses(logged(STEADY + after), (), START))) == found


def test_what_ranks_noted_themselves_is_a_pause_whatever_comes_after_it() -> None:
    pace = Pace(range(2))
    for step, end in enumerate([*STEADY, 26.5, *(26.5 + 0.01 * step for step in range(1, 6))]):
        for rank in range(2):
            pace.stepped(rank, step, START + end, span=0.01 if end > 26.5 else 12.0 if end == 26.5 else 0.5)
    assert len(list(pauses(pace, (), START))) == 1
