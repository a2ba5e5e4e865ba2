"""Rank sets as integers: bit N is rank N. Union, difference and equality cost nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def mask_of(ranks: Iterable[int]) -> int:
    """The set of these ranks."""
    mask = 0
    for rank in ranks:
        mask |= 1 << rank
    return mask


def ranks_of(mask: int) -> Iterator[int]:
    """The ranks of a set, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def count(mask: int) -> int:
    """How many ranks a set has."""
    return bin(mask).count("1")
