"""A text pane of items with a cursor that stays on its item, in place, when other items come and go."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from textual import events
from textual.message import Message

from cockpit.tui.panes.text_pane import Line, TextPane, copied

T = TypeVar("T")


class CursorPane(TextPane, Generic[T]):
    """Items of one or more lines each; the first one has the cursor until a person moves it."""

    DEFAULT_CSS = """
    CursorPane { scrollbar-size-horizontal: 0; }
    CursorPane > .text-pane--odd { color: $link-stale; text-style: bold; }
    CursorPane > .text-pane--waits { color: $log-rank; }
    CursorPane > .text-pane--strong { color: $key; text-style: bold; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"text-pane--{role}" for role in ("odd", "waits", "strong")}

    @dataclass
    class Moved(Message):
        """A person moved the cursor."""

        pane: CursorPane[Any]

    @dataclass
    class Opened(Message):
        """The item under the cursor was opened by a double click."""

        pane: CursorPane[Any]

    def __init__(self, *, ascii_only: bool = False, id: str | None = None) -> None:
        super().__init__(ascii_only=ascii_only, id=id)
        self.items: Sequence[T] = ()
        self._starts: Sequence[int] = ()  # the line each item begins at
        self._at = 0
        self.touched = False
        """Whether a person has moved the cursor."""

    def key_of(self, item: T) -> Hashable:
        """What identifies an item when all are set again."""
        raise NotImplementedError

    def item_lines(self, item: T, width: int) -> Sequence[Line]:
        """The lines of an item; headings at its end only separate it from the next."""
        raise NotImplementedError

    def empty_lines(self, width: int) -> Sequence[Line]:
        """What to show when there is no item."""
        return ()

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        """As many lines as there are at that width: the current ones were made for the previous width."""
        width -= self.scrollbar_size_vertical
        return len(self.lines if width in (0, self.scrollable_size.width) else self.build(width))

    def show_items(self, items: Sequence[T]) -> None:
        """Show these."""
        current, above = self.current, self._above()
        self.items = items
        if self.touched and current is not None:
            key = self.key_of(current)
            found = (place for place, item in enumerate(items) if self.key_of(item) == key)
            self._at = next(found, min(self._at, max(0, len(items) - 1)))
        else:
            self._at = 0
        # Nothing is built while the pane is hidden: the old items' lines are not those of the new ones.
        self._starts = ()
        self.rebuild()
        if self.touched and self._starts:
            self._bring(self._starts[self._at] - above)

    def _above(self) -> int:
        """How far below the top of the pane the cursor is."""
        return self._starts[self._at] - self.scroll_offset.y if self._at < len(self._starts) else 0

    def build(self, width: int) -> Sequence[Line]:
        """Every item's lines."""
        lines: list[Line] = []
        starts = []
        for item in self.items:
            starts.append(len(lines))
            lines.extend(self.item_lines(item, width))
        self._starts = starts
        return lines or self.empty_lines(width)

    def on_resize(self, event: events.Resize) -> None:
        """Lines depend on the width; the item a person put the cursor on stays in view."""
        self.rebuild()
        if self.touched:
            self._put(self._at, tell=False)

    # The cursor

    @property
    def current(self) -> T | None:
        """The item under the cursor."""
        return self.items[self._at] if self._at < len(self.items) else None

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
        first, last = self._lines_of(self._at)
        top, height = self.scroll_offset.y, self.scrollable_size.height
        if rows > 0 and last >= top + height > first:
            self._bring(min(top + rows, last - height + 1))
        elif rows < 0 and first < top <= last:
            self._bring(max(top + rows, first))
        else:
            self._put(max(0, min(self._at + rows, len(self.items) - 1)))

    def page(self, step: int) -> None:
        """Move by a screen; the cursor comes along."""
        if not self._starts:
            super().page(step)
            return
        height = max(1, self.scrollable_size.height - 1)
        goal = self._item_at(max(0, self._starts[self._at] + step * height))
        if goal == self._at:
            goal = self._at + step
        self._put(max(0, min(goal, len(self.items) - 1)))

    def home(self) -> None:
        """Go to the first item."""
        self._put(0)

    def end(self) -> None:
        """Go to the last item."""
        self._put(max(0, len(self.items) - 1))

    def is_marked(self, y: int) -> bool:
        """Whether the item under the cursor is drawn on this line."""
        if self._at >= len(self._starts) or self.lines[y].heading:
            return False
        first, last = self._lines_of(self._at)
        return first <= y <= last

    def copy_text(self) -> str:
        """The item under the cursor."""
        if not self._starts:
            return super().copy_text()
        first, last = self._lines_of(self._at)
        return copied((line, 0, -1) for line in self.lines[first : last + 1] if not line.heading)

    def copy_all(self) -> str:
        """Every line."""
        return super().copy_text()

    def _put(self, at: int, *, tell: bool = True) -> None:
        self._at = at
        if self._starts and at < len(self._starts):
            first, last = self._lines_of(at)
            top, height = self.scroll_offset.y, self.scrollable_size.height
            if first < top or last - first >= height:
                self._bring(first)
            elif last >= top + height:
                self._bring(last - height + 1)
        self.refresh()
        if tell and self.items:
            self.touched = True
            self.post_message(self.Moved(self))

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
            self.post_message(self.Opened(self))
