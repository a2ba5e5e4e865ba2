"""A pane in which the arrow and page keys move, whatever the keys of the commands are."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from textual import events, on
from textual.binding import BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView

from cockpit.tui.panes.meanings import Meaningful


class MovingPane(ScrollView, Meaningful, can_focus=True, inherit_bindings=False):
    """What moves, and how far, is up to the pane."""

    DEFAULT_CLASSES = "pane"  # a class added later has all that a screen shows styled once more
    BINDINGS: ClassVar[list[BindingType]] = [
        ("up", "move(-1)"),
        ("down", "move(1)"),
        ("pageup", "page(-1)"),
        ("pagedown", "page(1)"),
        ("home", "home"),
        ("end", "end"),
    ]

    _fitted = Size()

    def on_mount(self) -> None:
        """Learn of each layout."""
        self.screen.screen_layout_refresh_signal.subscribe(self, self._laid_out)

    @on(events.Resize)
    def _fits(self) -> None:
        self._fitted = self.size

    def _laid_out(self, _: object) -> None:
        """Send the event of a new size that Textual left out: where somebody asked for the region of a widget
        before the layout, that compares the new sizes with themselves."""
        if self.size != self._fitted:
            self.call_later(self._fit)  # behind the event, if there is one

    def _fit(self) -> None:
        if self.size != self._fitted:
            self.post_message(events.Resize(self.size, self.virtual_size, self.container_size))

    @abstractmethod
    def move(self, rows: int) -> None:
        """Move down by this many rows."""

    @abstractmethod
    def page(self, step: int) -> None:
        """Move by a screen: ``step`` 1 down, -1 up."""

    @abstractmethod
    def home(self) -> None:
        """Go to the beginning."""

    @abstractmethod
    def end(self) -> None:
        """Go to the end."""

    def action_move(self, rows: int) -> None:
        """Of the arrow keys."""
        self.move(rows)

    def action_page(self, step: int) -> None:
        """Of the page keys."""
        self.page(step)

    def action_home(self) -> None:
        """Of the home key."""
        self.home()

    def action_end(self) -> None:
        """Of the end key."""
        self.end()
