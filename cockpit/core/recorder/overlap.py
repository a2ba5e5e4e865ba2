"""Where a collective goes on beside the computation: ranks get through without waiting for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cockpit.core.recorder.spans import CLOCKS_US

ENOUGH = 16
"""Times that ranks waited, or did not, in one place, from which it can be told."""

SURE = 5
"""Standard errors that such a finding is away from chance."""

SPELL = 12
"""Steps that are judged together, where they are enough: whoever becomes slow is waited for from then on."""

NEVER = 1 << 62
"""The end of a gap that is not over."""

STEP = 32
"""Bits of a key that are the place; those above are the step."""
PLACES = (1 << STEP) - 1
"""The former, as a mask."""

Gap = tuple[int, int, int, int]
"""From one moment at which a rank is seen to go on to the next, with something to wait for: begin, end, when
the last one arrived in what it may wait for, and the key of its place and its step."""


def when(key: int, newest: int) -> tuple[int, int]:
    """The place, and in which spell of steps, counted back from the newest."""
    return key & PLACES, (newest - (key >> STEP)) // SPELL


def beside(gaps: Mapping[int, Iterable[Gap]], newest: int) -> set[tuple[int, int]]:
    """The places, and when, that ranks get through without waiting, while others have not arrived yet.

    Who begins such a gap later, compared with others that would wait for the same and with itself in other
    steps, ends it later by as much: by more than half of it, as a line through all of them says.
    """
    together: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for rank, own in gaps.items():
        for begin, end, released, key in own:
            if released - begin > CLOCKS_US and end < NEVER:
                together.setdefault((key, released), []).append((rank, begin, end))
    places: dict[int, dict[int, dict[int, list[_Pair]]]] = {}
    for (key, _), those in together.items():
        place, spell = when(key, newest)
        of_rank = places.setdefault(place, {}).setdefault(spell, {})
        if len(those) > 1:
            for (rank, _, _), times in zip(those, _centred([one[1:] for one in those]), strict=True):
                of_rank.setdefault(rank, []).append(times)
    found = set()
    for place, spells in places.items():
        pairs = {spell: _within_ranks(of_rank) for spell, of_rank in spells.items()}
        always = _goes_along([pair for some in pairs.values() for pair in some])
        for spell, some in pairs.items():
            along = _goes_along(some)
            if always if along is None else along:
                found.add((place, spell))
    return found


_Pair = tuple[float, float]
"""When a rank began a gap and when it ended it, compared with others and then with itself."""


def _within_ranks(of_rank: Mapping[int, list[_Pair]]) -> list[_Pair]:
    return [pair for some in of_rank.values() for pair in _centred(some)]


def _goes_along(pairs: Sequence[tuple[float, float]]) -> bool | None:
    """Whether the second grows with the first, by half of it or more; None: that may be chance."""
    if len(pairs) < ENOUGH:
        return None
    first = sum(one * one for one, _ in pairs)
    second = sum(other * other for _, other in pairs)
    both = sum(one * other for one, other in pairs)
    by_chance = (first * second - both * both) / len(pairs)
    if both > first / 2:
        return True if both * both > SURE * SURE * by_chance else None
    return False if (first / 2 - both) ** 2 > SURE * SURE * by_chance else None


def _centred(pairs: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The differences from the means."""
    first, second = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
    return [(one - first, other - second) for one, other in pairs]
