"""A packed trace read within bounds, whatever a node says.

Only our side reads them: this is not sent to nodes.
"""

from __future__ import annotations

import zlib
from itertools import accumulate
from typing import Any, Callable, Dict, List, Sequence, Tuple

from cockpit.base.gate import (
    FLAG,
    RANK_LIMIT,
    ListOf,
    Malformed,
    MapOf,
    RowOf,
    Text,
    Whole,
    bound,
    dataclass,
    read,
)
from cockpit.base.recorder.packing import ROWS, UNPACKED
from cockpit.base.recorder.reading import parsed
from cockpit.base.recorder.trace import GROUPS, MEMBERS, TEXT, Call, Entry, Group, Trace

_TEXT = Text(TEXT + 1)
_NUMBER = Whole(0, 1 << 62)
_TIME = Whole(0, 1 << 56)
"""Unix microseconds: until the year 4253."""
_STEP = Whole(-(1 << 62), 1 << 62)


@dataclass(frozen=True)
class _Group:
    backend: str = bound(_TEXT)
    name: str = bound(_TEXT)
    desc: str = bound(_TEXT)
    low: int = bound(_NUMBER)


@dataclass(frozen=True)
class _Call:
    group: int = bound(Whole(0, GROUPS))
    op: str = bound(_TEXT)
    shapes: str = bound(_TEXT)
    inputs: int = bound(_NUMBER)
    outputs: int = bound(_NUMBER)
    dtype: str = bound(_TEXT)
    peer: int = bound(Whole(-1, RANK_LIMIT))


@dataclass(frozen=True)
class _Trace:
    source: str = bound(_TEXT)
    version: str = bound(_TEXT)
    from_us: int = bound(_TIME)
    whole: bool = bound(FLAG)
    groups: Tuple[_Group, ...] = bound(ListOf(RowOf(_Group), GROUPS))
    calls: Tuple[_Call, ...] = bound(ListOf(RowOf(_Call), ROWS))
    members: Dict[str, Tuple[int, ...]] = bound(MapOf(_TEXT, ListOf(_STEP, RANK_LIMIT), GROUPS))
    call: Tuple[int, ...] = bound(ListOf(Whole(0, ROWS), ROWS))
    number: Tuple[int, ...] = bound(ListOf(_STEP, ROWS))
    at: Tuple[int, ...] = bound(ListOf(_STEP, ROWS))
    state: str = bound(Text(ROWS, "[01]*"))


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
    calls = [_call(one, list(groups), clean) for one in told.calls]
    return Trace(
        clean(told.source),
        clean(told.version),
        tuple(_entries(told, calls)),
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


def _call(told: _Call, groups: Sequence[Group], clean: Callable[[str], str]) -> Call:
    if told.group >= len(groups):
        raise Malformed("a call of a group that is not there")
    texts = (clean(told.op), clean(told.shapes), told.inputs, told.outputs, clean(told.dtype))
    return Call(groups[told.group], *texts, told.peer)


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
    if any(not 0 <= rank < RANK_LIMIT for rank in ranks):
        raise Malformed("a rank that cannot be")
    return ranks
