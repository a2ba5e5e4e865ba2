"""All stacks as one tree: in front of each frame the ranks that are in it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

from rich.cells import cell_len
from textual import events

from cockpit.base.stacks.kinds import WAITING
from cockpit.core.cutting import cut_middle
from cockpit.core.inferred import with_mark
from cockpit.core.masks import count
from cockpit.core.ranks import mask_text
from cockpit.core.stacks.classes import RankClass
from cockpit.core.stacks.tree_lines import Key, TreeRow, place
from cockpit.tui.panes.list_pane import ListPane
from cockpit.tui.panes.text_pane import Line, LinesLater, Piece
from cockpit.tui.stacks.labels import cut
from cockpit.tui.stacks.view_model import Folding, Sight

RANKS = (4, 14)
"""Columns for the ranks in front, minimum and maximum."""

MEASURED = 100
"""How many rank sets are measured before the columns are set."""

PLACE = 8
"""Columns below which a file is not worth drawing."""


class StackTreePane(ListPane[TreeRow]):
    """The tree; until a person moves the cursor it is on the innermost frame of the chosen rank."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._told: Sight | None = None
        self._sight: Sight | None = None
        self.folding: Folding = (frozenset(), False)
        """The keys of the lines that are unfolded, and whether every frame of a library is shown."""
        self._chosen: int | None = None
        self._columns = RANKS[0]
        self._arrived: dict[Key, int] = {}
        """Where ranks have moved to: the innermost line of each of them, with the ranks."""
        self._sources: dict[Key, str] = {}
        """The line of code at a frame, if known."""

    def show(self, sight: Sight, *, chosen: int | None) -> None:
        """Draw this.

        :param chosen: the rank whose threads are shown beside it
        """
        same, moved = sight is self._told, chosen != self._chosen
        self._told, self._chosen = sight, chosen
        if not same:
            self._arrange(sight)
        elif moved:
            self.rebuild()
        if not self.touched and (moved or not same):
            self._go_to_chosen()

    def fold_libraries(self) -> None:
        """Show every frame of a library, or fold them again."""
        self._fold((self.folding[0], not self.folding[1]))

    def _fold(self, folding: Folding) -> None:
        self.folding = folding
        self.touched = True
        if self._sight is not None:
            self._arrange(self._sight)

    def _arrange(self, sight: Sight) -> None:
        sight = self._sight = sight.folded(self.folding)
        found = sight.rows
        masks = islice(dict.fromkeys(row.ranks for row in found), MEASURED)
        inferred = sight.snapshot.inferred
        longest = max((cell_len(mask_text(mask)) + bool(mask & inferred) for mask in masks), default=0)
        self._columns = max(RANKS[0], min(RANKS[1], longest))
        self._arrived = dict(_arrivals(found, sight.moved))
        self._sources = dict(_sources(sight.classes))
        self.show_items(found)

    def build(self, width: int) -> Sequence[Line]:
        """One line per row; each is made when it is drawn, since there may be tens of thousands."""
        if not self.items:
            return super().build(width)
        self._starts = range(len(self.items))
        return LinesLater(partial(self._line, row, width) for row in self.items)

    def _go_to_chosen(self) -> None:
        chosen = self._chosen
        if chosen is None:
            return
        own = [row for row in self.items if row.ranks >> chosen & 1]
        if own:
            self.put_on(self.key_of(own[-1]), touched=False)

    def toggle(self) -> bool:
        """Fold or unfold the row under the cursor.

        :return: whether there was something to fold or unfold
        """
        row = self.current
        if row is None or not row.folded:
            return False
        self._fold((self.folding[0] ^ {row.key}, self.folding[1]))
        return True

    def on_resize(self, event: events.Resize) -> None:
        """Lines depend on the width; the chosen rank stays in view."""
        self.rebuild()
        if not self.touched:
            self._go_to_chosen()

    def key_of(self, item: TreeRow) -> Hashable:
        """Its place in the tree; the line that stands for folded frames has that of the first of them."""
        return item.key, item.frame is None

    def item_lines(self, item: TreeRow, before: TreeRow | None, width: int) -> Sequence[Line]:
        """The ranks, the frame, and what there is to say about it."""
        return [self._line(item, width)]

    def _line(self, row: TreeRow, width: int) -> Line:
        return Line(tuple(self._pieces(row, width)))

    def _pieces(self, row: TreeRow, width: int) -> Iterator[Piece]:
        own = self._chosen is not None and row.ranks >> self._chosen & 1
        role = "odd" if row.odd else "title" if own else ""
        inferred = self._sight.snapshot.inferred if self._sight is not None else 0
        ranks = with_mark(inferred, row.ranks, self._columns)
        yield Piece(f"{ranks:<{self._columns}} ", "odd" if row.odd else "label")
        yield Piece(row.guides, "warning" if row.odd else "label")
        left = width - self._columns - 1 - cell_len(row.guides)
        note, note_role = self._note(row, left)
        if row.frame is None:
            name, place, role = f"… {row.note}", "", "label"
        else:
            name, place = row.frame.name, row.frame.place
        name = cut(name, max(4, left))
        yield Piece(name, role)
        left -= cell_len(name)
        if note and left < len(note) + 2:
            note = ""
        left -= len(note) + 2 if note else 0
        source = self._sources.get(row.key, "") if row.frame is not None else ""
        place = cut_middle(place, left - 2) if left > PLACE else ""
        if place:
            yield Piece(f"  {place}", "label")
            left -= cell_len(place) + 2
        if source and left > 2 * PLACE:
            text = cut(source, left - 2)
            yield Piece(f"  {text}")
            left -= cell_len(text) + 2
        if note:
            yield Piece(" " * max(2, left + 2))
            yield Piece(note, note_role)

    def _note(self, row: TreeRow, room: int) -> tuple[str, str]:
        """What stands at the right."""
        arrived = self._arrived.get(row.key, 0) if row.frame is not None else 0
        if arrived:
            which = "" if arrived == row.ranks else f"{count(arrived):,} "
            return f"{which}moved here", "running"
        if row.missing:
            here, missing = f"{count(row.here):,} here", f"{count(row.missing):,} missing"
            # If there is little room, the name says more.
            return (f"{here} · {missing}" if room > 50 else here), "warning" if row.odd else "label"
        if row.kind in WAITING:
            return "waits", "waits"
        return "", ""


def _arrivals(found: Sequence[TreeRow], moved: int) -> Iterator[tuple[Key, int]]:
    left = moved
    # From below, the innermost line of a rank comes first.
    for row in reversed(found):
        if row.ranks & left:
            yield row.key, row.ranks & left
            left &= ~row.ranks


def _sources(classes: Iterable[RankClass]) -> Iterator[tuple[Key, str]]:
    for each in classes:
        frame = each.doing.frame
        if each.source and frame is not None:
            inner = len(each.frames) - each.frames[::-1].index(frame) if frame in each.frames else 0
            yield place(each.frames[:inner]), each.source
