"""Sends and receives that are not through, and whether the other rank has come to meet them.

Their numbers are counted on each rank by itself and match nothing: what meets a call is one the other way, to
this rank, that is not through either, or that was made later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cockpit.base.recorder.trace import GOING, Call, Entry, Group
from cockpit.core.masks import ranks_of
from cockpit.core.recorder.members import Memberships

_OTHER_WAY = {"send": "recv", "recv": "send"}


class Pair(NamedTuple):
    """A send or receive that is not through.

    :param peer: the other rank; None: the group's ranks are not known
    :param alone: whether the other rank answered, and has called nothing that would meet it
    :param waited_us: for how long that, or, if it is not alone, its wait, is certain; microseconds
    """

    rank: int
    peer: int | None
    entry: Entry
    alone: bool = False
    waited_us: int = 0


def pairs(
    calls: Iterable[tuple[int, Entry]], taken_us: Mapping[int, int], memberships: Memberships
) -> list[Pair]:
    """Those that are not through, of calls between two ranks.

    :param calls: of all ranks, by the rank that made each
    :param taken_us: when each rank that answered was looked at
    """
    going: list[tuple[int, int | None, Entry]] = []
    latest: dict[tuple[Group, str, int, int], int] = {}
    for rank, entry in calls:
        peer = _peer(entry.call, memberships)
        if entry.state == GOING:
            going.append((rank, peer, entry))
        if peer is not None:
            key = (entry.call.group, entry.call.op, rank, peer)
            # One that is not through meets whatever there is.
            at_us = _FOR_EVER if entry.state == GOING else entry.at_us
            latest[key] = max(latest.get(key, 0), at_us)
    return [_pair(rank, peer, entry, latest, taken_us) for rank, peer, entry in going]


_FOR_EVER = 1 << 62


def _pair(
    rank: int,
    peer: int | None,
    entry: Entry,
    latest: Mapping[tuple[Group, str, int, int], int],
    taken_us: Mapping[int, int],
) -> Pair:
    way = _OTHER_WAY.get(entry.call.op, "")
    alone = False
    if way and peer is not None and peer != rank and peer in taken_us:
        alone = latest.get((entry.call.group, way, peer, rank), -1) < entry.at_us
    until = taken_us[peer] if alone and peer is not None else taken_us[rank]
    return Pair(rank, peer, entry, alone, max(0, until - entry.at_us))


def _peer(call: Call, memberships: Memberships) -> int | None:
    ranks = list(ranks_of(memberships.of(call.group)))
    if not memberships.sure(call.group) or not 0 <= call.peer < len(ranks):
        return None
    return ranks[call.peer]
