"""How many collectives each rank has entered, when the last one, and how many it is behind the others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from typing import NamedTuple

from cockpit.base.recorder.trace import Group
from cockpit.core.recorder.merge import Look
from cockpit.core.recorder.spans import CLOCKS_US


class Count(NamedTuple):
    """What a rank has entered.

    :param collectives: how many so far, in all groups that its recorder has
    :param last_us: when the last one, unix microseconds on our clock
    :param behind: how many most others of its groups had entered, and it had not, when its recorder was seen
    :param taken_us: when it was
    """

    collectives: int
    last_us: int
    behind: int
    taken_us: int


def counts(look: Look) -> dict[int, Count]:
    """What each rank has entered that has entered anything.

    Recorders are asked one after the other while training goes on: whoever is asked later has entered more.
    Each rank is therefore compared with what others had entered by the time it was asked; and with what most
    of them had, so that no node puts the ranks of others behind by what it says of its own.
    """
    tops: dict[Group, dict[int, int]] = {}
    lasts: dict[int, int] = {}
    for one in look.collectives:
        top = tops.setdefault(one.group, {})
        for rank, at in one.arrivals.items():
            top[rank] = max(top.get(rank, 0), one.number)
            lasts[rank] = max(lasts.get(rank, 0), at)
    begun = _begun(look, {group: len(top) for group, top in tops.items()})
    entered, behind = dict.fromkeys(lasts, 0), dict.fromkeys(lasts, 0)
    for group, top in tops.items():
        known = sorted(begun.get(group, ()))
        times = [at for at, _ in known]
        fronts = list(accumulate((number for _, number in known), max))
        for rank, own in top.items():
            entered[rank] += own
            place = bisect_right(times, look.taken_us.get(rank, 0) - CLOCKS_US)
            behind[rank] += max(0, fronts[place - 1] - own) if place else 0
    return {
        rank: Count(entered[rank], at, behind[rank], look.taken_us.get(rank, 0)) for rank, at in lasts.items()
    }


def _begun(look: Look, sizes: Mapping[Group, int]) -> dict[Group, list[tuple[int, int]]]:
    """When most others of a rank that has not entered them had entered collectives, and their numbers.

    :param sizes: how many ranks have entered anything of a group
    """
    found: dict[Group, list[tuple[int, int]]] = {}
    for one in look.collectives:
        most = (sizes[one.group] - 1) // 2 + 1
        if len(one.arrivals) >= most:
            at = sorted(one.arrivals.values())[most - 1]
            found.setdefault(one.group, []).append((at, one.number))
    return found
