"""One look at the recorders of all ranks: every collective with who entered it and who did not.

A collective is known by its group and its number there. Recorders are asked one after the other while
training goes on, so that somebody has not entered yet means little by itself: :attr:`Collective.waited_us`
says for how long that is certain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cockpit.base.recorder.trace import GOING, Call, Entry, Group, Trace
from cockpit.core.masks import mask_of, ranks_of
from cockpit.core.recorder.members import Memberships

SIZES_DIFFER = re.compile(r"scatter|gather|all_?to_?all.*|.*_v(_.*)?")
"""Operations whose sizes may be different on each rank."""


class Recorded(NamedTuple):
    """What the recorders of one rank have.

    :param traces: one of each backend that has a recorder of its own; times are on our clock
    :param taken_us: when that was so, unix microseconds on our clock
    """

    taken_us: int
    traces: tuple[Trace, ...]


class Difference(NamedTuple):
    """Ranks that call something else under one number.

    :param what: ``operation``, ``size`` or ``type``
    :param calls: what is called, by the ranks that do, most ranks first
    """

    what: str
    calls: tuple[tuple[int, Call], ...]


@dataclass
class Collective:
    """One collective over all ranks of its group. Sets of ranks are masks; times are unix microseconds.

    :param number: its number in the group
    :param sure: whether ``members`` are all of them
    :param arrivals: when each rank entered it, where that is known
    :param calls: what each rank called; several where they were sent off together
    :param absent: members that had not entered it when they were looked at
    :param unknown: members of which that is not known: no answer, or the recorder has forgotten
    :param going: ranks that entered it and are not through
    :param complete: whether it is known of every known member when it entered
    :param waited_us: for how long those who entered have certainly waited for an absent rank, or, if all have
        entered, for its end
    """

    group: Group
    number: int
    members: int = 0
    sure: bool = False
    arrivals: dict[int, int] = field(default_factory=dict)
    calls: dict[int, tuple[Call, ...]] = field(default_factory=dict)
    absent: int = 0
    unknown: int = 0
    going: int = 0
    complete: bool = False
    waited_us: int = 0

    @property
    def call(self) -> Call:
        """What is called, by most of them."""
        return max(self._variants(), key=lambda one: one[0].bit_count())[1][0]

    @property
    def entered(self) -> int:
        """The members that have entered it."""
        return self.members & ~self.absent & ~self.unknown

    def _variants(self) -> list[tuple[int, tuple[Call, ...]]]:
        found: dict[tuple[Call, ...], int] = {}
        for rank, calls in self.calls.items():
            found[calls] = found.get(calls, 0) | 1 << rank
        return [(mask, calls) for calls, mask in found.items()]

    @property
    def difference(self) -> Difference | None:
        """What does not match between ranks, the first thing of it; None: all of it does."""
        variants = sorted(self._variants(), key=lambda one: (-one[0].bit_count(), one[0]))
        if len(variants) < 2:
            return None
        for what, trait in _TRAITS:
            alike: dict[tuple[object, ...], tuple[int, Call]] = {}
            for mask, calls in variants:
                key = tuple(map(trait, calls))
                before, call = alike.get(key, (0, calls[0]))
                alike[key] = (before | mask, call)
            # What has no size or type has nothing that could differ.
            told = [one for key, one in alike.items() if all(part is not None for part in key)]
            if len(told) > 1:
                return Difference(what, tuple(told))
        return None


def _sizes(call: Call) -> tuple[int, int] | None:
    if SIZES_DIFFER.fullmatch(call.op):
        return None
    return call.inputs, call.outputs


_TRAITS = (
    ("operation", lambda call: call.op),
    ("size", _sizes),
    ("type", lambda call: call.dtype or None),
)


class Pair(NamedTuple):
    """A send or receive that is not through.

    :param peer: the other rank; None: the group's ranks are not known
    """

    rank: int
    peer: int | None
    entry: Entry


@dataclass(frozen=True)
class Look:
    """What all recorders say together.

    :param collectives: by the time of their first arrival
    :param pairs: sends and receives that are not through; of gloo there are none on record
    :param heard: the ranks whose recorders answered
    :param complete_us: from this moment on the recorder of each rank has everything
    :param taken_us: when each rank's was looked at
    """

    collectives: tuple[Collective, ...]
    pairs: tuple[Pair, ...]
    heard: int
    complete_us: Mapping[int, int]
    taken_us: Mapping[int, int]
    _complete: dict[int, int] = field(default_factory=dict)

    def complete_from(self, ranks: int) -> int:
        """From which moment on the recorders of all these ranks have everything."""
        found = self._complete.get(ranks)
        if found is None:
            # Many ranks have the same partners.
            found = max((self.complete_us.get(rank, 0) for rank in ranks_of(ranks)), default=0)
            self._complete[ranks] = found
        return found

    def open(self, least_us: int = 0) -> list[Collective]:
        """Collectives that somebody waits in, for this long at least; the longest first."""
        found = [one for one in self.collectives if one.going and one.waited_us >= least_us]
        return sorted(found, key=lambda one: -one.waited_us)

    def missing(self, least_us: int = 0) -> int:
        """The ranks for which others wait while they themselves wait for nobody, as a mask.

        A rank that is missing in one collective because it waits in another one is not among them.
        """
        absent = waits = 0
        for one in self.open(least_us):
            absent |= one.absent
            waits |= one.going
        for pair in self.pairs:
            waits |= 1 << pair.rank
        return absent & ~waits

    def differences(self) -> list[tuple[Collective, Difference]]:
        """Collectives in which ranks call different things."""
        found = ((one, one.difference) for one in self.collectives)
        return [(one, difference) for one, difference in found if difference is not None]


def look(recorded: Mapping[int, Recorded], memberships: Memberships) -> Look:
    """Read the recorders of all ranks together.

    :param recorded: of each rank that answered
    :param memberships: learns from it, and keeps what earlier looks have taught it
    """
    table: dict[tuple[Group, int], Collective] = {}
    pairs: list[tuple[int, Entry]] = []
    tops: dict[tuple[int, Group], int] = {}
    for rank, one in recorded.items():
        for trace in one.traces:
            memberships.learn(rank, trace)
            for entry in _newest(trace.entries):
                if entry.call.pairwise:
                    if entry.state == GOING:
                        pairs.append((rank, entry))
                    continue
                _enter(table, rank, entry)
                key = (rank, entry.call.group)
                tops[key] = max(tops.get(key, 0), entry.number)
    for found in table.values():
        found.members = memberships.of(found.group)
        found.sure = memberships.sure(found.group)
        others = found.members & ~mask_of(found.arrivals)
        found.complete = not others
        for rank in ranks_of(others):
            entered = _entered(recorded.get(rank), found, tops.get((rank, found.group)))
            found.absent |= (entered is False) << rank
            found.unknown |= (entered is None) << rank
        found.waited_us = _waited(found, recorded)
    return Look(
        tuple(sorted(table.values(), key=lambda one: min(one.arrivals.values()))),
        tuple(Pair(rank, _peer(entry.call, memberships), entry) for rank, entry in pairs),
        mask_of(recorded),
        {rank: max((trace.from_us for trace in one.traces), default=0) for rank, one in recorded.items()},
        {rank: one.taken_us for rank, one in recorded.items()},
    )


def _newest(entries: Sequence[Entry]) -> list[Entry]:
    """The entries without those of an earlier group of the same name: its numbers begin anew."""
    begun: dict[Group, int] = {}
    before: dict[Group, int] = {}
    for place, entry in enumerate(entries):
        if entry.call.pairwise:
            continue
        group = entry.call.group
        if entry.number <= 1 < before.get(group, 0):
            begun[group] = place
        before[group] = entry.number
    return [entry for place, entry in enumerate(entries) if place >= begun.get(entry.call.group, 0)]


def _enter(table: dict[tuple[Group, int], Collective], rank: int, entry: Entry) -> None:
    key = (entry.call.group, entry.number)
    found = table.get(key)
    if found is None:
        found = table[key] = Collective(*key)
    found.arrivals[rank] = min(found.arrivals.get(rank, entry.at_us), entry.at_us)
    found.calls[rank] = (*found.calls.get(rank, ()), entry.call)
    if entry.state == GOING:
        found.going |= 1 << rank


def _entered(recorded: Recorded | None, found: Collective, top: int | None) -> bool | None:
    """Whether a rank without an entry has entered it; None: that is not known.

    :param top: the highest number that the rank has an entry of in this group
    """
    if recorded is None:
        return None
    if top is not None:
        return found.number <= top
    return False if all(trace.whole for trace in recorded.traces) else None


def _waited(found: Collective, recorded: Mapping[int, Recorded]) -> int:
    if not found.going:
        return 0
    if found.absent:
        until = min(recorded[rank].taken_us for rank in ranks_of(found.absent))
        return max(0, until - min(found.arrivals[rank] for rank in ranks_of(found.going)))
    until = min(recorded[rank].taken_us for rank in ranks_of(found.going))
    return max(0, until - max(found.arrivals.values()))


def _peer(call: Call, memberships: Memberships) -> int | None:
    ranks = list(ranks_of(memberships.of(call.group)))
    if not memberships.sure(call.group) or not 0 <= call.peer < len(ranks):
        return None
    return ranks[call.peer]
