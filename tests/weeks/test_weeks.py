"""A few short days of the simulated weeks, and that what they check can be seen to fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from cockpit.base.events import Gap
from tests.weeks.__main__ import passed
from tests.weeks.story import Scale
from tests.weeks.truth import Truth


@pytest.mark.slow
def test_all_holds_in_some_short_days(tmp_path: Path) -> None:
    story, found = passed(tmp_path, Scale(days=5, day_s=1800.0, nodes=2))
    assert found == []
    assert story.step > 400
    assert any(isinstance(event.fact, Gap) for event in story.folder.journal())


@pytest.mark.parametrize(
    ("copy", "gaps", "what"),
    [
        (b"one two three", [], ""),
        (b"one three", [Gap("rank-0.log", 4, 4)], ""),
        (b"one three", [Gap("rank-0.log", 4, None)], ""),
        (b"one three", [], "bytes 0 to 9 of the copy were never printed in this order"),
        (b"one three", [Gap("rank-0.log", 4, 5)], "5 bytes are said to be missing before 4, and 4 are"),
        (b"two three", [], "the first 4 bytes are missing, and nothing says so"),
        (b"one two", [], "the last 6 bytes are missing"),
        (
            b"one three two",
            [Gap("rank-0.log", 4, None), Gap("rank-0.log", 9, None)],
            "bytes 9 to 13 of the copy were never printed in this order",
        ),
    ],
)
def test_a_copy_is_the_truth_or_says_what_it_lacks(
    tmp_path: Path, copy: bytes, gaps: list[Gap], what: str
) -> None:
    truth = Truth(tmp_path / "truth")
    truth.wrote(b"one two three")
    found = truth.wrong(copy, gaps)
    assert found.startswith(what) if what else not found
