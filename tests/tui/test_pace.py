"""The pane of ranks × time: every size, whatever is in it."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from cockpit.core.logs.metrics import Metrics
from cockpit.core.pace.heat import Heat, Window
from cockpit.core.pace.pace import Pace, RankPace
from cockpit.core.pace.rows import Row, pairs
from cockpit.core.recorder.counts import Count
from cockpit.tui.look.spark import curve
from cockpit.tui.pace.lines import EMPTY, pace_lines
from cockpit.tui.pace.map_lines import ASCII_SHADES, CELL, HALF, SHADES, Levels, cells
from cockpit.tui.pace.marks import Mark, Note, placed, slowing
from cockpit.tui.pace.table import COLUMNS, SHOWN, RowValues, columns_for, table, told
from cockpit.tui.pace.view_model import STRETCHES, Frame, Sight
from cockpit.tui.panes.text_pane import Line, LinesLater

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


def signed(ranks: int, *, recorders: bool) -> Pace:
    """Nobody tells steps; rank 5 is not where the others are, and of rank 1 nothing is known."""
    pace, now = Pace(range(ranks)), START + 119
    for rank in range(ranks):
        if recorders and rank != 1:
            last_us = round(1e6 * (now - (42 if rank == 5 else 20)))
            pace.signs.entered(rank, Count(900, last_us, 3 * (rank == 5), round(1e6 * now)), now)
        elif rank != 1:
            pace.signs.ran(rank, 1.0, 5, now - 60)
            pace.signs.ran(rank, 1.0 + (rank != 5), 5, now - 1)
    return pace


def test_without_steps_recorders_say_who_is_behind() -> None:
    shown = drawn(sight(signed(16, recorders=True), 2))
    assert shown[0].split() == ["age", "behind", "by"]
    (row,) = [line.split() for line in shown if line.split()[:1] == ["5"]]
    assert row == ["5", "~42", "s", "~3", "collectives", "recorder"]
    assert [line.split() for line in shown if "8-15" in line] == [["gpu001", "8-15", "~20", "s", "recorder"]]
    text = "\n".join(shown)
    assert "no step is known for ranks 0,2-15: age is since their last collective" in text
    assert "main thread" not in text


def test_without_recorders_main_threads_say_who_stands_still() -> None:
    shown = drawn(sight(signed(16, recorders=False), 2, every=True))
    rows = {line.split()[-5]: line.split() for line in shown if line.endswith("main thread")}
    assert len(rows) == 15
    (row,) = [line.split() for line in shown if line.split()[:1] == ["5"]]
    assert row == ["5", ">60", "s", "main", "thread"]
    assert [line.split() for line in shown if line.split()[:1] == ["1"]] == [["1"]], "nothing is known of it"
    assert "~<2 s" in shown[1]


@pytest.mark.parametrize("recorders", [True, False])
@pytest.mark.parametrize("width", range(30, 150, 9))
@pytest.mark.parametrize("height", [3, 6, 12, 24])
def test_signs_fit_into_any_pane(width: int, height: int, recorders: bool) -> None:
    for nodes, every in ((8, False), (2, True)):
        seen = sight(signed(16, recorders=recorders), nodes, every=every, ascii_only=True)
        shown = drawn(seen, width, height)
        assert max(map(cell_len, shown)) <= width
        assert len(shown) <= max(height, 1 + 16 if every else 5)
        assert all(line.isascii() for line in shown)


def test_once_a_step_is_known_there_is_a_map() -> None:
    pace = signed(16, recorders=True)
    pace.stepped(0, 1, START + 118)
    assert "recorder" not in "\n".join(drawn(sight(pace, 2)))


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
    def text(*marks: tuple[int, str]) -> str:
        return "".join(piece.text for piece in placed([Note([Mark(*mark)]) for mark in marks], 20))

    assert text((10, "13 slows"), (12, "no step"), (20, "no step")) == "  13 slows   no step"
    assert text((3, "too long"), (30, "outside")) == " " * 20


@pytest.mark.parametrize(
    "value", [0.0, 0.004, 9.94, 9.96, 99.4, 99.99, 100, 5969, 5999, 1e5, 356_000, 1e7, 1e12, 1e300]
)
def test_what_the_table_says_fits_in_it(value: float) -> None:
    said, noted = Pace([0]), Pace([0])
    for pace in (said, noted):
        pace.stepped(0, int(min(value, 1e12)), START, exact=pace is noted)
        columns = columns_for(200, pace) | {"lag": COLUMNS["lag"]}
        row = RowValues(int(value), value, value, int(value), value, pace is said, value, value)
        for some in (row, replace(row, steps_behind=0)):
            for name, piece in zip(columns, table(some, columns, stalled=True), strict=True):
                assert len(piece.text) == columns[name], (name, piece.text)
                assert piece.text.startswith(" "), (name, piece.text)


def test_no_note_has_more_words_before_each_has_those_it_needs() -> None:
    def text(columns: int) -> str:
        slow = Note([Mark(5, "< 500")], [Mark(22, "< 500 slow since 1,169"), Mark(10, "< 500 slow")])
        short, long = "checkpoint v", "checkpoint 11 s v"
        saved = Note([Mark(25, short)], [Mark(25, long), Mark(24 + len(long), "v checkpoint 11 s")])
        return "".join(piece.text for piece in placed([slow, saved], columns)).rstrip()

    assert text(29) == "< 500 slow   checkpoint v"
    assert text(44) == "< 500 slow since 1,169  v checkpoint 11 s"


def halves(seen: Sight, height: int) -> list[list[tuple[str, str]]]:
    """The cells of each line that two rows share, with their colours."""
    lines = pace_lines(seen, Heat(), 140, height)
    found = [[(piece.text, piece.role) for piece in line.pieces if HALF in piece.text] for line in lines]
    return [line for line in found if line]


def test_zoomed_a_row_for_each_rank_then_two_a_line() -> None:
    pace = run(32, slow=13)
    single = drawn(sight(pace, 4, every=True), 140, 50)
    assert sum(CELL in line for line in single) == 32
    assert not any(HALF in line for line in single)
    shown = drawn(sight(pace, 4, every=True), 140, 26)
    shared = [line for line in shown if HALF in line]
    assert len(shared) == 15, "the slow rank has its own line, and so has its neighbour"
    (slow,) = [line for line in shown if "+50 %" in line]
    assert slow.split()[0] == "13"
    assert HALF not in slow
    assert len(shown) <= 26


def test_two_ranks_of_one_line_keep_their_colours() -> None:
    """No room for the slow one alone: its half of the line is warm."""
    (line,) = [line for line in halves(sight(run(32, slow=13), 4, every=True), 18) if "/pace-4" in str(line)]
    assert {role for _, role in line} >= {"pace-1/pace-1", "pace-1/pace-4"}


@pytest.mark.parametrize("shades", ["plain", "ascii_only"])
def test_without_colours_no_two_rows_share_a_line(shades: str) -> None:
    assert not halves(sight(run(32), 4, every=True, **{shades: True}), 26)


@pytest.mark.parametrize("height", range(8, 45, 4))
def test_zoomed_runs_of_many_nodes_fold_and_nobody_is_left_out(height: int) -> None:
    pace = run(256, 12, slow=13, since=0)
    nodes = sight(pace, 64).nodes
    found = pairs(nodes, {13: 0}, height)
    assert [rank for pair in found for row in pair for rank in row.ranks if rank != 13] == [
        rank for rank in range(256) if rank != 13
    ]
    assert (13,) in [row.ranks for pair in found for row in pair]
    assert len(found) <= height
    assert len(drawn(sight(pace, 64, every=True), 140, height)) <= height


def test_steps_of_a_resumed_run_are_said_to_count_from_its_start() -> None:
    seen = sight(run(8), 1)
    for relative, said, shown in ((True, 5059, True), (True, 59, False), (False, 5059, False)):
        metrics = Metrics()
        metrics.feed(0, f"step {said}/9000 loss 2.0\n".encode(), START)
        seen.pace.relative = relative
        text = "\n".join(drawn(replace(seen, metrics=metrics)))
        assert ("since the program started" in text) == shown


def test_ranks_that_do_not_differ_share_what_is_drawn_of_them() -> None:
    """Drawn twice, the lines are the same, whatever was kept of the first time."""
    heat, pace = Heat(), run(64, slow=13)
    for every in (False, True, False):
        seen = sight(pace, 8, every=every)
        assert pace_lines(seen, heat, 100, 30) == pace_lines(seen, Heat(), 100, 30)
        pace.stepped(13, 60, START + 120, span=2.0)


def paused(saves: tuple[float, ...] = (), **more: object) -> list[str]:
    """Steps of 2 s; one began 11 s late, and rank 3 works longer from step 20 on."""
    pace, at = Pace(range(8)), START
    for step in range(60):
        at += 2.0 + 11.0 * (step == 50)
        for rank in range(8):
            pace.stepped(rank, step, at)
            pace.worked(rank, step, 3.0 if rank == 3 and step >= 20 else 2.0)
    return drawn(replace(sight(pace, 1, saves=saves, **more), now=at), 100)


def test_a_pause_is_a_checkpoint_if_the_log_named_one_then() -> None:
    """The last step before it ended at 100 s, and 11 s later the next one began."""
    for at, named in ((START + 101, True), (START + 112, True), (START + 60, False), (START + 118, False)):
        text = "\n".join(paused((at,)))
        assert ("checkpoint 11 s ▾" in text) == named
        assert ("no step 11 s ▾" in text) != named


def test_since_when_a_rank_is_slow_is_said_also_if_it_is_further_back() -> None:
    assert any("13 slows ▾" in line for line in drawn(sight(run(16, slow=13), 2)))
    seen = sight(run(16, 200, slow=13, since=40), 2)
    assert any("◂ rank 13 slow since step 40" in line for line in drawn(replace(seen, now=START + 400)))
    ascii_too = drawn(replace(seen, now=START + 400, ascii_only=True))
    assert any("< rank 13 slow since step 40" in line for line in ascii_too)


@pytest.mark.parametrize(("step", "text"), [(11, "▾ 13 slows"), (20, "13 slows ▾")])
def test_the_mark_is_in_the_column_in_which_it_began(step: int, text: str) -> None:
    pace = run(16, slow=13, since=step)
    frame = Frame(12, Window(START + 120, 2.0, 50), {"work": 7}, "", False)
    shown = "".join(piece.text for piece in placed(slowing(pace, frame), 50))
    said, end = shown.strip(), len(shown.rstrip())
    column = int((START + 2.0 * step - frame.window.since) // 2.0)
    assert said == text
    assert end - len(said) + said.index("▾") == column


@pytest.mark.parametrize("since", [0, 16])
def test_what_it_would_be_without_the_slow_rank(since: int) -> None:
    """Its step is 2 s, before it is slow 1.5 s; half a second of work less would be a quarter less."""
    pace = Pace(range(8))
    at = START
    for step in range(25):
        for rank in range(8):
            pace.stepped(rank, step, at)
            pace.worked(rank, step, 2.0 if rank == 3 and step >= since else 1.5)
        at += 2.0 if step + 1 >= since else 1.5
    seen = replace(sight(pace, 1, left=1200.0), now=at)
    lines = drawn(seen, 120)
    assert any("ETA 15 min 00 s without rank 3" in line for line in lines)
    assert any("1.50 s median, 2.00 s a step" in line for line in lines)
    for other in (replace(seen, left=None), replace(seen, stalled=True)):
        assert not any("without rank 3" in line for line in drawn(other, 120))


def test_how_many_tokens_a_second_it_was_until_a_rank_was_slow() -> None:
    pace, metrics = run(16, slow=13), Metrics()
    for step in range(60):
        speed = 41_000 if step < 30 else 28_000
        metrics.feed(0, f"step {step}/900 loss 2.0 lr 1e-4 tokens/s {speed}\n".encode(), START + 2.0 * step)
    shown = drawn(replace(sight(pace, 2), metrics=metrics))
    assert any("28.0 k" in line for line in shown)
    assert any("41.0 k until step 29" in line for line in shown)


def test_a_curve_goes_on_while_a_step_does_and_stops_where_none_does() -> None:
    lines = paused()
    (said,) = [at for at, line in enumerate(lines) if "median, 2.00 s a step" in line]
    curve_of = lines[said + 1].strip()
    assert 1 <= curve_of.count(" ") <= 6, curve_of
    assert len(curve_of.split()) == 2, "one gap, where no step went on"


@given(
    columns=st.lists(st.lists(st.integers(0, 5), min_size=6, max_size=6), min_size=1, max_size=30),
    places=st.sets(st.integers(0, 5)), shades=st.sampled_from(["", SHADES, ASCII_SHADES]),
)  # fmt: skip
def test_a_cell_has_the_highest_level_of_the_ranks_in_its_row(
    columns: list[list[int]], places: set[int], shades: str
) -> None:
    levels = Levels([bytes(column) for column in columns])(sorted(places))
    assert list(levels) == [max([column[place] for place in places], default=0) for column in columns]
    frame = Frame(12, Window(START, 1.0, len(columns)), {"work": 7}, shades, False)
    pieces = cells(levels, frame)
    assert all(left != right for left, right in pairwise(pieces)), "what is alike is one piece"
    shown = [(sign, piece.role) for piece in pieces for sign in piece.text]
    plain = [(shades[level], "") if shades else (CELL, f"pace-{level}") for level in levels]
    assert shown == plain


def test_only_lines_that_are_looked_at_are_made() -> None:
    made: list[int] = []

    def line(number: int) -> Line:
        made.append(number)
        return Line.of(str(number))

    lines = LinesLater([Line.of("head"), *(partial(line, number) for number in range(1000))])
    assert len(lines) == 1001
    assert [each.text for each in lines[:3]] == ["head", "0", "1"]
    assert lines[2].text == "1"
    assert made == [0, 1], "each once"
    assert lines == [Line.of("head"), *(Line.of(str(number)) for number in range(1000))]
    assert made == list(range(1000))


def test_node_ranges_are_whole_at_80_columns() -> None:
    shown = drawn(sight(run(1024, 12, slow=13, since=0), 128), 74, 14)
    assert any("gpu[110-127] 880-1023" in line for line in shown)
    assert not any("…" in line for line in shown)


def test_a_dead_rank_gets_no_older_and_no_further_behind() -> None:
    row = Row((), (0, 1))
    paces = {
        0: RankPace(step=9, at=100.0, behind_s=0.0),
        1: RankPace(step=4, at=50.0, behind=5, behind_s=3.0),
    }
    both, one = told(row, paces, {}, 110.0), told(row, paces, {}, 110.0, {1})
    assert (both.age, both.steps_behind, both.behind) == (60.0, 5, 3.0)
    assert (one.age, one.steps_behind, one.behind) == (10.0, 0, 0.0)
    assert (both.step, one.step) == (4, 9), "how far those are that go on"
    ended = told(row, paces, {}, 110.0, {0, 1})
    assert (ended.step, ended.age) == (4, None)


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("over", [False, True])
def test_the_rank_that_failed_has_a_row_with_its_sign(every: bool, over: bool) -> None:
    pace = Pace(range(16))
    for step in range(60):
        for rank in range(16):
            if rank != 15 or step < 20:
                pace.stepped(rank, step, START + 2.0 * step, exact=False)
    dead = frozenset(range(16) if over else [15])
    seen = sight(pace, 4, every=every, dead=dead, failed=15, ended=over)
    found = [line for line in pace_lines(seen, Heat(), 100, 30) if line.text.startswith("✖")]
    (row,) = [line.text.split() for line in found]
    assert (row[1], row[-1]) == ("15", "failed")
    assert "~19" in row
    assert [piece.role for piece in found[0].pieces if piece.role == "failed"] == ["failed"] * 3
    cells = [piece for piece in found[0].pieces if CELL in piece.text]
    assert cells[-1].role == "pace-0", "no step went on there"
    assert any(line.startswith("X") for line in drawn(replace(seen, ascii_only=True), 100, 30))
    assert any("~59" in line and "12-14" in line for line in drawn(replace(seen, every=False), 100, 7))


@pytest.mark.parametrize("stretch", STRETCHES)
@pytest.mark.parametrize("took", [0.5, 2.0])
def test_a_run_younger_than_what_would_be_shown_has_the_whole_width(
    stretch: float | None, took: float
) -> None:
    pace = Pace(range(4))
    for step in range(20):
        for rank in range(4):
            pace.stepped(rank, step, START + took * step, exact=False)
    now = START + took * 19 + 0.3
    seen = Sight(pace, Metrics(), {"gpu001": range(4)}, now, stretch=stretch)
    shown = drawn(seen, 160)
    (row,) = [line for line in shown if "gpu001" in line]
    (axis,) = [line for line in shown if line.endswith("now")]
    assert row.count(CELL) >= 0.85 * (len(axis) - row.index(CELL))
    assert min(axis.split()[:-1]) >= time.strftime("%H:%M:%S", time.localtime(START - took))
    assert ("whole run" in "".join(shown)) == (stretch is not None)


@pytest.mark.parametrize("standing", [50.0, 3000.0])
@pytest.mark.parametrize("height", [8, 40])
def test_the_last_steps_before_a_stall_stay_on_the_screen(standing: float, height: int) -> None:
    seen = replace(sight(run(8, 3000), 1), now=START + 5998 + standing, stalled=True)
    shown = drawn(seen, 80, height)
    (row,) = [line for line in shown if "gpu000" in line]
    assert any("no step" in line for line in shown)
    assert row.count(CELL) > 20
    text = replace(seen, plain=True)
    (row,) = [line for line in drawn(text, 80, height) if "gpu000" in line]
    assert row.count(SHADES[1]) >= 10
