"""Reading what NCCL's RAS answers: its JSON, within bounds, communicator by communicator, cut down to rows.

The form is that of ``rasDumpCommsToJSON`` and what it calls in NCCL's ``src/ras/client_support.cc``, versions
2.28.7 to 2.30.7. Those before 2.29 leave out a comma in each entry of ``missing_ranks``.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence, Set, Tuple

from cockpit.base import gate
from cockpit.base.gate import Definition, ListOf, Malformed, MapOf, Of, Text, Whole, bound, read
from cockpit.base.ras import (
    COMMUNICATORS,
    GROUPS,
    HASH,
    HOST,
    MEMBERS,
    NAMED,
    OPERATION,
    OPERATIONS,
    RUNNING,
    VERSION,
    Communicator,
    Counted,
    Lost,
    Member,
    Stated,
)
from cockpit.base.recorder.reading import parsed

ANSWER = 8 << 20
"""Bytes of an answer: a rank of a communicator has some 620, so 13,000 of these."""

_MARKS = 400_000
"""Braces in an answer: a rank of a communicator has six."""

_BEGIN = re.compile(rb'"communicators":\s*\[')
_NO_COMMA = re.compile(rb'("nvml_dev":\s*-?\d{1,9})(\s+"status")')
_MARK = re.compile(rb"[{}\]]")

_IN_PROGRESS = 7
_ERRORS = {
    1: "unhandled CUDA error",
    2: "system error",
    3: "internal error",
    4: "invalid argument",
    5: "invalid usage",
    6: "remote process error",
    8: "timeout",
}
"""``ncclResult_t`` in ``nccl.h``; 0 is success."""

_RESULT = Whole(-128, 255)
_PID = Whole(-1, 1 << 30)


class _Status(Definition):
    init_state: int = bound(_RESULT, 0)
    async_error: int = bound(_RESULT, 0)
    finalize_called: bool = bound(gate.FLAG, False)
    destroy_flag: bool = bound(gate.FLAG, False)
    abort_flag: bool = bound(gate.FLAG, False)

    @property
    def word(self) -> str:
        """The state, in the order of what matters; an error tells more than what followed from it."""
        error = self.async_error if self.async_error not in (0, _IN_PROGRESS) else self.init_state
        if error not in (0, _IN_PROGRESS):
            return _ERRORS.get(error, "error %d" % abs(error))
        if self.abort_flag:
            return "abort"
        if self.finalize_called or self.destroy_flag:
            return "finalize"
        return RUNNING if self.init_state == 0 else "init"


class _Rank(Definition):
    rank: int = bound(gate.RANK)
    host: str = bound(HOST)
    pid: int = bound(_PID)
    status: _Status = bound(Of(_Status))
    collective_counts: Dict[str, int] = bound(MapOf(OPERATION, Whole(0, (1 << 64) - 1), OPERATIONS), {})


class _Absence(Definition):
    unresponsive: bool = bound(gate.FLAG, False)
    considered_dead: bool = bound(gate.FLAG, False)


class _Missing(Definition):
    rank: int = bound(gate.RANK)
    host: str = bound(HOST)
    pid: int = bound(_PID)
    status: _Absence = bound(Of(_Absence))


class _Communicator(Definition):
    hash: str = bound(HASH)
    secondary_hash: str = bound(HASH)
    size: int = bound(Whole(0, gate.RANK_LIMIT))
    ranks: Tuple[_Rank, ...] = bound(ListOf(Of(_Rank), gate.RANK_LIMIT))
    missing_ranks: Tuple[_Missing, ...] = bound(ListOf(Of(_Missing), gate.RANK_LIMIT), ())


class _Network(Definition):
    timeouts_count: int = bound(gate.COUNT, 0)


class _Head(Definition):
    nccl_version: str = bound(Text(200, cut=True))
    communicators_count: int = bound(gate.COUNT, 0)
    ras: _Network = bound(Of(_Network), _Network())


class Answer(NamedTuple):
    """What RAS said, cut down.

    :param pids: of all processes of the job that it knows
    :param communicators: how many there are; ``odd``: those with something unusual; ``rows``: some of them
    """

    version: str
    timeouts: int
    pids: Set[int]
    communicators: int
    odd: int
    rows: Tuple[Communicator, ...]


def answer(data: bytes) -> Answer:
    """Read an answer.

    :raises Malformed: it is not RAS's JSON
    """
    if len(data) > ANSWER:
        raise Malformed("more than %d bytes" % ANSWER)
    data = _NO_COMMA.sub(rb"\1,\2", data)
    begin = _BEGIN.search(data)
    if begin is None:
        raise Malformed("it contains no communicators")
    spans, end = _spans(data, begin.end())
    head = read(_Head, parsed(data[: begin.end()] + data[end:], 1 << 16))
    pids: Set[int] = set()
    rows: List[Communicator] = []
    odd = 0
    for start, stop in spans:
        # One at a time: as objects all of them take up ten times the room of their text.
        one = read(_Communicator, parsed(data[start:stop], ANSWER))
        pids.update(each.pid for each in one.ranks)
        pids.update(each.pid for each in one.missing_ranks)
        row = _row(one)
        odd += row.odd
        rows = _foremost([*rows, row])
    version = head.nccl_version if re.fullmatch(VERSION.pattern, head.nccl_version) else ""
    return Answer(version[: VERSION.most], head.ras.timeouts_count, pids, len(spans), odd, within(rows))


def _spans(data: bytes, at: int) -> Tuple[List[Tuple[int, int]], int]:
    """Where each communicator begins and ends, and where their list does.

    No brace can be in a text of RAS's: what it writes as such are addresses, numbers and versions.

    :raises Malformed: it is cut off
    """
    spans: List[Tuple[int, int]] = []
    depth = start = 0
    for _, mark in zip(range(_MARKS), _MARK.finditer(data, at)):
        what = mark.group()
        if what == b"{":
            start = start if depth else mark.start()
            depth += 1
        elif what == b"}":
            depth -= 1
            if depth < 0:
                break
            if not depth:
                spans.append((start, mark.end()))
        elif not depth:
            return spans, mark.start()
    raise Malformed("its list of communicators has no end")


def _foremost(rows: List[Communicator]) -> List[Communicator]:
    """Those that are kept: what is unusual first, then the largest."""
    if len(rows) <= COMMUNICATORS:
        return rows
    rows.sort(key=lambda one: (not one.odd, -one.size))
    return rows[:COMMUNICATORS]


def _row(one: _Communicator) -> Communicator:
    lost = tuple(
        Lost(_member(each), each.status.unresponsive, each.status.considered_dead)
        for each in one.missing_ranks[:MEMBERS]
    )
    states = _grouped((each.status.word, each) for each in one.ranks)
    counts: List[Counted] = []
    for op in list(dict.fromkeys(op for each in one.ranks for op in each.collective_counts))[:OPERATIONS]:
        groups = _grouped((each.collective_counts.get(op, 0), each) for each in one.ranks)
        if len(groups) > 1 or (groups and groups[0][0]):
            counts += [Counted(op, times, len(of), _named(of)) for times, of in groups[:GROUPS]]
    return Communicator(
        one.hash,
        one.secondary_hash,
        one.size,
        len(one.ranks),
        len(one.missing_ranks),
        lost,
        tuple(Stated(word, len(of), _named(of)) for word, of in states[:OPERATIONS]),
        tuple(counts),
    )


def _grouped(pairs: Iterable[Tuple[Any, _Rank]]) -> List[Tuple[Any, List[_Rank]]]:
    """Ranks by what they have in common, those of most ranks first."""
    found: Dict[Any, List[_Rank]] = {}
    for what, each in pairs:
        found.setdefault(what, []).append(each)
    return sorted(found.items(), key=lambda item: -len(item[1]))


def _named(ranks: Sequence[_Rank]) -> Tuple[Member, ...]:
    return tuple(map(_member, ranks[:MEMBERS]))


def _member(one: Any) -> Member:
    return Member(one.rank, "" if one.host == "unknown" else one.host, max(0, one.pid))


def within(rows: Sequence[Communicator]) -> Tuple[Communicator, ...]:
    """The same with no more members than one answer may name; where all ranks agree, none is named."""
    left = NAMED
    found: List[Communicator] = []
    for one in sorted(rows, key=lambda one: (not one.odd, -one.size)):

        def some(ranks: int, members: Sequence[Any], heard: int = one.heard) -> Tuple[Any, ...]:
            nonlocal left
            kept = tuple(members[:left]) if ranks != heard else ()
            left -= len(kept)
            return kept

        lost = some(-1, one.lost)
        states = [Stated(each.state, each.ranks, some(each.ranks, each.members)) for each in one.states]
        # The odd ones first: there may be no room for all.
        counts = [
            Counted(each.op, each.times, each.ranks, some(each.ranks, each.members))
            for each in reversed(one.counts)
        ]
        counts.reverse()
        shown = (one.hash, one.second, one.size, one.heard, one.missing)
        found.append(Communicator(*shown, lost, tuple(states), tuple(counts)))
    return tuple(found)
