"""Questions and help: the safe answer is the near one, and every command is found."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.screen import ModalScreen
from textual.widgets import Button, OptionList

from cockpit.tui.commands import RUN, in_scope
from cockpit.tui.look import themes
from cockpit.tui.panes.dialogs import Answer, Question
from cockpit.tui.panes.finder import Finder, command_items
from tests.tui.scenes import strips_of

STAY = Answer("stay", "stay", "n")
STOP = Answer("stop", "stop the run", "s", grave=True)
KILL = Answer("kill", "kill it", "K", grave=True)


class Asked(App[None]):
    """Asks at once, and keeps the answer."""

    ENABLE_COMMAND_PALETTE = False

    def __init__(self, screen: ModalScreen[Any]) -> None:
        super().__init__()
        self.asked = screen
        self.answers: list[str | None] = []
        self.text = ""

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.defaults()

    def on_mount(self) -> None:
        self.push_screen(self.asked, self._answered)

    def _answered(self, answer: Any) -> None:
        self.answers.append(answer() if callable(answer) else answer)


def asked(screen: ModalScreen[Any], *keys: str, size: tuple[int, int] = (90, 30), click: str = "") -> Asked:
    """The app after some keys; ``text`` is what was on the screen before the last one."""
    app = Asked(screen)

    async def main() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            for key in keys[:-1]:
                await pilot.press(key)
            await _look(app, pilot)
            for key in keys[-1:]:
                await pilot.press(key)
            if click:
                await pilot.click(click)
            await pilot.pause()

    asyncio.run(main())
    return app


async def _look(app: Asked, pilot: Pilot[Any]) -> None:
    await pilot.pause()
    app.text = "\n".join(strip.text for strip in strips_of(app))


def question(*answers: Answer, lines: Sequence[str] = ("it ends",)) -> Question:
    return Question("stop this run?", lines, answers or (STAY, STOP, KILL))


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (("enter",), "stay"),
        (("escape",), "stay"),
        (("right", "escape"), "stay"),
        (("n",), "stay"),
        (("s", "enter"), "stop"),
        (("K", "enter"), "kill"),
        (("s", "escape"), "stay"),
        (("s", "left", "enter"), "stay"),
        (("s", "n"), "stay"),
        (("right", "enter"), "stop"),
        (("right", "right", "left", "enter"), "stop"),
        (("tab", "tab", "enter"), "kill"),
        (("k", "x", "q", "enter"), "stay"),
    ],
)
def test_answers(keys: tuple[str, ...], answer: str) -> None:
    assert asked(question(), *keys).answers == [answer]


def test_a_click_answers() -> None:
    assert asked(question(), click="#answer-stop").answers == ["stop"]


def test_what_it_says() -> None:
    app = asked(question(lines=["ranks  0-63", "stop: SIGTERM"]))
    for words in (
        "stop this run?",
        "ranks  0-63",
        "stop: SIGTERM",
        "[n] stay",
        "[s] stop the run",
        "enter: stay · esc: stay",
    ):
        assert words in app.text
    assert "enter: stop the run · esc: stay" in asked(question(), "s", "").text


@pytest.mark.parametrize("size", [(50, 12), (80, 24)])
def test_the_answers_are_to_be_seen_on_a_small_screen(size: tuple[int, int]) -> None:
    app = asked(
        question(STAY, STOP, lines=[f"gpu{number:02d} SHA256:abc" for number in range(40)]), size=size
    )
    assert "[n] stay" in app.text
    assert "[s] stop the run" in app.text


def test_long_lines_of_words_can_be_read() -> None:
    lines = [f"line {number}" for number in range(60)]
    assert "line 59" not in asked(question(lines=lines)).text
    assert "line 59" in asked(question(lines=lines), *["pagedown"] * 5, "down").text
    assert "line 0" in asked(question(lines=lines), "pagedown", "pageup", "up").text


def test_nothing_in_it_is_markup_or_a_control() -> None:
    evil = "[/x][@click=app.quit]a\x1b]0;x\x07\u202e"
    app = asked(Question(evil, [evil], [Answer("stay", "[b]stay", "n")]), "n")
    assert app.answers == ["stay"]
    assert app.text.count("[/x][@click=app.quit]a\\x1b]0;x\\x07<U+202E>") == 2
    assert "[n] [b]stay" in app.text


def test_what_is_grave_is_marked_and_never_first() -> None:
    app = Asked(question())

    async def main() -> None:
        async with app.run_test() as pilot:
            await pilot.pause()
            assert isinstance(app.focused, Button)
            assert app.focused.id == "answer-stay"
            assert [b.id for b in app.screen.query(Button) if b.has_class("-grave")] == [
                "answer-stop",
                "answer-kill",
            ]

    asyncio.run(main())


# Help


def help_screen(**why: str) -> Finder:
    return Finder("keys", command_items(in_scope(RUN), lambda name: why.get(name, ""), str))


def test_every_command_is_there() -> None:
    app = asked(help_screen(), size=(120, 80))
    for command in in_scope(RUN):
        assert f" {command.title}" in app.text


def test_search_and_enter_runs_it() -> None:
    app = asked(help_screen(), *"next war", "enter")
    assert "next warning" in app.text
    assert "next match" not in app.text
    assert app.answers == ["next_warning"]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("typed", "runs"),
    [("pgdn", "page_down"), ("FREEZE", "freeze"), ("failed log", "failed_log"), ("osc 52", "copy")],
)
def test_it_is_found_by_key_name_or_words_of_its_help(typed: str, runs: str) -> None:
    assert asked(help_screen(), *(key.replace(" ", "space") for key in typed), "enter").answers == [runs]


def test_a_name_wins_over_words_of_a_help() -> None:
    assert asked(help_screen(), *"report", "enter").answers == ["collect"], "stopping speaks of reports too"


def test_arrows_choose() -> None:
    assert asked(help_screen(), *"rank", "down", "up", "down", "enter").answers != [None]
    assert asked(help_screen(), "pagedown", "pageup", "up", "enter").answers == ["keep"]


def test_enter_alone_runs_nothing_that_changes_the_run() -> None:
    assert asked(help_screen(), "enter").answers == ["collect"]
    assert asked(help_screen(), *"sigterm", "enter").answers == [], "its help alone speaks of it"
    assert asked(help_screen(), *"stop", "enter").answers == ["stop"], "asked for by its name"


def test_a_click_runs_it() -> None:
    app = Asked(help_screen())

    async def main() -> None:
        async with app.run_test(size=(100, 40)) as pilot:
            await pilot.pause()
            await pilot.click(OptionList, offset=(5, 2))
            await pilot.pause()

    asyncio.run(main())
    assert app.answers == ["keep"]


def test_escape_closes() -> None:
    assert asked(help_screen(), "x", "escape").answers == [None]


def test_nothing_found() -> None:
    app = asked(help_screen(), *"[/x]qqq", "enter")
    assert "nothing matches '[/x]qqq'" in app.text
    assert app.answers == []


def test_why_it_cannot_work_now() -> None:
    app = asked(help_screen(keep="nothing is about to be stopped"), "up", "enter", size=(120, 30))
    assert "· nothing is about to be stopped" in app.text
    assert "Not now: nothing is about to be stopped." in app.text
    assert app.answers == ["keep"], "the screen behind says why"
