"""Composed ends: the first rank and its cause are right in at least so many of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.ends.composed import plays, score, scores

RIGHT, ALIKE = 0.95, 1.0
"""Shares: of the first rank and its cause; of plays in which all that is told names the same."""


@pytest.mark.slow
def test_who_broke_first_and_why(tmp_path: Path) -> None:
    found = list(scores(24, 240, tmp_path))
    wrong = [one.line for one in found if not one.right]
    assert len(wrong) <= (1 - RIGHT) * len(found), wrong
    apart = [one.line for one in found if not one.one]
    assert len(apart) <= (1 - ALIKE) * len(found), apart


def test_plays_are_alike_for_one_seed() -> None:
    assert plays(7, 60) == plays(7, 60)
    assert plays(7, 60) != plays(8, 60)


def test_what_is_printed_after_a_cause_hides_it_of_no_rank(tmp_path: Path) -> None:
    found = [replace(play, flood=True) for play in plays(11, 120) if play.family == "never ends"]
    assert [one.line for play in found if not (one := score(play, tmp_path / "run")).right] == []
