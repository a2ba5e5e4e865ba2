"""Questions: what will happen to whom, and the safe answer has the focus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from cockpit.core.text import RemoteText


@dataclass(frozen=True)
class Answer:
    """One way to answer.

    :param key: a letter that gives it
    :param danger: drawn as a warning
    """

    id: str
    text: str
    key: str
    danger: bool = False


MOST_LINES = 16
"""Lines of words that are shown at once."""

AROUND = 8
"""Rows that are not for words: the frame, the answers, and what stays free around it."""


class Question(ModalScreen[str]):
    """Ask one thing; the first answer is the safe one: it has the focus, and esc gives it.

    :param title: the question in a few words
    :param lines: what it is about, and what each answer does
    """

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
        &.-danger { color: $rank-failed; }
        &:focus { text-style: bold reverse; }
    }
    """

    def __init__(self, title: str, lines: Sequence[str], answers: Sequence[Answer]) -> None:
        super().__init__()
        self._title = title
        self._lines = lines
        self._answers = answers

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            with VerticalScroll(can_focus=False):
                yield Static("\n".join(map(_harmless, self._lines)), markup=False)
            with Horizontal():
                for answer in self._answers:
                    yield Button(
                        Content(f"[{answer.key}] {answer.text}"),
                        id=f"answer-{answer.id}",
                        classes="-danger" if answer.danger else "",
                        compact=True,
                    )
        box.border_title = Content(f" {_harmless(self._title)} ")
        box.border_subtitle = Content(f" esc: {self._answers[0].text} ")

    def on_mount(self) -> None:
        self.query(Button).first().focus()

    def on_resize(self, event: events.Resize) -> None:
        # What it is about scrolls, so that there is always room for the answers.
        self._words.styles.max_height = max(1, min(MOST_LINES, event.size.height - AROUND))

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self.dismiss(str(event.button.id).removeprefix("answer-"))

    def key_escape(self) -> None:
        """The safe answer."""
        self.dismiss(self._answers[0].id)

    def key_left(self) -> None:
        """The answer before."""
        self.focus_previous()

    def key_right(self) -> None:
        """The next answer."""
        self.focus_next()

    def key_up(self) -> None:
        """What it is about may be longer than the box."""
        self._words.scroll_up(animate=False)

    def key_down(self) -> None:
        """As above."""
        self._words.scroll_down(animate=False)

    def key_pageup(self) -> None:
        """As above."""
        self._words.scroll_page_up(animate=False)

    def key_pagedown(self) -> None:
        """As above."""
        self._words.scroll_page_down(animate=False)

    @property
    def _words(self) -> VerticalScroll:
        return self.query_one(VerticalScroll)

    def on_key(self, event: events.Key) -> None:
        for answer in self._answers:
            if event.key == answer.key:
                event.stop()
                self.dismiss(answer.id)
                return


def _harmless(text: str) -> str:
    """Lines that may quote a node."""
    return "\n".join(RemoteText.of(line).shown() for line in text.split("\n"))
