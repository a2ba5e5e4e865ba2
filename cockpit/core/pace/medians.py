"""Medians of what is known of ranks: what is not known is NaN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median, median_low


def known_of(values: Sequence[float]) -> Sequence[float]:
    """The known values."""
    total = sum(values)
    # NaN is not equal to itself, nor is a sum with it; mostly all are known.
    return values if total == total else [value for value in values if value == value]


def middle(values: Sequence[float]) -> float:
    """The median of the known values; NaN if there are none."""
    some = known_of(values)
    return median(some) if some else math.nan


def usual(values: Sequence[float]) -> float:
    """Of the known values that of the median rank, of two the quicker; NaN if there are none.

    The mean of both would be nobody's: where half of the ranks are twice as slow it hides by how much.
    """
    some = known_of(values)
    return median_low(some) if some else math.nan
