"""The dialog for what has to be typed, such as what a login needs: nobody else gets to see it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from textual import events, on
from textual._time import get_time
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from cockpit.transport.login_prompts import Challenge, Prompt
from cockpit.tui.panes.dialogs import harmless

AROUND = 5
"""Rows that are not for text and answers: the frame, and its margin."""

LOOK_S = 0.5
"""Between two looks at who else waits for the answer."""


class _Field(Input):
    """An answer; an enter that was typed before the question could be read was meant for something else."""

    async def _on_key(self, event: events.Key) -> None:
        assert isinstance(self.screen, LoginDialog)
        if event.key == "enter" and event.time < self.screen.readable_since:
            event.stop()
            event.prevent_default()
        else:
            await super()._on_key(event)

    def action_copy(self) -> None:
        """A password stays here."""
        if not self.password:
            super().action_copy()

    def action_cut(self) -> None:
        """A password stays here."""
        if not self.password:
            super().action_cut()


class Asked(Protocol):
    """What is to be typed; see :class:`cockpit.transport.login_prompts.Challenge`."""

    @property
    def title(self) -> str:
        """The question in a few words."""

    @property
    def hop(self) -> str:
        """Whose login it is, if it is one."""

    @property
    def told(self) -> tuple[str, ...]:
        """What the server says before that."""

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """One or more."""

    @property
    def does(self) -> str:
        """What the last enter does."""

    def about(self) -> list[str]:
        """What it is about, in lines."""


class LoginDialog(ModalScreen[tuple[str, ...] | None]):
    """Asks for the answers of one challenge; esc gives up on this login."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "give_up")]

    DEFAULT_CSS = """
    LoginDialog { align: center middle; }
    LoginDialog > Vertical {
        width: 76; max-width: 96%; height: auto; max-height: 96%;
        border: round $key; background: $surface; padding: 1 2;
        border-title-color: $key; border-title-style: bold; border-subtitle-color: $dim;
    }
    LoginDialog VerticalScroll { height: auto; scrollbar-size-vertical: 1; }
    LoginDialog Static { width: 1fr; }
    LoginDialog .prompt { margin-top: 1; text-style: bold; }
    LoginDialog .told { color: $dim; }
    LoginDialog Input { padding: 0 1; background: $panel; }
    """

    def __init__(self, challenge: Asked) -> None:
        super().__init__()
        self._challenge = challenge
        self.readable_since = math.inf
        """When it had been drawn; an enter before that is not for it."""

    def compose(self) -> ComposeResult:
        challenge = self._challenge
        with Vertical() as box, VerticalScroll(can_focus=False):
            yield Static(self._about(), id="about", markup=False)
            for line in challenge.told:
                yield Static(harmless(f"{challenge.hop} says: {line}"), classes="told", markup=False)
            for prompt in challenge.prompts:
                yield Static(harmless(prompt.text) or "answer:", classes="prompt", markup=False)
                yield _Field(password=not prompt.echo, compact=True)
        box.border_title = Content(f" {harmless(challenge.title)} ")
        box.border_subtitle = Content(f" enter: {challenge.does} · esc: cancel ")

    def on_resize(self, event: events.Resize) -> None:
        self.query_one(VerticalScroll).styles.max_height = max(1, event.size.height - AROUND)

    def _about(self) -> str:
        return "\n".join(map(harmless, self._challenge.about()))

    def on_mount(self) -> None:
        self.query(Input).first().focus()
        self.call_after_refresh(self._drawn)
        self.set_interval(LOOK_S, lambda: self.query_one("#about", Static).update(self._about()))

    def _drawn(self) -> None:
        self.readable_since = get_time()

    @on(Input.Submitted)
    def _next(self, event: Input.Submitted) -> None:
        event.stop()
        fields = list(self.query(Input))
        at = fields.index(event.input)
        if not event.value and event.input.password:
            return  # an empty answer would be counted as a wrong one
        if at + 1 < len(fields):
            fields[at + 1].focus()
        else:
            self.dismiss(tuple(each.value for each in fields))

    def action_give_up(self) -> None:
        """No answer."""
        self.dismiss(None)


class LoginPrompter:
    """Asks in the app. See :class:`cockpit.transport.login_prompts.Prompter`."""

    absent = ""

    def __init__(self, app: App[Any]) -> None:
        self._app = app

    async def ask(self, challenge: Challenge) -> Sequence[str] | None:
        """See :meth:`cockpit.transport.login_prompts.Prompter.ask`."""
        dialog = LoginDialog(challenge)
        answer: asyncio.Future[Sequence[str] | None] = asyncio.get_running_loop().create_future()

        def take(given: Sequence[str] | None) -> None:
            if not answer.done():
                answer.set_result(given)

        self._app.push_screen(dialog, take)
        try:
            return await answer
        finally:
            if dialog.is_current:
                dialog.dismiss(None)
