"""What the run's screen draws once a second: only what differs from what is there."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from textual.widget import Widget

from cockpit.config import Config
from cockpit.tui.app import CockpitApp
from cockpit.tui.pace.pane import PacePane
from cockpit.tui.run.rank_grid import RankGrid
from cockpit.tui.run.screen import RunScreen
from tests.tui.scenes import SCENES, draw_now, played, settled, slows, until


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the widgets that asked to be drawn anew, from here on."""
    asked: list[str] = []
    refresh = Widget.refresh

    def noted(self: Widget, *regions: Any, **more: Any) -> Widget:
        asked.append(type(self).__name__)
        return refresh(self, *regions, **more)

    monkeypatch.setattr(Widget, "refresh", noted)
    return asked


@pytest.mark.few(2)
@pytest.mark.parametrize("scene", ["running", "failed", "stalled", "frozen"])
def test_a_second_in_which_nothing_happens_draws_nothing(scene: str, drawn: list[str]) -> None:
    async def main() -> None:
        async with played(SCENES[scene], (140, 45)) as (app, pilot, _):
            await settled(pilot)
            screen = app.screen
            assert isinstance(screen, RunScreen)
            drawn.clear()
            draw_now(screen)
            await pilot.pause()
            assert drawn == []

    asyncio.run(main())


def test_a_node_that_changed_is_drawn_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nobody says which one it was, as when all of them age."""
    lines: list[int] = []
    render_line = RankGrid.render_line

    async def main() -> None:
        async with played(SCENES["running"], (140, 45)) as (app, pilot, stage):
            stage.happens(stage.nodes[7], kind="link", state="stale", why="no answer")  # links have a column
            await settled(pilot)
            grid = app.screen.query_one(RankGrid)

            def noted(self: RankGrid, y: int) -> Any:
                lines.append(y)
                return render_line(self, y)

            monkeypatch.setattr(RankGrid, "render_line", noted)
            grid.update_model(stage.model, None, time.time())
            await pilot.pause()
            assert lines == []
            stage.happens(stage.nodes[2], kind="link", state="stale", why="no answer")
            stage.board.take_changed()  # type: ignore[union-attr]  # the screen is not told which
            grid.update_model(stage.model, None, time.time())
            await pilot.pause()
            assert set(lines) == {3}

    asyncio.run(main())


def test_a_pane_has_its_lines_in_its_first_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait until what ages is drawn the next time; and a pane that was left is not drawn."""

    async def main() -> None:
        # So low a screen has no strip, which is the same pane.
        async with played(SCENES["filtered"], (140, 29)) as (app, pilot, stage):
            screen, pane = app.screen, app.screen.query_one(PacePane)
            assert isinstance(screen, RunScreen)
            slows(stage)
            screen.action_command("freeze")  # nothing ages from here on
            screen.action_command("pace")
            await until(pilot, lambda: pane.is_on_screen, "the pane")
            await until(pilot, lambda: any("+49 %" in line.text for line in pane.lines), "its map")
            monkeypatch.setattr(PacePane, "show", pytest.fail)
            screen.action_command("log")

    asyncio.run(main())


def test_who_opens_the_app_is_told_once_when_the_run_is_on_the_screen() -> None:
    told: list[str] = []

    async def main() -> None:
        stage = SCENES["running"].make()
        app = CockpitApp(stage, Config(ascii=False))
        app.settled = lambda: told.append("settled")
        async with app.run_test(size=(140, 45)) as pilot:
            await until(pilot, lambda: told, "it is told")
            await settled(pilot)
        await stage.close()

    asyncio.run(main())
    assert told == ["settled"]
