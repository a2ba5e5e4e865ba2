"""A text pane of items with a cursor that stays on its item, in place, when other items come and go."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any, ClassVar, Generic, TypeVar

from textual import events
from textual.message import Message

from cockpit.core.text import one_line
from cockpit.tui.panes.meanings import MEANINGS
from cockpit.tui.panes.text_pane import Line, TextPane, copied, hanging

T = TypeVar("T")


class ListPane(TextPane, Generic[T]):
    """Items of one or more lines each; the first one has the cursor until a person moves it.

    In a pane that :attr:`FOLLOWS`, items are oldest first. None has the cursor until a person moves it, and
    the newest stays in view; moving past the last one resumes following.
    """

    DEFAULT_CSS = "ListPane { scrollbar-size-horizontal: 0; }"
    MEANINGS: ClassVar[Mapping[str, str]] = {**MEANINGS, "strong": "key bold"}
    FOLLOWS: ClassVar[bool] = False
    EMPTY_ROLE: ClassVar[str] = "label"

    empty: Sequence[str] = ()
    """What is said while there is no item, each on lines of its own."""

    @dataclass
    class Moved(Message):
        """A person moved the cursor."""

        pane: ListPane[Any]

    @dataclass
    class Opened(Message):
        """The item under the cursor was opened by a double click."""

        pane: ListPane[Any]

    def __init__(self, *, ascii_only: bool = False, id: str | None = None) -> None:
        super().__init__(ascii_only=ascii_only, id=id)
        self.items: Sequence[T] = ()
        self.touched = False
        """Whether a person has moved the cursor."""
        self._starts: Sequence[int] = ()  # the line each item begins at
        self._place = 0
        self._drawn: dict[int, tuple[tuple[object, ...], Sequence[Line]]] = {}
        """What was drawn for each item, and from what: of a thousand, one or two change at a time."""

    def key_of(self, item: T) -> Hashable:
        """What identifies an item when all are set again."""
        return id(item)

    def drawn_from(self, item: T, before: T | None, width: int) -> tuple[object, ...]:
        """All that the lines of an item depend on; ``before`` is the one above it."""
        return item, before, width

    @abstractmethod
    def item_lines(self, item: T, before: T | None, width: int) -> Iterable[Line]:
        """The lines of an item; headings only separate it from its neighbours."""

    def empty_lines(self, width: int) -> Sequence[Line]:
        """What to show when there is no item."""
        return [
            line
            for text in self.empty
            for line in hanging((), one_line(text, limit=2000), width, self.EMPTY_ROLE)
        ]

    def show_items(self, items: Sequence[T]) -> None:
        """Show these."""
        if self.FOLLOWS and len(items) == len(self.items) and all(map(is_, items, self.items)):
            return
        current = self.current
        above = self._starts[self.place] - self.scroll_offset.y if self.place < len(self._starts) else 0
        self.items = items
        place = 0
        if self.touched and current is not None:
            key = self.key_of(current)
            found = (place for place, item in enumerate(items) if self.key_of(item) == key)
            place = next(found, min(self._place, max(0, len(items) - 1)))
        self._place = place
        # Nothing is built while the pane is hidden: the old items' lines are not those of the new ones.
        self._starts = ()
        self.rebuild()
        if self.touched and self._starts:
            self._bring(self._starts[place] - above)

    def build(self, width: int) -> Sequence[Line]:
        """Every item's lines; those of items that look as before are not made again."""
        lines: list[Line] = []
        starts = []
        drawn = {}
        before: T | None = None
        for item in self.items:
            source = self.drawn_from(item, before, width)
            known = self._drawn.get(id(item))
            if known is None or known[0] != source:
                known = source, [*self.item_lines(item, before, width)]
            drawn[id(item)] = known
            starts.append(len(lines))
            lines.extend(known[1])
            before = item
        self._drawn, self._starts = drawn, starts
        return lines or self.empty_lines(width)

    def rebuild(self) -> None:
        """Build the lines again; while following the newest item stays in view."""
        super().rebuild()
        if self.following:
            self._bring(self.max_scroll_y)

    def on_resize(self, event: events.Resize) -> None:
        """Lines depend on the width; the item a person put the cursor on stays in view."""
        self.rebuild()
        if self.touched:
            self._put(self._place, tell=False)

    # The cursor

    @property
    def following(self) -> bool:
        """Whether the newest item is in view; there is no cursor then."""
        return self.FOLLOWS and not self.touched

    @property
    def place(self) -> int:
        """The place of the item under the cursor; of the newest while following."""
        return max(0, len(self.items) - 1) if self.following else self._place

    @property
    def current(self) -> T | None:
        """The item under the cursor, the newest while following; None if there is no item."""
        return self.items[self.place] if self.place < len(self.items) else None

    def put_on(self, key: Hashable, *, touched: bool = True) -> bool:
        """Put the cursor on an item.

        :return: whether there is an item with this key
        """
        for place, item in enumerate(self.items):
            if self.key_of(item) == key:
                self.touched = self.touched or touched
                self._put(place, tell=False)
                return True
        return False

    def move(self, rows: int) -> None:
        """Move the cursor by items; an item taller than the pane is scrolled through first."""
        if not self._starts:
            super().move(rows)
            return
        if self.following:
            self._put(self.place)
            if rows > 0:
                return
        first, last = self._lines_of(self._place)
        top, height = self.scroll_offset.y, self.scrollable_size.height
        if rows > 0 and last >= top + height > first:
            self._bring(min(top + rows, last - height + 1))
        elif rows < 0 and first < top <= last:
            self._bring(max(top + rows, first))
        elif self._place + rows >= len(self.items):
            self.end()
        else:
            self._put(max(0, self._place + rows))

    def page(self, step: int) -> None:
        """Scroll by a screen; the cursor comes along."""
        if not self._starts:
            super().page(step)
            return
        height, top = self.scrollable_size.height, self.scroll_offset.y
        if step > 0 and top >= self.max_scroll_y:
            self.end()
            return
        goal = max(0, min(top + step * max(1, height - 1), self.max_scroll_y))
        first, last = self._item_at(goal), self._item_at(goal + height - 1)
        self._take(0 if goal == top == 0 else max(first, min(self.place, last)))
        self._bring(goal)
        self.refresh()

    def home(self) -> None:
        """Go to the first item."""
        self._put(0)

    def end(self) -> None:
        """Go to the last item, or follow."""
        if not self.FOLLOWS:
            self._put(max(0, len(self.items) - 1))
            return
        self.touched = False
        self._bring(self.max_scroll_y)
        self.refresh()

    def is_marked(self, y: int) -> bool:
        """Whether the item under the cursor is drawn on this line."""
        if self.following or self._place >= len(self._starts) or self.lines[y].heading:
            return False
        first, last = self._lines_of(self._place)
        return first <= y <= last

    def copy_text(self) -> str:
        """The item under the cursor."""
        if not self._starts:
            return super().copy_text()
        first, last = self._lines_of(self.place)
        return copied((line, 0, -1) for line in self.lines[first : last + 1] if not line.heading)

    def _put(self, place: int, *, tell: bool = True) -> None:
        """Put the cursor there, and scroll as little as needed."""
        if tell:
            self._take(place)
        self._place = place
        if place < len(self._starts):
            first, last = self._lines_of(place)
            top, height = self.scroll_offset.y, self.scrollable_size.height
            if first < top or last - first >= height:
                self._bring(first)
            elif last >= top + height:
                self._bring(last - height + 1)
        self.refresh()

    def _take(self, place: int) -> None:
        """A person put the cursor there."""
        self._place = place
        if self.items:
            self.touched = True
            self.post_message(self.Moved(self))

    def _lines_of(self, place: int) -> tuple[int, int]:
        after = self._starts[place + 1] if place + 1 < len(self._starts) else len(self.lines)
        return self._starts[place], max(self._starts[place], after - 1)

    def _item_at(self, y: int) -> int:
        return max(0, min(bisect_right(self._starts, y) - 1, len(self._starts) - 1))

    def _bring(self, y: int) -> None:
        self.scroll_to(y=y, animate=False, immediate=True, force=True)

    # Mouse

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on an item; a double click opens it."""
        y = event.y + self.scroll_offset.y
        if y >= len(self.lines) or not self._starts:
            return
        self._put(self._item_at(y))
        if event.chain > 1:
            self.post_message(self.Opened(self))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Stay: the reader wants to look at something older."""
        if self.following and self.items and self.virtual_size.height > self.scrollable_size.height:
            self._put(self.place)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """At the end, follow."""
        if self.FOLLOWS and self.touched and self.scroll_offset.y >= self.max_scroll_y:
            self.end()
