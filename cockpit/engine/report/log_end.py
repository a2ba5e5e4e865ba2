"""The end of a log without secrets, and where in it the places of the whole log are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

from cockpit.core.report.sieve import Sieve

PART = 64 << 10
"""Bytes that pass the filter at once."""
LONGEST = 1 << 20
"""A part ends with a line, unless that is longer than this."""


class LogEnd:
    """The end of one log.

    :param read: bytes of it, from an offset on
    :param size: of the whole log
    """

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read = read
        self._size = size
        self._was: list[int] = []
        self._is: list[int] = []
        """Offsets in the whole log, and what they have become."""

    def parts(self, most: int, sieve: Sieve) -> Iterator[bytes]:
        """What it has become, part by part.

        :param most: bytes of it
        """
        at, now = self._begin(most), 0
        self._note(at, 0)
        while at < self._size and (data := self._whole(at)):
            at += len(data)
            clean = sieve.text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
            now += len(clean)
            self._note(at, now)
            yield clean

    def now(self, offset: int) -> int:
        """Where an offset of the whole log is; of those before the end: its beginning.

        In a part that a secret was taken out of, it is known to its length only.
        """
        place = bisect_right(self._was, offset) - 1
        if place < 0:
            return 0
        after = self._is[place] + offset - self._was[place]
        return min(after, self._is[place + 1]) if place + 1 < len(self._is) else self._is[place]

    def _note(self, was: int, now: int) -> None:
        self._was.append(was)
        self._is.append(now)

    def _begin(self, most: int) -> int:
        """Where the first whole line of the end begins."""
        begin = max(0, self._size - most)
        if not begin:
            return 0
        line = self._read(begin - 1, PART).find(b"\n")
        return begin if line < 0 else begin + line

    def _whole(self, at: int) -> bytes:
        """A part that ends with a line, and holds no half of a key of several lines."""
        data = self._read(at, PART)
        while (
            len(data) < LONGEST
            and at + len(data) < self._size
            and (b"\n" not in data or data.rfind(b"-----BEGIN") > data.rfind(b"-----END"))
        ):
            more = self._read(at + len(data), PART)
            if not more:
                break
            data += more
        end = data.rfind(b"\n") + 1
        return data[:end] if end and at + len(data) < self._size else data
