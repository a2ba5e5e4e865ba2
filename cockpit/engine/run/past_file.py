"""The file of a run's past steps, read from its end: most of it is old, and of less interest."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

from cockpit.engine.files import LINE_LIMIT, open_regular
from cockpit.errors import os_error

PART = 256 << 10
"""Bytes of the file that are read at once."""


class PastFile:
    """The file, open for as long as this is; a missing one is empty.

    :raises CockpitError: it cannot be read
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = -1
        self.size = 0
        """Bytes that it had when it was opened."""
        try:
            self._number = open_regular(path)
            self.size = os.fstat(self._number).st_size
        except FileNotFoundError:
            pass
        except OSError as error:
            raise os_error("cannot be read", path, error) from None

    def __enter__(self) -> PastFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._number >= 0:
            os.close(self._number)

    def until(self, at: float, moment: Callable[[bytes], float | None]) -> int:
        """Where the lines end that are not later than a moment; lines are in the order of their moments.

        :param at: unix seconds
        :param moment: that of a line; None: it is damaged
        """
        low, high = 0, self.size
        while high - low > PART:
            middle = (low + high) // 2
            begin, known = self._whole(middle, high, moment)
            if known is not None and known <= at:
                low = begin
            else:
                high = middle
        end = low
        for part in self.parts(low, self.size):
            for line in part:
                known = moment(line)
                if known is not None and known > at:
                    return end
                end += len(line) + 1
        return end

    def _whole(self, at: int, end: int, moment: Callable[[bytes], float | None]) -> tuple[int, float | None]:
        """The first whole line after an offset that has a moment, and where it begins."""
        data = self._read(at, min(PART, end - at))
        place = data.find(b"\n") + 1
        while 0 < place < len(data):
            after = data.find(b"\n", place)
            known = moment(data[place : after if after >= 0 else len(data)]) if after >= 0 else None
            if known is not None:
                return at + place, known
            place = after + 1
        return at, None

    def last(self, count: int, end: int | None = None) -> int:
        """Where the last so many lines begin.

        :param end: of those that end there; None: of all
        """
        at = self.size if end is None else end
        left = count + 1  # the newline before them too
        while at > 0:
            start = max(0, at - PART)
            data = self._read(start, at - start)
            newlines = data.count(b"\n")
            if newlines < left:
                left -= newlines
                at = start
                continue
            place = len(data)
            for _ in range(left):
                place = data.rfind(b"\n", 0, place)
            return start + place + 1
        return 0

    def parts(self, begin: int, end: int) -> Iterator[list[bytes]]:
        """The complete lines between two offsets, many at a time; of one that is too long nothing."""
        rest = b""
        while begin < end and (data := self._read(begin, min(PART, end - begin))):
            begin += len(data)
            *whole, rest = (rest + data).split(b"\n")
            if whole:
                yield whole
            if len(rest) > LINE_LIMIT:
                rest = b"["  # what follows up to the next newline is no step either

    def _read(self, at: int, length: int) -> bytes:
        try:
            return os.pread(self._number, length, at)
        except OSError as error:
            raise os_error("cannot be read", self._path, error) from None
