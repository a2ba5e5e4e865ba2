"""Follow the logs of a run by offset: one request per node covers all its files."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, Iterable, List, Tuple

from cockpit.base import record, verbs
from cockpit.node import safefiles
from cockpit.node.calls import Call, NodeError
from cockpit.node.run.status import read_record, remaining, supervisor_alive, unrecorded

BATCH = 256 << 10
"""Bytes in one answer: small enough that keys and stacks on the same link stay responsive."""
BULK = 1 << 20
"""Bytes in one answer while four times as many wait: fewer, larger answers catch up sooner."""
BUSY_S = 0.1
IDLE_S = 0.25
"""Seconds between two looks at the files: after new bytes, and otherwise."""
BEAT_S = 1.0
"""Longest silence, in seconds: an answer without bytes says that there are none."""


def follow(call: Call) -> Dict[str, Any]:
    """Send the bytes of every log and of the run record from the offsets given, until cancelled.

    Request: ``dir``, ``offsets`` {file: bytes already there}, ``credit`` (bytes in flight); ``run`` and
    ``node``, by which processes are found once the run folder is gone.
    Item: ``parts`` [[file, offset, length], …] with the bytes as payload, ``sizes`` {file: size},
    ``alive`` whether the supervisor lives; if it does not, ``found``: events that it could no longer record;
    if the run folder is gone, ``gone`` (see :meth:`Leftovers.told`).

    :raises NodeError: the run folder is gone and nothing runs, or a file is shorter than the offset asked for
    """
    asked = call.asked(verbs.Follow)
    try:
        _follow_files(call, asked.dir, asked.offsets)
    except NodeError as error:
        while True:
            found = remaining(error, asked.dir, asked.run, asked.node)
            alive, gone = found.supervisor is not None, found.told(error.what)
            call.item({"parts": [], "sizes": {}, "alive": alive, "gone": gone})
            if not call.pause(BEAT_S):
                break
    return {}


def _follow_files(call: Call, folder: str, offsets: Dict[str, int]) -> None:
    reader = _Reader(folder, read_record(folder)["ranks"], dict(offsets))
    last = 0.0
    while not call.cancelled:
        alive = supervisor_alive(folder)
        room = min(BULK if reader.behind > 4 * BULK else BATCH, call.take_credit(BEAT_S))
        parts, data = reader.batch(room)
        now = time.monotonic()
        if parts or now - last >= BEAT_S:
            item: Dict[str, Any] = {"parts": parts, "sizes": reader.sizes, "alive": alive}
            if alive is False and not parts:
                item["found"] = unrecorded(folder)
            call.item(item, data)
            last = now
        if not reader.behind and not call.pause(BUSY_S if parts else IDLE_S):
            break


class _Reader:
    """Reads the files of a run folder that are followed.

    None is kept open: a node may have more ranks than it has files for one process.

    :param ranks: the ranks of this node
    :param offsets: bytes of each file that the other side has
    """

    def __init__(self, folder: str, ranks: Iterable[int], offsets: Dict[str, int]) -> None:
        self._folder = folder
        self._names = [record.EVENTS, record.SIZES, record.LAUNCHER_LOG, *map(record.rank_log, ranks)]
        self._offsets = offsets
        self._turn = 0
        self.sizes: Dict[str, int] = {}
        self.behind = 0
        """Bytes that the other side does not have, as of the last look."""

    def batch(self, room: int) -> Tuple[List[Tuple[str, int, int]], bytes]:
        """Up to ``room`` new bytes, fairly divided among the files that have any.

        :raises NodeError: the run folder is gone, or a file is shorter than what the other side has of it
        """
        self._look()
        behind = [name for name in self.sizes if self.sizes[name] > self._offsets.get(name, 0)]
        self.behind = sum(self.sizes[name] - self._offsets.get(name, 0) for name in behind)
        if not behind or room <= 0:
            return [], b""
        # The run record first: states must not wait behind a flood of log lines.
        self._turn += 1
        turn = self._turn % len(behind)
        behind = sorted(behind[turn:] + behind[:turn], key=lambda name: name != record.EVENTS)
        parts: List[Tuple[str, int, int]] = []
        chunks: List[bytes] = []
        for number, name in enumerate(behind):
            # What earlier files did not need goes to the others.
            share = max(room // (len(behind) - number), 4096)
            offset = self._offsets.get(name, 0)
            try:
                chunk = safefiles.part(os.path.join(self._folder, name), offset, min(share, room))
            except FileNotFoundError:
                chunk = b""  # removed just now: the next look reports it
            if chunk:
                parts.append((name, offset, len(chunk)))
                chunks.append(chunk)
                self._offsets[name] = offset + len(chunk)
                room -= len(chunk)
            if room <= 0:
                break
        self.behind -= sum(map(len, chunks))
        return parts, b"".join(chunks)

    def _look(self) -> None:
        self.sizes = {}
        for name in self._names:
            size = safefiles.size(os.path.join(self._folder, name))
            if size is None:
                continue
            self.sizes[name] = size
            if size < self._offsets.get(name, 0):
                raise NodeError(
                    "shrunk", "%s was cut from %d to %d bytes" % (name, self._offsets[name], size)
                )
        if record.EVENTS not in self.sizes:
            raise NodeError("gone", "run folder %s is gone" % self._folder)
