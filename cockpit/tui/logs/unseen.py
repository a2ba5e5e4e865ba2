"""How many lines have come since the newest ones were on the screen."""

from __future__ import annotations

from cockpit.engine.logs.reader import Position, Reader

LIMIT = 1_000
"""Lines counted in a narrowed log; beyond that it says how many they were, as "1,024+"."""


class Unseen:
    """Counts what a reader has not shown: in the whole book by its number of lines, else by reading on.

    :param reader: of a log that is opened, to its end
    """

    def __init__(self, reader: Reader) -> None:
        self._lines = reader.book.lines
        self.turn(reader)

    def turn(self, reader: Reader) -> None:
        """Count what another query finds from here on; of the whole book, what was not seen before either."""
        self._reader = reader
        self._tail: Position = reader.end
        self._whole = reader.whole
        self._count = reader.book.lines - self._lines if self._whole else 0

    def clear(self, tail: Position) -> None:
        """Everything is on the screen, up to this place."""
        self._count = 0
        self._lines, self._tail = self._reader.book.lines, tail

    def look(self, budget_s: float) -> bool:
        """Count what has come, as far as that takes no longer; whether anything has."""
        before = self._count
        if self._whole:
            self._count = self._reader.book.lines - self._lines
        elif self._count < LIMIT:
            page = self._reader.after(self._tail, LIMIT, budget_s)
            self._tail = page.resume
            self._count += sum(row.lines for row in page.rows)
        return self._count != before

    @property
    def text(self) -> str:
        """The number of them, as ``+412 lines``; empty if there is none."""
        more = "+" if self._count >= LIMIT and not self._whole else ""
        return f"+{counted(self._count, more)}" if self._count else ""


def counted(lines: int, more: str = "") -> str:
    """A number of lines: ``412 lines``, ``640 k lines``, ``1.2 M lines``."""
    if lines >= 1_000_000:
        number = f"{lines / 1e6:.1f} M"
    elif lines >= 100_000:
        number = f"{lines // 1000} k"
    else:
        number = f"{lines:,}"
    return f"{number}{more} line" if lines == 1 else f"{number}{more} lines"
