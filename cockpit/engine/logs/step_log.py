"""The numbers of training in a whole log, step by step, with the times of their lines; in flat memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TypeVar

from cockpit.base.record import log_name
from cockpit.core.logs.causes import TAIL
from cockpit.core.logs.metrics import Metrics, hinted, read_line
from cockpit.core.logs.sources import Output
from cockpit.core.logs.trackers import HEAD, HINTS, MOST, Tracker, trackers
from cockpit.core.pace.series import LoggedStep
from cockpit.core.run.model import RunModel
from cockpit.engine.logs.spooled import Placed, SpooledLogs, gaps, last_times, time_index
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import NodeEntry

FIELDS = ("loss", "lr", "samples_s", "tokens_s")
"""What a log says of a step."""

LATEST = 16 << 10
"""Bytes at the end of a log in which its last step is looked for."""

_Rank = TypeVar("_Rank", int, int | None)

_STEP = 256 << 10
"""Bytes of a log to read at once."""
_REST = 64 << 10
"""Bytes of a line that is not finished yet that are kept."""


SEARCH_S = 1.0
"""Seconds for which the middle of logs is searched for addresses."""

_PIECE, _OVERLAP = 1 << 20, 2048
"""Bytes that are searched at once; a line may begin in one piece and end in the next."""


class Pages:
    """The pages about a run that its logs name, in whole lines: half an address leads elsewhere."""

    def __init__(self) -> None:
        self._found: dict[Tracker, Output] = {}
        self._rest: dict[Output, bytes] = {}

    def read(self, source: Output, data: bytes, *, follows: bool = True) -> None:
        """Look for some in the next piece of a log.

        :param follows: it begins where the piece before ended
        """
        rest = self._rest.pop(source, b"") if follows else b""
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if end:
            self.look(source, rest + data[:end])
            rest = b""
        rest = (rest + data[max(end, len(data) - _OVERLAP) :])[-_OVERLAP:]
        if rest:
            self._rest[source] = rest

    def look(self, source: Output, lines: bytes) -> None:
        """Look for some in lines from anywhere in a log; the first and the last may be cut."""
        if not any(hint in lines for hint in HINTS):
            return
        for one in trackers(lines[: max(lines.rfind(b"\n"), lines.rfind(b"\r")) + 1]):
            if len(self._found) < MOST:
                self._found.setdefault(one, source)

    @property
    def named(self) -> list[tuple[Output, Tracker]]:
        """Each once, with whose log named it first."""
        return [(source, one) for one, source in self._found.items()]


def pages(logs: SpooledLogs, search_s: float = SEARCH_S) -> list[tuple[Output, Tracker]]:
    """The pages about a run that its logs name, each once; and whose log.

    :param search_s: seconds for what is neither at the beginning nor at the end of a log
    """
    found = Pages()
    for number, source in logs.outputs:
        for data in (logs.read(number, 0, HEAD), logs.tail(source, TAIL)):
            found.look(source, data)
    until = time.monotonic() + search_s
    for source, data in middles(logs):
        found.look(source, data)
        if time.monotonic() >= until:
            break
    return found.named


def middles(logs: SpooledLogs) -> Iterator[tuple[Output, bytes]]:
    """Pieces of logs between their beginning and their end, of all logs in turn; each overlaps the next."""
    for number, source in logs.outputs:
        at, end = HEAD - _OVERLAP, logs.size(number) - TAIL + _OVERLAP
        while at + _OVERLAP < end and (data := logs.read(number, at, min(_PIECE, end - at))):
            yield source, data
            if len(data) <= _OVERLAP:
                break  # the others are not here
            at += len(data) - _OVERLAP


def speaker(logs: SpooledLogs) -> Output | None:
    """Whose log says most about the training: the lowest rank that tells steps and losses, if one does."""
    best: tuple[int, Output | None] = (0, None)
    # Consoles of launchers come first, but count only if no rank says anything.
    for number, source in sorted(logs.outputs, key=lambda log: log[1][1] is None):
        metrics = Metrics()
        fields: set[str] = set()
        for data in (logs.read(number, 0, HEAD), logs.tail(source, TAIL)):
            metrics.feed(source[1], data, 0.0)
            fields |= metrics.said(source[1]).keys()
        if {"step", "loss"} <= fields:
            return source
        count = len(fields & {"step", *FIELDS})
        if count > best[0]:
            best = count, source
    return best[1]


def said(
    folder: RunFolder,
    model: RunModel,
    logs: SpooledLogs,
    source: Output,
    progress: Callable[[float], object] = lambda share: None,
    *,
    since: int = 0,
) -> Iterator[LoggedStep]:
    """What a log says, a step at a time.

    :param progress: is told the share that has been read, 0 to 1, now and then
    :param since: the offset to begin at
    :raises CockpitError: its time index cannot be read
    """
    rank, metrics, now = source[1], Metrics(), LoggedStep()
    clock = _Times(folder, model, source)
    for end, line in _lines(logs, logs.number(source), progress, since):
        # An older state may be said again: what counts is whether it was read.
        if not hinted(line) or not metrics.feed(rank, line + b"\n", 0.0):
            continue
        told = metrics.said(rank)
        step = int(told["step"]) if "step" in told else now.step
        values = {name: told[name] for name in FIELDS if name in told}
        if step != now.step or (step is None and any(getattr(now, name) is not None for name in values)):
            if now != LoggedStep():
                yield now
            now = LoggedStep(clock.at(end), step)
        for name, value in values.items():
            setattr(now, name, value)
    if now != LoggedStep():
        yield now


def _lines(
    logs: SpooledLogs, number: int, progress: Callable[[float], object], since: int
) -> Iterator[tuple[int, bytes]]:
    """Lines and states of bars, with the offsets of their ends; of a very long line only its end."""
    at, size, rest = since, logs.size(number), b""
    while at < size and (data := logs.read(number, at, min(_STEP, size - at))):
        *whole, rest = (rest + data).replace(b"\r", b"\n").split(b"\n")
        at += len(data)
        end = at - len(rest) - sum(map(len, whole)) - len(whole)
        for line in whole:
            end += len(line) + 1
            yield end, line
        rest = rest[-_REST:]
        progress(at / size)


def last_steps(
    folder: RunFolder, model: RunModel, logs: SpooledLogs, node: NodeEntry, ranks: Iterable[_Rank]
) -> Iterator[tuple[_Rank, int, float]]:
    """Ranks of a node, the last step that the end of each one's log tells, and when that was there.

    None is its launcher: the console of several ranks. The newest lines may not yet be in the time index.

    Ranks whose log tells none are left out, and those where the end of the time index does not say when.
    Times are unix seconds on our clock.
    """
    times: list[tuple[float, Mapping[str, int]]] | None = None
    for rank in ranks:
        name = log_name(rank)
        begin = model.nodes[node.name].begin(name)
        steps = _last_steps(logs, logs.number((node.name, rank)))
        last = next(steps, None)
        if last is None:
            continue
        times = list(last_times(folder, node)) if times is None else times
        known = begin + next((sizes[name] for _, sizes in reversed(times) if name in sizes), 0)
        step, end = next((one for one in chain((last,), steps) if one[1] <= known), (0, 0))
        at = written(times, name, end - begin)
        if at is not None:
            yield rank, step, at - model.nodes[node.name].offset_s


def _last_steps(logs: SpooledLogs, number: int) -> Iterator[tuple[int, int]]:
    """The steps at the end of a log, the last one first, and the offsets where their lines end."""
    end = logs.size(number)
    return steps_back(logs.read(number, max(0, end - LATEST), LATEST), end)


def steps_back(data: bytes, end: int) -> Iterator[tuple[int, int]]:
    """The steps that the last bytes of a log tell, the last one first, and the offsets where their lines end.

    :param end: the size of the log
    """
    *whole, rest = data.replace(b"\r", b"\n").split(b"\n")
    end -= len(rest)
    for line in reversed(whole):
        reading = read_line(line) if hinted(line) else None
        if reading is not None and reading.step is not None:
            yield reading.step, end
        end -= len(line) + 1


def written(times: Iterable[tuple[float, Mapping[str, int]]], name: str, end: int) -> float | None:
    """When a file had so many bytes, if these entries of a time index have that moment."""
    before = found = None
    for t, sizes in times if end > 0 else ():
        size = sizes.get(name)
        if size is None:
            continue
        if before is not None and size < before:
            found = None  # it was shortened there: what counts is what it had after that
        if found is None and size >= end:
            found = -math.inf if before is None else t
        before = size
    return None if found == -math.inf else found


class _Times:
    """When parts of one log were there, asked in the order of the log."""

    def __init__(self, folder: RunFolder, model: RunModel, source: Output) -> None:
        self._name = log_name(source[1])
        self._entry: NodeEntry = next(node for node in folder.manifest.nodes if node.name == source[0])
        self._offset_s = model.nodes[source[0]].offset_s
        self._placed = Placed(gaps(folder, source[0]))
        self._index = time_index(folder, self._entry)
        self._at: float | None = None
        self._size = 0

    def at(self, end: int) -> float | None:
        """When the bytes up to here had been written, unix seconds on our clock; None: not known."""
        while self._size < end:
            entry = next(self._index, None)
            if entry is None:
                return None
            self._at = entry[0]
            if (size := entry[1].get(self._name)) is not None:
                placed = self._placed.end(self._at - self._offset_s, self._name, size)
                self._size = max(self._size, placed)
        return None if self._at is None else self._at - self._offset_s


def tracker_json(source: Output, page: Tracker) -> dict[str, object]:
    """A page about the run, and whose log names it, as an object of JSON."""
    return {"name": page.name, "url": page.url, "node": source[0], "rank": source[1]}
