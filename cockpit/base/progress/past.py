"""The steps of ranks over a long time, as their node keeps them while nobody watches.

A file has a row a line: a :class:`Stretch`. Newer steps are there one by one, older ones many as one, except
those that took much longer than usual and those around an event.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from cockpit.base.gate import COUNT, RANK, TIME, Definition, ListOf, Malformed, RowOf, Whole, bound, parsed
from cockpit.base.progress.phases import NAMES, UNKNOWN, Phases
from cockpit.base.progress.ring import SOURCES

SHARES = 1000
MARKED = len(NAMES)
UNITS = 10_000
"""Parts of a second in which spans are kept."""
MOST = 500
"""Steps that a row has one by one."""
MANY = 1 << 24
"""Steps that a row may stand for."""
ROWS = 400
"""Rows that are sent at a time."""

EVERY_S = 60.0
"""Steps that are many as one take about so long together."""
LONG = 3.0
"""A step that takes so many times the usual is kept by itself: a checkpoint, an evaluation, a stall."""


class Stretch(Definition):
    """Steps of a rank, one after the other.

    :param source: what counted them: a place in :data:`cockpit.base.progress.ring.SOURCES`
    :param step: the first of them
    :param end: when the last of them ended, unix seconds on the node's clock
    :param count: how many they are
    :param spans: how long each took, 1/:data:`UNITS` s, oldest first; 0: not known, which only the first
        can be; of many as one the median alone
    :param phases: thousandths of a step in each phase that ranks mark, the median of these steps; -1: not
        known; empty: none is, as in files of before
    """

    rank: int = bound(RANK)
    source: int = bound(Whole(0, len(SOURCES) - 1))
    step: int = bound(COUNT)
    end: float = bound(TIME)
    count: int = bound(Whole(1, MANY))
    spans: Tuple[int, ...] = bound(ListOf(COUNT, MOST))
    phases: Tuple[int, ...] = bound(ListOf(Whole(-1, SHARES), MARKED), ())

    def __post_init__(self) -> None:
        """Refuse what says how long others took."""
        if len(self.spans) not in (1, self.count):
            raise Malformed("expected how long each step took, or the median")
        if len(self.phases) not in (0, MARKED):
            raise Malformed("expected %d phases, or none" % MARKED)

    def values(self) -> List[Any]:
        """The fields in their order, as JSON has them."""
        known = [self.rank, self.source, self.step, self.end, self.count, self.spans]
        return [*known, self.phases] if self.phases else known

    def line(self) -> bytes:
        """The line of the file, a list of the fields."""
        # As json would, in a tenth of the time: a supervisor writes a million of them when it thins the file.
        head = "[%d,%d,%d,%r,%d,[" % (self.rank, self.source, self.step, self.end, self.count)
        phases = ",[%s]" % ",".join(map(str, self.phases)) if self.phases else ""
        return (head + ",".join(map(str, self.spans)) + "]" + phases + "]\n").encode()


class _Row(RowOf):
    """A row as a list, whose last field, the phases, may be missing."""

    def read(self, value: Any) -> Any:
        """See :meth:`FieldKind.read`."""
        short = isinstance(value, list) and len(value) == _WITHOUT
        return super().read([*value, []] if short else value)


_WITHOUT = 6
ROW = _Row(Stretch)


def stretch_of(line: bytes) -> Stretch:
    """The row of a line.

    :raises Malformed: it is none
    """
    found: Stretch = ROW.read(parsed(line))
    return found


class Piece(NamedTuple):
    """A step, or several as one.

    :param step: the last of them
    :param many: how many they are
    :param end: when it ended, unix seconds
    :param span: seconds that one took, of several the median; None: not known
    :param phases: see :class:`Stretch`
    """

    step: int
    many: int
    end: float
    span: Optional[float]
    phases: Tuple[int, ...] = ()

    @property
    def seconds(self) -> Tuple[Optional[float], ...]:
        """Of each phase; None: not known."""
        span = self.span or 0.0
        return tuple(None if one < 0 else span * one / SHARES for one in self.phases)


def pieces(row: Stretch) -> List[Piece]:
    """What is in a row, oldest first."""
    if len(row.spans) < row.count:
        span = row.spans[0] / UNITS or None
        return [Piece(row.step + row.count - 1, row.count, row.end, span, row.phases)]
    found: List[Piece] = []
    end = row.end
    for place in range(row.count - 1, -1, -1):
        span = row.spans[place] / UNITS
        found.append(Piece(row.step + place, 1, end, span or None, row.phases))
        end -= span
    return found[::-1]


def rows(rank: int, source: int, some: Iterable[Piece]) -> Iterator[Stretch]:
    """Pieces of one rank, oldest first, in as few rows as can be."""
    run: List[Piece] = []
    for piece in some:
        if run and not (len(run) < MOST and _goes_on(run[-1], piece)):
            yield _row(rank, source, run)
            run = []
        run.append(piece)
    if run:
        yield _row(rank, source, run)


def _goes_on(before: Piece, piece: Piece) -> bool:
    """Whether a single step follows another one, so that the end of one gives that of the other."""
    alone = before.many == piece.many == 1 and piece.step == before.step + 1
    return alone and piece.span is not None and abs(piece.end - piece.span - before.end) < 0.001


def _row(rank: int, source: int, run: Sequence[Piece]) -> Stretch:
    spans = tuple(min(round((piece.span or 0.0) * UNITS), COUNT.most) for piece in run)
    first, last = run[0], run[-1]
    count = sum(piece.many for piece in run)
    begin = first.step - first.many + 1
    return Stretch(rank, source, begin, round(last.end, 4), count, spans, middle_shares(run))


def folded(
    some: Sequence[Piece], every_s: float, kept: Sequence[Tuple[float, float]] = ()
) -> Iterator[Piece]:
    """Many steps as one, oldest first.

    Groups begin at multiples of a power of two, so that all nodes of a run choose the same.

    :param some: the pieces of one rank, oldest first
    :param every_s: seconds that those together take which become one
    :param kept: spans of time in which steps stay by themselves, unix seconds
    """
    usual = _middle(some)
    many = 1
    while usual and 1.5 * many * usual < every_s:
        many *= 2

    def place(piece: Piece) -> Tuple[int, int]:
        lone = piece.span is None or piece.span >= LONG * (usual or piece.span)
        if lone or any(since <= piece.end <= until for since, until in kept):
            return -1, piece.step
        return piece.step // many, 0

    for (group, _), run in groupby(some, place):
        for part in _unbroken(run):
            if group < 0 or len(part) == 1:
                yield from part
            else:
                count = sum(one.many for one in part)
                yield Piece(part[-1].step, count, part[-1].end, _middle(part), middle_shares(part))


def _unbroken(run: Iterable[Piece]) -> Iterator[List[Piece]]:
    """Pieces that follow each other."""
    part: List[Piece] = []
    for piece in run:
        if part and piece.step - piece.many != part[-1].step:
            yield part
            part = []
        part.append(piece)
    if part:
        yield part


def shares(of: Phases, span_ns: int) -> Tuple[int, ...]:
    """The phases of a step in thousandths of it, as a :class:`Stretch` has them."""
    if of == UNKNOWN or span_ns <= 0:
        return ()
    return tuple(-1 if one is None else min(SHARES, SHARES * one // span_ns) for one in of)


def middle_shares(some: Iterable[Piece]) -> Tuple[int, ...]:
    """The median of each phase, of the pieces that have any."""
    known = [piece.phases for piece in some if piece.phases]
    return tuple(sorted(column)[len(column) // 2] for column in zip(*known)) if known else ()


def _middle(some: Iterable[Piece]) -> Optional[float]:
    """The median of how long a step took."""
    known = sorted((piece.span, piece.many) for piece in some if piece.span is not None)
    left = sum(many for _, many in known) / 2
    for span, many in known:
        left -= many
        if left <= 0:
            return span
    return None
