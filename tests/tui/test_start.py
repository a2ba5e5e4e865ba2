"""The screen of a start: who is awaited and for what, who failed, and what quitting does."""

from __future__ import annotations

import asyncio
import re
import string

import pytest

from cockpit.config import Config
from cockpit.engine.launch.start import Stages
from cockpit.engine.links.roll import Roll
from cockpit.engine.run.session import Session
from cockpit.errors import CockpitError
from cockpit.transport.base import ConnectStage as Way
from cockpit.transport.base import LinkError, Progress
from cockpit.tui.app import CockpitApp
from cockpit.tui.run.screen import RunScreen
from cockpit.tui.run.start import StartScreen
from tests.tui.scenes import text_of, until
from tests.tui.stage import Stage
from tests.tui.test_bursts import ENTER, ESCAPE, all_handled, burst
from tests.tui.test_keys import asks


class Waits(Stage):
    """A start that never gets on, and takes a moment to be taken back."""

    def __init__(self) -> None:
        super().__init__(["gpu01", "gpu02", "gpu03", "gpu04"], 1)
        self.roll = Roll(self.nodes)
        self.taken_back = False
        self.starts = 0
        self.refuses = False
        self.succeeds = asyncio.Event()

    async def take_off(self, stages: Stages) -> Session:
        progress = Progress()
        progress.reach(Way.LOGIN)
        progress.since -= 12
        self.roll.began -= 12
        self.roll.answer("gpu01")
        self.roll.on_its_way("gpu02", progress)
        self.roll.on_its_way("gpu03", progress)
        self.roll.fail("gpu04", LinkError("connection refused", where="gpu04", hint="start sshd"))
        stages.connecting(self.roll)
        self.starts += 1
        try:
            await self.succeeds.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.2)
            self.taken_back = True
            raise
        if self.refuses:
            raise CockpitError("no route to host", where="gpu02")
        return await super().take_off(stages)


@pytest.mark.usefixtures("moving_clock")
def test_who_is_awaited_and_who_failed_is_on_the_screen() -> None:
    async def main() -> None:
        app = CockpitApp(Waits(), Config())
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: "no answer yet" in text_of(app), "there")
            shown = text_of(app)
            assert "1 of 4 nodes answered, 1 failed" in shown
            waited = re.search(r"gpu\[02-03\] for (\d+) s \(the login\)", shown)
            assert waited is not None
            assert int(waited[1]) >= 12
            assert "gpu04: connection refused" in shown
            assert "start sshd" in shown

    asyncio.run(main())


def test_quitting_takes_back_first() -> None:
    async def main() -> None:
        flight = Waits()
        app = CockpitApp(flight, Config())
        async with app.run_test() as pilot:
            await until(pilot, lambda: "gpu04" in text_of(app), "there")
            await pilot.press("q")
            await until(pilot, lambda: asks(app), "the question")
            assert "is starting?" in text_of(app)
            await pilot.press("s", "enter")
            await until(pilot, lambda: app.return_code is not None, "there")
        assert flight.taken_back
        assert app.return_value == 130

    asyncio.run(main())


def test_a_start_that_succeeds_while_it_is_asked_whether_to_quit_goes_on() -> None:
    async def main() -> None:
        flight = Waits()
        app = CockpitApp(flight, Config())
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: "gpu04" in text_of(app), "there")
            await pilot.press("q")
            await until(pilot, lambda: asks(app), "the question")
            flight.succeeds.set()
            await until(pilot, lambda: isinstance(app.screen, RunScreen), "the run")
            assert len(app.screen_stack) == 2, "nothing is left above or below it"
            assert not flight.taken_back
            app.exit()

    asyncio.run(main())


def test_quitting_a_start_that_fails_meanwhile_quits() -> None:
    async def main() -> None:
        flight = Waits()
        flight.refuses = True
        app = CockpitApp(flight, Config())
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: "gpu04" in text_of(app), "there")
            await pilot.press("q")
            await until(pilot, lambda: asks(app), "the question")
            flight.succeeds.set()
            await until(pilot, lambda: app.error, "failed")
            await pilot.press("s", "enter")
            await until(pilot, lambda: app.return_code is not None, "quit")

    asyncio.run(main())


def test_what_joins_a_run_quits_at_once() -> None:
    async def main() -> None:
        flight = Waits()
        flight.launches = False
        app = CockpitApp(flight, Config())
        async with app.run_test() as pilot:
            await until(pilot, lambda: "gpu04" in text_of(app), "there")
            await pilot.press("q")
            await until(pilot, lambda: app.return_code is not None, "there")
        assert app.return_value == 130

    asyncio.run(main())


def test_text_alone_neither_quits_a_start_nor_tries_it_again() -> None:
    text = "quit? qr xq :queue /r " + string.printable[:94]

    async def main() -> None:
        flight = Waits()
        app = CockpitApp(flight, Config())
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: "gpu04" in text_of(app), "there")
            burst(app, text)
            await all_handled(app, pilot)
            assert asks(app)
            burst(app, ESCAPE)
            await all_handled(app, pilot)
            assert isinstance(app.screen, StartScreen)
            assert not flight.taken_back
            flight.refuses = True
            flight.succeeds.set()
            await until(pilot, lambda: "cannot start" in text_of(app), "failed")
            burst(app, text.replace("q", ""))
            await all_handled(app, pilot)
            assert flight.starts == 1
            burst(app, ENTER)
            await until(pilot, lambda: flight.starts == 2, "tried again")
            burst(app, "q")
            await until(pilot, lambda: app.return_code is not None, "nothing is under way: it quits")

    asyncio.run(main())


def test_a_signal_takes_back_first() -> None:
    async def main() -> None:
        flight = Waits()
        app = CockpitApp(flight, Config())
        async with app.run_test() as pilot:
            await until(pilot, lambda: "gpu04" in text_of(app), "there")
            app.leave_soon()
            await until(pilot, lambda: app.return_code is not None, "there")
        assert flight.taken_back

    asyncio.run(main())
