"""The screen of a start: who is awaited and for what, who failed, and what quitting does."""

from __future__ import annotations

import asyncio

from cockpit.config import Config
from cockpit.engine.roll import Roll
from cockpit.engine.session import Session
from cockpit.engine.starting import Stages
from cockpit.transport.base import LinkError, Progress
from cockpit.transport.base import Stage as Way
from cockpit.tui.app import CockpitApp
from tests.tui.scenes import text_of, until
from tests.tui.stage import Stage


class Waits(Stage):
    """A start that never gets on, and takes a moment to be taken back."""

    def __init__(self) -> None:
        super().__init__(["gpu01", "gpu02", "gpu03", "gpu04"], 1)
        self.roll = Roll(self.nodes)
        self.taken_back = False

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
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.2)
            self.taken_back = True
        raise AssertionError("it waits for ever")


def test_who_is_awaited_and_who_failed_is_on_the_screen() -> None:
    async def main() -> None:
        app = CockpitApp(Waits(), Config())
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: "no answer yet" in text_of(app), "there")
            shown = text_of(app)
            assert "1 of 4 nodes answered, 1 failed" in shown
            assert "gpu[02-03] for 1" in shown
            assert "(the login)" in shown
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
            await until(pilot, lambda: app.return_code is not None, "there")
        assert flight.taken_back
        assert app.return_value == 130

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
