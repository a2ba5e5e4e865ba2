"""Tests with many cases, of which a few are enough.

``few(3)`` leaves the others to the slow tests, ``few(3, "campaign")`` to the campaigns; with several of them,
the smaller number is taken from what the larger one leaves.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest


def spread(most: int, count: int) -> set[int]:
    """Which of ``count`` cases are taken, from the first one on."""
    return {place * count // most for place in range(most)}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Mark the rest of each test that is marked ``few``, before any are chosen by their marks."""
    cases: dict[tuple[object, str], list[pytest.Item]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("few"):
            cases.setdefault((item.parent, item.originalname), []).append(item)
    for some in cases.values():
        for mark in sorted(some[0].iter_markers("few"), key=lambda mark: -mark.args[0]):
            most, rest = mark.args[0], mark.args[1] if mark.args[1:] else "slow"
            taken = spread(most, len(some))
            for place, item in enumerate(some):
                if place not in taken:
                    item.add_marker(rest)
            some = [item for place, item in enumerate(some) if place in taken]
