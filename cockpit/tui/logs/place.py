"""A reader's place in a log: which lines are on the screen, where the cursor is, whether it follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cockpit.core.logs.levels import Level
from cockpit.engine.logs.book import Row
from cockpit.engine.logs.reader import Position, Reader
from cockpit.tui.logs.unseen import Unseen
from cockpit.tui.logs.window import BEGINNING, LogWindow, position_after, position_of

BUDGET_S = 0.003
"""Seconds of one read; up to three follow each other, so the loop is blocked for about 10 ms at most."""

SEEK_ROWS = 200
"""Rows looked through at a time for one of them."""

FLOOD = 1_000
"""While following everything: of more new lines than this, only the last ones are read."""

Task = Callable[[], bool]
"""Reads a little each time it is called; True: it is done, and its changes are made."""


class ScreenLine(NamedTuple):
    """A line of the screen.

    :param number: of the row in the window it was read in
    :param part: which of the row's lines it is
    :param row: the row itself: while another part of the log is read, the window no longer has it
    """

    number: int
    part: int
    row: Row


class LogPlace:
    """A place in what a reader returns. Everything that may have to read for long is a :data:`Task`.

    :param parts: how many lines of the screen a row takes
    """

    def __init__(self, reader: Reader, parts: Callable[[Row], int]) -> None:
        self.window = LogWindow(reader)
        self.following = True
        """The newest lines are on the screen, without a cursor."""
        self.cursor: int | None = None
        """The number of the row it is on."""
        self.lines: list[ScreenLine] = []
        """What is on the screen; it stays there until the next read is complete."""
        self.gave_up = False
        """The reader stopped a search for rows further up."""
        self.unseen = Unseen(reader)
        """Lines that arrived since the newest rows were on the screen."""
        self.height = 1
        """Lines of the screen."""
        self._known_lines = reader.book.lines  # of the whole book, when the newest were last read
        self._top = (0, 0)
        self._parts = parts

    @property
    def row(self) -> Row | None:
        """The row under the cursor; the newest while there is none."""
        window = self.window
        if not window.rows:
            return None
        if self.cursor is None or not window.first <= self.cursor < window.end:
            return window.rows[-1]
        return window.row(self.cursor)

    @property
    def line(self) -> int:
        """The line of the screen the cursor is on; 0 if none."""
        return next((y for y, line in enumerate(self.lines) if line.number == self.cursor), 0)

    @property
    def progress(self) -> float:
        """How much of the log has been read, 0 to 1."""
        return 1 - self.window.fraction() if self.following else self.window.fraction_on()

    def stay(self) -> None:
        """Stop following: the lines stay where they are, the cursor on the last."""
        self.gave_up = False
        if self.following:
            self.following = False
            if self.lines:
                self._top, self.cursor = self.lines[0][:2], self.lines[-1].number

    def follow(self) -> None:
        """Follow from now on; :meth:`newest` reads what to show."""
        self.gave_up = False
        self.following = True
        self.cursor = None

    def lay_out(self, *, with_cursor: bool = False) -> None:
        """Decide which lines of the rows at hand are on the screen.

        :param with_cursor: bring the cursor into view
        """
        window = self.window
        if not window.rows:
            self.lines = []
            return
        lowest = self._walk((window.end - 1, self._parts(window.rows[-1]) - 1), 1 - self.height)
        if self.following:
            self._top = lowest
        else:
            if with_cursor and self.cursor is not None:
                self.cursor = self._within(self.cursor)
                parts = self._parts(window.row(self.cursor))
                least = self._walk((self.cursor, min(parts, self.height) - 1), 1 - self.height)
                self._top = max(least, min(self._top, (self.cursor, 0)))
            self._top = max((window.first, 0), min(self._top, lowest))
        number, part = self._top
        self.lines = []
        while number < window.end and len(self.lines) < self.height:
            row = window.row(number)
            self.lines += [ScreenLine(number, at, row) for at in range(part, self._parts(row))]
            number, part = number + 1, 0
        del self.lines[self.height :]

    def unwrapped(self) -> None:
        """Rows now take a different number of lines: let the first one begin at the top."""
        self._top = (self._top[0], 0)

    # Tasks

    def newest(self) -> bool:
        """Task: read until the newest rows fill the screen."""
        window = self.window
        few = 4 * self.height
        lines = window.reader.book.lines
        flood = window.reader.whole and lines - self._known_lines > max(few, FLOOD)
        self._known_lines = lines
        known = window.end
        if not flood:
            window.read_on(few, BUDGET_S)
            flood = not window.at_end and window.end - known >= few
        if flood:
            # What is in between is not worth reading.
            window.place(window.reader.end)
            window.at_end = True
        elif not window.at_end:
            return False
        if len(window.rows) < self.height and not (window.at_start or self.gave_up):
            window.read_back(self.height - len(window.rows), BUDGET_S)
        return len(window.rows) >= self.height or window.at_start or self.gave_up

    def filled(self) -> bool:
        """Task: read until the rows below the top fill the screen, if there are enough."""
        return self._read_to(self._top[0] + self.height)

    def moved(self, rows: int) -> Task:
        """Task: move the cursor; past the last row, follow."""
        window = self.window
        goal = (window.end if self.cursor is None else self.cursor) + rows

        def read() -> bool:
            if not self._read_to(goal):
                return False
            if goal >= window.end and rows > 0:
                self.follow()
            elif window.rows:
                self.cursor = self._within(goal)
            return True

        return read

    def scrolled(self, lines: int) -> Task:
        """Task: move the view, the cursor only as far as it must to stay in it; past the end, follow."""
        window = self.window
        numbers = [line.number for line in self.lines] or [window.end]
        first, last = numbers[0], numbers[-1]

        def read() -> bool:
            if not self._read_to(first + lines if lines < 0 else last + lines):
                return False
            if not window.rows:
                return True
            before = self.lines
            self._top = self._walk(self._top, lines)
            self.lay_out()
            if self.lines == before and lines > 0 and window.at_end:
                self.follow()
            elif self.lines and self.cursor is not None:
                self.cursor = max(self.lines[0].number, min(self.cursor, self.lines[-1].number))
                if self.lines == before:
                    self.cursor = self.lines[0].number
            return True

        return read

    def at(self, position: Position, above: int) -> Task:
        """Task: put the cursor on the row at this place, with ``above`` lines above it."""
        window, height = self.window, self.height
        window.place(position)
        # At once: a key may arrive before the rows do.
        self.cursor = first = window.end

        def read() -> bool:
            if not (self._read_to(first + height) and self._read_to(first - above)):
                return False
            self._put(first, above)
            return True

        return read

    def beginning(self) -> Task:
        """Task: put the cursor on the first row."""
        return self.at(BEGINNING, 0)

    def on(self, row: Row, line: int) -> Task:
        """Task: put the cursor on this row, which was read under another query, or on the next one shown.

        :param line: lines above it
        """
        window, height = self.window, self.height
        window.place((row.batch, 0))
        self.cursor = window.end
        found: int | None = None

        def read() -> bool:
            nonlocal found
            if found is None:
                searched = window.end
                window.read_on(SEEK_ROWS, BUDGET_S)
                for number in range(searched, window.end):
                    here = window.row(number)
                    if here.batch > row.batch or _same(here, row):
                        found = number
                        break
                else:
                    if not window.at_end:
                        return False
                    found = window.end - 1
            if not (self._read_to(found - line) and self._read_to(found + height)):
                return False
            self._put(found, line)
            return True

        return read

    def unfolded(self, row: Row) -> Task:
        """Task: unfold a row on the screen into its lines, with the cursor on the first."""
        line = next((y for y, line in enumerate(self.lines) if line.row is row), 0)
        self.window.reader.unfold(row)
        return self.on(row, line)

    def folded(self) -> Task:
        """Task: fold again what was unfolded, at the same place."""
        row = self.row
        self.window.reader.fold()
        return self.beginning() if row is None else self.on(row, self.line)

    def found(self, test: Level | str, step: int, missed: Callable[[], None]) -> Task:
        """Task: put the cursor on the next (1) or previous (-1) row that passes.

        :param missed: called if there is none
        """
        window, row = self.window, self.row
        at: Position | None = None
        if row is not None:
            # While following there is no previous place, so the newest itself may be found.
            at = position_after(row) if step < 0 and self.following else position_of(row)
        going: Task | None = None

        def read() -> bool:
            nonlocal at, going
            if going is None:
                place = None
                if at is not None:
                    place, at = window.reader.find(at, test, step, BUDGET_S)
                if place is None:
                    if at is None:
                        missed()
                    return at is None
                self.stay()
                here = [n for n in range(window.first, window.end) if position_of(window.row(n)) == place]
                if here:
                    self.cursor = here[0]
                    return True
                going = self.at(place, self.height // 2)
            return going()

        return read

    # Details

    def _read_to(self, number: int) -> bool:
        """Read until the row of this number is at hand; True: it is, or the log ends before it."""
        window = self.window
        if number < window.first and not (window.at_start or self.gave_up):
            window.read_back(max(window.first - number, self.height), BUDGET_S)
            return number >= window.first or window.at_start
        if number >= window.end:
            window.read_on(max(number - window.end + 1, self.height), BUDGET_S)
            return number < window.end or window.at_end
        return True

    def _within(self, number: int) -> int:
        return max(self.window.first, min(number, self.window.end - 1))

    def _put(self, number: int, line: int) -> None:
        """Put the cursor on a row, ``line`` rows below the top."""
        if self.window.rows:
            self.cursor = self._within(number)
            self._top = (max(self.window.first, self.cursor - line), 0)
        else:
            self.cursor = None

    def _walk(self, place: tuple[int, int], lines: int) -> tuple[int, int]:
        """The line ``lines`` below (above, if negative) this one, as far as rows are at hand."""
        window = self.window
        # The window may have been put elsewhere, by a jump whose rows have not been read yet.
        number, part = max(place, (window.first, 0))
        part += lines
        while part < 0 and number > window.first:
            number -= 1
            part += self._parts(window.row(number))
        while number < window.end - 1 and part >= (parts := self._parts(window.row(number))):
            number += 1
            part -= parts
        return number, max(0, min(part, self._parts(window.row(number)) - 1))


def _same(one: Row, other: Row) -> bool:
    """Whether this has a line of the other, perhaps read under another query."""
    return one.batch == other.batch and not {*one.said}.isdisjoint(other.said)
