"""Measurements at 1 Hz: each rank's process, the node, its GPUs."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Optional, Tuple

from cockpit.base import record, verbs
from cockpit.node import procfs, safefiles
from cockpit.node.calls import Call, NodeError
from cockpit.node.measure import gpu
from cockpit.node.run.ranks import Identity, Start, recorded
from cockpit.node.run.status import read_record

_TICKS_S = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

CHILDREN_EVERY = 5
"""Samples between two looks at every process of the node, which is most of the cost of a sample."""


def samples(call: Call) -> Dict[str, Any]:
    """Send a sample each ``interval`` seconds (1) until cancelled; answers ``{}`` then.

    Request: ``dir``, the run folder; or ``targets``, the ranks of a job that others started.
    Item: ``node`` {load, cores, memory_bytes, memory_total_bytes, disk_free_bytes};
    ``ranks`` {rank: {cpu_percent, rss_bytes, threads, children}}; ``gpus`` (see ``node.measure.gpu``).
    """
    asked = call.asked(verbs.Samples)
    sampler = _Sampler(asked.dir, {one.rank: (one.pid, one.ticks) for one in asked.targets})
    gpus = gpu.Gpus(call.payload)
    while True:
        item = sampler.sample()
        item["gpus"] = gpus.sample()
        call.item(item)
        if not call.pause(max(0.1, asked.interval)):
            return {}


class _Sampler:
    """Measures the node and ranks.

    :param folder: the run's; for targets: any on the disk whose free room is of interest
    :param targets: the process of each rank; none: those of the run folder
    """

    def __init__(self, folder: str, targets: Dict[int, Identity]) -> None:
        self._folder = folder
        self._targets = targets
        self._used: Dict[Identity, Tuple[float, int]] = {}
        """When we looked at a process (monotonic seconds), and the CPU time it had used, in clock ticks."""
        self._children: Dict[int, List[procfs.Stat]] = {}
        self._looked = 0

    def sample(self) -> Dict[str, Any]:
        free = None
        try:
            disk = os.statvfs(self._folder)
            free = disk.f_bavail * disk.f_frsize
        except OSError as error:
            if not self._targets:
                raise NodeError("gone", "run folder %s: %s" % (self._folder, error.strerror)) from None
        used, total = procfs.memory() or (None, None)
        return {
            "node": {
                "load": os.getloadavg()[0],
                "cores": os.cpu_count(),
                "memory_bytes": used,
                "memory_total_bytes": total,
                "disk_free_bytes": free,
            },
            "ranks": self._ranks(),
        }

    def _ranks(self) -> Dict[str, Any]:
        found: Dict[str, Any] = {}
        if self._looked % CHILDREN_EVERY == 0:
            self._children = procfs.children()
        self._looked += 1
        for rank in self._targets or self._own():
            if (
                not self._targets
                and safefiles.size(os.path.join(self._folder, record.rank_exit(rank))) is not None
            ):
                continue
            process = self._process(rank)
            # What is ending has no memory left to measure; its exit comes through the run record.
            if process is not None and process.pages:
                found[str(rank)] = {
                    "cpu_percent": self._cpu_percent(process),
                    "rss_bytes": process.pages * _PAGE,
                    "threads": process.threads,
                    "children": _count(self._children, process.pid),
                }
        return found

    def _own(self) -> List[int]:
        try:
            ranks: List[int] = read_record(self._folder)["ranks"]
            return ranks
        except NodeError:
            return []  # the node itself can be measured all the same

    def _process(self, rank: int) -> Optional[procfs.Stat]:
        identity = self._targets.get(rank)
        if identity is None:
            try:
                start = recorded(Start, os.path.join(self._folder, record.rank_start(rank)), rank)
            except (OSError, ValueError):
                return None
            identity = start.pid, start.ticks
        process = procfs.stat(identity[0])
        return process if process is not None and process.ticks == identity[1] else None

    def _cpu_percent(self, process: procfs.Stat) -> Optional[float]:
        """Of one core, since the last look; None at the first."""
        identity = process.pid, process.ticks
        before = self._used.get(identity)
        t, used = self._used[identity] = time.monotonic(), process.cpu_ticks
        if before is None:
            return None
        return 100 * max(0, used - before[1]) / _TICKS_S / max(1e-3, t - before[0])


def _count(children: Dict[int, List[procfs.Stat]], pid: int) -> int:
    """How many processes are below this one."""
    found = 0
    level = [pid]
    while level:
        level = [child.pid for one in level for child in children.get(one, ())]
        found += len(level)
    return found
