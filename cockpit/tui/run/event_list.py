"""What happened in a run, when, on one clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from cockpit.core.logs.query import Query
from cockpit.core.run.event_table import Entry
from cockpit.tui.logs.filter_bar import filter_mark
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
    NONE = "nothing has happened yet"
    empty = (NONE,)

    open_key = "enter"
    """The key that opens an event."""
    back_key = "esc"
    """The key that clears a filter."""

    _entries: Sequence[Entry] = ()
    _wanted = Query()

    def show(self, entries: Sequence[Entry]) -> None:
        """Show these; late entries are put where they belong."""
        self._entries = entries
        self.show_items(sorted(filter(self._matches, entries), key=_at))

    @property
    def filter(self) -> str:
        """The filter as it is typed."""
        return self._wanted.text

    def set_filter(self, text: str) -> None:
        """Show only events that match, of the ranks and nodes it begins with; see :class:`Query`.

        :raises CockpitError: it makes no sense; the old filter stays
        """
        self._wanted = Query.typed(text)
        self.empty = (f"no event matches /{text}/ · {self.back_key} clears" if text else self.NONE,)
        self.border_subtitle = filter_mark(self.filter)
        self.show(self._entries)
        self.rebuild()  # of no entry it may say another filter

    def _matches(self, entry: Entry) -> bool:
        wanted = self._wanted
        if not any(wanted.takes(*source) for source in entry.sources or [(entry.node, entry.rank)]):
            return False
        return wanted.matcher is None or wanted.matcher.matches(entry.text.encode(errors="replace"))

    def item_lines(self, item: Entry, before: Entry | None, width: int) -> Iterator[Line]:
        """Time, sign and text; a new day above the first entry of it."""
        day = day_text(item.at)
        if before is not None and day != day_text(before.at):
            yield Line((Piece(day, "label"),), heading=True)
        at = clock_text(item.at, 12 if width >= WIDE else 8)
        sign = self.SIGNS.get(item.level, (" ", " "))[self.ascii_only]
        role = item.level if item.level in self.SIGNS else ""
        text = f"{item.text} · {self.open_key} opens it" if item.evidence else item.text
        yield from hanging((Piece(f"{at} ", "time"), Piece(f"{sign} ", role)), text, width, role)


def _at(entry: Entry) -> float:
    # A node may say that it is NaN o'clock, which would break any order.
    return entry.at if entry.at == entry.at else 0.0
