"""Questions: what will happen to whom, and the safe answer has the focus."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events, getters
from textual._time import get_time
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from cockpit.core.text import one_line


@dataclass(frozen=True)
class Answer:
    """One way to answer.

    :param key: the letter that gives it
    :param grave: drawn as a warning; its letter only selects it, and enter gives it, but only if pressed once
        the question could be read. So nothing that was typed for something else gives it.
    """

    id: str
    text: str
    key: str
    grave: bool = False


MOST_LINES = 16
"""Lines of text shown at once."""

AROUND = 8
"""Rows that are not for text: the frame, the answers, and the margin around it."""


class Question(ModalScreen[str]):
    """Ask one thing; the first answer is the safe one: it is preselected, and esc gives it.

    :param title: the question in a few words
    :param lines: what it is about, and what each answer does
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "safe"),
        ("left", "choose(-1)"),
        ("right", "choose(1)"),
        ("up", "scroll('up')"),
        ("down", "scroll('down')"),
        ("pageup", "scroll('page_up')"),
        ("pagedown", "scroll('page_down')"),
    ]

    DEFAULT_CSS = """
    Question { align: center middle; }
    Question > Vertical {
        width: 76; max-width: 96%; height: auto;
        border: round $key; background: $surface; padding: 1 2;
        border-title-color: $key; border-title-style: bold; border-subtitle-color: $dim;
    }
    Question VerticalScroll { height: auto; scrollbar-size-vertical: 1; }
    Question Static { width: 1fr; }
    Question Horizontal { height: auto; margin-top: 1; }
    Question Button {
        margin-right: 2; min-width: 8; background: $panel; color: $foreground; text-style: none;
        &.-grave { color: $rank-failed; }
        &:focus { text-style: bold reverse; }
    }
    """

    _words = getters.query_one(VerticalScroll)

    def __init__(self, title: str, lines: Sequence[str], answers: Sequence[Answer]) -> None:
        super().__init__()
        self._title = title
        self._lines = lines
        self._answers = answers
        self._readable_since = math.inf

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            with VerticalScroll(can_focus=False):
                yield Static("\n".join(map(harmless, self._lines)), markup=False)
            with Horizontal():
                for answer in self._answers:
                    yield Button(
                        Content(f"[{answer.key}] {answer.text}"),
                        id=f"answer-{answer.id}",
                        classes="-grave" if answer.grave else "",
                        compact=True,
                    )
        box.border_title = Content(f" {harmless(self._title)} ")

    def on_mount(self) -> None:
        self.query(Button).first().focus()
        self.call_after_refresh(self._drawn)

    @property
    def readable(self) -> bool:
        """Whether it has been drawn: only then does enter give a grave answer."""
        return self._readable_since < math.inf

    def _drawn(self) -> None:
        self._readable_since = get_time()

    def on_descendant_focus(self) -> None:
        """Say what enter does now."""
        safe, chosen = self._answers[0].text, self._chosen
        enter = f"enter: {chosen.text} · " if chosen is not None else ""
        self.query_one(Vertical).border_subtitle = Content(f" {enter}esc: {safe} ")

    @property
    def _chosen(self) -> Answer | None:
        """The answer that has the focus."""
        return next((each for each in self._answers if self.focused is self._button(each)), None)

    def _button(self, answer: Answer) -> Button:
        return self.query_one(f"#answer-{answer.id}", Button)

    def on_resize(self, event: events.Resize) -> None:
        # The text scrolls, so that there is always room for the answers.
        self._words.styles.max_height = max(1, min(MOST_LINES, event.size.height - AROUND))

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self.dismiss(str(event.button.id).removeprefix("answer-"))

    def action_safe(self) -> None:
        """The safe answer."""
        self.dismiss(self._answers[0].id)

    def action_choose(self, step: int) -> None:
        """The next answer, or the one before."""
        (self.focus_next if step > 0 else self.focus_previous)()

    def action_scroll(self, how: str) -> None:
        """The text may be longer than the box."""
        getattr(self._words, f"scroll_{how}")(animate=False)

    def on_key(self, event: events.Key) -> None:
        if event.key == "enter" and event.time < self._readable_since:
            chosen = self._chosen
            if chosen is not None and chosen.grave:
                event.stop()
        for answer in self._answers:
            if event.key == answer.key:
                event.stop()
                if answer.grave:
                    self._button(answer).focus()
                else:
                    self.dismiss(answer.id)


def harmless(text: str) -> str:
    """Lines that may quote a node."""
    return "\n".join(one_line(line) for line in text.split("\n"))
