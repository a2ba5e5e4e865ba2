"""The part of a log at hand: a contiguous piece of what a reader returns, grown at both ends."""

from __future__ import annotations

from cockpit.engine.logs.book import Row
from cockpit.engine.logs.reader import Position, Reader

KEPT = 2_000
"""Rows at hand; beyond that, those at the far end are dropped."""

BEGINNING: Position = (0, 0)


class LogWindow:
    """Rows of a reader, each with a number that it keeps as long as it is at hand.

    :param reader: where the rows come from
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.rows: list[Row] = []
        self.first = 0
        """The number of ``rows[0]``."""
        self.at_start = False
        """There is nothing before ``rows[0]``."""
        self.at_end = False
        """There was nothing after the last row at the last look."""
        self.tail = reader.end
        """Where reading forwards continues."""
        self._head = reader.end  # where reading backwards continues

    @property
    def end(self) -> int:
        """The number after the last row's."""
        return self.first + len(self.rows)

    def row(self, number: int) -> Row:
        """The row with this number.

        :raises IndexError: it is not at hand
        """
        if number < self.first:
            raise IndexError(f"row {number} is not at hand")
        return self.rows[number - self.first]

    def place(self, position: Position) -> None:
        """Drop all rows; read on from this place, both ways."""
        self.first = self.end
        self.rows = []
        self.at_start = position == BEGINNING
        self.at_end = False
        self._head = self.tail = position

    def read_back(self, count: int, budget_s: float) -> None:
        """Get up to ``count`` more rows at the front, or none within the budget."""
        page = self.reader.before(self._head, count, budget_s)
        self.rows[:0] = page.rows
        self.first -= len(page.rows)
        self._head = page.resume
        self.at_start = not page.more
        if len(self.rows) > KEPT:
            del self.rows[KEPT:]
            self.tail = position_after(self.rows[-1])
            self.at_end = False

    def read_on(self, count: int, budget_s: float) -> None:
        """Get up to ``count`` more rows at the back, or none within the budget."""
        page = self.reader.after(self.tail, count, budget_s)
        self.rows += page.rows
        self.tail = page.resume
        self.at_end = not page.more
        if len(self.rows) > KEPT:
            gone = len(self.rows) - KEPT
            del self.rows[:gone]
            self.first += gone
            self._head = position_of(self.rows[0])
            self.at_start = False

    def fraction(self) -> float:
        """How far into the log reading backwards has got: 1 at its end, 0 at its beginning."""
        return self.reader.fraction(self._head)

    def fraction_on(self) -> float:
        """How far into the log reading forwards has got."""
        return self.reader.fraction(self.tail)


def position_of(row: Row) -> Position:
    """A row's place under its query."""
    return row.batch, row.index


def position_after(row: Row) -> Position:
    """The place right after a row."""
    return row.batch, row.index + 1
