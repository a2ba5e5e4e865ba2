"""One look at the recorders of all ranks: every collective with who entered it and who did not.

A collective is known by its group and its number there. Recorders are asked one after the other while
training goes on, so that somebody has not entered yet means little by itself: :attr:`Collective.waited_us`
says for how long that is certain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cockpit.base.recorder.trace import GOING, Call, Entry, Group, Trace
from cockpit.core.masks import mask_of, ranks_of
from cockpit.core.recorder.group_reuse import Anew
from cockpit.core.recorder.members import Memberships
from cockpit.core.recorder.pairs import Pair, pairs

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
    :param sources: the lines of the program at which ranks called it, by rank, where dumps have stacks
    :param cut: ranks whose recorder may have forgotten the first of the calls that were sent off together
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
    sources: dict[int, str] = field(default_factory=dict)
    absent: int = 0
    unknown: int = 0
    cut: int = 0
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

    def places(self, ranks: int) -> list[tuple[str, int]]:
        """The lines at which these ranks called it, as far as they are known, those of most ranks first."""
        found: dict[str, int] = {}
        for rank, source in self.sources.items():
            if ranks >> rank & 1:
                found[source] = found.get(source, 0) | 1 << rank
        return sorted(found.items(), key=lambda one: (-one[1].bit_count(), one[0]))

    def _variants(self) -> list[tuple[int, tuple[Call, ...]]]:
        found: dict[tuple[Call, ...], int] = {}
        longest = max(self.calls.values(), key=len)
        for rank, calls in self.calls.items():
            if self.cut >> rank & 1 and longest[len(longest) - len(calls) :] == calls:
                calls = longest
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
            if pair.alone and pair.peer is not None and pair.waited_us >= least_us:
                absent |= 1 << pair.peer
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
    anew = Anew(trace.entries for one in recorded.values() for trace in one.traces)
    table: dict[tuple[Group, int], Collective] = {}
    between: list[tuple[int, Entry]] = []
    tops: dict[tuple[int, Group], int] = {}
    for rank, one in recorded.items():
        for trace in one.traces:
            memberships.learn(rank, trace)
            for entry in anew.newest(trace.entries):
                if entry.call.pairwise:
                    between.append((rank, entry))
                    continue
                _enter(table, rank, entry, cut=entry.at_us <= trace.from_us)
                key = (rank, entry.call.group)
                tops[key] = max(tops.get(key, 0), entry.number)
    for found in table.values():
        found.members = memberships.of(found.group)
        found.sure = memberships.sure(found.group)
        others = found.members & ~mask_of(found.arrivals)
        found.complete = not others
        since = anew.since(found.group)
        for rank in ranks_of(others):
            entered = _entered(recorded.get(rank), found, tops.get((rank, found.group)), since)
            found.absent |= (entered is False) << rank
            found.unknown |= (entered is None) << rank
        found.waited_us = _waited(found, recorded)
    taken_us = {rank: one.taken_us for rank, one in recorded.items()}
    return Look(
        tuple(sorted(table.values(), key=lambda one: min(one.arrivals.values()))),
        tuple(pairs(between, taken_us, memberships)),
        mask_of(recorded),
        {rank: max((trace.from_us for trace in one.traces), default=0) for rank, one in recorded.items()},
        {rank: one.taken_us for rank, one in recorded.items()},
    )


def _enter(table: dict[tuple[Group, int], Collective], rank: int, entry: Entry, *, cut: bool) -> None:
    key = (entry.call.group, entry.number)
    found = table.get(key)
    if found is None:
        found = table[key] = Collective(*key)
    found.arrivals[rank] = min(found.arrivals.get(rank, entry.at_us), entry.at_us)
    found.calls[rank] = (*found.calls.get(rank, ()), entry.call)
    found.cut |= cut << rank
    if entry.source:
        found.sources[rank] = entry.source
    if entry.state == GOING:
        found.going |= 1 << rank


def _entered(recorded: Recorded | None, found: Collective, top: int | None, since: int | None) -> bool | None:
    """Whether a rank without an entry has entered it; None: that is not known.

    :param top: the highest number that the rank has an entry of in this group
    :param since: when the group began, where an earlier one had its name
    """
    if recorded is None:
        return None
    if top is not None:
        return found.number <= top
    begun = all(trace.whole or (since is not None and trace.from_us < since) for trace in recorded.traces)
    return False if begun else None


def _waited(found: Collective, recorded: Mapping[int, Recorded]) -> int:
    if not found.going:
        return 0
    if found.absent:
        until = min(recorded[rank].taken_us for rank in ranks_of(found.absent))
        return max(0, until - min(found.arrivals[rank] for rank in ranks_of(found.going)))
    until = min(recorded[rank].taken_us for rank in ranks_of(found.going))
    return max(0, until - max(found.arrivals.values()))
