"""Stretches of time: from a beginning to an end, in their order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Span = tuple[int, int]

CLOCKS_US = 5000
"""How far two clocks may differ, microseconds."""


def union(spans: Iterable[Span]) -> list[Span]:
    """The same stretches of time as spans that do not overlap, in their order."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif end > begin:
            found.append((begin, end))
    return found


class Cursor:
    """Asks again and again how much of a stretch of time spans cover; quickest if each begins after the last.

    :param spans: they do not overlap, and are in their order
    """

    __slots__ = ("_at", "_since", "_spans")

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self._at = self._since = 0

    def within(self, begin: int, end: int) -> int:
        """How much of it they cover."""
        spans, at = self._spans, self._at
        if begin < self._since:
            at = 0  # a clock was set back
        while at < len(spans) and spans[at][1] <= begin:
            at += 1
        self._at, self._since = at, begin
        covered = 0
        while at < len(spans):
            since, until = spans[at]
            if since >= end:
                break
            covered += min(end, until) - max(begin, since)
            at += 1
        return covered
