"""Which cases ``make test`` takes of a test that has many."""

from __future__ import annotations

import pytest

from tests.few import spread


@pytest.mark.parametrize(
    ("most", "count", "taken"),
    [(3, 9, {0, 3, 6}), (1, 4, {0}), (2, 3, {0, 1}), (4, 2, {0, 1}), (4, 4, {0, 1, 2, 3})],
)
def test_as_many_as_wanted_are_spread_over_all(most: int, count: int, taken: set[int]) -> None:
    assert spread(most, count) == taken
