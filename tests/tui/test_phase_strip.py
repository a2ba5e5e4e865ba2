"""Phases of steps as strips and stacks: above the log, beside the map, in Detail of a rank."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.core.logs.metrics import Metrics
from cockpit.core.pace.heat import Heat
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.phases import NAMES, Phases, Reason
from cockpit.tui.pace.lines import pace_lines
from cockpit.tui.pace.map_lines import CELL
from cockpit.tui.pace.phase_strip import (
    LETTERS,
    STRIP,
    legend,
    numbers,
    row_phases,
    shared_out,
    stacked,
    strip,
)
from cockpit.tui.pace.strip import strip_lines
from cockpit.tui.pace.view_model import WHOLE, Sight
from cockpit.tui.panes.text_pane import Line, Piece
from tests.tui.stage import NOW

KNOWN = Phases(0.05, 0.52, 0.88, 0.12, 0.37, 0.06)
WITHOUT_WAIT = KNOWN._replace(wait=math.nan)

some_phases = st.builds(Phases, *[st.one_of(st.just(math.nan), st.floats(0, 1e4)) for _ in NAMES])


@given(of=some_phases, cells=st.integers(0, 200))
def test_cells_sum_to_the_width_and_what_is_not_known_has_none(of: Phases, cells: int) -> None:
    names = shared_out(of, cells)
    known = {name for name, took in zip(NAMES, of, strict=True) if took > 0}
    assert len(names) == (cells if of.total > 0 else 0)
    assert set(names) <= known
    assert names == sorted(names, key=NAMES.index)
    for name, took in zip(NAMES, of, strict=True):
        share = cells * took / of.total if name in known else 0
        assert names.count(name) == pytest.approx(share, abs=1)


@given(of=st.one_of(st.none(), some_phases), width=st.integers(1, 100), letters=st.booleans())
def test_a_strip_is_as_wide_as_asked(of: Phases | None, width: int, letters: bool) -> None:
    text = "".join(piece.text for piece in strip(of, width, letters=letters))
    assert len(text) == width
    assert not letters or set(text) <= {" ", *LETTERS.values()}


def test_a_strip_has_the_colour_of_each_phase_and_letters_where_colours_do_not_tell() -> None:
    assert strip(KNOWN, 10, letters=False) == [
        Piece("███", "phase-forward"),
        Piece("████", "phase-backward"),
        Piece("█", "phase-update"),
        Piece("██", "phase-wait"),
    ]
    text = "".join(piece.text for piece in strip(KNOWN, 40, letters=True))
    assert text == "iffffffffffbbbbbbbbbbbbbbbbbbuuuwwwwwww."
    assert strip(None, 4, letters=True) == [Piece("    ")]


@given(of=some_phases, high=st.integers(1, 40), tall=st.integers(2, 5))
def test_a_stack_fills_as_many_lines_as_its_bar(of: Phases, high: int, tall: int) -> None:
    names = shared_out(of, min(high, 8 * tall))
    cells = [stacked(names, line, letters=False) for line in range(tall)]
    full, rest = divmod(len(names), 8)
    for line, (sign, role) in enumerate(cells):
        assert (sign == " ") == (line > full or (line == full and not rest))
        here = names[8 * line : 8 * line + 8]
        assert set(role.replace("phase-", "").split("/")) <= {"", *here}
        if here and len(here) < 8:
            assert sign == "▁▂▃▄▅▆▇"[len(here) - 1], "its upper end is as high as the step was long"


def test_where_two_phases_meet_in_a_line_both_are_seen() -> None:
    names = ["forward"] * 3 + ["backward"] * 5
    assert stacked(names, 0, letters=False) == ("▃", "phase-forward/phase-backward")
    assert stacked(names, 0, letters=True) == ("b", "phase-backward")
    three = ["input", *["forward"] * 3, *["backward"] * 4]
    assert stacked(three, 0, letters=False) == ("▃", "phase-forward/phase-backward")


def test_numbers_are_in_two_lines_of_what_is_known() -> None:
    def said(of: Phases, about: str = "") -> list[list[str]]:
        return [[piece.text for piece in half] for half in numbers(of, about)]

    assert said(KNOWN) == [["input 0.05", "fwd 0.52", "bwd 0.88"], ["update 0.12", "wait 0.37", "other 0.06"]]
    assert said(WITHOUT_WAIT, "~")[1] == ["update ~0.12", "other ~0.06"]
    short = Phases(0.004, 0.02, 0.03, 0.001, math.nan, 0.0)
    assert said(short) == [["input 0.004", "fwd 0.020", "bwd 0.030"], ["update 0.001", "other 0.000"]]
    roles = {piece.text.split()[0]: piece.role for half in numbers(KNOWN, "") for piece in half}
    assert roles["fwd"] == "phase-forward"
    assert (roles["wait"], roles["other"]) == ("", "label"), "their cells are too dark for a text"


def test_a_legend_has_the_largest_in_their_order() -> None:
    def said(lines: int, about: str = "") -> list[str]:
        found = legend(KNOWN, lines, about, letters=False)
        return ["".join(piece.text for piece in line) for line in found]

    assert said(9)[:2] == ["  ■ input      2 %", "  ■ forward   26 %"], 'apart from "now" beside them'
    assert [line.split()[1] for line in said(3)] == ["forward", "backward", "wait"]
    assert said(1, "~") == ["  ■ backward ~44 %"]
    assert said(0) == []


def test_on_gpus_seconds_are_those_of_cpus() -> None:
    assert Reason("input", 1.02, 0.05).text == "input 1.02 s, others 0.05 s"
    assert Reason("input", 0.0521, 0.001, about="~").text == "input ~0.052 s, others ~0.001 s"


# Above the log, and beside the map


def sight(phased: range, *, works: bool = False, slow: bool = False, ranks: int = 4) -> Sight:
    """Ranks that have done 200 steps of 2 s, and told phases of some; rank 3 may wait for its input."""
    pace, at = Pace(range(ranks)), NOW - 400.0
    for step in range(1, 201):
        at += 2.0
        for rank in range(ranks):
            late = 0.9 if slow and rank == 3 else 0.0
            phases = (0.1 + late, 0.4, 1.4 - late, 0.1) if step in phased else ()
            pace.stepped(rank, step, at, phases=phases)
            if works:
                pace.worked(rank, step, 2.0 if late else 1.1)
    names = {f"gpu{node}": range(node * 2, node * 2 + 2) for node in range(ranks // 2)}
    return Sight(pace, Metrics(), names, at, stretch=WHOLE, tall=11)


ALL, NEVER = range(1, 201), range(0)


def above(of: Sight, height: int = 11, width: int = 90) -> list[Line]:
    return [*strip_lines(of, width, height)]


def roles(lines: list[Line]) -> set[str]:
    return {part for line in lines for piece in line.pieces for part in piece.role.split("/")}


def test_bars_above_the_log_are_stacked_by_phase() -> None:
    lines = above(sight(ALL))
    texts = [line.text for line in lines]
    assert texts[0].rstrip().endswith(" 2.00 s median")
    assert texts[1].startswith(" step ")
    assert [line.text[72:].split()[:2] for line in lines[1:5]] == [
        ["■", "input"],
        ["■", "forward"],
        ["■", "backward"],
        ["■", "update"],
    ]
    assert texts[-1] == " steps alike within 1 %", "nobody knows how long ranks wait for each other"
    bottom, top = lines[-3], lines[1]
    assert "phase-input" in roles([bottom])
    assert "phase-update" in roles([top])
    assert not {"pace-1", "phase-wait"} & roles(lines), "recorders were not looked at"


def test_columns_of_steps_without_phases_keep_their_bar() -> None:
    bars = above(sight(range(101, 201)))[1:-2]
    for line in bars:
        drawn = [(piece.role, len(piece.text)) for piece in line.pieces if piece.role.startswith("p")]
        assert drawn[0][0] == "pace-1"
        assert drawn[0][1] == pytest.approx(30, abs=3)
        assert {role.split("-")[0] for role, _ in drawn[1:]} == {"phase"}


def test_a_step_that_began_late_is_passed_over() -> None:
    pace, at = Pace(range(2)), NOW - 520.0
    for step in range(1, 201):
        at += 2.0 + 6.0 * (step % 10 == 0)
        for rank in range(2):
            pace.stepped(rank, step, at, phases=(0.1 + 6.0 * (step % 10 == 0), 0.4, 1.4, 0.1))
    few = Sight(pace, Metrics(), {"a": range(2)}, at, stretch=WHOLE, tall=11)
    lines = above(few, width=50)
    assert lines[2].text.startswith(" 2.00 s"), "no bar is higher than a usual step"
    assert "pace-1" not in roles(lines)


def test_without_phases_and_in_one_line_all_is_plain() -> None:
    for lines in (above(sight(NEVER)), above(sight(ALL), 1)):
        assert "pace-1" in roles(lines)
        assert not any(role.startswith("phase-") for role in roles(lines))
    assert above(sight(NEVER))[-1].text == " steps alike within 1 %", "how long one takes is beside the bars"
    said = above(sight(ALL, works=True), 3)[-1].text
    assert said == " 2.00 s a step; wait-bound: ranks wait 45 % of a step for each other"


def test_a_slow_rank_is_said_with_the_phase_that_makes_it_so() -> None:
    lines = above(sight(ALL, works=True, slow=True))
    assert lines[-1].text == " rank 3 works 82 % longer since step 1: input 1.00 s, others 0.10 s"
    assert "2.00 s slowest" in lines[1].text
    assert "phase-wait" in roles(lines)


@pytest.mark.parametrize("more", [{"ascii_only": True}, {"plain": True}])
def test_letters_where_colours_do_not_tell(more: dict[str, bool]) -> None:
    seen = replace(sight(ALL), **more)  # type: ignore[arg-type]
    cells = "".join(line.text[11:72] for line in above(seen)[1:-2])
    assert set(cells) - {" "} == {"f", "b"}
    table = "\n".join(line.text for line in pace_lines(seen, Heat(), 100, 30))
    assert "ffbbbbbbbu" in table or "iffbbbbbbb" in table
    if "ascii_only" in more:
        assert table.isascii()


def test_on_gpus_numbers_above_the_log_are_rough() -> None:
    seen = sight(ALL, works=True)
    seen.pace.gpus = True
    texts = [line.text for line in above(seen)]
    assert any(text.endswith(" ■ wait     ~45 %") for text in texts)
    assert texts[-1].startswith(" on its CPUs probably wait-bound: ranks wait 45 % of a step for each other")


def beside(of: Sight, width: int) -> list[Line]:
    """The rows of the map, and what is above them."""
    return [line for line in pace_lines(of, Heat(), width, 30) if "age" in line.text or "gpu" in line.text]


def test_beside_the_map_each_row_has_its_strip() -> None:
    heading, *rows = beside(sight(ALL, works=True, slow=True), 100)
    assert heading.text.split()[-1] == "phases"
    assert heading.text.index("phases") == 100 - STRIP
    for row in rows:
        cells = [piece for piece in row.pieces if piece.role.startswith("phase-")]
        assert sum(len(piece.text) for piece in cells) == STRIP
        assert {sign for piece in cells for sign in piece.text} == {CELL}


@pytest.mark.parametrize(
    ("phased", "width", "there"), [(ALL, 90, True), (ALL, 60, False), (NEVER, 200, False)]
)
def test_the_column_is_there_where_there_is_room_and_something_known(
    phased: range, width: int, there: bool
) -> None:
    lines = beside(sight(phased), width)
    assert ("phases" in lines[0].text) == there
    assert max(len(line.text) for line in lines) <= width


def test_a_row_of_many_ranks_has_their_median() -> None:
    pace = sight(ALL, works=True, slow=True, ranks=64).pace
    alone = row_phases(pace, [0])
    assert alone is not None
    assert row_phases(pace, range(64)) == pytest.approx(alone, abs=0.02)
    slow = row_phases(pace, [3])
    assert slow is not None
    assert slow.input > 5 * alone.input
    assert row_phases(pace, [1_000]) is None, "nobody knows of it"
