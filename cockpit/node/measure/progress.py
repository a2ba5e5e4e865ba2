"""How far ranks are, from the rings that their probes write."""

from __future__ import annotations

import os
import re
import time
from typing import Any, Dict, List, Optional, Tuple

from cockpit.base.progress import ring
from cockpit.base.progress.phases import Reader
from cockpit.node import procfs, safefiles

_RING = re.compile(r"(0|[1-9][0-9]{0,6})\.([1-9][0-9]{0,9})\.ring")

_PROCESSES = 16384
"""Whose last steps are remembered."""
MOST_RINGS = 16
"""Rings of one rank that are looked at, the newest processes first."""


class Rings:
    """Reads the rings of a node.

    :param folder: they are there; empty: there are none
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen: Dict[Tuple[int, int], Tuple[int, int]] = {}
        """When the last step ended that was sent, and the one two before it: older ones need not be read."""
        self._phases: Dict[Tuple[int, int], Reader] = {}
        self._pids: Dict[int, List[int]] = {}

    def look(self) -> None:
        """See which rings there are."""
        self._pids = {}
        try:
            names = os.listdir(self._folder) if self._folder else []
        except (OSError, ValueError):
            names = []
        for name in names:
            found = _RING.fullmatch(name)
            if found:
                self._pids.setdefault(int(found.group(1)), []).append(int(found.group(2)))

    def pids(self, rank: int) -> List[int]:
        """Processes of a rank that have a ring: those that are looked at."""
        return sorted(self._pids.get(rank, ()), reverse=True)[:MOST_RINGS]

    def path(self, rank: int, pid: int) -> str:
        """Of the ring of a process."""
        return os.path.join(self._folder, "%d.%d.ring" % (rank, pid))

    def progress(self, rank: int) -> Optional[Dict[str, Any]]:
        """As a :class:`cockpit.base.events.Progress`; None: no living process of the rank has made a step."""
        best: Optional[Tuple[int, Dict[str, Any]]] = None
        for pid in self.pids(rank):
            found = self._of(rank, pid)
            if found is not None and (best is None or found[0] > best[0]):
                best = found
        return best and best[1]

    def _of(self, rank: int, pid: int) -> Optional[Tuple[int, Dict[str, Any]]]:
        """When the last step of this process ended (monotonic), and its progress."""
        since, floor = self._seen.pop((rank, pid), (0, 0))  # the newest comes last
        self._seen[rank, pid] = since, floor
        if len(self._seen) > _PROCESSES:
            oldest = next(iter(self._seen))
            del self._seen[oldest]
            self._phases.pop(oldest, None)
        try:
            found = ring.read(safefiles.read(self.path(rank, pid), ring.SIZE), floor)
        except (OSError, ValueError):
            return None
        now = time.monotonic_ns()
        steps = [step for step in found.steps if step.mono_ns <= now]
        if not steps or (found.rank, found.pid) != (rank, pid) or not procfs.alive(pid, found.ticks):
            return None
        last = steps[-1]
        self._seen[rank, pid] = last.mono_ns, steps[-3].mono_ns if len(steps) > 2 else floor
        new = next((place for place, step in enumerate(steps) if step.mono_ns > since), len(steps))
        seconds = [ring.seconds(steps, place) for place in range(len(steps))]
        told = {
            "source": found.source,
            "step": last.step,
            "age_s": (now - last.mono_ns) / 1e9,
            "step_s": seconds[-1],
            "steps": [
                [step.step, step.wall_ns / 1e9, took] for step, took in zip(steps[new:], seconds[new:])
            ],
        }
        if found.marks and new < len(steps):
            reader = self._phases.setdefault((rank, pid), Reader())
            read = reader.read(ring.spans(steps)[new:], found.marks, found.marks_since_ns)
            told["phases"] = [[None if one is None else one // 1000 for one in each] for each in read]
        return last.mono_ns, told
