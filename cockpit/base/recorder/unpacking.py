"""A packed trace read within bounds, whatever a node says.

Only our side reads them: this is not sent to nodes.
"""

from __future__ import annotations

import zlib
from itertools import accumulate
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from cockpit.base import gate
from cockpit.base.gate import Definition, ListOf, Malformed, MapOf, Maybe, RowOf, Text, Whole, bound, read
from cockpit.base.recorder.packing import ROWS, UNPACKED
from cockpit.base.recorder.reading import parsed
from cockpit.base.recorder.trace import GROUPS, MEMBERS, PAIRWISE, SOURCES, TEXT, Call, Entry, Group, Trace

_TEXT = Text(TEXT + 1)
_NUMBER = Whole(0, 1 << 62)
_TIME = Whole(0, 1 << 56)
"""Unix microseconds: until the year 4253."""
_STEP = Whole(-(1 << 62), 1 << 62)


class _Group(Definition):
    backend: str = bound(_TEXT)
    name: str = bound(_TEXT)
    desc: str = bound(_TEXT)
    low: int = bound(_NUMBER)


class _Call(Definition):
    group: int = bound(Whole(0, GROUPS))
    op: str = bound(_TEXT)
    shapes: str = bound(_TEXT)
    inputs: int = bound(_NUMBER)
    outputs: int = bound(_NUMBER)
    dtype: str = bound(_TEXT)
    peer: int = bound(Whole(-1, gate.RANK_LIMIT))


class _Source(Definition):
    entry: int = bound(Whole(0, ROWS - 1))
    text: int = bound(Whole(0, SOURCES - 1))


class _Trace(Definition):
    source: str = bound(_TEXT)
    version: str = bound(_TEXT)
    from_us: int = bound(_TIME)
    whole: bool = bound(gate.FLAG)
    groups: Tuple[_Group, ...] = bound(ListOf(RowOf(_Group), GROUPS))
    calls: Tuple[_Call, ...] = bound(ListOf(RowOf(_Call), ROWS))
    members: Dict[str, Tuple[int, ...]] = bound(MapOf(_TEXT, ListOf(_STEP, gate.RANK_LIMIT), GROUPS))
    call: Tuple[int, ...] = bound(ListOf(Whole(0, ROWS), ROWS))
    number: Tuple[int, ...] = bound(ListOf(_STEP, ROWS))
    at: Tuple[int, ...] = bound(ListOf(_STEP, ROWS))
    state: str = bound(Text(ROWS, "[01]*"))
    pairwise: Optional[Tuple[int, ...]] = bound(Maybe(ListOf(Whole(0, ROWS), ROWS)), None)
    """Places of calls; None: kept by an older cockpit, which went by the operation alone."""
    sources: Tuple[str, ...] = bound(ListOf(_TEXT, SOURCES), ())
    made_at: Tuple[_Source, ...] = bound(ListOf(RowOf(_Source), SOURCES), ())


def unpack(data: bytes, clean: Callable[[str], str]) -> Trace:
    """The trace that :func:`cockpit.base.recorder.packing.pack` packed.

    :param clean: makes text of a node harmless; every text passes through it
    :raises Malformed: it is something else, or too large
    """
    told = read(_Trace, parsed(_inflated(data), UNPACKED))
    if not len(told.call) == len(told.number) == len(told.at) == len(told.state):
        raise Malformed("columns of different length")
    if sum(map(len, told.members.values())) > MEMBERS:
        raise Malformed("more than %d ranks in groups" % MEMBERS)
    groups = {Group(clean(one.backend), clean(one.name), clean(one.desc)): one.low for one in told.groups}
    if len(groups) < len(told.groups):
        raise Malformed("a group twice")
    calls = list(_calls(told, list(groups), clean))
    entries = _entries(told, calls)
    for one in told.made_at:
        if one.entry >= len(entries) or one.text >= len(told.sources):
            raise Malformed("a source of an entry that is not there")
        entries[one.entry] = entries[one.entry]._replace(source=clean(told.sources[one.text]))
    return Trace(
        clean(told.source),
        clean(told.version),
        tuple(entries),
        told.from_us,
        told.whole,
        groups,
        {clean(name): _ranks(ranks) for name, ranks in told.members.items()},
    )


def _inflated(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(data, UNPACKED + 1)
    except zlib.error as error:
        raise Malformed(str(error)) from None
    if len(found) > UNPACKED or not inflater.eof or inflater.unused_data:
        raise Malformed("too large, or cut off")
    return found


def _calls(told: _Trace, groups: Sequence[Group], clean: Callable[[str], str]) -> Iterator[Call]:
    pairwise = set(told.pairwise or ())
    for place, one in enumerate(told.calls):
        if one.group >= len(groups):
            raise Malformed("a call of a group that is not there")
        texts = (clean(one.op), clean(one.shapes), one.inputs, one.outputs, clean(one.dtype))
        between = one.op in PAIRWISE if told.pairwise is None else place in pairwise
        yield Call(groups[one.group], *texts, one.peer, between)


def _entries(told: _Trace, calls: Sequence[Call]) -> List[Entry]:
    found = []
    numbers: Dict[Any, int] = {}
    for place, step, at_us, state in zip(told.call, told.number, accumulate(told.at), told.state):
        if place >= len(calls):
            raise Malformed("an entry of a call that is not there")
        call = calls[place]
        series = (call.group, call.pairwise)
        number = numbers[series] = numbers.get(series, 0) + step
        found.append(Entry(call, _NUMBER.read(number), _TIME.read(at_us), int(state)))
    return found


def _ranks(told: Sequence[int]) -> Tuple[int, ...]:
    ranks = tuple(accumulate(told))
    if any(not 0 <= rank < gate.RANK_LIMIT for rank in ranks):
        raise Malformed("a rank that cannot be")
    return ranks
