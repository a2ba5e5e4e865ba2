"""Reading a logbook: pages of rows before or after a place, narrowed and filtered, within a time limit."""

from __future__ import annotations

import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from cockpit.base.events import Gap
from cockpit.core.logs.batches import Rest, Segment
from cockpit.core.logs.excerpt import LONG, TAIL, TEXT_MAX, clip, excerpt, long_excerpt
from cockpit.core.logs.folding import Folder
from cockpit.core.logs.levels import Level, level_of, may_be
from cockpit.core.logs.lines import last_state
from cockpit.core.logs.patterns import Pattern
from cockpit.core.logs.query import Query, hushed
from cockpit.core.logs.sources import Nccl, Writer
from cockpit.core.run.event_table import missing
from cockpit.engine.logs.book import Logbook, Row, Source

Position = tuple[int, int]
"""A place in the document under one query: batch, and row in the batch."""

ABSENT = b"(not here yet)"
"""Replaces a line that the spool does not have."""

_CACHE_BYTES = 8 << 20
"""Memory that the lines of batches already read may take."""

_SCAN_BYTES = 2 << 20
"""A longer line is not searched as a whole."""

_LINE_OVERHEAD = 200
"""Bytes of memory that a line in the cache takes besides its text."""

_ORIGINAL_OVERHEAD = 50
"""The same for each line that it stands for."""


_STEP = 256 << 10
"""Bytes of a log to read at once."""


@dataclass(frozen=True)
class Page:
    """Some rows, oldest first.

    :param more: there may be more that way: the count or the time was used up
    :param resume: where to go on with the same call
    """

    rows: list[Row]
    more: bool
    resume: Position


class LogPiece(NamedTuple):
    """Bytes of a log as they came: whole lines, or a part of a long or unfinished one.

    :param batch: the batch they are in; the number of batches if their line is unfinished
    :param at: the latest time by which they were here, unix seconds on our clock
    :param offset: where they are in the log
    :param gap: what is missing there; then there are no bytes
    """

    batch: int
    at: float
    source: Source
    offset: int
    data: bytes
    gap: Gap | None = None


class _Line(NamedTuple):
    """A row that is not being shown yet."""

    sources: tuple[int, ...]
    text: bytes
    size: int
    first: bool
    originals: tuple[bytes, ...] = ()
    fold: int | None = None

    @property
    def said(self) -> tuple[bytes, ...]:
        """The different texts that were printed."""
        return self.originals or (self.text,)


_Quick = Callable[[bytes], bool]
"""Whether a line in a block of many could be selected; only False is certain."""


class Reader:
    """The rows of a book under one query; holds nothing but caches."""

    def __init__(self, book: Logbook, query: Query) -> None:
        self.book = book
        self.query = query
        self._index = book.index
        self._logs = book.logs
        self._numbers: Set[int] | None = book.logs.wanted(query)
        self._pattern = query.matcher
        self._quick: list[_Quick] = [self._pattern.may_match] if self._pattern else []
        self._cache: OrderedDict[int, list[_Line]] = OrderedDict()
        self._cached = 0
        self._unfolded: set[tuple[int, int]] = set()  # batch, and fold in it

    @property
    def end(self) -> Position:
        """The place after the last row, as it is now."""
        return self.book.batches, 0

    @property
    def whole(self) -> bool:
        """Whether it has every line of the book."""
        return self._numbers is None and self._pattern is None and not self._logs.nccl

    @property
    def unfolded(self) -> bool:
        """Whether lines of a fold are shown one by one."""
        return bool(self._unfolded)

    def unfold(self, row: Row) -> None:
        """Show one by one the lines a row stands for; this changes the places in its batch."""
        if row.fold is not None:
            self._unfolded.add((row.batch, row.fold))
            self._forget(row.batch)

    def fold(self) -> None:
        """Fold again everything that was unfolded."""
        for batch, _ in self._unfolded:
            self._forget(batch)
        self._unfolded.clear()

    # Pages

    def before(self, position: Position | None, count: int, budget_s: float) -> Page:
        """At most ``count`` rows that end just before ``position``; None: the end of the document.

        :param budget_s: seconds after which it gives what it has; one batch, at least, is looked at
        :raises CockpitError: the spool cannot be read
        """
        deadline = time.perf_counter() + budget_s
        batch, index = self.end if position is None else position
        rows: list[Row] = []
        for at, some in self._walk(batch if index else batch - 1, -1, self._quick):
            lines = self._lines(at) if some else []
            last = min(index, len(lines)) if at == batch else len(lines)
            first = max(0, last - (count - len(rows)))
            rows[:0] = self._rows(at, lines, first, last)
            if len(rows) == count or time.perf_counter() >= deadline:
                return Page(rows, first > 0 or at > 0, (at, first))
        return Page(rows, False, (0, 0))

    def after(self, position: Position, count: int, budget_s: float) -> Page:
        """At most ``count`` rows from ``position`` on, including the row there.

        :param budget_s: seconds after which it gives what it has; one batch, at least, is looked at
        :raises CockpitError: the spool cannot be read
        """
        deadline = time.perf_counter() + budget_s
        batch, index = position
        rows: list[Row] = []
        for at, some in self._walk(batch, 1, self._quick):
            lines = self._lines(at) if some else []
            first = min(index, len(lines)) if at == batch else 0
            last = min(len(lines), first + count - len(rows))
            rows += self._rows(at, lines, first, last)
            if len(rows) == count or time.perf_counter() >= deadline:
                if last < len(lines):
                    return Page(rows, True, (at, last))
                return Page(rows, at + 1 < self.book.batches, (at + 1, 0))
        return Page(rows, False, self.end)

    # The scrollbar

    def fraction(self, position: Position) -> float:
        """How much of the document, in lines of all sources, is before ``position``: 0 to 1.

        :raises CockpitError: the spool cannot be read
        """
        batch, index = position
        if batch >= self.book.batches:
            return 1.0
        before, after = self._index.lines_before(batch), self._index.lines_before(batch + 1)
        rows = len(self._lines(batch)) if index > 0 else 0
        part = min(1.0, index / rows) if rows else 0.0
        return (before + part * (after - before)) / self.book.lines

    def position(self, fraction: float) -> Position:
        """The place that has this part of the document before it.

        :raises CockpitError: the spool cannot be read
        """
        line = int(max(0.0, fraction) * self.book.lines)
        if line >= self.book.lines:
            return self.end
        batch = self._index.batch_of_line(line)
        before, after = self._index.lines_before(batch), self._index.lines_before(batch + 1)
        return batch, (line - before) * len(self._lines(batch)) // (after - before)

    def position_at(self, at: float) -> Position:
        """The first row that was there at a time or after it, or that has no time.

        :param at: unix seconds on our clock
        """
        batch, untimed = self._index.batch_at(at), self.book.untimed
        return min(batch, untimed.start) if untimed else batch, 0

    # Searching

    def find(
        self, position: Position, test: Callable[[bytes], bool] | Level | str, step: int, budget_s: float
    ) -> tuple[Position | None, Position | None]:
        """The next (``step`` 1) or previous (-1) row that passes ``test``, without the one at ``position``.

        :param position: a row; ``(0, -1)`` is before the first one, :attr:`end` after the last
        :param test: of the row's text; or a level; or a pattern as in :class:`~cockpit.core.logs.query.Query`
        :param budget_s: seconds after which it gives up for now; one batch, at least, is looked at
        :return: the place found, or None; and, if time was up first, the position to call again with
        :raises CockpitError: the pattern is not a regular expression, or the spool cannot be read
        """
        deadline = time.perf_counter() + budget_s
        passes, quick = _test(test)
        batch, index = position
        start = batch if step > 0 or index > 0 else batch - 1
        for at, some in self._walk(start, step, [*self._quick, *quick]):
            if some:
                lines = self._lines(at)
                if step > 0:
                    span = range(index + 1 if at == batch else 0, len(lines))
                else:
                    span = range((min(index, len(lines)) if at == batch else len(lines)) - 1, -1, -1)
                hit = next((number for number in span if any(map(passes, lines[number].said))), None)
                if hit is not None:
                    return (at, hit), None
            if time.perf_counter() >= deadline and 0 <= at + step < self.book.batches:
                return None, (at + 1, -1) if step > 0 else (at, 0)
        return None, None

    # As it came

    def pieces(self, batch: int) -> Iterator[LogPiece]:
        """What the query selects of the bytes of all lines from a batch on, to its last byte.

        :raises CockpitError: the spool cannot be read
        """
        for number, some in self._walk(batch, 1, self._quick):
            at = self._index.at(number)
            for segment in self._wanted(self._index.segments(number)) if some else ():
                if not segment.length and self._takes_all(segment.source):
                    where = (segment.source, segment.start)
                    source = self._logs.files[segment.source].source
                    yield LogPiece(number, at, source, segment.start, b"", self.book.gaps.get(where))
                for start, end in self._selected(segment):
                    yield from self._bytes(number, at, segment.source, start, end)

    def unfinished(self) -> Iterator[LogPiece]:
        """The same of lines that no newline has ended.

        :raises CockpitError: the spool cannot be read
        """
        for rest in self._rests():
            yield from self._bytes(self.book.batches, rest.since, rest.source, rest.start, rest.end)

    def tail(self, count: int) -> tuple[int, dict[Source, int]]:
        """Where the last lines of each log begin.

        :param count: how many of them, unfinished ones included
        :return: the batch from which on they are, and offsets in logs; a log that is not named has fewer
        :raises CockpitError: the spool cannot be read
        """
        everyone = range(len(self._logs.files)) if self._numbers is None else self._numbers
        left = dict.fromkeys(everyone, count)
        begins: dict[Source, int] = {}

        def take(number: int, starts: Sequence[int], end: int) -> None:
            if len(starts) < left[number]:
                left[number] -= len(starts)
                return
            begins[self._logs.files[number].source] = starts[-left[number]] if left[number] else end
            del left[number]

        for rest in self._rests():
            take(rest.source, [rest.start], rest.end)
        seeker = Reader(self.book, self.query)
        seeker._numbers = left.keys()  # shrinks as the tails are found
        for first, some in seeker._walk(self.book.batches - 1, -1, self._quick):
            for segment in reversed(seeker._wanted(self._index.segments(first)) if some else []):
                if segment.lines < left.get(segment.source, 0) and self._takes_all(segment.source):
                    left[segment.source] -= segment.lines
                elif segment.source in left:
                    lines = seeker._selected(segment, by_line=True)
                    take(segment.source, [start for start, _ in lines], segment.end)
            if not left:
                return first, begins
        return 0, begins

    def _rests(self) -> Iterator[Rest]:
        for rest in self.book.rests():
            if self._numbers is None or rest.source in self._numbers:
                whole = Segment(rest.source, rest.start, rest.end - rest.start, 1)
                if self._takes_all(rest.source) or self._selects(rest.source, self._excerpt(whole)):
                    yield rest

    def _selected(self, segment: Segment, *, by_line: bool = False) -> Iterator[tuple[int, int]]:
        """The offsets between which the selected lines of a segment are: together, where all are."""
        start, number, every = segment.start, segment.source, self._takes_all(segment.source)
        if segment.long or (every and (not by_line or segment.lines == 1)):
            if every or self._selects(number, self._excerpt(segment)):
                yield start, segment.end
            return
        data = self._logs.read(number, start, segment.length)
        if self._pattern is None or self._pattern.may_match(data):
            for line in _whole(segment, data):
                if every or self._selects(number, excerpt(line)[0]):
                    yield start, min(start + len(line) + 1, segment.end)
                start += len(line) + 1

    def _takes_all(self, number: int) -> bool:
        """Whether every line of a log is selected."""
        return self.query.takes_all(self._logs.files[number].source[1])

    def _selects(self, number: int, line: bytes) -> bool:
        """Whether what is shown of a line of a log is selected."""
        return self.query.selects(self._logs.files[number].source[1], line)

    def _excerpt(self, line: Segment) -> bytes:
        """What is shown of a single line."""
        if line.length > LONG:
            return self._read_long(line)[0]
        return excerpt(self._logs.read(line.source, line.start, line.length).rstrip(b"\n"))[0]

    def _bytes(self, batch: int, at: float, number: int, start: int, end: int) -> Iterator[LogPiece]:
        while start < end and (data := self._logs.read(number, start, min(_STEP, end - start))):
            yield LogPiece(batch, at, self._logs.files[number].source, start, data)
            start += len(data)

    # Batches

    def _walk(self, start: int, step: int, tests: Sequence[_Quick]) -> Iterator[tuple[int, bool]]:
        """Batches from ``start`` on, each with whether it could have a row that passes.

        Of batches that are skipped together only the last is given.
        """
        at = start if step > 0 else min(start, self.book.batches - 1)
        every = self._numbers is None and not tests
        while 0 <= at < self.book.batches:
            block = None if every else self._index.block_of(at)
            edge = at
            if block is not None:
                edge = min(block.end, self.book.batches) - 1 if step > 0 else block.first
                if edge != at and not self._may_pass(self._index.block_segments(block), tests):
                    yield edge, False
                    at = edge + step
                    continue
            for number in range(at, edge + step, step):
                yield number, every or self._may_pass(self._index.segments(number), tests)
            at = edge + step

    def _wanted(self, segments: list[Segment]) -> list[Segment]:
        numbers = self._numbers
        return segments if numbers is None else [part for part in segments if part.source in numbers]

    def _may_pass(self, segments: list[Segment], tests: Sequence[_Quick]) -> bool:
        wanted = self._wanted(segments)
        if not tests:
            return bool(wanted)
        for segment in wanted:
            if segment.length > _SCAN_BYTES:
                return True
            data = self._logs.read(segment.source, segment.start, segment.length)
            if len(data) < segment.length or all(test(data) for test in tests):
                return True
        return False

    def _rows(self, batch: int, lines: list[_Line], first: int, last: int) -> list[Row]:
        at = self._index.at(batch)
        files = self._logs.files
        return [
            Row(
                batch=batch,
                index=index,
                at=at,
                sources=tuple([files[number].source for number in line.sources]),
                text=line.text,
                size=line.size,
                level=level_of(line.said[0]),
                first=line.first,
                originals=line.originals,
                fold=line.fold,
            )
            for index, line in enumerate(lines[first:last], first)
        ]

    def _forget(self, batch: int) -> None:
        lines = self._cache.pop(batch, None)
        if lines is not None:
            self._cached -= _weight(lines)

    def _lines(self, batch: int) -> list[_Line]:
        """The rows of a batch under the query."""
        lines = self._cache.get(batch)
        if lines is not None:
            self._cache.move_to_end(batch)
            return lines
        lines, whole = self._read_batch(batch)
        if self._pattern is not None:
            lines = _filtered(lines, self._pattern)
        if whole:
            self._cache[batch] = lines
            self._cached += _weight(lines)
            while self._cached > _CACHE_BYTES and len(self._cache) > 1:
                self._cached -= _weight(self._cache.popitem(last=False)[1])
        return lines

    def _read_batch(self, batch: int) -> tuple[list[_Line], bool]:
        """All rows of the sources in a batch; and whether the spool had everything."""
        whole = True
        own: dict[int, list[bytes]] = defaultdict(list)
        cut: dict[bytes, int] = {}  # sizes of lines that were not read whole
        for segment in self._wanted(self._index.segments(batch)):
            if segment.long:
                text, size = self._read_long(segment)
                cut[text] = max(size, cut.get(text, 0))
                own[segment.source].append(text)
                continue
            if not segment.length:
                gap = self.book.gaps.get((segment.source, segment.start))
                own[segment.source].append(b"" if gap is None else missing(gap).encode())
                continue
            data = self._logs.read(segment.source, segment.start, segment.length)
            lines = _whole(segment, data)
            if len(data) < segment.length:
                whole = False
                lines += [ABSENT] * (segment.lines - len(lines))
            own[segment.source] += _states(lines, data, cut)
        if self._logs.nccl and not self.query.nccl:
            for number, lines in own.items():
                writer = self._logs.files[number].source[1]
                if isinstance(writer, Nccl):
                    own[number] = [line for line in lines if not hushed(writer, line)]
        if not self.query.fold or (self._numbers is not None and len(self._numbers) == 1):
            found = [_line((number,), text, cut, True) for number in own for text in own[number]]
        else:
            found = self._folded(batch, own, cut)
        return found, whole

    def _read_long(self, segment: Segment) -> tuple[bytes, int]:
        size = segment.length - 1
        head = self._logs.read(segment.source, segment.start, TEXT_MAX)
        tail = self._logs.read(segment.source, segment.start + size - TAIL, TAIL)
        return long_excerpt(head, tail, size) if len(tail) == TAIL else (ABSENT, len(ABSENT))

    def _folded(self, batch: int, own: dict[int, list[bytes]], cut: dict[bytes, int]) -> list[_Line]:
        folder = Folder(0.0, shapes=len(own) > 1)
        for number, lines in own.items():
            # Folding only compares sources.
            folder.add(("", number), lines)
        found: list[_Line] = []
        alone: dict[Writer, tuple[int, ...]] = {number: (number,) for number in own}
        for fold, (sources, text, originals) in enumerate(folder.flush()):
            # Thousands of lines in a tenth of a second: take shortcuts.
            if len(sources) == 1:
                numbers = alone[sources[0][1]]
            elif originals:
                said = sorted(
                    [
                        (number, line)
                        for (_, number), line in zip(sources, originals, strict=True)
                        if isinstance(number, int)
                    ]
                )
                found += _fold(text, said, fold, cut, unfolded=(batch, fold) in self._unfolded)
                continue
            else:
                numbers = tuple(sorted([number for _, number in sources if isinstance(number, int)]))
            if b"\n" not in text and len(text) <= TEXT_MAX and not cut:
                found.append(_Line(numbers, text, len(text), True))
            else:
                found += _lines_of(numbers, text, cut)
        return found


def _fold(
    text: bytes, said: list[tuple[int, bytes]], fold: int, cut: dict[bytes, int], *, unfolded: bool
) -> list[_Line]:
    """The rows for lines that sources printed in different ways."""
    if unfolded:
        one_by_one: dict[bytes, list[int]] = {}
        for number, line in said:
            one_by_one.setdefault(line, []).append(number)
        return [row for line, numbers in one_by_one.items() for row in _lines_of(tuple(numbers), line, cut)]
    numbers = tuple([number for number, _ in said])
    originals = zip(*[line.split(b"\n") for _, line in said], strict=True)
    return [
        row._replace(originals=tuple(map(clip, each)) if len(set(each)) > 1 else (), fold=fold)
        for row, each in zip(_lines_of(numbers, text, cut), originals, strict=True)
    ]


def _lines_of(numbers: tuple[int, ...], text: bytes, cut: dict[bytes, int]) -> list[_Line]:
    """The rows of a line, or of a traceback."""
    first, *others = text.split(b"\n")
    return [_line(numbers, first, cut, True), *[_line(numbers, each, cut, False) for each in others]]


def _whole(segment: Segment, data: bytes) -> list[bytes]:
    """The lines of a segment, as far as its bytes are here; the last one before a gap has no newline."""
    lines = data.split(b"\n")
    if not lines[-1] or len(data) < segment.length:
        lines.pop()
    return lines


def _states(lines: list[bytes], data: bytes, cut: dict[bytes, int]) -> list[bytes]:
    """What is shown of each line, whole unless it is very long."""
    if len(data) > LONG:
        for at, line in enumerate(lines):
            if len(line) > LONG:
                lines[at], size = excerpt(line)
                cut[lines[at]] = max(size, cut.get(lines[at], 0))
    return [last_state(line) if b"\r" in line else line for line in lines] if b"\r" in data else lines


def _line(numbers: tuple[int, ...], text: bytes, cut: dict[bytes, int], first: bool) -> _Line:
    return _Line(numbers, clip(text), max(len(text), cut.get(text, 0)), first)


def _filtered(lines: list[_Line], pattern: Pattern) -> list[_Line]:
    """The selected lines; the first one left of a traceback becomes its first line.

    If only some of the lines folded into one are selected, these become rows of their own.
    """
    found: list[_Line] = []
    headed = True
    for line in lines:
        headed = headed and not line.first
        for meant in _meant(line, pattern):
            found.append(meant if headed or line.first else meant._replace(first=True))
            headed = True
    return found


def _meant(line: _Line, pattern: Pattern) -> list[_Line]:
    matches = {text: pattern.matches(text) for text in set(line.said)}
    if all(matches.values()):
        return [line]
    rows: dict[bytes, list[int]] = {}
    for number, text in zip(line.sources, line.originals, strict=False):
        if matches[text]:
            rows.setdefault(text, []).append(number)
    return [_Line(tuple(numbers), text, len(text), line.first) for text, numbers in rows.items()]


def _weight(lines: list[_Line]) -> int:
    size = sum([len(line.text) + _LINE_OVERHEAD for line in lines])
    return size + sum([len(text) + _ORIGINAL_OVERHEAD for line in lines for text in line.originals])


def _test(test: Callable[[bytes], bool] | Level | str) -> tuple[Callable[[bytes], bool], list[_Quick]]:
    """The test of one text, and the quick one of many lines if there is one."""
    if isinstance(test, str):
        pattern = Pattern(test)
        return pattern.matches, [pattern.may_match]
    if isinstance(test, Level):
        level = test
        return lambda text: level_of(text) == level, [partial(may_be, level)]
    return test, []
