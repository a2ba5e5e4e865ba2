"""Turn chunks of many logs, as they arrive, into batches of whole lines."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from math import ceil
from typing import NamedTuple

from cockpit.core.logs.excerpt import LONG, TEXT_MAX, clip

BATCH_BYTES = 1 << 20
BATCH_LINES = 1024
"""The approximate maximum size of a batch: what can be read, folded and filtered in one go."""

HOLD = 4 << 20
"""Bytes that are held until the batch is closed, so that it can be cut evenly if it is too long."""

WAIT_S = 0.25
"""Seconds of history in a batch: agents look at idle logs this often, each at its own moment."""

PATIENCE_S = 0.4
"""Seconds that new lines wait for other logs: that long, and the way here."""

LATELY = 8
"""Batches to look back at for who usually speaks together."""

PROMPT_S = 0.5
"""An unfinished line that has not grown for this many seconds waits for something: it is a prompt."""


class Segment(NamedTuple):
    """Whole lines of one log; the last one before a gap may have no newline.

    :param source: whose, a number
    :param start: offset in the log
    :param length: bytes, newlines included; 0: something is missing there, which is shown as a line
    :param lines: how many
    """

    source: int
    start: int
    length: int
    lines: int

    @property
    def end(self) -> int:
        """Offset after its last newline."""
        return self.start + self.length

    @property
    def long(self) -> bool:
        """Whether it is one line so long that it is not read whole."""
        return self.lines == 1 and self.length > LONG


class Unfinished(NamedTuple):
    """A line whose end has not arrived.

    :param state: what of it is shown
    :param size: bytes of its last state, so far
    :param since: when it last grew, on the clock of :meth:`Collector.seal`
    """

    source: int
    state: bytes
    size: int
    since: float


class Rest(NamedTuple):
    """Bytes that no newline has ended: ``start`` and ``end`` are offsets in the log.

    :param since: when it last grew, on the clock of :meth:`Collector.seal`
    """

    source: int
    start: int
    end: int
    since: float


@dataclass(slots=True)
class _Log:
    """How far one log has been read: it has bytes up to ``end``, its unfinished line starts at ``start``."""

    start: int
    end: int
    state: bytes = b""
    overwritten: bool = False
    since: float = 0.0

    def extend(self, rest: bytes) -> None:
        """Add to the unfinished line what has no newline in it."""
        whole = self.state + rest
        body = whole.rstrip(b"\r")
        last = body.rfind(b"\r") + 1
        ended = len(body) < len(whole)
        self.overwritten |= last > 0 or ended
        # A \r at the end stays: only what comes after it overwrites.
        self.state = body[last : last + TEXT_MAX + 1] + (b"\r" if ended else b"")


class _Piece(NamedTuple):
    """A segment with the bytes of the chunk that ended its lines, whose first one is at ``offset``."""

    segment: Segment
    offset: int
    data: bytes

    def cut(self, counts: list[int]) -> Iterator[Segment]:
        """Cut it into segments of the given numbers of lines (they add up to the segment's)."""
        if len(counts) == 1:
            yield self.segment  # there may be no bytes to look at
            return
        lines = self.data.split(b"\n")
        start, end, done = self.segment.start, self.offset, 0
        for count in counts:
            end += sum(map(len, lines[done : done + count])) + count
            done += count
            yield Segment(self.segment.source, start, end - start, count)
            start = end


class Collector:
    """Collects log output until it becomes a batch; a line belongs to the batch in which it ends."""

    def __init__(self) -> None:
        self._logs: dict[int, _Log] = {}
        self._gaps: dict[int, int] = {}  # where the last one is in each log
        self._pieces: list[_Piece] = []
        self._size = 0
        self._full: list[list[Segment]] = []
        self._opened: float | None = None  # since when there are pieces
        self._bar_ended = False  # what was shown is in the pieces now: it must not be gone from the screen
        self._lately: deque[set[int]] = deque(maxlen=LATELY)  # whose lines were in the last batches
        self._grown: set[int] = set()  # unfinished lines that grew since the last seal
        self._still: set[int] = set()  # those that did not, but are not prompts yet
        self._shown: set[int] = set()  # progress bars and prompts

    def feed(self, source: int, offset: int, data: bytes) -> None:
        """Take the bytes of a log from ``offset`` on; what was already fed is skipped."""
        log = self._logs.get(source)
        if log is None or offset > log.end:
            log = self._logs[source] = _Log(offset, offset)
        elif offset < log.end:
            data = data[log.end - offset :]
        if not data:
            return
        last = data.rfind(b"\n") + 1
        if last:
            self._add(source, log, data, last)
            log.start = log.end + last
            log.state, log.overwritten = b"", False
            self._bar_ended |= source in self._shown
            self._shown.discard(source)
            self._still.discard(source)
        log.end += len(data)
        if last < len(data):
            log.extend(data[last:] if last else data)
            self._grown.add(source)
        else:
            self._grown.discard(source)

    def gap(self, source: int, offset: int) -> None:
        """What a log has from ``offset`` on does not follow what is before: a line that has not ended ends.

        What was already fed, or said, is skipped.
        """
        log = self._logs.get(source)
        if offset <= self._gaps.get(source, -1) or (log is not None and offset < log.end):
            return
        self._gaps[source] = offset
        if log is not None and log.start < log.end == offset:
            self._pieces.append(_Piece(Segment(source, log.start, offset - log.start, 1), offset, b""))
        self._pieces.append(_Piece(Segment(source, offset, 0, 1), offset, b""))
        self._logs[source] = _Log(offset, offset)
        for unfinished in (self._shown, self._still, self._grown):
            unfinished.discard(source)

    def _add(self, source: int, log: _Log, data: bytes, last: int) -> None:
        """Note the lines that ``data`` ends; the last newline is before ``last``."""
        start, offset, lines = log.start, log.end, data.count(b"\n")
        if offset - start > LONG:
            cut = data.index(b"\n") + 1
            self._pieces.append(_Piece(Segment(source, start, offset + cut - start, 1), offset, b""))
            lines -= 1
            data, offset, last = data[cut:], offset + cut, last - cut
            start = offset
        if lines:
            self._pieces.append(_Piece(Segment(source, start, offset + last - start, lines), offset, data))
            self._size += len(data)
            if self._size > HOLD:
                self._full += self._cut()

    def seal(self, now: float, *, wait_s: float = 0.0) -> tuple[list[list[Segment]], bool]:
        """Close the batch.

        :param now: unix seconds
        :param wait_s: keep it open for up to this many seconds while logs that spoke lately have no line yet,
            so that what all ranks print of one step is in one batch
        :return: the batches, segments in the order of their sources; and whether :meth:`unfinished` changed
        """
        batches = [] if self._waits(now, wait_s) else self._close()
        changed = bool(self._grown)
        for source in self._grown:
            self._logs[source].since = now
            self._shown.discard(source)
            (self._shown if self._logs[source].overwritten else self._still).add(source)
        self._grown = set()
        prompts = {source for source in self._still if now - self._logs[source].since >= PROMPT_S}
        self._still -= prompts
        self._shown |= prompts
        return batches, changed or bool(prompts)

    def _waits(self, now: float, wait_s: float) -> bool:
        """Whether lines of other logs may still belong to the batch."""
        if not self._pieces or self._full or self._bar_ended:
            return False
        if self._opened is None:
            self._opened = now
        # A clock that was set back must not hold anything.
        if not 0 <= now - self._opened < wait_s:
            return False
        return not set().union(*self._lately) <= {piece.segment.source for piece in self._pieces}

    def _close(self) -> list[list[Segment]]:
        if self._pieces:
            self._lately.append({piece.segment.source for piece in self._pieces})
        batches = self._full + self._cut()
        self._full, self._opened, self._bar_ended = [], None, False
        return batches

    def unfinished(self) -> Iterator[Unfinished]:
        """The progress bars and prompts, in the order of their sources."""
        for source in sorted(self._shown):
            log = self._logs[source]
            if state := log.state.rstrip(b"\r"):
                size = len(state) if log.overwritten else log.end - log.start
                yield Unfinished(source, clip(state), size, log.since)

    def rests(self) -> list[Rest]:
        """What has arrived of unfinished lines, in the order of their sources, as it is now.

        Not of logs with whole lines that are in no batch yet: these come first.
        """
        held = {piece.segment.source for piece in self._pieces}
        held.update(segment.source for batch in self._full for segment in batch)
        return [
            Rest(source, log.start, log.end, log.since)
            for source, log in sorted(self._logs.items())
            if log.start < log.end and source not in held
        ]

    def _cut(self) -> list[list[Segment]]:
        pieces, self._pieces, self._size = self._pieces, [], 0
        if not pieces:
            return []
        lines = sum(piece.segment.lines for piece in pieces)
        size = sum(piece.segment.length for piece in pieces if not piece.segment.long)
        count = max(1, ceil(lines / BATCH_LINES), ceil(size / BATCH_BYTES))
        batches: list[list[Segment]] = [[] for _ in range(count)]
        pieces.sort(key=lambda piece: piece.segment.source)
        if count == 1:
            for piece in pieces:
                _append(batches[0], piece.segment)
            return batches
        for _, own in groupby(pieces, key=lambda piece: piece.segment.source):
            _deal(list(own), batches)
        return [batch for batch in batches if batch]


def _deal(pieces: list[_Piece], batches: list[list[Segment]]) -> None:
    """Spread the lines of one log evenly over the batches: what ranks say at one time stays together."""
    total = sum(piece.segment.lines for piece in pieces)
    ends = iter([ceil(number * total / len(batches)) for number in range(1, len(batches) + 1)])
    number, end, done = 0, next(ends), 0
    for piece in pieces:
        left = piece.segment.lines
        counts: list[tuple[int, int]] = []
        while left:
            while done == end:
                number, end = number + 1, next(ends)
            count = min(left, end - done)
            counts.append((number, count))
            done += count
            left -= count
        for (into, _), segment in zip(counts, piece.cut([count for _, count in counts]), strict=True):
            _append(batches[into], segment)


def _append(batch: list[Segment], segment: Segment) -> None:
    """Add a segment, merged into the previous one if that is of the same log."""
    before = batch[-1] if batch else None
    joins = before is not None and before.source == segment.source and before.end == segment.start
    whole = before is not None and before.length and segment.length
    if before is None or not joins or not whole or before.long or segment.long:
        batch.append(segment)
        return
    batch[-1] = Segment(
        segment.source, before.start, before.length + segment.length, before.lines + segment.lines
    )
