"""The probes of a run's ranks, as their supervisor sees them: their folders, and what they say."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from dataclasses import replace
from typing import Any, Callable, Dict, Iterable, Optional, Set, Tuple

from cockpit.base import record
from cockpit.base.gate import plain, read
from cockpit.base.progress import calls, ring
from cockpit.node import procfs, safefiles
from cockpit.node.run import past
from cockpit.node.run.ranks import Emit

SHARED_MEMORY = "/dev/shm"
"""Where rings are: a write to memory whose file is on a disk may wait for that disk, or end the writer."""

_MOST = 200
"""Reports of probes that are taken into the run record, beside ten of each rank; rings that are kept."""


class Probes:
    """The probes of one node; no method raises anything.

    :param mode: ``auto``, ``on`` or ``off``
    :param own: the ranks of this node; what is said of others is ignored
    :param stepped: told of each ring with new steps: its name, and when they ended (monotonic nanoseconds)
    """

    def __init__(
        self,
        folder: str,
        mode: str,
        own: Iterable[int],
        emit: Emit,
        stepped: Callable[[str, Tuple[int, ...]], None] = lambda name, ends: None,
    ) -> None:
        self._folder = os.path.join(folder, record.PROBE)
        self._own = frozenset(own)
        self._emit = emit
        self._stepped = stepped
        self._seen: Dict[str, Tuple[int, int]] = {}
        self._said: Dict[Tuple[int, int], ring.ProbeReport] = {}
        self._broken: Set[str] = set()
        self._met: Dict[Tuple[int, int], Tuple[Optional[float], Optional[float]]] = {}
        """When a process began its rendezvous, and when its group was there."""
        self._ends: Dict[str, int] = {}
        self._left = _MOST + 10 * len(self._own)
        self._past = past.Keeper(folder, self._own)
        self.rings = ""
        """The folder of the rings; empty: there is none."""
        self.environment: Dict[str, str] = {}
        """What tells the wrappers."""
        if mode == "off":
            return
        self.environment[record.ENV_PROBE] = mode
        if is_memory(SHARED_MEMORY):
            _forget_dead(SHARED_MEMORY)
            with contextlib.suppress(OSError):
                self.rings = tempfile.mkdtemp(prefix=_prefix(os.getpid()), dir=SHARED_MEMORY)
                self.environment[record.ENV_RINGS] = self.rings

    def look(self) -> None:
        """Put what is new into the run record."""
        if not self.environment:
            return
        for name in _names(self._folder):
            if self._left > 0 and name.endswith(".json"):
                self._take(name)
        for name in _names(self.rings):
            if not name.endswith(record.CALLS):
                self._check(name)
        self._past.flush()

    def window(self, rank: int) -> str:
        """Why nsys does not record the steps of a rank that were asked for; empty: nothing is known."""
        found = [told.window for (number, _), told in self._said.items() if number == rank]
        return found[-1] if found else ""

    def close(self) -> None:
        """The run has ended: take what was said last, keep the rings on disk, and give back the memory."""
        self.look()
        self._past.flush(now=True)
        last: Dict[int, Tuple[int, Dict[str, Any]]] = {}
        for name in list(_names(self.rings))[: _MOST + len(self._own)]:
            with contextlib.suppress(OSError, ValueError):
                noted = name.endswith(record.CALLS)
                size = calls.SIZE if noted else ring.SIZE
                data = safefiles.read(os.path.join(self.rings, name), size)
                safefiles.write_new(os.path.join(self._folder, name), data)
                if noted:
                    continue
                found = ring.read(data)
                if found.rank in self._own and found.steps:
                    ended = found.steps[-1].mono_ns
                    if ended > last.get(found.rank, (0, {}))[0]:
                        last[found.rank] = ended, _last_steps(found)
        # An agent reads rings of living processes only, once a second: a rank's last steps may be news.
        for _, facts in last.values():
            self._emit("rank_steps", **facts)
        if self.rings:
            shutil.rmtree(self.rings, ignore_errors=True)

    def _take(self, name: str) -> None:
        path = os.path.join(self._folder, name)
        try:
            status = os.lstat(path)
            mark = (status.st_ino, status.st_mtime_ns)
            if self._seen.get(name) == mark:
                return
            self._seen[name] = mark
            told = read(ring.ProbeReport, safefiles.load(path))
        except (OSError, ValueError):
            return  # the program can write there, too
        self._say(told)

    def _check(self, name: str) -> None:
        """A ring has new steps, or says that its hook has given up."""
        if len(self._ends) > self._left and name not in self._ends:
            return  # the program can write there, too
        try:
            data = safefiles.read(os.path.join(self.rings, name), ring.SIZE)
            # From the one step on that is known: all would be much to read, each second.
            found = ring.read(data, self._ends.get(name, 1) - 1)
        except (OSError, ValueError):
            return
        if found.steps and found.rank in self._own:
            self._ends[name] = found.steps[-1].mono_ns
            self._past.take(found)
            self._stepped(name, tuple(step.mono_ns for step in found.steps))
        before = self._said.get((found.rank, found.pid))
        if before is None or self._left <= 0:
            return
        met = found.rendezvous_ns / 1e9 or None, found.group_ns / 1e9 or None
        if not found.steps and met != self._met.get((found.rank, found.pid), (None, None)):
            self._met[found.rank, found.pid] = met
            self._say(before)
        if found.broken and name not in self._broken:
            self._broken.add(name)
            self._say(replace(before, steps="stopped at an error: %s" % found.broken))

    def _say(self, told: ring.ProbeReport) -> None:
        if told.rank in self._own:
            self._left -= 1
            began, joined = self._met.get((told.rank, told.pid), (None, None))
            told = replace(told, rendezvous_at=began, group_at=joined)
            self._said[told.rank, told.pid] = told
            self._emit("rank_probe", **plain(told))


def _last_steps(found: ring.Ring) -> Dict[str, Any]:
    """The last steps of a ring, as a :class:`cockpit.base.events.RankSteps`."""
    first = max(0, len(found.steps) - ring.LAST_STEPS)
    return {
        "rank": found.rank,
        "pid": found.pid,
        "source": found.source,
        "steps": [
            {
                "step": found.steps[place].step,
                "t": found.steps[place].wall_ns / 1e9,
                "seconds": ring.seconds(found.steps, place),
            }
            for place in range(first, len(found.steps))
        ],
    }


def is_memory(place: str) -> bool:
    """Whether a file system in memory is mounted there."""
    for line in procfs.contents("/proc/self/mountinfo").decode("utf-8", "replace").splitlines():
        head, _, tail = line.partition(" - ")
        if head.split(" ")[4:5] == [place] and tail.split(" ")[0] == "tmpfs":
            return True
    return False


def _prefix(pid: int) -> str:
    return "%s%d-%d-" % (_whose(), pid, procfs.ticks(pid))


def _whose() -> str:
    """Containers may share the memory, and not the pids."""
    pids = "".join(filter(str.isdigit, procfs.link("/proc/self/ns/pid")))
    return "cockpit-%d-%s-" % (os.geteuid(), pids)


def _forget_dead(place: str) -> None:
    """Remove what supervisors have left that were killed."""
    for name in _names(place):
        words = name[len(_whose()) :].split("-")
        if not name.startswith(_whose()) or len(words) != 3 or not (words[0] + words[1]).isdigit():
            continue
        path = os.path.join(place, name)
        with contextlib.suppress(OSError, ValueError):
            if os.lstat(path).st_uid == os.geteuid() and not procfs.exists(int(words[0]), int(words[1])):
                shutil.rmtree(path, ignore_errors=True)


def _names(folder: str) -> Iterable[str]:
    try:
        return os.listdir(folder) if folder else ()
    except OSError:
        return ()
