"""The line in which a filter is typed."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input, Static

from cockpit.core.text import one_line
from cockpit.errors import CockpitError

WAIT_S = 0.05
"""After this many seconds without a key, the typed pattern is applied."""

HISTORY = 50
"""Patterns remembered."""

HINT = "enter keeps · esc clears"


def filter_mark(pattern: str) -> Content:
    """A filter on the frame of what it narrows: it hides something, so it must be noticeable."""
    shown = one_line(pattern, limit=40)
    return Content.assemble((f" /{shown}/ ", "bold reverse") if shown else "")


class FilterBar(Horizontal):
    """Applies a pattern while it is typed. Enter keeps it, esc clears it, up and down recall earlier ones.

    It is hidden until :meth:`open`, then takes the focus, and returns it when it closes. It has the class
    ``-open`` meanwhile.

    :param apply: called with the pattern; what it raises as :class:`CockpitError` is shown in the bar
    """

    DEFAULT_CSS = """
    FilterBar {
        height: 1;
        display: none;
        &.-open { display: block; }
        & > .filter-bar--prompt { width: 2; color: $key; text-style: bold; }
        & > Input { width: 1fr; height: 1; border: none; padding: 0; background: transparent; }
        & > .filter-bar--says { width: auto; max-width: 60%; padding: 0 1; color: $dim; }
        &.-bad > .filter-bar--says { color: $log-error; }
    }
    """

    # For keys that the field does not take.
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "cancel"),
        ("up", "recall(-1)"),
        ("down", "recall(1)"),
    ]

    def __init__(self, apply: Callable[[str], None], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._apply = apply
        self._history: list[str] = []
        self._place = 0
        self._draft = ""
        self._timer: Timer | None = None
        self._before: Widget | None = None
        self._live, self._hint = True, HINT

    def compose(self) -> ComposeResult:
        """The prompt, what is typed, and what there is to say about it."""
        yield Static("/", classes="filter-bar--prompt", markup=False)
        yield Input(compact=True, select_on_focus=False)
        yield Static(HINT, classes="filter-bar--says", markup=False)

    def open(
        self,
        pattern: str = "",
        apply: Callable[[str], None] | None = None,
        *,
        asks: str = "",
    ) -> None:
        """Show the bar with an initial pattern.

        :param apply: what applies it this time
        :param asks: it is no pattern but an answer to this, applied by enter alone
        """
        self._apply = apply or self._apply
        self._live, self._hint = not asks, asks or HINT
        self._before = self.screen.focused
        self._place, self._draft = len(self._history), pattern
        field = self.query_one(Input)
        with field.prevent(Input.Changed):
            field.value = pattern
        field.cursor_position = len(pattern)
        self._say("")
        self.add_class("-open")
        field.focus()

    def close(self) -> None:
        """Hide the bar; the filter stays as it is."""
        self._stop_timer()
        self.remove_class("-open")
        if self._before is not None and self._before.is_attached:
            self._before.focus()

    @on(Input.Changed)
    def _apply_soon(self, event: Input.Changed) -> None:
        event.stop()
        if not self._live:
            self._say("")
            return
        self._stop_timer()
        self._timer = self.set_timer(WAIT_S, self._apply_now)

    @on(Input.Submitted)
    def _keep(self, event: Input.Submitted) -> None:
        event.stop()
        if self._apply_now():
            self._finish(event.value)

    def action_cancel(self) -> None:
        """Clear the filter and close."""
        if self._live:
            self._apply("")
        self._finish("")

    def action_recall(self, step: int) -> None:
        """Recall an earlier (-1) or later (1) pattern."""
        field = self.query_one(Input)
        if self._place == len(self._history):
            self._draft = field.value
        self._place = max(0, min(self._place + step, len(self._history)))
        field.value = self._history[self._place] if self._place < len(self._history) else self._draft
        field.cursor_position = len(field.value)

    def _finish(self, pattern: str) -> None:
        if pattern:
            self._history = [*(old for old in self._history if old != pattern), pattern][-HISTORY:]
        self.close()

    def _apply_now(self) -> bool:
        self._stop_timer()
        try:
            self._apply(self.query_one(Input).value)
        except CockpitError as error:
            self._say(error.what)
            return False
        self._say("")
        return True

    def _say(self, reason: str) -> None:
        self.set_class(bool(reason), "-bad")
        self.query_one(".filter-bar--says", Static).update(reason or self._hint)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
