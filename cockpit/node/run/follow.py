"""Follow the logs of a run by offset: one request per node covers all its files."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, cast

from cockpit.base import record, verbs
from cockpit.base.times import ticks
from cockpit.node import procfs, safefiles
from cockpit.node.calls import Call, NodeError
from cockpit.node.following import Begun, Followed, Place, batch
from cockpit.node.run.ranks import Start, recorded
from cockpit.node.run.status import read_record, remaining, supervisor_alive, unrecorded, unwritten

BATCH = 256 << 10
"""Bytes in one answer: small enough that keys and stacks on the same link stay responsive."""
BULK = 1 << 20
"""Bytes in one answer while four times as many wait: fewer, larger answers catch up sooner."""
BUSY_S = 0.1
IDLE_S = 0.25
"""Seconds between two looks at the files: after new bytes, and otherwise."""
_INDEX = 8 << 20
"""Bytes of a time index that are looked through for how long a log was: hours of a busy node."""
NCCL_READ = 8 << 20
"""Bytes of a file of NCCL that are sent: hundreds of communicators. NCCL writes on, to its node alone."""
BEAT_S = 1.0
"""Longest silence, in seconds: an answer without bytes says that there are none."""


def follow(call: Call) -> Dict[str, Any]:
    """Send the bytes of every log and of the run record from the offsets given, until cancelled.

    Request: ``dir``, ``offsets`` {file: bytes already there}, ``marks`` of these, ``credit`` (bytes in
    flight); ``run`` and ``node``, by which processes are found once the run folder is gone.
    Item: ``parts`` [[file, offset, length], …] with the bytes as payload, ``sizes`` {file: size},
    ``begun`` [[file, length], …]: it was shortened or replaced, and what comes is from its start,
    ``trouble`` {file: why it cannot be read},
    ``alive`` whether the supervisor lives; if it does not, ``found``: events that it could no longer record;
    if the run folder is gone, ``gone`` (see :meth:`Leftovers.told`).

    :raises NodeError: the run folder is gone and nothing runs
    """
    asked = call.asked(verbs.Follow)
    try:
        _follow_files(call, asked)
    except NodeError as error:
        while True:
            found = remaining(error, asked.dir, asked.run, asked.node)
            alive, gone = found.supervisor is not None, found.told(error.what)
            call.item({"parts": [], "sizes": {}, "alive": alive, "gone": gone})
            if not call.pause(BEAT_S):
                break
    return {}


def _follow_files(call: Call, asked: verbs.Follow) -> None:
    folder = asked.dir
    facts = read_record(folder)
    nccl = facts.get("nccl_debug") is True
    reader = _Reader(folder, facts["ranks"], asked.offsets, asked.marks, nccl=nccl)
    last = 0.0
    while not call.cancelled:
        alive = supervisor_alive(folder)
        reader.record.alive = alive is True
        room = min(BULK if reader.behind > 4 * BULK else BATCH, call.take_credit(BEAT_S))
        parts, data = reader.batch(room)
        now = time.monotonic()
        if parts or reader.begun or now - last >= BEAT_S:
            item: Dict[str, Any] = {"parts": parts, "sizes": reader.sizes, "alive": alive}
            item["begun"], reader.begun = reader.begun, []
            item["trouble"] = reader.trouble
            if (alive is False or reader.forgot) and not parts:
                item["found"] = unrecorded(folder, alive=alive is not False)
            call.item(item, data)
            last = now
        if not reader.behind and not call.pause(BUSY_S if parts else IDLE_S):
            break


class _Reader:
    """Reads the files of a run folder that are followed.

    None is kept open: a node may have more ranks than it has files for one process.

    :param ranks: the ranks of this node
    :param offsets: bytes of each file that the other side has
    :param marks: see :attr:`cockpit.base.trail.Trail.mark`; of these bytes
    :param nccl: whether the ranks' NCCL writes files of its own
    """

    def __init__(
        self,
        folder: str,
        ranks: Iterable[int],
        offsets: Mapping[str, int],
        marks: Mapping[str, int] = MappingProxyType({}),
        *,
        nccl: bool = False,
    ) -> None:
        self._folder = folder
        self._files: Dict[str, Followed] = {}
        index = record.SIZES if _fits(os.path.join(folder, record.SIZES)) else record.TIMES
        ranks = tuple(ranks)
        own = map(record.rank_nccl, ranks) if nccl else ()
        for name in (record.EVENTS, index, record.LAUNCHER_LOG, *map(record.rank_log, ranks), *own):
            kind = _Record if name == record.EVENTS else Followed
            if record.nccl_rank(name) is not None:
                kind = _Capped
            place = Place(os.path.join(folder, name))
            have = offsets.get(name, 0)
            written = partial(_open_files, folder, name)
            was = partial(_was, os.path.join(folder, index), name, have, offsets.get(index, 0))
            self._files[name] = kind(place, have, marks.get(name), written=written, was=was)
        self.record = cast(_Record, self._files[record.EVENTS])
        self._turn = 0
        self.begun: List[Tuple[str, Optional[int]]] = []
        """Files that begin anew since the last answer, each with how long it was."""
        self.forgot = False
        """Whether lines of the run record are gone."""

    @property
    def behind(self) -> int:
        """Bytes that the other side does not have, as of the last look."""
        return sum(file.behind for file in self._files.values())

    @property
    def sizes(self) -> Dict[str, int]:
        """How long each file is, as far as it is sent, as of the last look."""
        return {name: file.sent for name, file in self._files.items() if file.size}

    @property
    def trouble(self) -> Dict[str, str]:
        """Why files cannot be read now."""
        return {name: file.trouble for name, file in self._files.items() if file.trouble}

    def batch(self, room: int) -> Tuple[List[Tuple[str, int, int]], bytes]:
        """Up to ``room`` new bytes, fairly divided among the files that have any.

        :raises NodeError: the run folder is gone
        """
        for name, file in self._files.items():
            begun = file.look()
            if begun is not None:
                self.begun.append((name, begun.end))
        self.forgot |= self._files[record.EVENTS].lacks
        if safefiles.absent(self._folder):
            raise NodeError("gone", "run folder %s is gone" % self._folder)
        # The run record first: states must not wait behind a flood of log lines.
        first, data = batch({record.EVENTS: self._files[record.EVENTS]}, room, 0)
        self._turn += 1
        parts, more = batch(self._files, room - len(data), self._turn)
        return first + parts, data + more


class _Record(Followed):
    """The run record: what the supervisor has no room for follows what is written, as if it were there."""

    alive = False
    """Whether there is a supervisor."""
    _asked_at = 0.0
    _complete = False
    """Whether nothing is missing where it is shorter than what was told of it."""
    _waits = b""
    """What comes next, where that is not written."""

    def look(self) -> Optional[Begun]:
        """See how long it is; one that is shorter than what was told has lost nothing."""
        path = self._here.path
        if self.alive and time.monotonic() >= self._asked_at + BEAT_S:
            self._asked_at = time.monotonic()
            told = unwritten(os.path.dirname(path), self.offset)
            self._complete = told is not None and told.place == self.offset <= told.end
            self._waits = told.data if told is not None and self._complete else b""
        size = safefiles.size(path)
        shorter = size is None or size < self.offset
        if shorter and ((self.alive and self._complete) or self._is_unwritten(size)):
            self.size = self.offset + len(self._waits)
            return None
        begun = super().look()
        if begun is not None:
            self._waits = b""
        self.size += len(self._waits)
        return begun

    def _is_unwritten(self, size: Optional[int]) -> bool:
        """Whether a supervisor that cannot be asked told more than it wrote: both begin alike."""
        if not size:
            return False
        head = self._trail.head if self._trail is not None else b""
        try:
            return head.startswith(safefiles.part(self._here.path, 0, len(head)))
        except OSError:
            return True  # for now nobody can tell

    def read(self, room: int) -> bytes:
        """The next bytes, at most ``room``."""
        if not self._waits or self.size > self.offset + len(self._waits):
            self._waits = b""
            return super().read(room)
        data, self._waits = self._waits[:room], self._waits[room:]
        self.offset += len(data)
        if self._trail is not None:
            self._trail.add(data)
        else:
            self._mark = None
        return data


class _Capped(Followed):
    """A file of which only the beginning is sent: whoever writes it may write for ever."""

    @property
    def sent(self) -> int:
        """See :attr:`Followed.sent`."""
        return min(self.size, NCCL_READ)


def _fits(path: str) -> bool:
    """Whether there is a time index that is not thinned, and is not too long to be taken."""
    return 0 < (safefiles.size(path) or 0) <= record.SIZES_READ


def _open_files(folder: str, name: str) -> Iterator[str]:
    """Descriptors of the processes that write a file of a run folder, as far as they are known."""
    rank = record.logged_rank(name)
    rank = record.nccl_rank(name) if rank is None else rank
    with suppress(OSError, ValueError, NodeError):
        if rank is not None:
            start = recorded(Start, os.path.join(folder, record.rank_start(rank)), rank)
            writers = [(start.wrapper, start.wrapper_ticks), (start.pid, start.ticks)]
        else:
            supervisor = read_record(folder)["supervisor"]
            writers = [(supervisor["pid"], supervisor["ticks"])]
        for pid, ticks in writers:
            for number in os.listdir("/proc/%d/fd" % pid) if procfs.alive(pid, ticks) else ():
                yield "/proc/%d/fd/%s" % (pid, number)


def _was(index: str, name: str, offset: int, since: int) -> Optional[int]:
    """How long a log was at least, before it began anew, and all that it had in between; None: not known.

    :param index: the time index
    :param offset: what the other side has of the log
    :param since: the offset in the index of what has come since then; less is known once it was thinned
    """
    try:
        data = safefiles.part(index, since, _INDEX)
    except OSError:
        return None
    whole, before = 0, offset
    for _, sizes in ticks(data.split(b"\n")):
        size = sizes.get(name, before)
        whole += before if size < before else 0
        before = size
    return whole or None
