"""Who arrives last in collectives, and by how much: what is seen, not who is to blame.

The innocent partner of a slow rank is last as often as that one: who is slow, :mod:`work` says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

from cockpit.base.recorder.trace import Group
from cockpit.core.recorder.merge import Collective

RECENT = 100
"""Collectives of a group that are looked at, the newest."""

NOTICED_US = 20_000
"""By less than this, microseconds, somebody is always last; clocks differ by some of it."""

OFTEN = 5
"""Times that a rank has to be last by more than that, to be told."""


class Last(NamedTuple):
    """Who was last most often in the newest collectives of a group.

    :param looked: how many of them there were
    :param waited: in how many of these the others waited noticeably for the last one
    :param times: in how many of these it was this rank
    :param lag_us: by how much then, after the last but one; the median, microseconds
    """

    group: Group
    looked: int
    waited: int
    rank: int
    times: int
    lag_us: int


def lasts(collectives: Iterable[Collective]) -> list[Last]:
    """Of each group in which that is worth telling, those that cost most first."""
    of_group: dict[Group, list[Collective]] = {}
    for one in collectives:
        if one.complete and len(one.arrivals) > 1:
            of_group.setdefault(one.group, []).append(one)
    found = []
    for group, several in of_group.items():
        recent = sorted(several, key=lambda one: one.number)[-RECENT:]
        noticed = [(rank, lag) for rank, lag in map(_last, recent) if lag >= NOTICED_US]
        times = Counter(rank for rank, _ in noticed)
        if not times:
            continue
        rank = min(times, key=lambda each: (-times[each], each))
        if times[rank] >= OFTEN:
            lag_us = round(median(lag for each, lag in noticed if each == rank))
            found.append(Last(group, len(recent), len(noticed), rank, times[rank], lag_us))
    return sorted(found, key=lambda one: -one.times * one.lag_us)


def _last(one: Collective) -> tuple[int, int]:
    """The last rank, and how long after the last but one it came."""
    (before, _), (at, rank) = sorted((at, rank) for rank, at in one.arrivals.items())[-2:]
    return rank, at - before
