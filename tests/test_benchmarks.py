"""The page of benchmark results: made-up numbers in, Markdown out."""

from __future__ import annotations

import pytest

from benchmarks.table import Figure, Level, Result, compared, number, page, render


def result(name: str, *figures: Figure, levels: tuple[Level, ...] = ()) -> Result:
    return Result(name, "a title", {"cockpit": "ours", "other": "theirs"}, figures, levels)


def test_ratios_are_taken_round_by_round() -> None:
    figure = Figure("wall", [2.0, 30.0, 4.0], [1.0, 10.0, 8.0])
    assert figure.ratios == [2.0, 3.0, 0.5]


def test_sides_with_unequal_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        _ = Figure("wall", [1.0, 2.0], [1.0]).ratios


@pytest.mark.parametrize(
    ("aim", "at_least", "met"),
    [(1.0, False, False), (2.0, False, True), (1.0, True, True), (2.1, True, False)],
)
def test_aim(aim: float, at_least: bool, met: bool) -> None:
    assert Figure("", [2.0], [1.0], aim=aim, at_least=at_least).met is met


def test_row_shows_medians_spread_and_verdict() -> None:
    text = render(
        result("one", Figure("wall", [1.0, 2.0, 3.0], [2.0, 2.0, 2.0], aim=0.5, missing="a miracle")), "now"
    )
    assert "| wall | 2.00 s | 2.00 s | **1.00** (0.5 … 1.50) | 3 | ≤ 0.5 | missed |" in text
    assert "- Missed (wall): a miracle" in text
    assert "- other: `theirs`" in text


def test_nothing_is_said_of_an_aim_that_is_met() -> None:
    text = render(result("one", levels=(Level("memory", [7.5, 8.5, 9.5], "MB", 10, "less code"),)), "now")
    assert "| memory | **8.50 MB** (7.50 … 9.50) | ≤ 10.0 MB | met |" in text
    assert "less code" not in text


def test_page_replaces_sections_and_keeps_the_others() -> None:
    first = page("", "# Head", {"a": render(result("a"), "monday"), "b": render(result("b"), "monday")})
    second = page(first, "# Head", {"a": render(result("a"), "tuesday")})
    assert second.count("monday") == 1
    assert second.index("## a:") < second.index("tuesday") < second.index("## b:") < second.index("monday")
    assert page(second, "# Head", {}) == second


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.5, "1234"),
        (123.0, "123"),
        (12.34, "12.3"),
        (1.0, "1.00"),
        (0.123, "0.123"),
        (0.2, "0.2"),
        (0, "0"),
    ],
)
def test_number(value: float, text: str) -> None:
    assert number(value) == text


def test_new_figures_stand_beside_the_recorded_ones() -> None:
    one = result(
        "one", Figure("wall (64)", [1.0], [2.0], aim=0.6), levels=(Level("memory", [80.0], "MB", 96.0),)
    )
    other = result("other", Figure("wall (64)", [3.0], [2.0]))
    old = page("", "# Results", {"one": render(one, "then")})
    now = result(
        "one", Figure("wall (64)", [2.0], [2.0], aim=0.6), levels=(Level("memory", [70.0], "MB", 96.0),)
    )
    lines = compared([now, other], old).splitlines()
    assert "| one | wall (64) | **1.00** | 0.5 | ≤ 0.6 | missed |" in lines
    assert "| one | memory | **70.0 MB** | 80.0 MB | ≤ 96.0 MB | met |" in lines
    assert "| other | wall (64) | **1.50** | – | – |  |" in lines
