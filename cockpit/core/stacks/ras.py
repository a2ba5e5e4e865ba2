"""What NCCL's RAS said when a snapshot was taken: who does not answer, and who has launched less than others.

It is evidence, and accuses nobody: a CPU launches ahead of its GPU, so counts that are equal do not say that
an operation is through, and those of training that goes on differ all the time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cockpit.base.gate import (
    COUNT,
    PID,
    RANK,
    TIME,
    FieldKind,
    ListOf,
    MapOf,
    Of,
    Text,
    bound,
    plain,
)
from cockpit.base.ras import (
    COMMUNICATORS,
    HOST,
    NAMED,
    RUNNING,
    VERSION,
    Communicator,
    Counted,
    Member,
    RasAnswer,
)
from cockpit.core.stacks.words import ranks_words
from cockpit.core.text import one_line

TOLD = 2
"""Sentences that one verdict gets."""

PASSING = frozenset({RUNNING, "init", "finalize"})
"""States that are no errors."""


class _Words(FieldKind):
    """Text, made harmless."""

    def read(self, value: Any) -> str:
        return one_line(_TEXT.read(value), limit=500)


_TEXT = Text(6000, cut=True)
_WORDS = _Words()


@dataclass(frozen=True)
class Known:
    """A process of RAS's that is a rank of this job."""

    host: str = bound(HOST)
    pid: int = bound(PID)
    rank: int = bound(RANK)


@dataclass(frozen=True)
class Ras:
    """What RAS said on one node about the whole job.

    :param at: when it was asked, unix seconds on our clock
    :param node: where it was asked; empty: nobody answered
    :param version: NCCL's
    :param timeouts: processes that RAS did not wait for any longer
    :param communicators: how many there are; ``odd``: those with something unusual; ``rows``: some of them
    :param ranks: which of the processes in them are ranks
    :param silent: nodes where it gave no answer, and why
    """

    at: float = bound(TIME)
    node: str = bound(_WORDS, "")
    version: str = bound(VERSION, "")
    timeouts: int = bound(COUNT, 0)
    communicators: int = bound(COUNT, 0)
    odd: int = bound(COUNT, 0)
    rows: tuple[Communicator, ...] = bound(ListOf(Of(Communicator), COMMUNICATORS), ())
    ranks: tuple[Known, ...] = bound(ListOf(Of(Known), 2 * NAMED), ())
    silent: dict[str, str] = bound(MapOf(_WORDS, _WORDS, 1000), {})

    def as_json(self) -> dict[str, Any]:
        """The same as JSON values; :func:`cockpit.base.gate.read` is the reverse."""
        told: dict[str, Any] = plain(self)
        return told


def of_answer(
    answer: RasAnswer | None,
    node: str,
    at: float,
    silent: Mapping[str, str],
    pids: Mapping[int, tuple[str, Collection[int]]],
) -> Ras:
    """What was said, for a snapshot.

    :param answer: None: no node answered
    :param pids: the node of each rank, and the pids by which its process is known
    """
    why = {one_line(name): one_line(text, limit=200) for name, text in silent.items()}
    if answer is None:
        return Ras(at, silent=why)
    members = {(one.host, one.pid) for one in _members(answer.rows) if one.host and one.pid}
    ranks = tuple(Known(*process, rank) for process, rank in sorted(_ranks(members, pids).items()))
    counts = answer.timeouts, answer.communicators, answer.odd
    return Ras(at, node, answer.version, *counts, answer.rows, ranks, why)


def _members(rows: Iterable[Communicator]) -> Iterator[Member]:
    for row in rows:
        yield from (one.member for one in row.lost)
        yield from (one for group in row.states for one in group.members)
        yield from (one for group in row.counts for one in group.members)


def _ranks(
    members: Collection[tuple[str, int]], pids: Mapping[int, tuple[str, Collection[int]]]
) -> dict[tuple[str, int], int]:
    """Which rank each process is.

    RAS knows addresses, and we know nodes by name: an address is the node that has the most of its pids, and
    none if two have as many. What a node says never makes a rank of a pid that is not one.
    """
    of_host: dict[str, set[int]] = {}
    for host, pid in members:
        of_host.setdefault(host, set()).add(pid)
    of_node: dict[str, dict[int, int]] = {}
    for rank, (node, each) in pids.items():
        of_node.setdefault(node, {}).update(dict.fromkeys(each, rank))
    found: dict[tuple[str, int], int] = {}
    left = dict(of_node)
    for host, here in sorted(of_host.items(), key=lambda item: (-len(item[1]), item[0])):
        fits = {node: len(here & known.keys()) for node, known in left.items()}
        most = max(fits.values(), default=0)
        best = [node for node, number in fits.items() if number == most]
        if most and len(best) == 1:
            known = left.pop(best[0])
            found.update({(host, pid): known[pid] for pid in here & known.keys()})
    return found


def merged(several: Iterable[Ras | None]) -> Ras | None:
    """Of several the newest that has an answer."""
    known = [one for one in several if one is not None]
    return max(known, key=lambda one: (bool(one.node), one.at), default=None)


def sentences(ras: Ras, *, still: bool) -> tuple[str, ...]:
    """What a verdict gives as evidence, what weighs most first.

    :param still: whether the job is known to stand still: only then counts say anything
    """
    told = [*_lost(ras), *_failed(ras)]
    if still:
        told += _differing(ras) or [*_making(ras), *_alike(ras)]
    return tuple(f"NCCL RAS: {text}" for text in told[:TOLD])


class _Who(NamedTuple):
    """Processes: those that are ranks, and the others."""

    ranks: int
    others: tuple[Member, ...]


def _who(ras: Ras, members: Iterable[Member]) -> _Who:
    known = {(one.host, one.pid): one.rank for one in ras.ranks}
    ranks, others = 0, {}
    for one in members:
        rank = known.get((one.host, one.pid))
        if rank is None:
            others[one.host, one.pid] = one
        else:
            ranks |= 1 << rank
    return _Who(ranks, tuple(others.values()))


def _named(ras: Ras, members: Sequence[Member], number: int, one: str, more: str) -> str:
    """``rank 13 has``, ``process 4711 on 10.0.0.3 has``, ``300 ranks have``.

    :param number: how many they are, of which these are named
    """
    who = _who(ras, members)
    if number > len(members) or (who.others and len(members) > 1):
        return f"{number:,} rank{'s' * (number != 1)} {one if number == 1 else more}"
    if who.others:
        first = who.others[0]
        return f"process {first.pid or '?'} on {first.host or 'an unknown node'} {one}"
    return ranks_words(who.ranks, one, more)


def _lost(ras: Ras) -> Iterator[str]:
    """Processes that do not answer RAS."""
    lost = {(one.member.host, one.member.pid): one for row in ras.rows for one in row.lost}
    dead = [one.member for one in lost.values() if one.dead]
    mute = [one.member for one in lost.values() if one.unresponsive and not one.dead]
    if dead:
        yield _named(ras, dead, len(dead), "has not answered for a minute", "have not answered for a minute")
    if mute:
        yield _named(ras, mute, len(mute), "does not answer", "do not answer")


def _failed(ras: Ras) -> Iterator[str]:
    """Errors, and communicators that were aborted."""
    for row in ras.rows:
        for one in row.states:
            if one.state in PASSING:
                continue
            aborted = one.state == "abort"
            verbs = ("has aborted", "have aborted") if aborted else ("reports an error", "report an error")
            who = _all_or(ras, row, one.members, one.ranks, *verbs)
            yield f"{who} {_title(row)}" if aborted else f"{who} in {_title(row)}: {one.state}"
            return


def _making(ras: Ras) -> Iterator[str]:
    """Communicators that are not complete."""
    for row in ras.rows:
        for one in row.states:
            if one.state == "init":
                who = _all_or(ras, row, one.members, one.ranks, "is still making", "are still making")
                yield f"{who} {_title(row)}"
                return


def _all_or(ras: Ras, row: Communicator, members: Sequence[Member], number: int, one: str, more: str) -> str:
    if number == row.heard > 1:
        return f"all {number:,} ranks that answer {more}"
    return _named(ras, members, number, one, more)


def _title(row: Communicator) -> str:
    return f"communicator {row.hash} of {row.size:,} rank{'s' * (row.size != 1)}"


class _Difference(NamedTuple):
    """An operation that some ranks of a communicator have launched less often.

    :param fewest: those that have launched it least
    """

    row: Communicator
    groups: tuple[Counted, ...]
    fewest: Counted

    def ahead(self) -> set[tuple[str, int]]:
        """Processes that have launched more."""
        more = (each for each in self.groups if each is not self.fewest)
        return {(one.host, one.pid) for each in more for one in each.members}


def _differing(ras: Ras) -> list[str]:
    """Who has launched less than the others, where that rank waits for nobody in another communicator."""
    found = []
    for row in ras.rows:
        for op in row.differing:
            groups = tuple(one for one in row.counts if one.op == op)
            found.append(_Difference(row, groups, min(groups, key=lambda one: one.times)))

    def weight(one: _Difference) -> tuple[bool, int, int]:
        fewest = {(each.host, each.pid) for each in one.fewest.members}
        elsewhere = (each for each in found if each.row is not one.row)
        waits = any(fewest & each.ahead() for each in elsewhere)
        return waits, one.fewest.ranks, -one.row.size

    # Sorting compares all with all; so many communicators can differ only while training goes on.
    found = sorted(found[:200], key=weight)
    return [_difference_text(ras, one) for one in found if one.row is found[0].row]


def _difference_text(ras: Ras, found: _Difference) -> str:
    fewest = found.fewest
    others = [one.times for one in found.groups if one is not fewest]
    least, most = min(others), max(others)
    rest = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    if 2 * fewest.ranks > found.row.heard and len(others) == 1:
        # One is ahead of all others: it is what differs.
        ahead = next(one for one in found.groups if one is not fewest)
        who = _named(ras, ahead.members, ahead.ranks, "has launched", "have launched")
        return f"{who} {ahead.times:,} {ahead.op}, the others {fewest.times:,} ({_title(found.row)})"
    who = _named(ras, fewest.members, fewest.ranks, "has launched", "have launched")
    return f"{who} {fewest.times:,} {fewest.op}, the others {rest} ({_title(found.row)})"


def _alike(ras: Ras) -> Iterator[str]:
    """That nobody is missing is worth knowing too: then it is a network, or a GPU."""
    if ras.communicators and not ras.odd:
        of = f"each of {ras.communicators:,} communicators" if ras.communicators > 1 else "the communicator"
        yield f"in {of} all ranks have launched the same operations"
