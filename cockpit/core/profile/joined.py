"""The collectives of all ranks, joined: when each rank came to the same one, who came last, who waited.

A collective ends on all of its ranks at once. So the rank that comes last is in it for the shortest time, and
what another rank takes longer than that it waits, whatever the clocks of nodes say. Where a trace names no
groups, ranks of several groups may be taken for one; the shortest time is much the same in each of them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from operator import attrgetter
from statistics import median
from typing import NamedTuple

from cockpit.base.profile.summary import Collective, RankProfile
from cockpit.core.masks import mask_of
from cockpit.core.profile.reading import Arrivals, CollectiveRow
from cockpit.core.text import one_line

TOGETHER: Mapping[str, Callable[[int], float]] = {
    "allreduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "allgather": lambda ranks: ranks - 1,
    "reducescatter": lambda ranks: (ranks - 1) / ranks,
    "alltoall": lambda ranks: (ranks - 1) / ranks,
    "barrier": lambda ranks: 0.0,
}
"""Nobody leaves these before all have come; names are compared without what is no letter. Behind each: how
many times what goes into it each link carries, by the number of ranks ("busbw" of nccl-tests)."""

APART_NS = 20_000_000
"""Where no group is named, ranks that leave so long after each other were in different ones."""

ENDS = 3
"""Collectives of two nodes from which on their ends say how far the clocks are apart."""

ROWS = 200
"""Kinds of collectives that are kept: those with most time."""

BESIDE = 16
"""Rows of one name and size that others are tried to be one with."""

_PAIR = ("send", "recv")
_NS = 1_000_000_000

_Members = Sequence[tuple[int, int, Collective]]
"""Ranks in one collective, when each came to it by its node's clock, and what its node says."""


class Call(NamedTuple):
    """One rank in one collective; nanoseconds, on our clock.

    :param wait: how long it waited for others; never longer than it was exposed
    """

    rank: int
    began: int
    end: int
    wait: int


@dataclass(frozen=True, slots=True)
class Joined:
    """One collective, with all of its ranks that are here.

    :param ranks: of its group; 0: not known, or its members contradict each other
    :param least: the shortest time that a rank was in it, nanoseconds
    """

    step: int
    name: str
    group: str
    size: int
    ranks: int
    least: int
    calls: Sequence[Call]


@dataclass(frozen=True, slots=True)
class Join:
    """All of them.

    :param waits: by rank and step: how long it waited for others, nanoseconds, by the phase in which; a step
        without collectives of several ranks has none
    :param offsets: how far each node's clock is ahead of ours, seconds
    :param clock: how far the ends of one collective are apart on our clock, seconds, the median; None: not
        known
    """

    collectives: Sequence[Joined]
    waits: Mapping[tuple[int, int], Mapping[int, int]]
    offsets: Mapping[str, float]
    clock: float | None


def join(profiles: Mapping[int, RankProfile], nodes: Mapping[int, str], offsets: Mapping[str, float]) -> Join:
    """The collectives of all ranks.

    :param nodes: the node of each rank
    :param offsets: how far each node's clock is ahead of ours, as it was measured, seconds
    """
    found = _members(profiles)
    measured = {node: offsets.get(node, 0.0) for node in nodes.values()}
    late = _corrections(found.values(), nodes, measured)
    refined = {node: offset + late.get(node, 0.0) for node, offset in measured.items()}
    ahead = {rank: round(refined[node] * _NS) for rank, node in nodes.items()}
    collectives, waits = list[Joined](), defaultdict[tuple[int, int], Counter[int]](Counter)
    for members in found.values():
        parts = list(_parted(members, ahead))
        collectives += parts
        if len(members) > 1:
            phases = {rank: one.phase for rank, _, one in members}
            for part in parts:
                for call in part.calls:
                    waits[call.rank, part.step][phases[call.rank]] += call.wait
    ends = [
        max(call.end for call in one.calls) - min(call.end for call in one.calls)
        for one in collectives
        if len(one.calls) > 1 and _together(one.name)
    ]
    return Join(collectives, waits, refined, median(ends) / _NS if ends else None)


def _members(profiles: Mapping[int, RankProfile]) -> Mapping[object, _Members]:
    """By what is the same on all ranks of a collective."""
    found: defaultdict[object, list[tuple[int, int, Collective]]] = defaultdict(list)
    for rank, profile in sorted(profiles.items()):
        begins = {step.step: step.began for step in reversed(profile.steps)}
        seen: Counter[tuple[int, str, str]] = Counter()
        for one in profile.collectives:
            if (began := begins.get(one.step)) is None:
                continue
            key = one.step, one.group, one.key
            # A key that is there twice is that of two calls: the first of a rank goes with the others' first.
            seen[key] += 1
            found[key, seen[key], _kind(one.name)].append((rank, began + one.began, one))
    return found


@lru_cache(maxsize=4096)
def _kind(name: str) -> str:
    """What the same collective is called on all of its ranks."""
    return "" if _letters(name).endswith(_PAIR) else name


@lru_cache(maxsize=4096)
def _together(name: str) -> str:
    """Which of :data:`TOGETHER` it is; empty: none."""
    letters = _letters(name)
    return next((one for one in TOGETHER if one in letters), "")


def _letters(name: str) -> str:
    return re.sub("[^a-z]", "", name.lower())


def _parted(members: _Members, ahead: Mapping[int, int]) -> Iterator[Joined]:
    """One collective, or those of several groups that the trace does not tell apart."""
    least = min(one.took for _, _, one in members)
    calls = [
        Call(rank, at := began - ahead[rank], at + one.took, min(one.exposed, one.took - least))
        for rank, began, one in members
    ]
    sizes, many, names = {one.size for _, _, one in members}, {one.ranks for _, _, one in members}, set[str]()
    names.update(one.name for _, _, one in members)
    ranks = many.pop() if len(many) == 1 else 0
    first = members[0][2]
    name, group = one_line(" and ".join(sorted(names))), one_line(first.group)
    cuts: list[int] = []
    if not group and not ranks and _together(name):
        calls.sort(key=attrgetter("end"))
        cuts = [at for at, (one, after) in enumerate(pairwise(calls), 1) if after.end - one.end > APART_NS]
    for since, until in pairwise((0, *cuts, len(calls))):
        known = ranks if ranks >= until - since else 0
        yield Joined(first.step, name, group, max(sizes), known, least, calls[since:until])


def _corrections(
    collectives: Iterable[_Members], nodes: Mapping[int, str], offsets: Mapping[str, float]
) -> dict[str, float]:
    """How much further each node's clock is ahead than it was measured, by the ends of collectives, seconds.

    The median of these is 0: they tell nothing of our own clock.
    """
    if len(offsets) < 2:
        return {}
    apart: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for members in collectives:
        first = members[0][2]
        if not _together(first.name):
            continue
        ends: dict[str, int] = {}
        for rank, began, one in members:
            node = nodes[rank]
            ends[node] = min(ends.get(node, 1 << 80), began + one.took)
        anchor, *others = sorted(ends)
        for node in others:
            more = (ends[node] - ends[anchor]) / _NS - offsets[node] + offsets[anchor]
            if first.group or first.ranks or abs(more) * _NS <= APART_NS:
                apart[anchor, node].append(more)
    near: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for (anchor, node), some in apart.items():
        if len(some) >= ENDS:
            near[anchor][node] = median(some)
            near[node][anchor] = -near[anchor][node]
    found: dict[str, float] = {}
    for start in sorted(near):
        if start in found:
            continue
        part, ahead = {start: 0.0}, deque([start])
        while ahead:
            node = ahead.popleft()
            for other, seconds in near[node].items():
                if other not in part:
                    part[other] = part[node] + seconds
                    ahead.append(other)
        middle = median(part.values())
        found |= {node: seconds - middle for node, seconds in part.items()}
    return found


# What is made of them


def rows(
    collectives: Iterable[Joined], nodes: Mapping[int, str], steps: int
) -> tuple[list[CollectiveRow], Arrivals | None]:
    """Collectives of one name and size, those with most time first; and who arrived when, where ranks waited
    longest.

    Groups that do the same side by side, each with ranks of its own, are one row.

    :param steps: in how many steps these are
    """
    alike: defaultdict[tuple[str, int, str], list[Joined]] = defaultdict(list)
    for one in collectives:
        alike[one.name, one.size, one.group].append(one)
    folded: list[tuple[list[Joined], int]] = []  # with the ranks in them
    beside: defaultdict[tuple[str, int, int], list[int]] = defaultdict(list)
    for (name, size, _), some in sorted(alike.items()):
        mask = mask_of({call.rank for one in some for call in one.calls})
        same = beside[name, size, len(some)]
        place = next((at for at in same[:BESIDE] if not folded[at][1] & mask), len(folded))
        if place == len(folded):
            same.append(place)
            folded.append(([], 0))
        folded[place][0].extend(some)
        folded[place] = folded[place][0], folded[place][1] | mask
    folded.sort(key=lambda one: -sum(call.end - call.began for whole in one[0] for call in whole.calls))
    found = [_row(some, mask.bit_count() * max(1, steps), nodes) for some, mask in folded[:ROWS]]
    waits = [row.wait * mask.bit_count() for row, (_, mask) in zip(found, folded, strict=False)]
    most = max(waits, default=0.0)
    return found, _arrivals(place := waits.index(most), folded[place][0]) if most else None


def _row(some: Sequence[Joined], times: int, nodes: Mapping[int, str]) -> CollectiveRow:
    """:param times: ranks times steps"""
    several = [one for one in some if len(one.calls) > 1]
    lasts = Counter(max(one.calls, key=attrgetter("began")).rank for one in several)
    spreads = [_spread(one) for one in several]
    seen, many = max(len(one.calls) for one in some), {one.ranks for one in some}
    ranks = many.pop() if len(many) == 1 else 0
    between = any(len({nodes[call.rank] for call in one.calls}) > 1 for one in several)
    took = median(one.least for one in some) / _NS
    name, size = some[0].name, some[0].size
    return CollectiveRow(
        name,
        tuple(dict.fromkeys(one.group for one in some)),
        ranks,
        seen,
        size,
        sum(len(one.calls) for one in some) / times,
        took,
        median(spreads) / _NS if spreads else 0.0,
        sum(call.wait for one in several for call in one.calls) / _NS / times,
        tuple(lasts.most_common(5)),
        len(several),
        _rate(name, size, ranks, took),
        None if not between and seen < ranks else between,
    )


def _spread(one: Joined) -> int:
    begins = [call.began for call in one.calls]
    return max(begins) - min(begins)


def _rate(name: str, size: int, ranks: int, took: float) -> float | None:
    """Bytes a second on each link; None: not known."""
    factor = TOGETHER.get(_together(name))
    return size * factor(ranks) / took if factor and size and ranks > 1 and took > 0 else None


def _arrivals(row: int, some: Iterable[Joined]) -> Arrivals:
    after: defaultdict[int, list[int]] = defaultdict(list)
    for one in some:
        first = min(call.began for call in one.calls)
        for call in one.calls:
            after[call.rank].append(call.began - first)
    return Arrivals(row, {rank: median(some) / _NS for rank, some in sorted(after.items())})
