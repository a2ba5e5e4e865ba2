"""Another run in place of the one on the screen: chosen by name, the one before is left as `q` leaves it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from cockpit.engine.briefs import briefs
from cockpit.engine.launch.start import Stages
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.session import Session
from cockpit.errors import CockpitError
from cockpit.tui.app import CockpitApp
from cockpit.tui.panes.finder import Finder
from cockpit.tui.run.purpose import Joining
from cockpit.tui.run.runs import MOST, run_items
from cockpit.tui.run.screen import RunScreen
from cockpit.tui.run.start import StartScreen
from cockpit.tui.stacks.screen import StackScreen
from tests.engine.knownruns import many
from tests.tui.scenes import Scene, notes, played, settled, text_of, until
from tests.tui.stage import Stage

SIZE = (140, 45)
OTHER = "20261120-1800-heron"


class Closed(Stage):
    """A run that notes that it was left."""

    times = 0

    async def close(self) -> None:
        self.times += 1
        await super().close()


def first() -> Closed:
    made = Closed(["gpu01", "gpu02"], 2)
    made.runs()
    return made


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Another run that is known here; who joins it gets it."""
    made = Stage(["n1", "n2", "n3"], 1, OTHER)
    made.runs()

    async def take_off(flight: Joining, stages: Stages) -> Session:
        assert flight.folder.name == OTHER
        return await Stage.take_off(made, stages)

    monkeypatch.setattr(Joining, "take_off", take_off)
    return made


async def shows(app: CockpitApp, pilot: Any, run: str) -> None:
    await until(pilot, lambda: isinstance(app.screen, RunScreen) and app.screen.board.folder.name == run, run)
    await settled(pilot)


def test_it_is_chosen_from_a_list_and_the_one_before_is_left(other: Stage) -> None:
    async def main() -> None:
        async with played(Scene(first), SIZE) as (app, pilot, stage):
            assert isinstance(stage, Closed)
            await pilot.press("R")
            await until(pilot, lambda: isinstance(app.screen, Finder), "the list")
            await settled(pilot)
            assert f"run {OTHER}  " in text_of(app), "its name and its state"
            assert stage.name not in "".join(line for line in text_of(app).split("\n") if "run 2" in line)
            await pilot.press("enter")
            await shows(app, pilot, OTHER)
            assert f"cockpit {OTHER}" in text_of(app)
            assert "n3" in text_of(app)
            assert stage.times == 1
            assert stage.stops == [], "it continues"
            assert app.flight.name == OTHER
            assert app.session is other  # type: ignore[comparison-overlap]
            assert sum(isinstance(each, RunScreen) for each in app.screen_stack) == 1

    asyncio.run(main())


def test_the_palette_finds_the_run_on_the_screen_and_says_that_it_is_open() -> None:
    async def main() -> None:
        async with played(Scene(first), SIZE) as (app, pilot, stage):
            await pilot.press("ctrl+p")
            await until(pilot, lambda: isinstance(app.screen, Finder), "the palette")
            await pilot.press(*stage.name.rpartition("-")[2])
            await until(
                pilot, lambda: f"run {stage.name}  · this run, open already" in text_of(app), "its line"
            )
            await pilot.press("enter")
            await until(
                pilot,
                lambda: [f"run {stage.name} is open"] == [one.message for one in notes(app)],
                "why nothing happens",
            )

    asyncio.run(main())


def test_the_palette_finds_it_also_above_the_stacks(other: Stage) -> None:
    async def main() -> None:
        async with played(Scene(first), SIZE) as (app, pilot, stage):
            await pilot.press("s")
            await until(pilot, lambda: isinstance(app.screen, StackScreen), "the stacks")
            await pilot.press("colon", *"heron", "enter")
            await shows(app, pilot, OTHER)
            assert len(app.screen_stack) == 2
            assert isinstance(stage, Closed)
            assert stage.times == 1

    asyncio.run(main())


def test_where_leaving_would_end_the_run_none_is_opened(other: Stage) -> None:
    def demo() -> Stage:
        made = first()
        made.leaving = "the demo ends and stops its run"
        return made

    async def main() -> None:
        async with played(Scene(demo), SIZE) as (app, pilot, stage):
            assert isinstance(stage, Closed)
            for keys in (("R",), ("colon", *"heron", "enter")):
                app.clear_notifications()
                await pilot.press(*keys)
                await until(pilot, lambda: notes(app), "why not")
                assert "the demo ends" in notes(app)[0].message
                assert isinstance(app.screen, RunScreen)
            assert stage.times == 0
            assert app.flight is stage

    asyncio.run(main())


def test_nothing_is_left_for_a_run_that_cannot_be_read(other: Stage) -> None:
    async def main() -> None:
        async with played(Scene(first), SIZE) as (app, pilot, stage):
            (other.folder.path / "manifest.json").write_text('{"run": "her')
            await pilot.press("R")
            await until(pilot, lambda: isinstance(app.screen, Finder), "the list")
            await settled(pilot)
            assert "manifest cannot be read" in text_of(app)
            await pilot.press(*"heron", "enter")
            await until(pilot, lambda: notes(app), "an error")
            assert isinstance(app.screen, RunScreen)
            assert isinstance(stage, Closed)
            assert stage.times == 0

    asyncio.run(main())


def test_a_run_that_cannot_be_joined_says_why_and_can_be_tried_again(
    other: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    other.fails = CockpitError("no route to host", where="n1")

    async def main() -> None:
        async with played(Scene(first), SIZE) as (app, pilot, _):
            await pilot.press("colon", *"heron", "enter")
            await until(pilot, lambda: isinstance(app.screen, StartScreen), "the start")
            await until(pilot, lambda: "no route to host" in text_of(app), "why")
            assert app.session is None
            other.fails = None
            await pilot.press("enter")
            await shows(app, pilot, OTHER)

    asyncio.run(main())


def test_that_there_is_no_other_one_is_said() -> None:
    async def main() -> None:
        async with played(Scene(first), SIZE) as (app, pilot, _):
            await pilot.press("R")
            await until(pilot, lambda: notes(app), "a note")
            assert "no other run" in notes(app)[0].message

    asyncio.run(main())


def test_the_newest_are_listed_by_the_index_with_their_states(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = many(MOST + 10, time.time())
    (folders[-3].path / "manifest.json").write_text("{")
    list(briefs())
    read: list[str] = []
    monkeypatch.setattr(RunFolder, "model", lambda folder: read.append(folder.name))
    told = list(run_items("run-0029", lambda folder: None, states=True))
    assert read == []
    # Of the damaged one only its file says when it was.
    assert [item.name for item in told] == [f"run-00{at}" for at in (27, 28, *range(26, 9, -1))]
    assert "is not JSON" in told[0].why_not
    assert told[1].title == "run run-0028  ended"
    assert told[2].title == "run run-0026  ended"
    assert told[3].title.startswith("run run-0025  failed: rank 0")
    at_once = list(run_items("run-0029", lambda folder: None))
    assert [(item.name, item.about, item.why_not) for item in at_once] == [
        (item.name, item.about, item.why_not) for item in told
    ]
