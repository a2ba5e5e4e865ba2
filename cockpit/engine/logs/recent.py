"""Bytes of logs that have arrived but are not in the spool: its writer, another cockpit, may be suspended."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

LIMIT = 64 << 20
"""Bytes kept of all logs together; the oldest go first."""


OVERHEAD = 128
"""Bytes that a piece takes besides its own."""


class _Piece(NamedTuple):
    offset: int
    data: bytes

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


class Recent:
    """The newest bytes of logs, by their numbers.

    :param limit: bytes of all logs together
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._pieces: dict[int, deque[_Piece]] = {}
        self._order: deque[int] = deque()
        """The log of each piece, oldest first."""
        self.size = 0
        """Roughly how many bytes of memory they take."""

    def keep(self, number: int, offset: int, data: bytes) -> None:
        """Keep bytes of a log that follow those kept before."""
        if data:
            self._pieces.setdefault(number, deque()).append(_Piece(offset, data))
            self._order.append(number)
            self.size += len(data) + OVERHEAD
        while self.size > self._limit:
            self._drop(self._order[0])

    def forget(self, number: int, end: int) -> None:
        """Drop what the spool has now: the bytes of a log before ``end``."""
        pieces = self._pieces.get(number)
        while pieces and pieces[0].end <= end:
            self._drop(number)

    def numbers(self) -> list[int]:
        """The logs of which something is kept."""
        return [number for number, pieces in self._pieces.items() if pieces]

    def end(self, number: int) -> int:
        """Where the bytes of a log end; 0 if none are kept."""
        pieces = self._pieces.get(number)
        return pieces[-1].end if pieces else 0

    def read(self, number: int, start: int, length: int) -> bytes:
        """Bytes of a log from ``start`` on, as far as they are kept without a gap."""
        found: list[bytes] = []
        at, stop = start, start + length
        for piece in self._pieces.get(number, ()):
            if at >= stop or piece.offset > at:
                break
            if piece.end > at:
                found.append(piece.data[at - piece.offset : stop - piece.offset])
                at += len(found[-1])
        return b"".join(found)

    def _drop(self, number: int) -> None:
        """Drop the oldest piece of a log."""
        self.size -= len(self._pieces[number].popleft().data) + OVERHEAD
        self._order.remove(number)
