"""What happened in a run, when, on one clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from cockpit.core.run.event_table import Entry
from cockpit.tui.look.units import clock_text, day_text
from cockpit.tui.panes.list_pane import ListPane
from cockpit.tui.panes.text_pane import Line, Piece, hanging

WIDE = 70
"""From this width on, times have milliseconds."""


class EventList(ListPane[Entry]):
    """The entries of a timeline in the order they happened, the newest last."""

    SIGNS: ClassVar[dict[str, tuple[str, str]]] = {"warning": ("▲", "!"), "error": ("✖", "X")}
    """By level, for terminals with and without Unicode: never colour alone."""

    FOLLOWS = True
    empty = ("nothing has happened yet",)

    def show(self, entries: Iterable[Entry]) -> None:
        """Show these; late entries are put where they belong."""
        self.show_items(sorted(entries, key=_at))

    def item_lines(self, item: Entry, before: Entry | None, width: int) -> Iterator[Line]:
        """Time, sign and text; a new day above the first entry of it."""
        day = day_text(item.at)
        if before is not None and day != day_text(before.at):
            yield Line((Piece(day, "label"),), heading=True)
        at = clock_text(item.at, 12 if width >= WIDE else 8)
        sign = self.SIGNS.get(item.level, (" ", " "))[self.ascii_only]
        role = item.level if item.level in self.SIGNS else ""
        yield from hanging((Piece(f"{at} ", "time"), Piece(f"{sign} ", role)), item.text, width, role)


def _at(entry: Entry) -> float:
    # A node may say that it is NaN o'clock, which would break any order.
    return entry.at if entry.at == entry.at else 0.0
