"""The dialog for passwords and codes: what is typed reaches nobody else, and nothing is sent by mistake."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from textual.pilot import Pilot
from textual.widgets import Input

from cockpit.config import Config
from cockpit.engine.launch.start import Stages
from cockpit.engine.links.roll import Roll
from cockpit.engine.run.session import Session
from cockpit.transport.login_prompts import DESK, Challenge, Nobody, Prompt
from cockpit.tui.app import CockpitApp
from cockpit.tui.panes.login import LoginDialog
from cockpit.tui.run.start import StartScreen
from tests.tui.scenes import text_of, until
from tests.tui.stage import Stage

ONE = Challenge("ada@gpu01", "password", (Prompt("Password:"),), of="gpu01")
TWO = Challenge(
    "ada@login", "code", (Prompt("Code:"), Prompt("Device [/b]?", echo=True)), told=("[@click=app.quit]hi",)
)


class Asks(Stage):
    """A start that asks these, one after the other."""

    def __init__(self, *challenges: Challenge) -> None:
        super().__init__(["gpu01", "gpu02"], 1)
        self._challenges = challenges
        self.given: list[Sequence[str] | None] = []

    async def take_off(self, stages: Stages) -> Session:
        stages.connecting(Roll(self.nodes))
        for challenge in self._challenges:
            self.given.append(await DESK.ask(challenge))
        await asyncio.Event().wait()
        raise AssertionError("it waits for ever")


async def asked(pilot: Pilot[int], title: str) -> None:
    """Wait until the dialog of that title is to be read."""

    def there() -> bool:
        screen = pilot.app.screen
        return (
            isinstance(screen, LoginDialog)
            and title in text_of(pilot.app)
            and screen.readable_since < float("inf")
        )

    await until(pilot, there, title)


def test_two_questions_one_after_the_other() -> None:
    async def main() -> None:
        flight = Asks(ONE, TWO)
        app = CockpitApp(flight, Config())
        async with app.run_test(size=(100, 30)) as pilot:
            await asked(pilot, "password for ada@gpu01")
            await pilot.press(*"s3cret")
            assert "s3cret" not in text_of(app)
            await pilot.press("enter")
            await asked(pilot, "login for ada@login")
            assert "Device [/b]?" in text_of(app)
            await pilot.press(*"123", "enter", *"phone", "enter")
            await until(pilot, lambda: isinstance(app.screen, StartScreen), "the dialog is gone")
            assert flight.given == [("s3cret",), ("123", "phone")]
            assert "phone" not in text_of(app)
        await flight.close()
        assert isinstance(DESK.prompter, Nobody)

    asyncio.run(main())


def test_nothing_is_sent_by_mistake() -> None:
    async def main() -> None:
        flight = Asks(ONE, ONE)
        app = CockpitApp(flight, Config())
        async with app.run_test(size=(100, 30)) as pilot:
            await asked(pilot, "password for ada@gpu01")
            await pilot.press("enter")  # an empty one would be a wrong one
            assert flight.given == []
            await pilot.press(*"s3cret")
            field = app.screen.query_one(Input)
            field.action_select_all()
            field.action_copy()
            field.action_cut()
            assert (app.clipboard, field.value) == ("", "s3cret")
            assert isinstance(app.screen, LoginDialog)
            app.screen.readable_since = float("inf")  # as if it were not drawn yet
            await pilot.press("enter")
            assert flight.given == []
            await pilot.press("escape")
            await until(pilot, lambda: flight.given == [None], "given up")
        await flight.close()

    asyncio.run(main())
