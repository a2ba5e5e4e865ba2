"""The process that looks at the ranks for their supervisor, and keeps what it finds: ``look ASKED``.

As its child it may look into them. One stack of each, without local variables, by one py-spy at a time, and
what the flight recorders have, NCCL's own dumps among them. The file is whole or not there:
:mod:`cockpit.base.evidence_file` says what is in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import Any, Dict, List, Tuple

from cockpit.base import evidence_file, record, verbs
from cockpit.base.gate import plain
from cockpit.base.progress import ring
from cockpit.base.shared_fields import Target
from cockpit.base.stacks.dump import Dump
from cockpit.base.stacks.packing import pack
from cockpit.node import procfs, safefiles, space
from cockpit.node.calls import Call, NodeError
from cockpit.node.recorder.recorder import recorder
from cockpit.node.run.evidence import used
from cockpit.node.stacks import pyspy
from cockpit.node.stacks.dump import Dumps
from cockpit.node.stacks.find_ranks import seek

SPY_S = 5.0
"""Seconds that one py-spy may take."""
ROWS = 2000
"""Calls of a rank that are kept: what its recorder has room for."""
NICE = 5
"""What this process leaves to the ranks, where nobody waits for it."""


class _Budget(Call):
    """A request of our own, which is over when its time is."""

    def __init__(self, request: verbs.Request[Any, Any], end: float) -> None:
        self.items: List[Tuple[Dict[str, Any], bytes]] = []
        self._end = end
        header = {"id": 0, **plain(request)}
        super().__init__(header, b"", lambda head, data: self.items.append((head["item"], data)))

    @property
    def cancelled(self) -> bool:
        """Whether its time is over."""
        return time.monotonic() > self._end

    def pause(self, seconds: float) -> bool:
        """Wait; return whether the call is still wanted."""
        time.sleep(min(seconds, max(0.0, self._end - time.monotonic())))
        return not self.cancelled


def main(argv: List[str]) -> int:
    """Look, keep it, and say on stdout what was kept; returns an exit code."""
    asked = json.loads(argv[0])
    os.umask(0o077)
    if asked["why"] != "failure":
        with contextlib.suppress(OSError):
            os.nice(NICE)
    try:
        said = look(asked)
    except OSError as error:
        said = {"trouble": "it could not be saved: %s" % (error.strerror or error)}
    sys.stdout.write(json.dumps(said))
    sys.stdout.flush()
    # Threads of a look that took too long may still be there.
    os._exit(0)


def look(asked: Dict[str, Any]) -> Dict[str, Any]:
    """Look, and keep it; what was kept, and what was in the way.

    :raises OSError: it cannot be kept
    """
    began, at = time.monotonic(), time.time()
    end = began + float(asked["budget_s"])
    trouble: List[str] = []
    dumps = _stacks(asked, end, trouble)
    head: Dict[str, Any] = {
        "format": evidence_file.FORMAT,
        "t": at,
        "boot_id": procfs.boot_id(),
        **{name: asked[name] for name in ("run", "node", "why", "since", "failed")},
        "took_s": time.monotonic() - began,
        "trouble": list(trouble),
        "steps": _steps(asked),
    }
    packed = [(one.rank, pack([one])) for one in dumps if one.process is not None]
    room = _Room(asked)
    # First without the recorders: nobody may have the time to wait for them.
    if packed:
        room.keep(head, packed, [])
    recorders = _recorders(asked, end, trouble)
    head.update(took_s=time.monotonic() - began, trouble=trouble)
    if not (packed or recorders):
        return {"trouble": "; ".join(trouble) or "no rank is left to inspect"}
    if recorders or trouble:
        room.keep(head, packed, recorders)
    stacks = [one.rank for one in dumps if one.threads]
    found = [item["rank"] for item, _ in recorders]
    return {"stacks": stacks, "recorders": found, "trouble": "; ".join(trouble)}


class _Room:
    """Where the file goes, within the run's quota and above the free space that must stay."""

    def __init__(self, asked: Dict[str, Any]) -> None:
        self._asked = asked
        self._place = os.path.join(asked["folder"], record.EVIDENCE)
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._place, 0o700)
        self._number = os.open(self._place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        self._left = int(asked["quota"]) - used(self._place)

    def keep(
        self, head: Dict[str, Any], stacks: List[Tuple[int, bytes]], recorders: List[Tuple[Any, bytes]]
    ) -> None:
        """Write the file, or write it anew with more in it.

        :raises OSError: there is no room for it
        """
        data = evidence_file.written(head, stacks, recorders)
        if len(data) > min(self._left, evidence_file.LIMIT):
            raise OSError(0, "%d kB are more than this run may still save" % (len(data) // 1000))
        if space.free("/proc/self/fd/%d" % self._number) - len(data) < int(self._asked["floor"]):
            raise OSError(0, "the disk would be too full")
        name = self._asked["name"]
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        number = os.open(name + ".new", flags, 0o600, dir_fd=self._number)
        try:
            with os.fdopen(number, "wb") as file:
                file.write(data)
            os.rename(name + ".new", name, src_dir_fd=self._number, dst_dir_fd=self._number)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(name + ".new", dir_fd=self._number)
            raise


def _steps(asked: Dict[str, Any]) -> List[List[Any]]:
    """The last step of each rank: ``[rank, step, when, usual seconds]``."""
    found: Dict[int, List[Any]] = {}
    try:
        place = str(safefiles.load(os.path.join(asked["folder"], record.RECORD)).get("rings") or "")
        names = os.listdir(place) if place else []
    except (OSError, ValueError):
        return []
    for name in names:
        try:
            told = ring.read(safefiles.read(os.path.join(place, name), ring.SIZE))
        except (OSError, ValueError):
            continue
        if told.steps and told.rank in asked["own"]:
            last = told.steps[-1]
            spans = sorted(late.mono_ns - one.mono_ns for one, late in zip(told.steps, told.steps[1:]))
            usual_s = spans[len(spans) // 2] / 1e9 if spans else None
            row = [told.rank, last.step, last.wall_ns / 1e9, usual_s]
            if told.rank not in found or found[told.rank][2] < row[2]:
                found[told.rank] = row
    return [found[rank] for rank in sorted(found)]


def _stacks(asked: Dict[str, Any], end: float, trouble: List[str]) -> List[Dump]:
    """One dump of each rank that lives."""
    targets = _targets(asked, end)
    if not targets:
        return []
    path = ""
    try:
        path = pyspy.kept()
    except NodeError as error:
        trouble.append(error.what)
    left_s = max(0.1, end - time.monotonic())
    wish = verbs.Stacks(tuple(targets), timeout_s=min(SPY_S, left_s))
    call = _Budget(wish, end)
    looks = Dumps(call, wish, path or os.devnull, gently=True)
    dumps = looks.all(targets)
    missing = len(targets) - len(dumps)
    if missing:
        trouble.append("no time was left for the stacks of %d of %d ranks" % (missing, len(targets)))
    return sorted(dumps, key=lambda one: one.rank)


def _targets(asked: Dict[str, Any], end: float) -> List[Target]:
    """The main process of each rank that lives, and that of its wrapper where there is none yet."""
    live = {int(rank): Target(int(rank), int(pid), int(ticks)) for rank, pid, ticks in asked["live"]}
    if not live:
        return []
    found = seek(_Budget(verbs.Seek(asked["run"], asked["node"], asked["folder"]), end))
    for one in found["ranks"]:
        if one["rank"] in live:
            live[one["rank"]] = Target(one["rank"], one["pid"], one["ticks"])
    return [live[rank] for rank in sorted(live)]


def _recorders(asked: Dict[str, Any], end: float, trouble: List[str]) -> List[Tuple[Any, bytes]]:
    """What the recorder of each rank has, also what NCCL's watchdog has left of one that has ended."""
    left_s = max(0.1, end - time.monotonic())
    wish = verbs.Recorder(asked["folder"], tuple(asked["own"]), rows=ROWS, timeout_s=min(5.0, left_s))
    call = _Budget(wish, end)
    recorder(call)
    silent = {item["rank"]: item for item, _ in call.items if item.get("kind")}
    for item in silent.values():
        # A run without probes is no trouble, nor is a rank that has ended.
        if item["kind"] not in ("absent", "gone") and len(trouble) < 4:
            trouble.append("rank %d: %s" % (item["rank"], item["what"]))
    return [(item, data) for item, data in call.items if not item.get("kind")]
