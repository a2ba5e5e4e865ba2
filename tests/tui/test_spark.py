"""Small plots made of characters."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.tui.look.spark import BLOCKS, STEPS, bar, sparkline

ANY = st.floats()


def test_the_last_values_from_the_lowest_to_the_highest() -> None:
    assert sparkline(list(range(20)), 8) == BLOCKS
    assert sparkline(list(range(20)), 8, ascii_only=True) == STEPS


def test_few_values_stand_on_the_right() -> None:
    assert sparkline([1, 2], 5) == "   ▁█"
    assert sparkline([], 3) == "   "
    assert sparkline([1, 2], 0) == ""


def test_what_does_not_change_is_flat() -> None:
    assert sparkline([7, 7, 7], 3) == "▁▁▁"


def test_bounds() -> None:
    assert sparkline([0, 50, 200], 3, low=0, high=100) == "▁▅█"


def test_what_is_no_number_is_left_out() -> None:
    assert sparkline([1, math.nan, 2, math.inf], 4) == "  ▁█"


@given(st.lists(ANY, max_size=40), st.integers(-2, 30), st.booleans())
def test_any_values_give_the_width(values: list[float], width: int, ascii_only: bool) -> None:
    text = sparkline(values, width, ascii_only=ascii_only)
    assert len(text) == max(0, width)
    assert set(text) <= set(STEPS if ascii_only else BLOCKS) | {" "}


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30))
def test_higher_values_are_never_lower(values: list[float]) -> None:
    text = sparkline(values, len(values))
    for (one, sign), (other, other_sign) in zip(
        zip(values, text, strict=True), zip(values[1:], text[1:], strict=True), strict=False
    ):
        if one < other:
            assert BLOCKS.index(sign) <= BLOCKS.index(other_sign)


@pytest.mark.parametrize(("part", "sign"), [(0, "▁"), (0.5, "▅"), (1, "█"), (-3, "▁"), (9, "█")])
def test_bar(part: float, sign: str) -> None:
    assert bar(part) == sign


@given(ANY, st.booleans())
def test_any_bar_is_one_character(part: float, ascii_only: bool) -> None:
    assert len(bar(part, ascii_only)) == 1
