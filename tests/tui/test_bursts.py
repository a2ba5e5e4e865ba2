"""Keys that come in one write, faster than the app draws, do what they do when they are typed slowly."""

from __future__ import annotations

import asyncio
import random
import string
import time
from collections.abc import Callable
from typing import Any

import pytest
from textual import events
from textual.keys import _character_to_key
from textual.pilot import Pilot
from textual.widgets import Input

from cockpit.tui import typeahead
from cockpit.tui.app import CockpitApp
from cockpit.tui.base_app import BaseApp
from cockpit.tui.panes.dialogs import Question
from cockpit.tui.panes.finder import Finder
from cockpit.tui.run.drawing import Drawing
from cockpit.tui.run.screen import RunScreen
from cockpit.tui.stacks.app import StacksApp
from cockpit.tui.stacks.screen import StackScreen
from tests.tui.scenes import Scene, chosen, fails, notes, played, settled, text_of, until
from tests.tui.stack_scenes import Played, StackScene, at_rest, odd_one, stacked
from tests.tui.stage import Stage
from tests.tui.test_keys import asks, grid, log, noisy, said, screen, shown
from tests.tui.test_stacks import focused
from tests.tui.test_stacks import screen as stack_screen
from tests.waiting import soon

SIZE = (100, 30)
ENTER, ESCAPE = "\r", "\x1b"
NAMES = {ENTER: "enter", ESCAPE: "escape", "\t": "tab"}


def burst(app: BaseApp, text: str) -> None:
    """Give the app all of these keys before it looks at the first one."""
    for char in text:
        printable = char.isprintable()
        app.post_message(events.Key(NAMES.get(char) or _character_to_key(char), char if printable else None))


async def nothing_waits(app: CockpitApp, pilot: Pilot[Any]) -> None:
    """Every key has been handled, and what came of it is drawn."""
    await all_handled(app, pilot)
    await settled(pilot)


async def all_handled(app: BaseApp, pilot: Pilot[Any]) -> None:
    """Wait for every key's turn."""
    deadline = time.monotonic() + 120
    while app.message_queue_size or not app.typeahead.idle:
        assert time.monotonic() < deadline, "keys wait for ever"
        await pilot.pause(0.02)


@pytest.fixture
def drawn_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every drawing of the screen's head holds everything up."""
    draw = Drawing.draw_head

    def slowly(self: Drawing, now: float) -> None:
        time.sleep(0.1)  # not a wait: the drawing itself takes that long
        draw(self, now)

    monkeypatch.setattr(Drawing, "draw_head", slowly)


Check = Callable[[CockpitApp, Stage], object]

BURSTS: dict[str, tuple[str, Check]] = {
    "a pane's name": (":events" + ENTER, lambda app, _: shown(app) == "events"),
    "and what comes after it": (":events" + ENTER + "3", lambda app, _: shown(app) == "detail"),
    "a rank": (":rank 13" + ENTER, lambda app, _: chosen(app) == ("gpu02", 13)),
    "a command in help": ("?freeze" + ENTER, lambda app, _: "FROZEN" in text_of(app)),
    "a filter": ("2/needle 1" + ENTER, lambda app, _: log(app).filter == "needle 1"),
    "nodes narrowed": ("/gpu02" + ENTER + "G", lambda app, _: grid(app).selected == ("gpu02", None)),
    "a filter with keys of commands": ("2/xsKop" + ENTER, lambda app, _: log(app).filter == "xsKop"),
    "a filter taken back": ("/needle" + ESCAPE + "3", lambda app, _: shown(app) == "detail"),
    "words that are nothing's name": (":qqqq" + ENTER + ESCAPE + "4", lambda app, _: shown(app) == "events"),
    "another word for stopping": (":halt" + ENTER + ESCAPE + "3", lambda app, _: shown(app) == "detail"),
    "a question taken back": ("x" + ESCAPE + "3", lambda app, _: shown(app) == "detail"),
    "stop, as far as letters go": ("xs", lambda app, _: isinstance(app.screen, Question)),
    "enter before it can be read": ("xs" + ENTER, lambda app, _: isinstance(app.screen, Question)),
    "keep, as far as letters go": ("Kk", lambda app, stage: isinstance(app.screen, Question)),
    "leave and come back": ("s" + ESCAPE + "5", lambda app, _: shown(app) == "commands"),
}


@pytest.mark.few(2)
@pytest.mark.usefixtures("drawn_slowly")
@pytest.mark.parametrize("name", BURSTS)
def test_a_burst_does_what_its_keys_do(name: str) -> None:
    text, done = BURSTS[name]

    def play(stage: Stage) -> None:
        noisy(stage)
        fails(stage)

    async def main() -> None:
        async with played(Scene(play=play), SIZE) as (app, pilot, stage):
            assert not done(app, stage), "true before: the test cannot fail"
            burst(app, text)
            await nothing_waits(app, pilot)
            assert done(app, stage)
            _unharmed(stage)
            assert not notes(app)

    asyncio.run(main())


def test_what_is_typed_while_a_key_takes_too_long_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    over = asyncio.Event()

    async def slow(self: Finder) -> None:
        await over.wait()

    monkeypatch.setattr(Finder, "on_mount", slow)
    # Longer than a busy machine needs to read the burst.
    monkeypatch.setattr(typeahead, "PATIENCE_S", 1.0)

    async def main() -> None:
        async with played(Scene(), SIZE) as (app, pilot, stage):
            burst(app, "?xs" + ENTER)
            # The pilot would wait for the screen.
            await soon(
                lambda: isinstance(app.screen, Finder) and app.typeahead.idle, "the list of keys opens"
            )
            over.set()
            await until(pilot, lambda: said(app, "keys ignored"), "said")
            assert isinstance(app.screen, Finder)
            assert app.screen.query_one(Input).value == ""
            assert stage.stops == []
            burst(app, ESCAPE)
            await until(pilot, lambda: app.screen is screen(app), "not deaf")

    asyncio.run(main())


def test_a_question_is_answered_once_it_can_be_read() -> None:
    async def main() -> None:
        async with played(Scene(), SIZE) as (app, pilot, stage):
            burst(app, "xs")
            await nothing_waits(app, pilot)
            await until(pilot, lambda: asks(app), "a question that can be read")
            burst(app, ENTER)
            await until(pilot, lambda: stage.stops == [False], "asked to stop")

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.usefixtures("drawn_slowly")
@pytest.mark.parametrize("seed", range(2))
def test_text_alone_changes_nothing_of_the_run(seed: int) -> None:
    chance = random.Random(seed)
    # More of what opens something, less of what leaves.
    letters = [*string.printable[:95].replace("q", "").replace("o", ""), *"xsKk:/?" * 4]
    text = "".join(chance.choices(letters, k=60))

    async def main() -> None:
        async with played(Scene(play=fails), SIZE) as (app, pilot, stage):
            burst(app, text)
            await nothing_waits(app, pilot)
            _unharmed(stage)
            # It is not deaf: some steps back are the run's screen again, with all its keys.
            burst(app, ESCAPE * 12)
            await nothing_waits(app, pilot)
            assert isinstance(app.screen, RunScreen | StackScreen), text
            burst(app, "?")
            await until(pilot, lambda: isinstance(app.screen, Finder), f"help after {text!r}")

    asyncio.run(main())


def _unharmed(stage: Stage) -> None:
    assert stage.stops == []
    assert stage.stops_at is not None


@pytest.mark.slow
def test_escape_closes_help_and_takes_nothing_else_back() -> None:
    async def main() -> None:
        async with played(Scene(play=noisy), SIZE) as (app, pilot, _):
            burst(app, "2/needle" + ENTER + ":rank 13" + ENTER)
            await nothing_waits(app, pilot)
            for opens in ("?", ":", "x", "\x03"):
                app.post_message(events.Key("ctrl+c", None)) if opens == "\x03" else burst(app, opens)
                await until(pilot, lambda: not isinstance(app.screen, RunScreen), "something is open")
                burst(app, ESCAPE)
                await nothing_waits(app, pilot)
                assert isinstance(app.screen, RunScreen), f"{opens!r}: left, or still open"
                assert app.return_code is None
                assert (log(app).filter, chosen(app)) == ("needle", ("gpu02", 13)), opens

    asyncio.run(main())


ON_STACKS: dict[str, tuple[str, Callable[[StacksApp], object]]] = {
    "a pane's name": (":threads" + ENTER, lambda app: focused(app) == "threads"),
    "a rank": (":rank 31" + ENTER, lambda app: stack_screen(app).rank == 31),
    "a command in help": ("?tree of all" + ENTER, lambda app: focused(app) == "tree"),
    "a filter": ("/sxcnl" + ENTER, lambda app: "/sxcnl" in text_of(app)),
    "help taken back": ("?" + ESCAPE + "3", lambda app: focused(app) == "threads"),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ON_STACKS)
def test_a_burst_does_what_its_keys_do_on_the_stacks(name: str) -> None:
    text, done = ON_STACKS[name]

    async def main() -> None:
        async with stacked(StackScene(lambda: Played(64, odd_one(13))), SIZE) as (app, pilot, _):
            assert not done(app), "true before: the test cannot fail"
            burst(app, text)
            await all_handled(app, pilot)
            await at_rest(pilot)
            assert done(app), text_of(app)

    asyncio.run(main())


def test_a_paste_comes_in_its_turn() -> None:
    async def main() -> None:
        async with played(Scene(play=noisy), SIZE) as (app, pilot, _):
            burst(app, "2/")
            app.post_message(events.Paste("xs needle"))
            burst(app, ENTER)
            await nothing_waits(app, pilot)
            assert log(app).filter == "xs needle"
            app.post_message(events.Paste("xs\n"))
            await nothing_waits(app, pilot)
            assert app.screen is screen(app), "nothing is typed here: a paste is no key"
            assert "xs needle" in text_of(app)

    asyncio.run(main())
