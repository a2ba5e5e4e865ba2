"""The run's screen over what is recorded: its keys, its line, and that it does nothing to anybody."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from cockpit.base.events import Saved, Watched
from cockpit.config import Config
from cockpit.engine.records.folder import RunFolder
from cockpit.tui.app import CockpitApp
from cockpit.tui.commands import REPLAY, in_scope
from cockpit.tui.logs.view import LogView
from cockpit.tui.run.purpose import Flight, Joining, Replaying
from cockpit.tui.run.replay_screen import ACTING, HERE, ReplayScreen
from tests.replay.lived import BEGIN, NODES, watched
from tests.tui.scenes import notes, quiet, text_of
from tests.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def in_utc(utc: None) -> None:
    """Moments are written as there."""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """Two minutes: a checkpoint after 40 s, a stall after 60, a failure after 100; it is over."""
    return lived(monkeypatch)


def lived(monkeypatch: pytest.MonkeyPatch, *, over: bool = True) -> RunFolder:
    async def story() -> RunFolder:
        with monkeypatch.context() as patched:
            async with watched(patched, NODES) as run:
                for second in range(1, 121):
                    run.now += 0.5
                    if second == 40:
                        run.session.note("", Saved(50, 3.0))
                    if second == 60:
                        run.session.note("", Watched("stalled", run.now - 40, 40.0, 80))
                    if second == 70:
                        run.session.note("", Watched("going", run.now, 50.0, 90))
                    if second == 100:
                        await run.dies(3)
                    await run.second()
                if over:
                    await run.ends()
            return RunFolder(run.folder.path)

    return asyncio.run(story())


@asynccontextmanager
async def opened(
    flight: Flight, size: tuple[int, int] = (120, 40), **config: Any
) -> AsyncIterator[tuple[CockpitApp, ReplayScreen, Pilot[Any]]]:
    app = CockpitApp(flight, Config(**{"ascii": False, **config}), read_only=True)
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(pilot, lambda: isinstance(app.screen, ReplayScreen) and app.screen.replay, "it is read")
        screen = app.screen
        assert isinstance(screen, ReplayScreen)
        yield app, screen, pilot


async def until(pilot: Pilot[Any], so: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not so():
        assert time.monotonic() < deadline, f"still not: {what}\n{text_of(pilot.app)}"
        await pilot.pause(0.02)


async def at_rest(pilot: Pilot[Any], screen: ReplayScreen, *words: str) -> str:
    """What is on the screen once all of it is of the same moment, and has these words."""
    assert screen.replay is not None
    replay = screen.replay
    await until(pilot, lambda: replay.settled and not screen._settles, "all is of one moment")
    screen._slow_tick()
    await quiet(pilot.app)
    log = screen.query_one(LogView)
    await until(
        pilot,
        lambda: not log.searching and all(word in text_of(pilot.app) for word in words),
        f"{words} on the screen",
    )
    await quiet(pilot.app)
    return text_of(pilot.app)


async def press(pilot: Pilot[Any], *keys: str) -> None:
    """Type, and wait until it is done."""
    for key in keys:
        if len(key) == 1:
            await pilot.press(key)
        else:
            pilot.app.simulate_key(key)
            await quiet(pilot.app)
    await quiet(pilot.app)


def at(screen: ReplayScreen) -> float:
    assert screen.replay is not None
    return screen.replay.player.at - BEGIN


def content(folder: RunFolder) -> dict[str, str]:
    files = (path for path in Path(folder.path).rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.slow
def test_every_key_moves_in_time(run: RunFolder) -> None:
    async def story() -> None:
        async with opened(Replaying(run)) as (app, screen, pilot):
            assert at(screen) == 0
            await press(pilot, "right")
            assert at(screen) == 10
            await press(pilot, "right", "left", "left")
            assert at(screen) == 0
            marks = []
            for _ in range(3):
                await press(pilot, "right_square_bracket")
                marks.append(round(at(screen)))
            assert marks == [40, 60, 100]
            await press(pilot, "right_square_bracket")
            assert any("no failure, stall or checkpoint after this" in note.message for note in notes(app))
            await press(pilot, "left_square_bracket")
            assert round(at(screen)) == 60
            await press(pilot, "shift+right")
            assert screen.replay is not None
            assert screen.replay.player.at_end
            await press(pilot, "shift+left")
            assert at(screen) == 0
            await press(pilot, "greater_than_sign", "greater_than_sign", "less_than_sign")
            assert screen.replay.player.speed == 2
            await press(pilot, "g", *"+30s", "enter")
            await until(pilot, lambda: round(at(screen)) == 30, "it went there")
            await press(pilot, "g", *"step 90", "enter")
            await until(pilot, lambda: 60 <= at(screen) <= 66, "step 90 is done after 63 s")
            await press(pilot, "g", *"noon", "enter")
            assert "not a moment" in text_of(app)
            await press(pilot, "left")  # the cursor's now
            assert 60 <= at(screen) <= 66
            await press(pilot, "escape", "space")
            before = at(screen)
            await until(pilot, lambda: at(screen) > before, "it plays")
            pilot.app.simulate_key("space")
            player = screen.replay.player
            await until(pilot, lambda: not player.plays, "it stands")

    asyncio.run(story())


def test_a_moment_is_drawn_as_it_was(run: RunFolder) -> None:
    async def story() -> None:
        async with opened(Replaying(run, at="1m")) as (app, screen, pilot):
            shown = await at_rest(pilot, screen, "REPLAY", "stalled", "rank 0–3 at 60", "+60 s")
            assert "at 61" not in shown
            assert app.leave_words == ("close", "close")
            await press(pilot, "right_square_bracket")
            shown = await at_rest(pilot, screen, "rank 3 failed first", "ranks 3/4")
            assert "x stops them" not in shown

    asyncio.run(story())


def test_nothing_is_asked_and_nothing_is_written(run: RunFolder) -> None:
    before = content(run)

    async def story() -> None:
        async with opened(Replaying(run, at="50s")) as (app, screen, pilot):
            assert set(screen.handlers) == {command.id for command in in_scope(REPLAY)}
            for name in ACTING:
                assert screen.why_not(name) == HERE
            await press(pilot, "x")
            assert any(HERE in note.message for note in notes(app))
            pilot.app.simulate_key("q")
            await until(pilot, lambda: app.return_value is not None, "it is left")
            assert app.return_value == 0

    asyncio.run(story())
    assert content(run) == before


def test_attach_of_a_run_that_is_over_is_the_same_screen_at_its_end(run: RunFolder) -> None:
    async def story() -> None:
        async with opened(Joining(run)) as (app, screen, pilot):
            first = await at_rest(pilot, screen, "RECORDED RUN", "at 120")
            assert screen.replay is not None
            assert screen.replay.player.at_end
            await press(pilot, "shift+left")
            assert "RECORDED RUN" not in await at_rest(pilot, screen)
            await press(pilot, "shift+right")
            assert await at_rest(pilot, screen, first) == first
            await press(pilot, "shift+left")
            pilot.app.simulate_key("q")
            await until(pilot, lambda: app.return_value is not None, "it is left")
            assert app.return_value == 1, "how the run ended, whatever was on the screen"

    asyncio.run(story())


def test_a_run_that_goes_on_ends_where_its_record_does(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = lived(monkeypatch, over=False)
    before = content(folder)

    async def story() -> None:
        async with opened(Replaying(folder, at="end")) as (_, screen, pilot):
            shown = await at_rest(pilot, screen, "ranks 3/4")
            assert 119 <= at(screen) <= 121
            assert "RECORDED RUN" not in shown

    asyncio.run(story())
    assert content(folder) == before


@pytest.mark.parametrize("size", [(80, 24), (50, 12), (200, 60)])
def test_its_line_has_room_in_ascii(run: RunFolder, size: tuple[int, int]) -> None:
    async def story() -> None:
        async with opened(Replaying(run, at="110s"), size, ascii=True) as (_, screen, pilot):
            shown = (await at_rest(pilot, screen)).rstrip("\n").split("\n")
            line = shown[-2]
            assert line.isascii()
            assert len(line) <= size[0]
            for sign in "X!c|":
                assert sign in line
            assert "00:00" not in line.split()[0]

    asyncio.run(story())


def test_it_plays_to_the_end_and_stands(run: RunFolder) -> None:
    async def story() -> None:
        async with opened(Replaying(run, speed=1000)) as (_, screen, pilot):
            assert screen.replay is not None
            player = screen.replay.player
            await until(pilot, lambda: player.at_end, "it is at the end")
            assert not player.plays
            await at_rest(pilot, screen, "RECORDED RUN")

    asyncio.run(story())
