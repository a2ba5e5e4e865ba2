"""What a person must not overlook, or take for something else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from textual.color import Color
from textual.widget import Widget
from textual.widgets import Static

from cockpit.core.logs.levels import Level
from cockpit.core.logs.sources import Writer
from cockpit.tui import base_app
from cockpit.tui.app import CockpitApp
from cockpit.tui.run import notices
from tests.tui.scenes import Scene, choose, ends, fails, healthy, played, settled, text_of, trains, until
from tests.tui.stage import Stage
from tests.tui.test_keys import log, screen

SIZE = (140, 45)


def test_a_kept_filter_is_seen_until_it_is_cleared() -> None:
    async def main() -> None:
        async with played(Scene(), SIZE) as (app, pilot, _):
            assert "/step/" not in text_of(app)
            await pilot.press("2", "slash", *"step", "enter")
            await until(pilot, lambda: "/step/" in text_of(app), "the filter on the log's frame")
            await pilot.press("3", "2")
            await settled(pilot)
            assert "/step/" in text_of(app)
            await pilot.press("escape")
            await until(pilot, lambda: "/step/" not in text_of(app), "it is cleared")

    asyncio.run(main())


class ReadsAlong(Stage):
    """Another cockpit keeps the spool, and writes nothing."""

    writer = False

    def prints(self, writer: Writer, text: str | bytes, node: str = "") -> None:
        assert self.board is not None
        data = text if isinstance(text, bytes) else text.encode()
        offset = self.board.book.logs.size(self.board.book.logs.number(("gpu01", writer)))
        self.board.log("gpu01", writer, offset, data)


def test_what_the_other_cockpit_does_not_write_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def play(stage: Stage) -> None:
        stage.runs()

    async def main() -> None:
        async with played(Scene(lambda: ReadsAlong(["gpu01"], 2), play), SIZE) as (app, pilot, stage):
            assert "this one watches" in text_of(app)
            stage.prints(0, "the first words\n")
            await until(pilot, lambda: "the first words" in text_of(app), "the line")
            assert "not here yet" not in text_of(app)
            assert "is it suspended?" not in text_of(app), "it may be about to write"
            monkeypatch.setattr(notices, "LACKING_S", 0.0)
            await until(pilot, lambda: "is it suspended?" in text_of(app), "why")
            stage.alone = "no cockpit controls this run: only ada can: cockpit attach x"
            await until(
                pilot, lambda: "no cockpit controls this run" in text_of(app), "no cockpit controls it"
            )
            stage.alone, stage.writer = "", True
            await until(pilot, lambda: "this one watches" not in text_of(app), "it has taken over")
            assert stage.board is not None
            assert stage.board.book.reads_along, "the spool lacks what is shown"
            assert "the first words" in text_of(app)
            stage.spools["gpu01"].append("rank-0.log", 0, b"the first words\n")
            await until(pilot, lambda: not stage.board.book.reads_along, "the spool has all")  # type: ignore[union-attr]
            assert "the first words" in text_of(app)

    asyncio.run(main())


def stopped(stage: Stage) -> None:
    """Stopped on request."""
    trains(stage)
    stage.happens("", kind="stop_asked", reason="asked", by="ada", hard=False)
    for entry in stage.manifest.nodes:
        stage.happens(entry.name, kind="stop_requested", reason="asked", by="ada", hard=False)
        for rank in entry.ranks:
            stage.happens(entry.name, kind="rank_exited", rank=rank, code=None, signal=15)
        stage.happens(entry.name, kind="ended")


@pytest.mark.parametrize("play", [ends, stopped], ids=["ended", "stopped"])
def test_a_run_that_did_not_fail_does_not_look_like_one(play: Any) -> None:
    async def main() -> None:
        async with played(Scene(play=play), SIZE) as (app, _, _):
            notice = app.screen.query_one("#notice", Static)
            assert notice.has_class("-shown")
            variables = app.theme_variables
            assert notice.styles.background == Color.parse(variables["panel"])
            assert notice.styles.background != Color.parse(variables["notice"])
            assert not screen(app).query_one("#banner").display

    asyncio.run(main())


def test_who_else_has_an_error_is_said_where_the_log_is_narrowed() -> None:
    async def main() -> None:
        async with played(Scene(play=fails), SIZE) as (app, pilot, _):
            choose(app, "gpu01", 3)
            await settled(pilot)
            await pilot.press("e")
            wanted = "no error after this line; hidden here: one of rank 13"
            await until(pilot, lambda: wanted in log(app).status, "where there is one")
            await pilot.press("escape")
            await settled(pilot)
            log(app).home()
            log(app).next_level(Level.ERROR, 1)
            await until(pilot, lambda: "no error" not in log(app).status, "found, as all lines are shown")

    asyncio.run(main())


def toasts(app: CockpitApp) -> list[Widget]:
    return list(app.screen.query("Toast"))


def test_the_next_key_takes_a_message_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with played(Scene(healthy), SIZE, notices=True) as (app, pilot, _):
            await pilot.press("c")
            await until(pilot, lambda: toasts(app), "why it cannot be collected")
            await pilot.press("3")
            await settled(pilot)
            assert toasts(app), "nobody can have read it yet"
            bottom = max(toast.region.bottom for toast in toasts(app))
            assert bottom <= SIZE[1] - 2, "the status of the log and the keys stay free"
            monkeypatch.setattr(app, "_unread_until", 0.0)
            await pilot.press("4")
            await until(pilot, lambda: not toasts(app), "it is gone")

    asyncio.run(main())


def test_an_error_can_be_read_longer_than_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert base_app.READ_ERROR_S > base_app.READ_S
