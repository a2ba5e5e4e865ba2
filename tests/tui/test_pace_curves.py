"""The curves above the map and what is said above it: they stay, they fit, they say the same as the map."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cockpit.core.logs.metrics import Metrics
from cockpit.core.pace.heat import Heat, Window
from cockpit.core.pace.pace import Pace
from cockpit.tui.pace.curves import beside
from cockpit.tui.pace.lines import LEAST_S, lines_at_most, pace_lines
from cockpit.tui.pace.map_lines import CELL, HALF
from cockpit.tui.pace.view_model import WHOLE, Frame, Sight
from cockpit.tui.panes.text_pane import Line, Piece
from tests.tui.test_pace import START, drawn, run, sight


def logged(pace: Pace, steps: int = 60) -> Metrics:
    metrics = Metrics()
    for step in range(steps):
        speed = 3_080_000 if step < 30 else 2_050_000
        text = f"step {step}/900 loss {3 - step / 100} lr 1e-4 tokens/s {speed}\n"
        metrics.feed(0, text.encode(), START + 2.0 * step)
    return metrics


def part(line: Line, roles: tuple[str, ...] = ("spark", "pace-slow")) -> str:
    return "".join(piece.text if piece.role in roles else " " * len(piece.text) for piece in line.pieces)


def curve_of(seen: Sight, name: str, height: int = 40) -> list[Line]:
    lines = list(pace_lines(seen, Heat(), 100, height))
    first = next(at for at, line in enumerate(lines) if line.text.startswith(f" {name}"))
    return lines[first : first + 2]


def test_between_two_looks_at_recorders_the_work_curve_goes_on_as_the_map_does() -> None:
    pace = run(16, slow=13)
    told = sum(part(line).count("⠀") + len(part(line).strip()) for line in curve_of(sight(pace, 2), "work"))
    for step in range(60, 90):  # nobody has looked since
        for rank in range(16):
            pace.stepped(rank, step, START + 2.0 * step)
    later = replace(sight(pace, 2), now=START + 179)
    lines = curve_of(later, "work")
    assert sum(len(part(line).strip()) for line in lines) >= told
    end = max(len(part(line).rstrip()) for line in lines)
    cells = next(line for line in pace_lines(later, Heat(), 100, 40) if "gpu000" in line.text)
    assert end >= len(cells.text[: cells.text.rindex(CELL)]) - 1, "up to the right edge of the map"


def test_a_curve_with_nothing_to_draw_takes_no_lines() -> None:
    pace = run(16, 12)
    metrics = logged(pace)
    seen = replace(sight(pace, 2), metrics=metrics)
    for now, names in ((START + 30, ["loss", "work", "tokens/s"]), (START + 10_000, [])):
        shown = drawn(replace(seen, now=now, stretch=600.0), 100, 30)
        assert [line.split()[0] for line in shown if line[1:5] in ("loss", "work", "toke")] == names
        assert any("gpu000" in line for line in shown)


def test_beside_work_it_is_said_how_long_a_step_takes() -> None:
    assert any("2.00 s median, 2.00 s a step" in line for line in drawn(sight(run(16, slow=13), 2)))


@pytest.mark.parametrize("stalled", [False, True])
def test_spare_lines_of_a_low_pane_are_for_curves(stalled: bool) -> None:
    pace = run(16, slow=13)
    seen = replace(sight(pace, 2), metrics=logged(pace), stalled=stalled)
    low = drawn(seen, 100, 23)
    assert [line.split()[0] for line in low if line[1:5] in ("loss", "work", "toke")] == [
        "loss", "work", "tokens/s",
    ]  # fmt: skip
    assert any(line.split()[:1] == ["13"] for line in low)
    assert not any(line.startswith(" tokens") for line in drawn(seen, 100, 14))
    assert len(drawn(seen, 100, 14)) <= 14


def test_a_low_pane_gives_its_curve_a_line_rather_than_fold_nodes() -> None:
    shown = drawn(sight(run(64, slow=13), 8), 74, 12)
    assert [line[1:7] for line in shown if "gpu" in line] == [f"gpu00{node}" for node in range(8)]
    assert any("2.94 s" in line or "3.00 s" in line for line in shown[:1])


@pytest.mark.parametrize("stalled", [False, True])
def test_zoomed_all_of_64_ranks_are_there_two_a_line(stalled: bool) -> None:
    pace = run(64, slow=13)
    seen = replace(sight(pace, 8, every=True), metrics=logged(pace), stalled=stalled)
    for height in (36, 41):
        shown = drawn(seen, 135, height)
        assert len(shown) <= height
        assert sum(HALF in line for line in shown) >= 31
        (slow,) = [line for line in shown if line.split()[:1] == ["13"] and "59" in line]
        assert HALF not in slow


def test_half_of_1024_ranks_are_slow_and_the_axis_is_on_the_screen() -> None:
    pace = Pace(range(1024))
    for step in range(12):
        for rank in range(1024):
            pace.stepped(rank, step, START + 2.0 * step)
            pace.worked(rank, step, 3.0 if rank % 4 == 0 or rank % 7 == 0 else 2.0)
    seen = replace(sight(pace, 128), now=START + 24)
    many = len(pace.slow())
    for width, height in ((88, 26), (74, 12)):
        shown = drawn(seen, width, height)
        assert len(shown) <= height
        assert shown[-1].rstrip().endswith("now")
        assert any(f"{many} ranks slow" in line for line in shown)
        assert not any("slows" in line for line in shown)


def checkpointed(ranks: int, nodes: int) -> Sight:
    """Rank 13 is slow since before the window; step 150 began 11 s late."""
    pace, at = Pace(range(ranks)), START
    saves = []
    for step in range(160):
        saves += [at + 0.5] if step == 150 else []
        at += 2.0 + 11.0 * (step == 150)
        for rank in range(ranks):
            pace.stepped(rank, step, at)
            pace.worked(rank, step, 3.0 if rank == 13 and step >= 20 else 2.0)
    return replace(sight(pace, nodes, saves=saves), now=at)


@pytest.mark.few(1)
@pytest.mark.parametrize(("ranks", "nodes"), [(16, 2), (1024, 128)])
@pytest.mark.parametrize(("width", "height"), [(88, 26), (74, 12)])
def test_a_checkpoint_keeps_its_name_beside_who_is_slow(
    ranks: int, nodes: int, width: int, height: int
) -> None:
    text = "\n".join(drawn(checkpointed(ranks, nodes), width, height))
    assert "checkpoint" in text
    assert "\N{BLACK LEFT-POINTING SMALL TRIANGLE} 13" in text or "rank 13 slow" in text


@pytest.mark.parametrize(("ranks", "nodes", "least"), [(64, 8, 39), (1024, 128, 28)])
def test_the_map_has_about_half_of_a_pane(ranks: int, nodes: int, least: int) -> None:
    shown = drawn(sight(run(ranks, 12, slow=13, since=0), nodes), 88, 26)
    assert max(line.count(CELL) for line in shown) >= least


def test_a_run_that_is_over_has_no_now_and_nothing_gets_older() -> None:
    seen = sight(run(16, slow=13), 2)
    assert any(line.rstrip().endswith("now") for line in drawn(seen))
    over = drawn(replace(seen, ended=True))
    assert not any("now" in line for line in over)
    (row,) = [line for line in over if "+50 %" in line]
    assert row.split()[-7:] == ["59", "+1.00", "s", "3.00", "s", "+50", "%"]


@pytest.mark.parametrize("steps", [40, 90, 333, 1000])
def test_the_whole_run_takes_the_whole_width(steps: int) -> None:
    pace = run(16, steps, slow=13)
    seen = replace(sight(pace, 2, stretch=WHOLE), now=START + 2.0 * steps)
    (row,) = [line for line in drawn(seen) if "gpu000" in line]
    first, last = row.index(CELL), row.rindex(CELL)
    columns = last - first + 1
    widest = row.index("0-7") + len("0-7 ")
    assert first - widest <= 1 + columns // 40
    assert row.count(CELL) == columns


def test_before_the_first_step_nothing_is_drawn() -> None:
    pace = Pace(range(16))
    for step in range(5):
        for rank in range(16):
            pace.stepped(rank, step, START + 0.3 * step)
    (row,) = [line for line in drawn(replace(sight(pace, 2), now=START + 1.2)) if "gpu000" in line]
    assert 1.5 / LEAST_S <= row.count(CELL) <= 1.5 / LEAST_S + 1, row


@pytest.mark.parametrize("every", [False, True])
def test_a_pane_is_as_high_as_what_it_draws_while_the_run_stands_still(every: bool) -> None:
    pace = run(16)
    seen = replace(sight(pace, 8, every=every), metrics=logged(pace), stalled=True, missing=frozenset([13]))
    for now in (START + 119, START + 10_000):
        still = replace(seen, now=now, stretch=600.0)
        assert lines_at_most(still, 90) == len(drawn(still, 90, 60)), "of a high pane no row stays empty"
        for height in range(3, 40):
            shown = drawn(still, 90, height)
            names = [at for at, line in enumerate(shown) if line[1:5] in ("loss", "work", "toke")]
            assert not names or now == START + 119, "a curve without anything to draw"


@pytest.mark.parametrize(("room", "shown"), [(21, [" 5.1k until step 1,169"]), (18, [])])
def test_a_number_beside_a_curve_is_whole_or_not_there(room: int, shown: list[str]) -> None:
    frame = Frame(8, Window(START, 1.0, 40), {"all": room + 1}, "", False)
    assert [piece.text for piece in beside([(Piece(" 5.1k until step 1,169"),)], 0, frame)] == shown
