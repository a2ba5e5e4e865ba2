"""A pane in which the arrow and page keys move, whatever the keys of the commands are."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from textual.binding import BindingType
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
