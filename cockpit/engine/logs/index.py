"""Where everything is in a logbook: batches of segments, and blocks of batches to skip quickly.

All of it is in unlinked files in the run's folder, about 24 bytes per segment: memory stays flat.
"""

from __future__ import annotations

import os
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from struct import Struct
from typing import Any, NamedTuple

from cockpit.core.logs.batches import Segment

AROUND = 8
"""Batches before and after one that tell how far apart they usually are."""
LOOKS = 4096
"""Batches, or blocks of them, in which the ends of logs are looked for."""

_SPILL = 64 << 10
"""Bytes of a table that wait in memory to be written."""

BLOCK_BYTES = 512 << 10
BLOCK_BATCHES = 256
"""A block is closed when it has this many bytes or batches."""

_BATCH = Struct("<dQQQ")  # time, first segment, lines and bytes before it
_BLOCK = Struct("<QQ")  # first batch, first segment in the table of the blocks' segments
_SEGMENT = Struct("<IQQI")


class Table:
    """Records of one size, append-only.

    While its file cannot be written (a full disk, which the spool reports), it stays in memory.

    :param folder: where the file is created when it is needed; it has no name there
    """

    def __init__(self, folder: Path, record: Struct) -> None:
        self._folder = folder
        self._record = record
        self._file: int | None = None
        self._written = 0
        self._tail = bytearray()

    def __len__(self) -> int:
        return (self._written + len(self._tail)) // self._record.size

    def append(self, *fields: Any) -> None:
        """Add a record."""
        self._tail += self._record.pack(*fields)
        if len(self._tail) >= _SPILL and len(self._tail) % _SPILL < self._record.size:
            self._spill()

    def read(self, start: int, end: int) -> list[tuple[Any, ...]]:
        """Records ``start`` up to, but without, ``end``."""
        first, last = start * self._record.size, end * self._record.size
        data = b""
        if first < self._written:
            assert self._file is not None
            data = os.pread(self._file, min(last, self._written) - first, first)
        if last > self._written:
            data += self._tail[max(0, first - self._written) : last - self._written]
        return list(self._record.iter_unpack(data))

    def _spill(self) -> None:
        try:
            if self._file is None:
                with tempfile.TemporaryFile(dir=self._folder, buffering=0) as file:
                    self._file = os.dup(file.fileno())
            while self._tail:
                count = os.pwrite(self._file, self._tail, self._written)
                self._written += count
                del self._tail[:count]
        except OSError:
            return  # tried again 64 KiB later; nothing is lost

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class Block(NamedTuple):
    """Batches ``first`` up to, but without, ``end``."""

    number: int
    first: int
    end: int


class Index:
    """The index of one logbook.

    :param folder: for its files
    """

    def __init__(self, folder: Path) -> None:
        self._batches = Table(folder, _BATCH)
        self._segments = Table(folder, _SEGMENT)
        self._blocks = Table(folder, _BLOCK)
        self._block_segments = Table(folder, _SEGMENT)
        self._open: dict[int, list[int]] = {}  # the block that grows: start, length and lines by source
        self._open_first = 0
        self._open_bytes = 0
        self.lines = 0
        self.size_bytes = 0

    @property
    def batches(self) -> int:
        """How many batches there are."""
        return len(self._batches)

    def add(self, at: float, segments: Sequence[Segment]) -> None:
        """Add a batch.

        :param at: when it was closed, unix seconds
        """
        self._batches.append(at, len(self._segments), self.lines, self.size_bytes)
        size = 0
        for segment in segments:
            source, start, length, lines = segment
            self._segments.append(source, start, length, lines)
            self.lines += lines
            size += length
            whole = self._open.get(source)
            if whole is None:
                self._open[source] = [start, length, lines]
            else:
                whole[1] = segment.end - whole[0]
                whole[2] += lines
        self.size_bytes += size
        self._open_bytes += size
        if self._open_bytes >= BLOCK_BYTES or self.batches - self._open_first >= BLOCK_BATCHES:
            self._close_block()

    def _close_block(self) -> None:
        self._blocks.append(self._open_first, len(self._block_segments))
        for source in sorted(self._open):
            self._block_segments.append(source, *self._open[source])
        self._open = {}
        self._open_first = self.batches
        self._open_bytes = 0

    def at(self, batch: int) -> float:
        """When a batch was closed, unix seconds."""
        return float(self._batches.read(batch, batch + 1)[0][0])

    def lines_before(self, batch: int) -> int:
        """Complete lines before a batch; the number of batches is allowed."""
        return int(self._batches.read(batch, batch + 1)[0][2]) if batch < self.batches else self.lines

    def batch_of_line(self, line: int) -> int:
        """The batch that a line, counted from 0, is in."""
        return _last(self.batches, self.lines_before, line)

    def batch_at(self, at: float) -> int:
        """The first batch that was closed at a time (unix seconds) or later, else the number of batches."""
        return bisect_left(range(self.batches), at, key=self.at)

    def batch_after(self, at: float) -> int:
        """The first batch that was closed after a time (unix seconds), else the number of batches."""
        return bisect_right(range(self.batches), at, key=self.at)

    def distance(self, batch: int, end: int) -> float:
        """How long before it was closed lines of a batch may have been printed, seconds.

        No longer than since the batch before; and where that is long because nobody printed anything, about
        as long as batches there are usually apart.

        :param end: the batches that have times
        """
        usual = 0.0
        for some in (range(max(0, batch - AROUND), min(end, batch)), range(batch, min(end, batch + AROUND))):
            times = [self.at(each) for each in some]
            if len(times) > 1:
                usual = max(usual, median(after - before for before, after in pairwise(times)))
        since = self.at(batch) - self.at(batch - 1) if 0 < batch < end else usual
        return max(0.0, min(since, 2 * usual))

    def ends(self, batches: int) -> dict[int, int]:
        """Where each log ends in so many batches, by its number; what ended long before is not looked for."""
        found: dict[int, int] = {}
        at, looks = batches - 1, 0
        while at >= 0 and looks < LOOKS:
            block = self.block_of(at)
            if block is not None and at == block.end - 1:
                some, at = self.block_segments(block), block.first - 1
            else:
                some, at = self.segments(at), at - 1
            looks += 1
            for segment in some:
                found.setdefault(segment.source, segment.end)
        return found

    def segments(self, batch: int) -> list[Segment]:
        """The segments of a batch, in the order of their sources."""
        return _between(self._batches, self._segments, batch)

    def block_of(self, batch: int) -> Block | None:
        """The block that a batch is in; None for the newest batches, which are in no block yet."""
        if batch >= self._open_first:
            return None
        number = _last(len(self._blocks), self._block_first, batch)
        return Block(number, self._block_first(number), self._block_first(number + 1))

    def _block_first(self, number: int) -> int:
        return (
            int(self._blocks.read(number, number + 1)[0][0])
            if number < len(self._blocks)
            else self._open_first
        )

    def block_segments(self, block: Block) -> list[Segment]:
        """What a block has of each source, as one segment."""
        return _between(self._blocks, self._block_segments, block.number)

    def close(self) -> None:
        """Close the files."""
        for table in (self._batches, self._segments, self._blocks, self._block_segments):
            table.close()


def _between(starts: Table, segments: Table, number: int) -> list[Segment]:
    """The segments between the place in record ``number`` and that in the next record."""
    bounds = [int(record[1]) for record in starts.read(number, min(number + 2, len(starts)))]
    start, end = bounds if len(bounds) == 2 else (bounds[0], len(segments))
    return [Segment(source, at, length, lines) for source, at, length, lines in segments.read(start, end)]


def _last(count: int, key: Callable[[int], float], value: float) -> int:
    """The last of ``count`` numbers whose key is not above ``value``; 0 if there is none."""
    return max(0, bisect_right(range(count), value, key=key) - 1)
