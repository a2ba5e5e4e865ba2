"""The filter narrows nodes and ranks where they are in use: live, the cursor kept, and seen until cleared."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from textual.pilot import Pilot

from cockpit.tui.run.rank_grid import RankGrid
from cockpit.tui.run.screen import RunScreen
from tests.tui.scenes import SCENES, Scene, fails, healthy, notes, played, settled, text_of, until
from tests.tui.stage import Stage

SIZE = (140, 45)


def grid(app: Any) -> RankGrid:
    found = app.screen_stack[-1].query_one(RankGrid)
    assert isinstance(found, RankGrid)
    return found


async def shown(app: Any, pilot: Pilot[Any]) -> list[str]:
    """The nodes that the grid has."""
    await settled(pilot)
    left = [line[: grid(app).outer_size.width] for line in text_of(app).split("\n")]
    return [f"gpu{number:02}" for number in range(1, 9) if any(f"gpu{number:02} " in line for line in left)]


def test_nodes_live_while_typed() -> None:
    async def main() -> None:
        async with played(Scene(), SIZE) as (app, pilot, _):
            await pilot.press("down", "down", "z", "slash", *"gpu[01-03]")
            await until(pilot, lambda: "3 of 8" in text_of(app), "the counts")
            assert await shown(app, pilot) == ["gpu01", "gpu02", "gpu03"]
            assert "ranks 24 of 64" in text_of(app)
            await pilot.press("enter")
            assert grid(app).selected == ("gpu02", None), "what was chosen stays chosen"
            assert "/gpu[01-03]/" in text_of(app)
            await pilot.press("G", "down")
            assert grid(app).selected == ("gpu03", 16)

    asyncio.run(main())


def test_ranks_by_state_as_it_changes() -> None:
    def quiet(stage: Stage) -> None:
        """Nobody has failed."""

    async def main() -> None:
        async with played(Scene(healthy, quiet), SIZE) as (app, pilot, stage):
            await pilot.press("z", "G", "slash", *"failed", "enter")
            assert await shown(app, pilot) == []
            assert "0 of 8 · ranks 0 of 64" in text_of(app)
            await pilot.press("down", "space", "right", "pagedown", "g")  # nothing to act on
            stage.fails_first(13)
            await until(pilot, lambda: "1 of 8 · ranks 1 of 64" in text_of(app), "the rank that failed")
            assert await shown(app, pilot) == ["gpu02"]
            await pilot.press("down", "right")
            assert grid(app).selected == ("gpu02", 13)

    asyncio.run(main())


def test_who_is_marked_is_named_whole_where_the_counts_are_long() -> None:
    async def main() -> None:
        async with played(SCENES["stalled"], SIZE) as (app, pilot, _):
            await until(pilot, lambda: "8 · ranks 64 · ▲ rank 13 ─" in text_of(app), "all of both")
            await pilot.press("1", "slash", *"13", "enter")
            await until(pilot, lambda: "1/8 · ranks 1/64 · ▲ rank 13 ─" in text_of(app), "shorter counts")

    asyncio.run(main())


@pytest.mark.slow
def test_escape_and_a_mistake() -> None:
    async def main() -> None:
        async with played(Scene(play=fails), SIZE) as (app, pilot, _):
            await pilot.press("slash", *"rank 13", "enter")
            assert "1 of 8 · ranks 1 of 64" in text_of(app)
            await pilot.press("slash", "left_parenthesis")
            await until(pilot, lambda: "subpattern at character 8" in text_of(app), "what is wrong")
            assert "1 of 8" in text_of(app), "what it was narrowed to stays"
            await pilot.press("escape")
            await until(pilot, lambda: "8 · ranks 64" in text_of(app), "all again")
            await pilot.press("slash", *"13", "enter", "escape")
            await until(pilot, lambda: "8 · ranks 64" in text_of(app), "all again")
            assert not notes(app)

    asyncio.run(main())


def test_the_filter_of_the_log_is_its_own() -> None:
    async def main() -> None:
        async with played(Scene(play=fails), SIZE) as (app, pilot, _):
            await pilot.press("slash", *"gpu03", "enter", "2", "slash", *"memory", "enter")
            await settled(pilot)
            run = app.screen_stack[-1]
            assert isinstance(run, RunScreen)
            assert "/memory/" in text_of(app)
            assert "/gpu03/" in text_of(app)
            await pilot.press("escape")
            await settled(pilot)
            assert "/memory/" not in text_of(app)
            assert "/gpu03/" in text_of(app), "one step back"
            await pilot.press("escape")
            await settled(pilot)
            assert "/gpu03/" not in text_of(app)

    asyncio.run(main())
