"""The log of a run: a viewport over a spool of any length that follows until the reader starts reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from textual import events, on
from textual.binding import BindingType
from textual.message import Message
from textual.scrollbar import ScrollBar, ScrollDown, ScrollTo, ScrollUp
from textual.selection import Selection

from cockpit.core.logs.levels import Level
from cockpit.core.logs.query import Query
from cockpit.engine.logs.book import Row, Source
from cockpit.engine.logs.reader import Position, Reader
from cockpit.tui.logs.display import LogDisplay
from cockpit.tui.logs.lines import label, shown
from cockpit.tui.logs.place import BUDGET_S, LogPlace, Task

WHEEL = 3
"""Lines that a notch of the wheel moves."""

LEVEL_WORDS = {Level.ERROR: "error", Level.WARNING: "warning"}


class LogView(LogDisplay, can_focus=True):
    """A log in which one moves and finds lines.

    It has a cursor on one line unless it follows. Moving the cursor, the wheel or a click stops
    following; moving past the last line resumes it. The screen handles the keys, except left and
    right.
    """

    BINDINGS: ClassVar[list[BindingType]] = [("left,h", "shift(-1)"), ("right,l", "shift(1)")]

    @dataclass
    class RowOpened(Message):
        """A line was opened, by a double click or :meth:`LogView.open_row`."""

        row: Row

    # Moving

    def _go(self, task: Callable[[LogPlace], Task]) -> None:
        """Stop following, and carry out a task of the place."""
        if (place := self._stay()) is not None:
            self._load(task(place))

    def toggle_follow(self) -> None:
        """Follow the newest lines, or stay here."""
        self.follows = not self.following
        if self.following:
            self._stay()
            self._draw()
        else:
            self.end()

    def move(self, rows: int) -> None:
        """Move the cursor; past the last line, follow."""
        self._go(lambda place: place.moved(rows))

    def scroll(self, lines: int) -> None:
        """Move the view, the cursor only as far as it must to stay in it; past the end, follow."""
        self._go(lambda place: place.scrolled(lines))

    def page(self, step: int) -> None:
        """Move by a screen: ``step`` 1 down, -1 up."""
        self.scroll(step * max(1, self.size.height - 1))

    def home(self) -> None:
        """Go to the first line."""
        self._go(LogPlace.beginning)

    def end(self) -> None:
        """Go to the newest line, and follow."""
        self._note = ""
        self._anchor = None
        if self._place is not None:
            self._place.follow()
            self._load(self._place.newest)

    def action_shift(self, steps: int) -> None:
        """Scroll cut lines sideways, a third of the pane each step, up to the end of the longest one."""
        if self._wrap or self._place is None:
            return
        longest = max((cell_len(shown(line.row)[0]) for line in self._place.lines), default=0)
        beyond = longest - self._paint().look.text_columns
        most = beyond + 1 if beyond > 0 else 0  # a wide character may be cut in two
        self._left = max(0, min(self._left + steps * max(8, self.size.width // 3), most))
        self._relook()

    @property
    def shifted(self) -> bool:
        """Whether the beginnings of lines are out of sight."""
        return self._left > 0

    def unshift(self) -> None:
        """Go back to the beginnings of lines."""
        self._left = 0
        self._relook()

    # Finding

    @property
    def searching(self) -> bool:
        """Whether it is searching or reading, which :meth:`cancel_search` would stop."""
        return self._loader.busy

    @property
    def searched(self) -> str:
        """The pattern that :meth:`next_match` looks for: the filter, or the last one."""
        return self._hits_text

    def next_match(self, step: int) -> None:
        """Go to the next (1) or previous (-1) line that matches the filter, or else the last one."""
        if self._hits_text:
            self._highlight = True
            self._painter = None
            self._find(self._hits_text, step, f"no line matches /{self._hits_text}/")
        else:
            self._tell("no filter yet")

    def next_level(self, level: Level, step: int) -> None:
        """Go to the next (1) or previous (-1) line of this level."""
        self._find(level, step, f"no {LEVEL_WORDS[level]}")

    def cancel_search(self) -> bool:
        """Stop reading or searching; False if nothing was running."""
        if not self._loader.cancel():
            return False
        self._busy = ""
        self._note = "stopped"
        if self._place is not None:
            self._place.gave_up = True
        self._lay_out()
        self._catch_up()
        return True

    def _find(self, test: Level | str, step: int, none: str) -> None:
        if self._place is None:
            self._tell(none)
            return

        none += " after this line" if step > 0 else " before this line"
        elsewhere: list[Task] = []
        here = self._place.found(test, step, lambda: elsewhere.append(self._elsewhere(test, none)))

        def search() -> bool:
            if not elsewhere and not here():
                return False
            return all(task() for task in elsewhere)

        self._note = ""
        self._load(search, "searching")

    def _elsewhere(self, test: Level | str, none: str) -> Task:
        """Task: say that there is none and, if not all lines are shown, who else has one."""
        self._tell(none)
        if self._book is None or self._query == Query():
            return lambda: True
        reader = Reader(self._book, Query())
        at: Position | None = reader.end

        def read() -> bool:
            nonlocal at
            if at is None:
                return True
            place, at = reader.find(at, test, -1, BUDGET_S)
            if place is not None:
                (row,) = reader.after(place, 1, BUDGET_S).rows
                self._tell(f"{none}; hidden here: one of {_whose(row.sources)}")
            return at is None

        return read

    # The line under the cursor

    def current_row(self) -> Row | None:
        """The line under the cursor; the newest while there is none."""
        return self._place.row if self._place is not None else None

    def copy_line(self) -> str:
        """The text of that line, harmless and without colours; empty if there is none."""
        row = self.current_row()
        return shown(row)[0] if row is not None else ""

    def open_row(self) -> None:
        """Unfold the lines behind the one under the cursor; if it is a single line, report it as opened."""
        row = self.current_row()
        if row is None:
            return
        if row.fold is None:
            self.post_message(self.RowOpened(row))
        else:
            self._painter = None  # the batch's rows now have different numbers
            self._go(lambda place: place.unfolded(row))

    @property
    def unfolded(self) -> bool:
        """Whether folded lines are shown one by one."""
        return self._place is not None and self._place.window.reader.unfolded

    def fold(self) -> None:
        """Fold again what :meth:`open_row` has unfolded."""
        self._painter = None
        self._go(LogPlace.folded)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text: without times and labels, one line per row."""
        if self._place is None:
            return None
        window = self._place.window
        texts = []
        for number in range(window.first, window.end):
            span = selection.get_span(number)
            if span is not None:
                text = shown(window.row(number))[0]
                texts.append(text[max(0, span[0]) : len(text) if span[1] < 0 else span[1]])
        return ("\n".join(texts), "\n") if texts else None

    def selection_updated(self, selection: Selection | None) -> None:
        """Stay where text is being selected."""
        if selection is not None and self.following:
            self._stay()
        self._draw()

    # Scrollbar, mouse

    @on(ScrollTo)
    def _drag_scrollbar(self, event: ScrollTo) -> None:
        event.stop()
        event.prevent_default()
        bar = self.query_one(ScrollBar)
        place = self._stay()
        if place is None or event.y is None:
            return
        if event.y >= bar.window_virtual_size - bar.window_size:
            self.end()
        else:
            position = place.window.reader.position(max(0.0, event.y / bar.window_virtual_size))
            self._load(place.at(position, 0))

    @on(ScrollUp)
    @on(ScrollDown)
    def _page_by_scrollbar(self, event: ScrollUp | ScrollDown) -> None:
        event.stop()
        event.prevent_default()
        self.page(1 if isinstance(event, ScrollDown) else -1)

    @on(events.MouseScrollUp)
    @on(events.MouseScrollDown)
    @on(events.MouseScrollLeft)
    @on(events.MouseScrollRight)
    def _turn_wheel(self, event: events.MouseEvent) -> None:
        event.stop()
        event.prevent_default()
        step = -1 if isinstance(event, (events.MouseScrollUp, events.MouseScrollLeft)) else 1
        if event.shift or isinstance(event, (events.MouseScrollLeft, events.MouseScrollRight)):
            self.action_shift(step)
        elif step < 0 or not self.following:
            self.scroll(WHEEL * step)

    @on(events.Click)
    def _put_cursor(self, event: events.Click) -> None:
        """Put the cursor there; twice: open the line; on the pill: follow."""
        event.prevent_default()
        where = event.get_content_offset(self)
        if where is None or self._place is None:
            return
        pill, right = self._pill(), self.size.width - 2
        if pill and where.y == self.size.height - 1 and right - len(pill) <= where.x < right:
            self.frozen = False
            self.end()
        elif where.y < len(self._place.lines):
            self._stay()
            self._place.cursor = self._place.lines[where.y].number
            self._draw()
            if event.chain == 2:
                self.open_row()


def _whose(sources: Sequence[Source]) -> str:
    """Who printed a line, in a sentence."""
    text = label(sources, 24).strip("[]")
    return f"rank {text}" if len(sources) == 1 and isinstance(sources[0][1], int) else text
