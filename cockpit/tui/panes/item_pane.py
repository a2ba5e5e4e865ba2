"""A text pane of items, oldest first, that follows the newest until a cursor is put on one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Generic, TypeVar

from textual import events
from textual.reactive import var

from cockpit.tui.panes.text_pane import Line, TextPane, copied

T = TypeVar("T")


class ItemPane(TextPane, Generic[T]):
    """Items of one or more lines each.

    It follows until the cursor moves; then that item stays where it is. Moving past the last one resumes
    following.
    """

    following: var[bool] = var(True)
    """Whether the newest item is in view; there is no cursor then."""

    def __init__(self, *, ascii_only: bool = False, id: str | None = None) -> None:
        super().__init__(ascii_only=ascii_only, id=id)
        self._items: Sequence[T] = ()
        self._drawn: dict[int, tuple[T, T | None, Sequence[Line]]] = {}
        self._columns = 0
        self._starts: list[int] = []  # the line each item begins at
        self._cursor: int | None = None

    def item_lines(self, item: T, before: T | None, width: int) -> Sequence[Line]:
        """The lines of an item; ``before`` is the one above it."""
        raise NotImplementedError

    def empty_lines(self) -> Sequence[Line]:
        """What to show when there is no item."""
        raise NotImplementedError

    def opened(self, item: T) -> None:
        """An item was opened: by a double click, or by :meth:`open_item`."""

    def show_items(self, items: Sequence[T]) -> None:
        """Show these, oldest first."""
        if len(items) == len(self._items) and all(map(_same, items, self._items)):
            return
        current = self.current
        top = self.scroll_offset.y
        at = self._cursor
        above = self._starts[at] - top if at is not None and at < len(self._starts) else 0
        self._items = tuple(items)  # the caller may go on filling its list
        if at is not None:
            # If the item itself is gone (the oldest go first), the cursor stays as near as it can.
            found = (place for place, item in enumerate(items) if item is current)
            self._cursor = next(found, min(at, len(items) - 1)) if items else None
        self.rebuild()
        if self._cursor is not None and self._starts:
            self._bring(self._starts[self._cursor] - above)

    def build(self, width: int) -> Sequence[Line]:
        """Every item's lines; those of earlier items are not made again."""
        if width != self._columns:
            self._columns = width
            self._drawn.clear()
        before: T | None = None
        drawn: dict[int, tuple[T, T | None, Sequence[Line]]] = {}
        lines: list[Line] = []
        self._starts = []
        for item in self._items:
            known = self._drawn.get(id(item))
            if known is None or known[0] is not item or known[1] is not before:
                known = (item, before, self.item_lines(item, before, width))
            drawn[id(item)] = known
            self._starts.append(len(lines))
            lines.extend(known[2])
            before = item
        self._drawn = drawn
        return lines or self.empty_lines()

    def rebuild(self) -> None:
        """Build the lines again; while following the newest item stays in view."""
        super().rebuild()
        if self.following:
            self._bring(self.max_scroll_y)

    # The cursor

    @property
    def current(self) -> T | None:
        """The item under the cursor, the newest while there is none; None if there is no item."""
        return self._items[-1 if self._cursor is None else self._cursor] if self._items else None

    def move(self, rows: int) -> None:
        """Move the cursor by items; past the last one, follow.

        An item taller than the pane is scrolled through first.
        """
        if not self._items:
            return
        at = self._cursor
        if at is None:
            at = len(self._items) - 1
            self._put(at)
            if rows > 0:
                return
        first, last = self._lines_of(at)
        top, height = self.scroll_offset.y, self.scrollable_size.height
        if rows > 0 and last >= top + height:
            self._bring(min(top + rows, last - height + 1))
        elif rows < 0 and first < top:
            self._bring(max(top + rows, first))
        elif at + rows >= len(self._items):
            self.end()
        else:
            self._put(max(0, at + rows))

    def page(self, step: int) -> None:
        """Scroll by a screen; the cursor comes along."""
        if not self._items:
            return
        height = self.scrollable_size.height
        top = self.scroll_offset.y
        if step > 0 and top >= self.max_scroll_y:
            self.end()
            return
        goal = max(0, min(top + step * max(1, height - 1), self.max_scroll_y))
        at = self._cursor if self._cursor is not None else len(self._items) - 1
        first, last = self._item_at(goal), self._item_at(goal + height - 1)
        at = 0 if goal == top == 0 else max(first, min(at, last))
        self.following = False
        self._cursor = at
        self._bring(goal)
        self.refresh()

    def home(self) -> None:
        """Go to the first item."""
        if self._items:
            self._put(0)

    def end(self) -> None:
        """Go to the newest item, and follow."""
        self.following = True
        self._cursor = None
        self._bring(self.max_scroll_y)
        self.refresh()

    def toggle_follow(self) -> None:
        """Follow the newest item, or stay here."""
        if self.following:
            self.move(1)
        else:
            self.end()

    def open_item(self) -> None:
        """Open the item under the cursor."""
        if self._items:
            self.opened(self._items[-1 if self._cursor is None else self._cursor])

    def is_marked(self, y: int) -> bool:
        """Whether the item under the cursor is drawn on this line."""
        if self._cursor is None or self._cursor >= len(self._starts) or self.lines[y].heading:
            return False
        first, last = self._lines_of(self._cursor)
        return first <= y <= last

    def copy_text(self) -> str:
        """The item under the cursor, harmless."""
        if not self._starts:
            return ""
        first, last = self._lines_of(len(self._starts) - 1 if self._cursor is None else self._cursor)
        return copied((line, 0, -1) for line in self.lines[first : last + 1] if not line.heading)

    def _put(self, at: int) -> None:
        self.following = False
        self._cursor = at
        first, last = self._lines_of(at)
        top, height = self.scroll_offset.y, self.scrollable_size.height
        if first < top or last - first >= height:
            self._bring(first)
        elif last >= top + height:
            self._bring(last - height + 1)
        self.refresh()

    def _lines_of(self, at: int) -> tuple[int, int]:
        after = self._starts[at + 1] if at + 1 < len(self._starts) else len(self.lines)
        return self._starts[at], max(self._starts[at], after - 1)

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
            self.open_item()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Stay: the reader wants to look at something older."""
        if self.following and self._items and self.virtual_size.height > self.scrollable_size.height:
            self._put(len(self._items) - 1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """At the end, follow."""
        if not self.following and self.scroll_offset.y >= self.max_scroll_y:
            self.end()


def _same(one: object, other: object) -> bool:
    return one is other
