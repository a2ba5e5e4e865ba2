"""The steps of a node's ranks, in its run folder: a ring holds few of them, and nobody may be watching."""

from __future__ import annotations

import contextlib
import os
import time
from io import BytesIO
from itertools import groupby
from typing import Dict, Iterable, Iterator, List, NamedTuple, Sequence, Tuple

from cockpit.base import record
from cockpit.base.ages import Ages, coarser
from cockpit.base.gate import Malformed
from cockpit.base.growing_file import Lasting
from cockpit.base.progress import ring
from cockpit.base.progress.past import EVERY_S, Piece, Stretch, folded, pieces, rows, shares, stretch_of
from cockpit.base.progress.phases import Reader
from cockpit.node import safefiles

STEPS_BYTES = 288 << 10
"""For each rank, of the file from which on older steps become fewer: hours of them are there one by one."""
OLDER = 1 << 12
"""Steps that become one take so many times less than they are old, if that fits."""
_FAR = 8
"""Around events they stay by themselves unless it has to be less than this."""

FLUSH_S = 10.0
"""Seconds between two times that steps are written."""

AROUND_S = 60.0
"""Seconds before and after an event in which steps stay as they are."""
MOST_EVENTS = 64
"""Of the newest ones."""
_EVENTS_READ = 256 << 10
AROUND = ("rank_exited", "rank_lost", "evidence", "stop_requested")
"""Kinds of these events; and that a rank was started again."""


class _Last(NamedTuple):
    """The newest step that is known of a rank, and of which process."""

    pid: int
    step: ring.Step


class Keeper:
    """Writes the steps of ranks into their run folder; what cannot be written is left out. Raises nothing.

    :param own: the ranks of this node
    """

    def __init__(self, folder: str, own: Iterable[int]) -> None:
        self._folder = folder
        ranks = max(1, len(frozenset(own)))
        self._limit = STEPS_BYTES * ranks
        self._file = Lasting(os.path.join(folder, record.STEPS), self._limit, self._thinned)
        self._last: Dict[int, _Last] = {}
        self._phases: Dict[int, Reader] = {}
        self._pending: Dict[Tuple[int, int], List[Piece]] = {}
        self._flushed = time.monotonic()

    def take(self, found: ring.Ring) -> None:
        """Take in what is new in a ring; of a rank's processes the one with the newest step counts."""
        last = self._last.get(found.rank)
        if not found.steps or (last and found.steps[-1].mono_ns <= last.step.mono_ns):
            return
        before = last.step if last and last.pid == found.pid else None
        some = self._pending.setdefault((found.rank, ring.SOURCES.index(found.source)), [])
        spans = ring.spans(found.steps)
        if before is None:
            self._phases[found.rank] = Reader()  # another process
        reader = self._phases[found.rank]
        new = sum(last is not None and step.mono_ns <= last.step.mono_ns for step in found.steps)
        phases = reader.read(spans[new:], found.marks, found.marks_since_ns)
        for step, began, each in zip(found.steps[new:], spans[new:], phases):
            follows = before is not None and step.step == before.step + 1
            span = (step.mono_ns - before.mono_ns) / 1e9 if before is not None and follows else None
            told = () if began is None else shares(each, began[1] - began[0])
            some.append(Piece(step.step, 1, step.wall_ns / 1e9, span, told))
            before = step
        self._last[found.rank] = _Last(found.pid, found.steps[-1])

    def flush(self, *, now: bool = False) -> None:
        """Write what is new, if that is due.

        :param now: it is
        """
        if not now and time.monotonic() < self._flushed + FLUSH_S:
            return
        self._flushed = time.monotonic()
        pending, self._pending = self._pending, {}
        with contextlib.suppress(ValueError):  # odd numbers
            found = [row for (rank, source), some in pending.items() for row in rows(rank, source, some)]
            self._file.add(b"".join(row.line() for row in found))

    def wait(self) -> None:
        """See :meth:`Lasting.wait`."""
        self._file.wait()

    def _thinned(self, data: bytes) -> bytes:
        """Fewer steps, the older they are, in half of the room."""
        found, wanted, older = list(_rows_of(data)), self._limit // 2, OLDER
        while True:
            # Around events steps stay by themselves for as long as there is room for that.
            found = fewer(found, older, self._events() if older >= _FAR else ())
            lines = b"".join(row.line() for row in found)
            if len(lines) <= wanted or not found:
                return lines
            if older == 1:
                found = found[len(found) // 2 :]
            older = coarser(older, len(lines), wanted)

    def _events(self) -> Sequence[Tuple[float, float]]:
        """The times around what the run record says has happened."""
        path = os.path.join(self._folder, record.EVENTS)
        size = safefiles.size(path) or 0
        times: List[float] = []
        data = b""
        with contextlib.suppress(OSError):  # somebody removed it
            data = safefiles.part(path, max(0, size - _EVENTS_READ), _EVENTS_READ)
        for line in data.split(b"\n"):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                event = safefiles.parse(line)
                if event["e"] in AROUND or (event["e"] == "rank_started" and event["attempt"]):
                    times.append(float(event["t"]))
        return [(at - AROUND_S, at + AROUND_S) for at in times[-MOST_EVENTS:]]


def read(path: str, ranks: int) -> Iterator[Stretch]:
    """The rows of a file of so many ranks; what is there beyond twice its limit is ignored."""
    with contextlib.suppress(OSError):
        yield from _rows_of(safefiles.part(path, 0, 2 * STEPS_BYTES * ranks))


def _rows_of(data: bytes) -> Iterator[Stretch]:
    """The rows in some lines; damaged ones are ignored."""
    for line in BytesIO(data):
        with contextlib.suppress(Malformed):
            yield stretch_of(line)


def fewer(some: Sequence[Stretch], older: int, kept: Sequence[Tuple[float, float]]) -> List[Stretch]:
    """The same with many steps as one, the more the older they are.

    :param older: see :class:`cockpit.base.ages.Ages`
    :param kept: spans of time in which steps stay by themselves, unix seconds
    """
    ranks: Dict[Tuple[int, int], List[Stretch]] = {}
    for row in some:
        ranks.setdefault((row.rank, row.source), []).append(row)
    found: List[Stretch] = []
    for (rank, source), own in ranks.items():
        ages = Ages(older, EVERY_S / 2)
        spans = [ages.span(row.end)[0] for row in reversed(own)][::-1]
        for span, together in groupby(zip(spans, own), lambda pair: pair[0]):
            part = [row for _, row in together]
            if span < EVERY_S:
                found += part
            else:
                found += rows(rank, source, folded([one for row in part for one in pieces(row)], span, kept))
    return sorted(found, key=lambda row: row.end)


def by_rank(some: Iterable[Stretch]) -> Dict[Tuple[int, int], List[Piece]]:
    """What is in rows, by their ranks and what counted, in their order."""
    found: Dict[Tuple[int, int], List[Piece]] = {}
    for row in some:
        found.setdefault((row.rank, row.source), []).extend(pieces(row))
    return found
