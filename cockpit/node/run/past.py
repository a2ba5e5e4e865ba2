"""The steps of a node's ranks, in its run folder: a ring holds few of them, and nobody may be watching."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from itertools import groupby
from typing import Dict, Iterable, Iterator, List, NamedTuple, Sequence, Tuple

from cockpit.base import record
from cockpit.base.ages import Ages, coarser
from cockpit.base.gate import Malformed
from cockpit.base.progress import ring
from cockpit.base.progress.past import EVERY_S, Piece, Stretch, folded, pieces, rows, stretch_of
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

# Without waiting: whoever trains may have put a FIFO there.
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


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
        self._rows = Rows(os.path.join(folder, record.STEPS), STEPS_BYTES * ranks)
        self._last: Dict[int, _Last] = {}
        self._pending: Dict[Tuple[int, int], List[Piece]] = {}
        self._flushed = time.monotonic()

    def take(self, found: ring.Ring) -> None:
        """Take in what is new in a ring; of a rank's processes the one with the newest step counts."""
        last = self._last.get(found.rank)
        if not found.steps or (last and found.steps[-1].mono_ns <= last.step.mono_ns):
            return
        before = last.step if last and last.pid == found.pid else None
        some = self._pending.setdefault((found.rank, ring.SOURCES.index(found.source)), [])
        for step in found.steps:
            if last is not None and step.mono_ns <= last.step.mono_ns:
                continue
            follows = before is not None and step.step == before.step + 1
            span = (step.mono_ns - before.mono_ns) / 1e9 if before is not None and follows else None
            some.append(Piece(step.step, 1, step.wall_ns / 1e9, span))
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
        with contextlib.suppress(OSError, ValueError):  # a full disk, a folder that is gone, odd numbers
            found = [row for (rank, source), some in pending.items() for row in rows(rank, source, some)]
            if self._rows.full:
                self._fold()
            self._rows.add(found)

    def _fold(self) -> None:
        """Have fewer steps, the older they are, in half of the room.

        :raises OSError: the file cannot be read or written
        """
        found, wanted, older = list(self._rows.read()), self._rows.limit // 2, OLDER
        while True:
            # Around events steps stay by themselves for as long as there is room for that.
            found = fewer(found, older, self._events() if older >= _FAR else ())
            size = sum(len(row.line()) for row in found)
            if size <= wanted or not found:
                break
            if older == 1:
                found = found[len(found) // 2 :]
            older = coarser(older, size, wanted)
        self._rows.replace(found)

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


class Rows:
    """A file of rows.

    :param limit: bytes from which on it is full
    """

    def __init__(self, path: str, limit: int) -> None:
        self._path = path
        self.limit = limit

    @property
    def full(self) -> bool:
        """Whether it has reached its limit."""
        return (safefiles.size(self._path) or 0) >= self.limit

    def add(self, some: Iterable[Stretch]) -> None:
        """Append rows.

        :raises OSError: there is no room, or no folder
        """
        data = b"".join(row.line() for row in some)
        if data:
            self._write(self._path, _APPEND, data)

    def replace(self, some: Iterable[Stretch]) -> None:
        """Have these rows instead.

        :raises OSError: there is no room, or no folder
        """
        new = self._path + ".new"
        self._write(new, _APPEND | os.O_TRUNC, b"".join(row.line() for row in some))
        os.rename(new, self._path)

    def read(self) -> Iterator[Stretch]:
        """Its rows; damaged ones are ignored, as is all that is there beyond twice the limit."""
        try:
            data = safefiles.part(self._path, 0, 2 * self.limit)
        except OSError:
            return
        for line in data.split(b"\n"):
            with contextlib.suppress(Malformed):
                yield stretch_of(line)

    def _write(self, path: str, flags: int, data: bytes) -> None:
        with os.fdopen(os.open(path, flags, 0o600), "ab", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", path)
            written = file.write(data)
            if written < len(data):
                # What was cut is a damaged row, and the next one begins a line.
                file.write(b"\n")


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
