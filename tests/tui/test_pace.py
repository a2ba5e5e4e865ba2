"""The pane of ranks × time: every size, whatever is in it."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from cockpit.core.logs.metrics import Metrics
from cockpit.core.pace.heat import Heat
from cockpit.core.pace.pace import Pace
from cockpit.tui.look.curve import curve
from cockpit.tui.pace.lines import EMPTY, STRETCHES, Sight, pace_lines
from cockpit.tui.pace.map_lines import ASCII_SHADES, CELL, SHADES, placed
from cockpit.tui.pace.table import COLUMNS, SHOWN, Told, table

START = 1_800_000_000.0


def run(ranks: int, steps: int = 60, *, slow: int | None = None, since: int = 30) -> Pace:
    pace = Pace(range(ranks))
    for step in range(steps):
        for rank in range(ranks):
            late = 1.0 if rank == slow and step >= since else 0.0
            pace.stepped(rank, step, START + 2.0 * step + late * (step == steps - 1))
            pace.worked(rank, step, 2.0 + late)
    return pace


def sight(pace: Pace, nodes: int, **more: object) -> Sight:
    each = len(pace.steps.ranks) // nodes
    names = {f"gpu{node:03d}": range(node * each, (node + 1) * each) for node in range(nodes)}
    return Sight(pace, Metrics(), names, START + 119, **more)  # type: ignore[arg-type]


def drawn(seen: Sight, width: int = 100, height: int = 40) -> list[str]:
    return [line.text for line in pace_lines(seen, Heat(), width, height)]


def test_an_empty_pane_says_where_steps_come_from() -> None:
    assert drawn(sight(Pace(range(4)), 2)) == list(EMPTY)


def test_the_slow_rank_has_a_row_with_its_step_age_lag_and_work() -> None:
    shown = drawn(sight(run(16, slow=13), 2))
    (row,) = [line for line in shown if "+50 %" in line]
    assert row.split()[0] == "13"
    assert row.split()[-9:] == ["59", "0.0", "s", "+1.00", "s", "3.00", "s", "+50", "%"]
    assert any("13 slows ▾" in line for line in shown)
    assert any("slowest, rank 13" in line for line in shown)
    (calm,) = [line for line in shown if "gpu000" in line]
    assert "0-7" in calm


@pytest.mark.parametrize("height", range(3, 12))
def test_a_low_pane_has_its_map_and_no_line_too_many(height: int) -> None:
    shown = drawn(sight(run(8), 1), 50, height)
    assert len(shown) <= height
    assert any("gpu000" in line for line in shown)


@pytest.mark.parametrize("height", [6, 40])
def test_a_node_that_has_no_ranks_has_no_row(height: int) -> None:
    seen = sight(run(16), 8)
    shown = drawn(replace(seen, nodes={"login": (), **seen.nodes}), height=height)
    assert any("gpu" in line for line in shown)
    assert not any("login" in line for line in shown)


def test_on_nccl_it_is_enqueue_lag_and_nobody_is_slow() -> None:
    pace = run(16, slow=13)
    pace.lag = True
    shown = drawn(sight(pace, 2))
    (row,) = [line for line in shown if "+50 %" in line]
    assert row.split()[-9:] == ["59", "0.0", "s", "+1.00", "s", "+1.00", "s", "+50", "%"]
    text = "\n".join(shown)
    assert "enqueue lag" in text
    assert "13 late ▾" in text
    assert "latest, rank 13" in text
    assert "slow" not in text
    assert "work" not in text
    assert "Next: a profile" in text
    for width in range(40, 200, 7):
        for height in (7, 8, 24):
            lines = drawn(sight(pace, 2), width, height)
            assert max(map(cell_len, lines)) <= width
            assert len(lines) <= height


@pytest.mark.parametrize(("stretch", "name"), [one for one in STRETCHES.items() if one[1]])
def test_the_whole_run_the_last_hour_and_the_last_minutes(stretch: float, name: str) -> None:
    pace = Pace(range(4))
    pace.steps.limit = 500
    for step in range(3 * 86400 // 60):
        for rank in range(4):
            pace.stepped(rank, step, START + 60.0 * step, span=60.0)
            pace.worked(rank, step, 9.0 if (rank, step) == (2, 700) else 6.0)
    now = pace.last_at or 0.0
    seen = Sight(pace, Metrics(), {"gpu001": range(4)}, now, stretch=stretch, plain=True)
    shown = drawn(seen)
    text = "\n".join(shown)
    assert name in text
    (row,) = [line for line in shown if line.startswith((" gpu001", "  gpu001"))]
    (axis,) = [line for line in shown if line.endswith("now")]
    if name == "whole run":
        assert SHADES[4] in row, "the step that was slow two days ago"
        assert axis.count("-") >= 2, "days stand before the times"
        assert row.count(SHADES[1]) > 20
    else:
        assert SHADES[4] not in row
        minutes = 10 if name == "last 10 min" else 60
        marks = [line for line in axis.split() if ":" in line]
        assert marks
        hours, left = (int(part) for part in marks[0].split(":")[:2])
        end = time.localtime(now)
        assert (60 * (end.tm_hour - hours) + end.tm_min - left) % 1440 <= minutes + 1
    for width in range(40, 200, 13):
        assert max(map(cell_len, drawn(seen, width))) <= width


def test_a_healthy_run_has_one_row_a_node_and_names_nobody() -> None:
    shown = drawn(sight(run(16), 2))
    assert sum("gpu0" in line for line in shown) == 2
    assert not any("slow" in line for line in shown)


@pytest.mark.parametrize("ascii_only", [False, True])
def test_without_colours_a_cell_says_how_slow_it_was(ascii_only: bool) -> None:
    shades = ASCII_SHADES if ascii_only else SHADES
    shown = drawn(sight(run(16, slow=13), 2, plain=True, ascii_only=ascii_only))
    (row,) = [line for line in shown if "+50 %" in line]
    assert shades[1] in row
    assert shades[4] in row
    assert CELL not in "".join(shown)
    if ascii_only:
        assert all(line.isascii() for line in shown)


@settings(max_examples=20, deadline=None)
@given(
    nodes=st.integers(1, 40), each=st.integers(1, 8), width=st.integers(40, 220), height=st.integers(6, 60),
    every=st.booleans(), slow=st.booleans(),
)  # fmt: skip
def test_no_line_is_wider_than_the_pane(
    nodes: int, each: int, width: int, height: int, every: bool, slow: bool
) -> None:
    pace = Pace(range(nodes * each))
    for step in range(12):
        for rank in pace.steps.ranks:
            pace.stepped(rank, step, START + 2.0 * step)
            pace.worked(rank, step, 3.0 if slow and rank == 0 else 2.0)
    lines = drawn(sight(pace, nodes, every=every), width, height)
    assert max(map(cell_len, lines)) <= width
    assert ("behind" in "".join(lines)) == (width >= SHOWN[0][0])


def test_names_that_do_not_fit_are_cut() -> None:
    pace = run(4)
    long = {"node-" + "x" * 200: (0, 1), "\u65e5\u672c" * 40: (2, 3)}
    shown = drawn(Sight(pace, Metrics(), long, START + 119))
    assert max(map(cell_len, shown)) <= 100
    assert any("node-xx" in line and "…" in line for line in shown)


def test_a_curve_goes_from_the_bottom_to_the_top() -> None:
    assert curve([0.0, 1.0, None, 3.0], 1, 0.0, 3.0) == ["⡠⠈"]
    assert curve([0.0, 4.0], 2, 0.0, 4.0) == ["⠈", "⡀"]
    assert curve([0.0, 1.0, 2.0, 3.0], 1, 0.0, 3.0, ascii_only=True) == ["-#"]
    assert curve([float("nan"), float("inf")], 1, 0.0, 1.0) == [" "]


@given(
    st.lists(st.one_of(st.none(), st.floats()), max_size=40), st.integers(1, 6), st.floats(), st.floats(),
    st.booleans(),
)  # fmt: skip
def test_any_values_make_a_curve_of_the_right_size(
    values: list[float | None], rows: int, low: float, high: float, ascii_only: bool
) -> None:
    lines = curve(values, rows, low, high, ascii_only=ascii_only)
    assert len(lines) == rows
    assert {len(line) for line in lines} == {(len(values) + 1) // 2}


def test_marks_that_would_overlap_are_left_out() -> None:
    assert placed([(10, "13 slows"), (12, "no step"), (20, "no step")], 20) == "  13 slows   no step"
    assert placed([(3, "too long"), (30, "outside")], 20) == " " * 20


@pytest.mark.parametrize(
    "value", [0.0, 0.004, 9.94, 9.96, 99.4, 99.99, 100, 5969, 5999, 1e5, 356_000, 1e7, 1e12, 1e300]
)
def test_what_the_table_says_fits_in_it(value: float) -> None:
    row = Told(int(value), value, value, int(value), value, True, value)
    for some in (row, replace(row, steps_behind=0)):
        for name, piece in zip(COLUMNS, table(some, tuple(COLUMNS), stalled=True), strict=True):
            assert len(piece.text) == COLUMNS[name], (name, piece.text)
            assert piece.text.startswith(" "), (name, piece.text)
