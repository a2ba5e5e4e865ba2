"""A run's output as one document: all sources merged by time, at any length, in flat memory."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

from cockpit.base.events import ClockMeasured, Gap
from cockpit.base.record import is_log
from cockpit.core.logs.batches import BATCH_BYTES, WAIT_S, Collector, Rest
from cockpit.core.logs.folding import folded
from cockpit.core.logs.levels import Level, level_of
from cockpit.core.logs.query import Query
from cockpit.core.logs.sources import Source, Writer, file_of, writer_of
from cockpit.engine.logs.index import Index
from cockpit.engine.logs.spooled import Gaps, Placed, SpooledLogs, logs_of, time_index
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import NodeEntry
from cockpit.engine.time_slices import Turn
from cockpit.errors import CockpitError

__all__ = ["Logbook", "Row", "Source"]

_STEP = 256 << 10
"""Bytes of a log to read at once."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line as it is shown.

    :param batch: the batch it is in; the number of batches for an unfinished line
    :param index: its place in the batch under the query it was read with
    :param at: the latest time by which it was here, unix seconds on our clock
    :param sources: who wrote it in this batch, consoles first, then by rank; at least one
    :param text: the bytes as they came: at most 8 KiB, no overwritten states, no newline. If ``originals``
        differ, what replaces them
    :param size: bytes of the whole line; more than ``len(text)`` if it was cut
    :param level: what kind of line it is
    :param first: False for the second and later lines of a traceback that is shown as one
    :param originals: what each of ``sources`` printed, if that differs; else empty
    :param fold: which of the batch's folds it belongs to, if sources said different things there; see
        :meth:`cockpit.engine.logs.reader.Reader.unfold`
    """

    batch: int
    index: int
    at: float
    sources: tuple[Source, ...]
    text: bytes
    size: int
    level: Level
    first: bool
    originals: tuple[bytes, ...] = ()
    fold: int | None = None

    @property
    def lines(self) -> int:
        """How many lines are folded into it."""
        return len(self.sources)

    @property
    def said(self) -> Iterator[tuple[Source, bytes]]:
        """Who printed what."""
        return zip(self.sources, self.originals or repeat(self.text), strict=False)


@dataclass(frozen=True, slots=True)
class _Pending:
    """What was fed before loading finished: bytes that the spool has are not kept. No bytes: a gap."""

    number: int
    offset: int
    length: int
    data: bytes | None


class Logbook:
    """The document; see :class:`cockpit.engine.logs.reader.Reader` for reading it.

    It is a list of batches that only grows. A batch is what all sources said within a moment: a segment of
    whole lines of each. Text is read back from the spool; the positions are in files too.

    :param folder: the run's folder. If something is spooled in it already, :meth:`load` must be called: what
        is fed waits for that.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self.logs = SpooledLogs(folder)
        self.index = Index(folder.path)
        self._collector = Collector()
        self.gaps: dict[tuple[int, int], Gap] = {}
        """What is missing, by log and the offset of what comes next."""
        self._ahead: dict[str, Gaps] = {}
        """The gaps that loading has not come to, by node."""
        self._held: deque[_Pending | float] | None = None
        """Fed chunks, and times of flushes, that wait until loading is done."""
        if self._files():
            self.hold()
        self._told = 0  # batches at the last flush
        self._end: int | None = None  # batches that are shown, where not all are
        self._end_lines = 0
        self.reads_along = False
        """Whether another cockpit writes the spool: what has arrived is kept until it is there."""
        self.untimed = range(0)
        """Batches of bytes that came after the last line of a time index: newer than all before them."""

    @property
    def lines(self) -> int:
        """Complete lines in the document."""
        return self.index.lines if self._end is None else self._end_lines

    @property
    def loading(self) -> bool:
        """Whether there is output here that is not in the document yet."""
        return self._held is not None

    @property
    def batches(self) -> int:
        """How many batches the document has."""
        return self.index.batches if self._end is None else self._end

    # Its past

    def show_until(self, at: float | None) -> float:
        """Be the document as it was at a moment; None: as it is.

        :param at: unix seconds on our clock
        :return: seconds by which lines there may be off: how far apart moments of the time index are
        """
        if at is None:
            self._end = None
            return 0.0
        timed = self.untimed.start if self.untimed else self.index.batches
        self._end = min(self.index.batch_after(at), timed)
        self._end_lines = self.index.lines_before(self._end)
        return self.index.distance(self._end, timed)

    def ends(self) -> dict[int, int]:
        """Where each log ends in the document, by its number; without those that ended long before."""
        return self.index.ends(self.batches)

    # Growing

    def hold(self) -> None:
        """Let what is fed wait until :meth:`load`: the time index, which comes with it, has its times."""
        if self._held is None:
            self._held = deque()

    def feed(self, node: str, writer: Writer, offset: int, data: bytes) -> None:
        """Take new bytes of a log, in order; what is already known is skipped."""
        number = self.logs.number((node, writer))
        if self.reads_along:
            self.logs.keep(number, offset, data)
        if self._held is None:
            self._collector.feed(number, offset, data)
        else:
            spooled = self.logs.size(number) >= offset + len(data)
            self._held.append(_Pending(number, offset, len(data), None if spooled else data))

    def gap(self, node: str, gap: Gap) -> None:
        """What comes of a log does not follow what is here."""
        if (where := self._missing(node, gap)) is not None and self._held is None:
            self._collector.gap(*where)
        elif where is not None and self._held is not None:
            self._held.append(_Pending(*where, 0, None))

    def _missing(self, node: str, gap: Gap) -> tuple[int, int] | None:
        if not is_log(gap.file):
            return None
        where = self.logs.number((node, writer_of(gap.file))), gap.at
        self.gaps[where] = gap
        return where

    def flush(self, now: float, *, wait_s: float = 0.0) -> bool:
        """Close the batch.

        :param now: unix seconds
        :param wait_s: keep it open for up to this many seconds while others may have more for it
        :return: whether there is anything new since the last call
        """
        changed = False
        if self._held is None:
            changed = self._close_batch(now, wait_s)
        elif self._held and isinstance(self._held[-1], float):
            self._held[-1] = now
        else:
            self._held.append(now)
        told, self._told = self._told, self.batches
        return changed or told != self._told

    def _close_batch(self, at: float, wait_s: float = 0.0) -> bool:
        batches, changed = self._collector.seal(at, wait_s=wait_s)
        for batch in batches:
            self.index.add(at, batch)
        return changed

    async def load(
        self, progress: Callable[[float], None] | None = None, *, since: Mapping[Source, int] | None = None
    ) -> None:
        """Take in what is already spooled, merged by the nodes' time indexes; what is fed comes after it.

        :param progress: called with the part that is done, 0 to 1
        :param since: where to begin in each log; those not named are passed over. None: all from the start
        :raises CockpitError: the spool cannot be read
        """
        self.hold()
        files = self._files()
        ends = {number: self.logs.size(number) for number in sorted(files.values())}
        done = dict.fromkeys(ends, 0)
        if since is not None:
            done = {number: since.get(self.logs.files[number].source, end) for number, end in ends.items()}
        turn = Turn(sum(ends.values()) - sum(done.values()), progress)
        opened = at = self._folder.manifest.created
        size = 0
        for tick, node, sizes in self._ticks(await self._clocks(turn)):
            if size and (tick - opened >= WAIT_S or size >= BATCH_BYTES):
                self._close_batch(at)
                size = 0
            if not size:
                opened = tick
            at = tick
            for file, end in sizes.items():
                number = files.get((node, file))
                if number is not None and end > done[number]:
                    start, done[number] = done[number], min(end, ends[number])
                    size += done[number] - start
                    await self._take(number, start, done[number], turn)
            await turn.pause()
        self._close_batch(at)
        timed = self.batches
        for number, end in ends.items():
            await self._take(number, done[number], end, turn)
        self._close_batch(at)
        self.untimed = range(timed, self.batches)
        await self._take_held(turn)
        turn.tell()

    def _files(self) -> dict[tuple[str, str], int]:
        """The logs that are spooled: node and file name, and the number."""
        files: dict[tuple[str, str], int] = {}
        for node in self._folder.manifest.nodes:
            try:
                for name in logs_of(self._folder, node):
                    files[node.name, name] = self.logs.number((node.name, writer_of(name)))
            except CockpitError as error:
                self.logs.unreadable.setdefault((node.name, None), error)
        return files

    def last(self, length: int) -> tuple[int, dict[Source, int]]:
        """How many bytes are spooled, and where whole lines begin in the last ``length`` of each log."""
        total, starts = 0, {}
        for number in self._files().values():
            size, source = self.logs.size(number), self.logs.files[number].source
            start = max(0, size - length)
            # A line that is longer than that is shown cut off.
            starts[source] = start + (self.logs.read(number, start, length).find(b"\n") + 1 if start else 0)
            total += size
        return total, starts

    async def _clocks(self, turn: Turn) -> dict[str, float]:
        """How far each node's clock is ahead of ours, in seconds, as last measured; notes what is missing."""
        offsets = dict.fromkeys((node.name for node in self._folder.manifest.nodes), 0.0)
        for event in self._folder.journal():
            if isinstance(event.fact, ClockMeasured):
                offsets[event.node] = event.fact.offset_s
            elif isinstance(event.fact, Gap) and self._missing(event.node, event.fact):
                known = self._ahead.setdefault(event.node, {}).setdefault(event.fact.file, [])
                known.append((event.at, event.fact.at))
            await turn.pause()
        return offsets

    def _ticks(self, clocks: Mapping[str, float]) -> Iterator[_Tick]:
        """The lines of all time indexes, merged, by our clock."""

        def of(node: NodeEntry) -> Iterator[_Tick]:
            ours = self._folder.manifest.foreign is None  # else it is an index of our copies
            known = {file: list(each) for file, each in self._ahead.get(node.name, {}).items() if ours}
            placed = Placed(known)
            try:
                for at, sizes in time_index(self._folder, node):
                    tick = at - clocks[node.name]
                    if known:
                        sizes = {file: placed.end(tick, file, size) for file, size in sizes.items()}
                    yield _Tick(tick, node.name, sizes)
            except CockpitError as error:
                # Costs the order of its output, but no bytes.
                self.logs.unreadable.setdefault((node.name, None), error)

        return heapq.merge(*map(of, self._folder.manifest.nodes), key=lambda tick: tick.at)

    async def _take(self, number: int, start: int, end: int, turn: Turn) -> None:
        """Take bytes of a log from the spool, and the gaps in between and at their end."""
        node, writer = self.logs.files[number].source
        ahead = self._ahead.get(node, {}).get(file_of(writer), [])
        while ahead and ahead[0][1] <= end:
            _, at = ahead.pop(0)
            if at >= start:
                await self._take_bytes(number, start, at, turn)
                self._collector.gap(number, at)
                start = at
        await self._take_bytes(number, start, end, turn)

    async def _take_bytes(self, number: int, start: int, end: int, turn: Turn) -> None:
        while start < end and (data := self.logs.read(number, start, min(_STEP, end - start))):
            self._collector.feed(number, start, data)
            start += len(data)
            turn.done += len(data)
            await turn.pause()

    async def _take_held(self, turn: Turn) -> None:
        """Take what was fed in the meantime, and stop waiting."""
        while self._held:
            held = self._held.popleft()
            if isinstance(held, float):
                self._close_batch(held)
            elif not held.length:
                self._collector.gap(held.number, held.offset)
            else:
                data = held.data
                if data is None:
                    data = self.logs.read(held.number, held.offset, held.length)
                self._collector.feed(held.number, held.offset, data)
            await turn.pause()
        self._held = None

    # Reading

    def rests(self) -> list[Rest]:
        """What has arrived of unfinished lines; see :meth:`cockpit.core.logs.batches.Collector.rests`."""
        return self._collector.rests() if self._end is None else []

    def pending(self, query: Query) -> list[Row]:
        """The unfinished lines of a query that are progress bars or prompts, folded."""
        found = {
            source: line
            for line in (self._collector.unfinished() if self._end is None else ())
            for source in [self.logs.files[line.source].source]
            if query.takes(*source) and query.selects(source[1], line.state)
        }
        rows = []
        for index, item in enumerate(folded((source, line.state) for source, line in found.items())):
            lines = [found[source] for source in item.sources]
            rows.append(
                Row(
                    batch=self.batches,
                    index=index,
                    at=max(line.since for line in lines),
                    sources=tuple(item.sources),
                    text=item.text,
                    size=max(line.size for line in lines),
                    level=level_of(lines[0].state),
                    first=True,
                    originals=tuple(item.originals),
                )
            )
        return rows

    def close(self) -> None:
        """Close the files; the book cannot be read any more."""
        self.logs.close()
        self.index.close()


class _Tick(NamedTuple):
    """One line of a time index: the sizes that files of a node had at a time on our clock."""

    at: float
    node: str
    sizes: Mapping[str, int]
