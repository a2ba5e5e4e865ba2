"""Stretches of time: from a beginning to an end, in their order."""

from __future__ import annotations

from collections.abc import Iterable

from cockpit.base.union import Union

Span = tuple[int, int]

CLOCKS_US = 5000
"""How far two clocks may differ, microseconds."""


def union(spans: Iterable[Span]) -> Union:
    """The same stretches of time as spans that do not overlap, in their order."""
    found = Union()
    for begin, end in sorted(spans):
        found.add(begin, end)
    return found
