"""Unions of intervals, and how much of a span they cover."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Iterable, Iterator

_BITS = 64


def packed(start: int, end: int) -> int:
    """An interval as one integer, which sorts by its start: a list of these takes little memory."""
    return start << _BITS | end


class Union:
    """The moments that are in any of some intervals.

    :param intervals: each :func:`packed`
    """

    def __init__(self, intervals: Iterable[int]) -> None:
        self._starts, self._ends, self._sums = array("q"), array("q"), array("q")
        mask = (1 << _BITS) - 1
        covered, last = 0, -1
        for one in sorted(intervals):
            start, end = one >> _BITS, one & mask
            if end <= start:
                continue
            if start <= last:
                if end > last:
                    self._ends[-1] = end
                    covered += end - last
                    last = end
                continue
            self._starts.append(start)
            self._ends.append(end)
            self._sums.append(covered)
            covered += end - start
            last = end

    def __iter__(self) -> Iterator[int]:
        return (packed(start, end) for start, end in zip(self._starts, self._ends))

    def within(self, begin: int, end: int) -> int:
        """How much of a span it covers."""
        return self._before(end) - self._before(begin)

    def _before(self, moment: int) -> int:
        place = bisect_right(self._starts, moment) - 1
        if place < 0:
            return 0
        return self._sums[place] + min(moment, self._ends[place]) - self._starts[place]
