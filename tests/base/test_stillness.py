"""The one detector: what is too long, what was ended by itself, when to look; and its page of constants."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from cockpit.base import stillness
from cockpit.base.stillness import AFTER_S, ASLEEP, BACKOFF_S, BEFORE, FIRST, Sign, Signs, Stillness

PAGE = Path(__file__).parents[2] / "docs/how-it-works.md"


@pytest.mark.parametrize(
    ("sign", "patience"),
    [
        (Sign("steps", 1, 0.0, 1.0), AFTER_S),
        (Sign("log", 1, 0.0, 20.0), stillness.STEPS * 20.0),
        (Sign("steps", 1, 0.0, None), FIRST * AFTER_S),
        (Sign("steps", 1, 0.0, None, 400.0), stillness.LONGEST * 400.0),
        (Sign("activity", 1, 0.0), ASLEEP * AFTER_S),
        (Sign("sleep", 1, 0.0), FIRST * AFTER_S),
    ],
)
def test_what_is_too_long(sign: Sign, patience: float) -> None:
    still = Stillness()
    still.take(1000.0, sign, begun=False)
    assert not still.is_overdue(1000.0 + patience, sign)
    assert still.is_overdue(1000.1 + patience, sign)
    assert not still.is_overdue(1e9, Sign()), "where nothing tells, nothing is too long"


def test_what_was_ended_by_itself() -> None:
    still = Stillness()
    still.take(0.0, Sign("steps", 1, 0.0), begun=False)
    still.take(50.0, Sign("steps", 2, 0.0))
    assert still.longest.seconds == 50.0
    assert not still.is_unusual(50 + BEFORE * 50)
    assert still.is_unusual(51 + BEFORE * 50)
    still.unknown()
    still.take(950.0, Sign("steps", 3, 0.0))
    assert still.longest.seconds == 50.0, "what happened meanwhile is not known"
    still.take(955.0, Sign("activity", 3, 0.0))
    assert still.longest.seconds == 50.0


def test_looks_back_off_and_are_counted() -> None:
    still = Stillness(most=3)
    still.begin(100.0)
    at = []
    for second in range(100, 3000):
        if still.is_due(second):
            still.looking()
            still.looked(second)
            at.append(second)
    assert [late - early for early, late in itertools.pairwise(at)] == list(BACKOFF_S[:2])
    assert still.enough
    still.end()
    still.begin(5000.0)
    assert not still.is_due(1e9)
    apart = Stillness(apart_s=600.0)
    apart.begin(0.0)
    apart.looking()
    apart.looked(5.0)
    apart.end()
    apart.begin(100.0)
    assert not apart.is_due(604.0)
    assert apart.is_due(605.0)


def test_what_the_signs_of_ranks_tell() -> None:
    signs = Signs()
    assert signs.activity(5.0) == Sign()
    for second in range(stillness.ACTIVE):
        assert signs.activity(0.0).source == ("sleep" if second else "")
        signs.worked(float(second), busy=True)
    assert signs.activity(10.0).source == "activity"
    assert signs.activity(10.0).age_s == 10.0 - (stillness.ACTIVE - 1)
    signs.spoke(9.0)
    assert signs.activity(10.0).age_s == 1.0
    for step in range(stillness.NEEDED):
        assert signs.usual_s is None
        signs.told(step, 10.0 * step)
    signs.told(stillness.NEEDED, 10.0 * stillness.NEEDED)
    signs.told(stillness.NEEDED, 999.0)
    assert signs.usual_s == 10.0
    signs.told(stillness.NEEDED + 1, 1000.0)
    assert signs.usual_s == 10.0
    signs.restarted()
    signs.told(3, 1.0)
    signs.told(19, 2.0)
    assert signs.usual_s == 1.0, "several lines in one read are at most that far apart"
    signs.restarted()
    assert [signs.usual_s, signs.said, signs.longest_s] == [None, None, 0.0]


def test_the_page_has_each_constant_as_it_is() -> None:
    rows: dict[str, str] = {}
    for line in PAGE.read_text().splitlines():
        if line.startswith("| `") and line.count("|") == 4:
            name, value = (cell.strip().strip("`") for cell in line.split("|")[1:3])
            rows[name] = value
    for name in vars(stillness):
        if name.isupper() and name != "NEVER":
            constant = getattr(stillness, name)
            values = constant if isinstance(constant, tuple) else (constant,)
            shown = ", ".join(f"{each:g}" for each in values)
            assert rows.get(name) == shown, name
