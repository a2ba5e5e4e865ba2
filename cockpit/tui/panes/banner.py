"""What banners of screens share: lines that take no room while there is nothing to say, and a click."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from textual.message import Message
from textual.strip import Strip

from cockpit.tui.panes.line import Part
from cockpit.tui.panes.meanings import MEANINGS, Meaningful


class Banner(Meaningful):
    """As many lines as there is to say; none: it is not there.

    :param keys: the key of a command, by its id
    """

    DEFAULT_CSS = """
    Banner {
        height: 0; display: none; color: $foreground;
        &.-shown { display: block; height: auto; }
    }
    """
    MEANINGS: ClassVar[Mapping[str, str]] = {**MEANINGS, "dim": "foreground:0.7"}

    class Pressed(Message):
        """It was clicked."""

    acts = True
    """Whether anything can be done about what it says: it names keys for that."""

    def __init__(self, *, keys: Callable[[str], str] = str, id: str | None = None) -> None:
        super().__init__(id=id)
        self._keys = keys
        self.lines: list[list[Part]] = []

    def set_lines(self, lines: list[list[Part]]) -> None:
        """Draw these, if they are others than before."""
        if lines == self.lines:
            return
        taller = len(lines) != len(self.lines)
        self.lines = lines
        self.set_class(bool(lines), "-shown")
        self.refresh(layout=taller)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        """As many lines as there are."""
        return len(self.lines)

    def render_line(self, y: int) -> Strip:
        if y >= len(self.lines):
            return Strip.blank(self.size.width, self.rich_style)
        return self.drawn_line(y)

    def drawn_line(self, y: int) -> Strip:
        """One of the lines."""
        raise NotImplementedError

    def on_click(self) -> None:
        self.post_message(self.Pressed())
