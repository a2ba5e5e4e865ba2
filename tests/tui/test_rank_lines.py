"""Nodes and ranks alone on the screen: a line a rank, with its step, age, lag and work."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from cockpit.config import Config
from cockpit.tui.run.rank_grid import RankGrid
from tests.tui.scenes import Scene, played, settled, slows, tells_no_steps, text_of
from tests.tui.stage import NOW, Stage


def lines_of(
    play: object, keys: tuple[str, ...], size: tuple[int, int] = (140, 45), config: Config | None = None
) -> list[str]:
    async def main() -> str:
        async with played(Scene(play=play, keys=keys), size, config) as (app, _, _):  # type: ignore[arg-type]
            return text_of(app)

    return asyncio.run(main()).splitlines()


def row(lines: list[str], rank: int) -> str:
    return next(line for line in lines if line[1:].split()[:2] == ["rank", str(rank)])


@pytest.mark.parametrize("size", [(140, 45), (80, 24)])
def test_alone_on_the_screen_each_rank_has_a_line_with_step_age_lag_and_work(size: tuple[int, int]) -> None:
    lines = lines_of(slows, ("z",), size)
    assert lines[2].split()[-5:] == ["step", "age", "behind", "work", "│"]
    assert "rank 13 ▲ slow 1,216 0.0 s +0.97 s 2.96 s +49 %" in " ".join(row(lines, 13).split())
    assert "rank 12 ● running 1,216 0.9 s" in " ".join(row(lines, 12).split())
    works = {line.rindex(" s 1.9") for line in lines[3:] if " s 1.9" in line}
    assert len(works) == 1, "columns line up"
    node = next(line for line in lines if "gpu02" in line and "●●●●" in line)
    assert "+49 %" in node, "a node is as slow as its slowest rank"


def test_in_the_narrow_pane_nodes_keep_one_line_each() -> None:
    lines = lines_of(slows, ())
    assert not any("behind" in line for line in lines[:12])
    assert sum("●●●●" in line for line in lines) == 8


def test_estimated_values_say_so() -> None:
    lines = lines_of(tells_no_steps, ("z",))
    assert "~20 s" in row(lines, 12)
    assert "~23 s" in row(lines, 13)
    assert "~-3" in row(lines, 13)


def test_what_logs_alone_tell_is_estimated() -> None:
    def logs(stage: Stage) -> None:
        assert stage.board is not None
        for step in range(20):
            stage.board.pace.stepped(5, step, NOW - 60 + 2 * step, exact=False)

    found = row(lines_of(logs, ("z",)), 5)
    assert "~19" in found
    assert "~22 s" in found
    assert "~2.00 s" in found


@pytest.mark.slow
def test_the_cursor_goes_through_the_ranks_and_a_click_finds_one() -> None:
    async def main() -> None:
        async with played(Scene(play=slows, keys=("z", "down", "down", "down")), (140, 45)) as (
            app,
            pilot,
            _,
        ):
            grid = app.screen.query_one(RankGrid)
            assert grid.selected == ("gpu01", 1)
            await pilot.press("right")
            assert cast(tuple[str, int | None], grid.selected) == ("gpu01", 2)
            for _ in range(7):
                await pilot.press("down")
            assert cast(tuple[str, int | None], grid.selected) == ("gpu02", 8)
            await pilot.click(RankGrid, offset=(12, 8))
            await settled(pilot)
            assert cast(tuple[str, int | None], grid.selected) == ("gpu01", 5)
            await pilot.press("z")
            await settled(pilot)
            assert cast(tuple[str, int | None], grid.selected) == ("gpu01", 5)
            assert sum("●●●●" in line for line in text_of(app).splitlines()) == 8

    asyncio.run(main())


def test_in_ascii_nothing_else_is_drawn() -> None:
    assert all(line.isascii() for line in lines_of(slows, ("z", "down"), config=Config(ascii=True)))
