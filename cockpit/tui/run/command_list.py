"""The exact shell commands that cockpit ran, to read and to copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cockpit.core.text import one_line
from cockpit.tui.look.units import clock_text
from cockpit.tui.panes.list_pane import ListPane
from cockpit.tui.panes.text_pane import Line, Piece, fold, hanging


@dataclass(frozen=True)
class Ran:
    """Something cockpit did, as a person would type it.

    :param at: unix seconds on our clock
    :param title: what it is for, like ``launch on gpu01``
    :param text: the command or script, of any number of lines; may hold what a node sent
    """

    at: float
    title: str
    text: str


class CommandList(ListPane[Ran]):
    """Commands in the order they ran, the newest last."""

    FOLLOWS = True
    empty = ("no command was run yet",)

    def show(self, commands: Sequence[Ran]) -> None:
        """Show these."""
        self.show_items(tuple(commands))  # the caller goes on filling its list

    def item_lines(self, item: Ran, before: Ran | None, width: int) -> Iterator[Line]:
        """Time and title, below them the command, indented; an empty line between two commands."""
        if before is not None:
            yield Line(heading=True)
        title = one_line(item.title, limit=400)
        yield from hanging((Piece(clock_text(item.at, 8) + " ", "time"),), title, width, "title")
        indent = "  " if width >= 30 else ""
        for text in _shown(item.text):
            role = "label" if text.lstrip().startswith("#") else ""
            for number, piece in enumerate(fold(text, max(1, width - len(indent)))):
                yield Line((Piece(indent), Piece(piece, role)), len(indent), joins=number > 0)

    def copy_text(self) -> str:
        """The command under the cursor, without its title: ready to be pasted."""
        item = self.current
        return "\n".join(_shown(item.text)) if item else ""


def _shown(text: str) -> list[str]:
    return [one_line(line) for line in text.rstrip("\n").split("\n")]
