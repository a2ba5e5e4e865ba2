"""What the flight recorders of this node's ranks have, cut down to rows: one rank at a time.

A full recorder is 0.9 MB of JSON, which takes the rank's server 60 to 107 ms and us some 50 to read. So only
one is asked at a time on a node, whoever asks, and what crosses the link is a few KB.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from typing import Any, Dict, List, Sequence, Tuple

from cockpit.base import record, verbs
from cockpit.base.gate import Malformed
from cockpit.base.recorder.packing import pack
from cockpit.base.recorder.reading import DUMP, read_json, read_pickle
from cockpit.base.recorder.trace import Trace, reduced
from cockpit.node import procfs, safefiles
from cockpit.node.calls import Call
from cockpit.node.recorder.server import Server, ServerError, Sockets, ask, check_owner, handlers

HANDLERS = ("fr_trace_json", "dump_nccl_trace_json")
"""What is asked, of those that a server has: torch has them, or has them not, in no order of its versions."""

TRIED = 4
"""Sockets of one rank that are tried: one that was started again leaves an old one behind."""

_BUSY = (errno.EAGAIN, errno.EACCES)
_SWITCHES = (b"TORCH_FR_BUFFER_SIZE=0", b"TORCH_NCCL_TRACE_BUFFER_SIZE=0")


def recorder(call: Call) -> Dict[str, Any]:
    """The traces of some ranks, an item each; its payload: one packed trace after the other."""
    asked = call.asked(verbs.Recorder)
    try:
        sockets = Sockets(os.path.join(asked.dir, record.PROBE))
    except OSError as error:
        none = isinstance(error, FileNotFoundError)
        what = "no probe runs in this run" if none else str(error)
        for rank in asked.ranks:
            call.item(_refused(rank, "absent" if none else "denied", what))
        return {}
    try:
        found = sockets.by_rank()
        for rank in asked.ranks:
            if call.cancelled:
                break
            try:
                call.item(*_Look(call, asked, rank, sockets).answer(found.get(rank, [])))
            except ServerError as error:
                call.item(_refused(rank, error.kind, str(error)))
            except Malformed as error:
                call.item(_refused(rank, "odd", "its recorder's answer is invalid: %s" % error))
    finally:
        sockets.close()
    return {}


def _refused(rank: int, kind: str, what: str) -> Dict[str, Any]:
    return {"rank": rank, "at": time.time(), "kind": kind, "what": what}


class _Look:
    """One rank."""

    def __init__(self, call: Call, asked: verbs.Recorder, rank: int, sockets: Sockets) -> None:
        self._call = call
        self._asked = asked
        self._rank = rank
        self._sockets = sockets
        self._end = time.monotonic() + min(max(asked.timeout_s, 0.1), 60.0)

    def answer(self, candidates: Sequence[Server]) -> Tuple[Dict[str, Any], bytes]:
        """The item and its payload.

        :raises ServerError: no server of this rank answers
        :raises Malformed: what it answers makes no sense
        """
        began = time.monotonic()
        source, has, at, traces = self._traces(candidates)
        parts = [pack(reduced(trace, self._asked.since_us, self._asked.rows)) for trace in traces]
        item = {
            "rank": self._rank,
            "at": at,
            "source": source,
            "handlers": list(has),
            "lengths": list(map(len, parts)),
            "took_s": time.monotonic() - began,
        }
        return item, b"".join(parts)

    def _traces(self, candidates: Sequence[Server]) -> Tuple[str, Tuple[str, ...], float, List[Trace]]:
        trouble = ServerError("absent", "no probe runs in this rank")
        for server in candidates[:TRIED]:
            try:
                check_owner(server)
                has = handlers(server.path, self._left_s())
                return ("server", has, *self._recorded(server, has))
            except ServerError as error:
                trouble = error
                if error.kind != "gone":
                    break
        data, at = self._left_behind()
        if data:
            return "file", (), at, [read_pickle(data)]
        raise trouble

    def _left_s(self) -> float:
        return max(0.01, self._end - time.monotonic())

    def _recorded(self, server: Server, has: Sequence[str]) -> Tuple[float, List[Trace]]:
        """Ask for all traces, as the only one on this node that asks."""
        known = [name for name in HANDLERS if name in has]
        if not known:
            raise ServerError("unknown", "its torch does not expose its flight recorder")
        self._wait_for_turn()
        try:
            at = time.time()
            traces = [read_json(ask(server.path, name, self._left_s()), name) for name in known]
        finally:
            fcntl.flock(self._sockets.number, fcntl.LOCK_UN)
        if not any(trace.lows for trace in traces) and _is_off(server.pid):
            raise ServerError("off", "its flight recorder is switched off (TORCH_FR_BUFFER_SIZE=0)")
        return at, traces

    def _wait_for_turn(self) -> None:
        while True:
            try:
                fcntl.flock(self._sockets.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if error.errno not in _BUSY:
                    return  # no locks on this file system: then there is no turn to wait for
            if time.monotonic() > self._end or not self._call.pause(0.02):
                raise ServerError("busy", "the recorders of this node are being read by another process")

    def _left_behind(self) -> Tuple[bytes, float]:
        """What NCCL's watchdog wrote for this rank when a collective took too long, and when.

        Not what it wrote in an earlier attempt: the rank has been started again since.
        """
        path = os.path.join(self._asked.dir, record.PROBE, record.nccl_dump(self._rank))
        try:
            at = os.lstat(path).st_mtime
            # Both by the clock of the file system, which may be another machine's.
            if at < self._started():
                return b"", 0.0
            return safefiles.read(path, DUMP), at
        except OSError:
            return b"", 0.0

    def _started(self) -> float:
        """When the rank was last started; 0 if nothing says so."""
        try:
            return os.lstat(os.path.join(self._asked.dir, record.rank_start(self._rank))).st_mtime
        except OSError:
            return 0.0


def _is_off(pid: int) -> bool:
    """Whether the program switched recording off: having entered nothing is something else."""
    variables = procfs.environment(pid)
    return any(switch in variables for switch in _SWITCHES)
