"""The time index of a node's logs: how long each was when. What is old is coarser, so months of it fit.

A file has two kinds of lines. One moment: ``{"t": unix seconds, "s": {file: size}}``, what has changed. Many,
as columns: ``{"t": [ms, more, …], "s": {file: [size, more, …]}}``, the first value and then differences.
Lines of moments are appended; once the file is full they become columns, of which there are the fewer the
older they are. A damaged line costs what it says.
"""

from __future__ import annotations

import json
from array import array
from io import BytesIO
from itertools import accumulate
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Sequence, Set, Tuple

from cockpit.base.ages import Ages, coarser
from cockpit.base.gate import (
    RANKS_A_NODE,
    SIZE,
    TIME,
    Definition,
    FieldKind,
    Malformed,
    MapOf,
    bound,
    parsed,
    read,
)
from cockpit.base.shared_fields import LOG

Tick = Tuple[float, Mapping[str, int]]
"""A moment, unix seconds on the node's clock, and the sizes of the files that have changed by then."""

LIMIT = 4 << 20
"""Bytes of a file from which on it is thinned, to half of that at most."""

FINEST_S = 0.2
"""Seconds between two moments of what is new."""
OLDER = 1 << 14
"""Moments that become one are so many times nearer to each other than they are old, if that fits."""

FILES = 2 * RANKS_A_NODE + 3
MOST = 4096
"""Moments of one line."""
_VALUES = 4096
"""In one line, about: where only the end of a file is read, whole lines have to be there."""


class Column(FieldKind):
    """First values and differences, as the values; of none that is below zero."""

    most: int

    def read(self, value: Any) -> List[int]:
        """See :meth:`FieldKind.read`."""
        try:
            if not 0 < len(value) <= MOST or not array("q", value):
                raise Malformed("expected up to %d numbers" % MOST)
        except (TypeError, OverflowError):
            raise Malformed("expected a list of integers") from None
        values = list(accumulate(value))
        if min(values) < 0 or max(values) > self.most:
            raise Malformed("expected numbers from 0 to %d" % self.most)
        return values


class _Columns(Definition):
    t: List[int] = bound(Column(int(TIME.most) * 1000))
    s: Dict[str, List[int]] = bound(MapOf(LOG, Column(SIZE.most), FILES))


def line(at: float, sizes: Mapping[str, int]) -> bytes:
    """A line of one moment."""
    return b'{"t": %.3f, "s": %s}\n' % (at, json.dumps(sizes).encode())


def ticks(lines: Iterable[bytes]) -> Iterator[Tick]:
    """The moments of some lines, in their order; damaged lines are ignored."""
    known: Dict[str, int] = {}
    names: Set[str] = set()
    for each in lines:
        try:
            found = parsed(each)
            if isinstance(found, dict) and isinstance(found.get("t"), list):
                yield from _of_columns(read(_Columns, found), known)
            else:
                at, sizes = _moment(found, names)
                known.update(sizes)
                yield at, sizes
        except Malformed:
            continue


def _moment(found: Any, names: Set[str]) -> Tick:
    """One moment: checked by hand, as there are many.

    :param names: those that were found good
    """
    at: Any = found.get("t") if isinstance(found, dict) else None
    if type(at) not in (int, float) or not 0 <= at <= TIME.most:
        raise Malformed("t: expected a time")
    sizes = found.get("s")
    if type(sizes) is not dict or len(sizes) > FILES:
        raise Malformed("s: expected sizes of files")
    for name, size in sizes.items():
        if type(size) is not int or not 0 <= size <= SIZE.most:
            raise Malformed("s: expected sizes")
        if name not in names:
            LOG.read(name)
            if len(names) > FILES:
                names.clear()
            names.add(name)
    return float(at), sizes


def _of_columns(found: _Columns, known: Dict[str, int]) -> Iterator[Tick]:
    count = len(found.t)
    changed: List[Dict[str, int]] = [{} for _ in range(count)]
    if any(len(values) != count for values in found.s.values()):
        raise Malformed("s: expected as many sizes as times")
    for name, values in found.s.items():
        before = known.get(name)
        for place, value in enumerate(values):
            if value != before:
                changed[place][name] = before = value
        known[name] = values[-1]
    for at, sizes in zip(found.t, changed):
        if sizes:
            yield at / 1000, sizes


def columns(some: Iterable[Tick]) -> Iterator[bytes]:
    """The lines of these moments, many in one."""
    known: Dict[str, int] = {}
    part: List[Tick] = []
    names: Dict[str, None] = {}
    for tick in some:
        names.update(dict.fromkeys(tick[1]))
        part.append(tick)
        if len(part) * (len(names) + 1) >= _VALUES or len(part) == MOST:
            yield _line_of(part, names, known)
            part, names = [], {}
    if part:
        yield _line_of(part, names, known)


def _line_of(part: List[Tick], names: Iterable[str], known: Dict[str, int]) -> bytes:
    found: Dict[str, List[int]] = {}
    for name in names:
        now = known.get(name, 0)
        values = [now := sizes.get(name, now) for _, sizes in part]
        found[name], known[name] = _differences(values), now
    told = {"t": _differences([round(at * 1000) for at, _ in part]), "s": found}
    return json.dumps(told, separators=(",", ":")).encode() + b"\n"


def _differences(values: List[int]) -> List[int]:
    return values[:1] + [after - before for before, after in zip(values, values[1:])]


def fewer(some: Iterable[Tick], older: int = OLDER) -> Sequence[Tick]:
    """The same with moments that are the further apart the older they are: the last of those that become one.

    :param older: see :class:`cockpit.base.ages.Ages`
    """
    found: List[Tick] = []
    ages, span = Ages(older, FINEST_S), None
    for at, sizes in reversed(some if isinstance(some, list) else list(some)):
        before, span = span, ages.span(at)
        if span != before:
            found.append((at, sizes))
        else:
            found[-1] = found[-1][0], {**sizes, **found[-1][1]}
    found.reverse()
    return found


def thinned(data: bytes, limit: int = LIMIT) -> bytes:
    """The content of a file in at most half of ``limit`` bytes."""
    some: Sequence[Tick] = list(ticks(BytesIO(data)))
    older = OLDER
    while True:
        some = fewer(some, older)
        found = b"".join(columns(some))
        if len(found) <= limit // 2 or len(some) <= 1:
            return found if len(found) <= limit else b""
        if older == 1:
            some = some[len(some) // 2 :]
        older = coarser(older, len(found), limit // 2)
