"""Measurements at 1 Hz: each rank's process, the node, its GPUs."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Tuple

from cockpit.base import record, verbs
from cockpit.node import procfs, safefiles
from cockpit.node.calls import Call, NodeError
from cockpit.node.extensions import psutil
from cockpit.node.measure import gpu
from cockpit.node.run.ranks import Start, recorded
from cockpit.node.run.status import read_record

CHILDREN_EVERY = 5
"""Samples between two looks at every process of the node, which is most of the cost of a sample."""


def samples(call: Call) -> Dict[str, Any]:
    """Send a sample each ``interval`` seconds (1) until cancelled; answers ``{}`` then.

    Item: ``t`` the node's clock; ``node`` {load, cores, memory_bytes, memory_total_bytes, disk_free_bytes};
    ``ranks`` {rank: {cpu_percent, rss_bytes, threads, children}}; ``gpus`` (see ``node.measure.gpu``).

    :raises NodeError: psutil does not load here
    """
    asked = call.asked(verbs.Samples)
    sampler = _Sampler(psutil(), asked.dir)
    gpus = gpu.Gpus()
    while True:
        item = sampler.sample()
        item["gpus"] = gpus.sample()
        call.item(item)
        if not call.pause(max(0.1, asked.interval)):
            return {}


class _Sampler:
    def __init__(self, module: Any, folder: str) -> None:
        self._psutil = module
        self._folder = folder
        self._processes: Dict[int, Tuple[Tuple[int, int], Any]] = {}
        self._children: Dict[int, List[procfs.Stat]] = {}
        self._looked = 0

    def sample(self) -> Dict[str, Any]:
        try:
            disk = os.statvfs(self._folder)
        except OSError as error:
            raise NodeError("gone", "run folder %s: %s" % (self._folder, error.strerror)) from None
        memory = self._psutil.virtual_memory()
        return {
            "t": time.time(),
            "node": {
                "load": os.getloadavg()[0],
                "cores": os.cpu_count(),
                "memory_bytes": memory.total - memory.available,
                "memory_total_bytes": memory.total,
                "disk_free_bytes": disk.f_bavail * disk.f_frsize,
            },
            "ranks": self._ranks(),
        }

    def _ranks(self) -> Dict[str, Any]:
        found: Dict[str, Any] = {}
        if self._looked % CHILDREN_EVERY == 0:
            self._children = procfs.children()
        self._looked += 1
        for rank in self._own():
            if safefiles.size(os.path.join(self._folder, record.rank_exit(rank))) is not None:
                continue
            try:
                process = self._process(rank)
                with process.oneshot():
                    size = process.memory_info().rss
                    if not size:
                        continue  # it is ending: there is nothing left to measure
                    found[str(rank)] = {
                        "cpu_percent": process.cpu_percent(),
                        "rss_bytes": size,
                        "threads": process.num_threads(),
                        "children": _count(self._children, process.pid),
                    }
            except (self._psutil.Error, OSError, ValueError, KeyError):
                continue  # it ended between two looks; its exit comes through the run record
        return found

    def _own(self) -> List[int]:
        try:
            ranks: List[int] = read_record(self._folder)["ranks"]
            return ranks
        except NodeError:
            return []  # the node itself can be measured all the same

    def _process(self, rank: int) -> Any:
        start = recorded(Start, os.path.join(self._folder, record.rank_start(rank)), rank)
        identity = start.pid, start.ticks
        known = self._processes.get(rank)
        if known is None or known[0] != identity:
            known = self._processes[rank] = (identity, self._psutil.Process(identity[0]))
            known[1].cpu_percent()  # the first call only sets the baseline for the next one
        return known[1]


def _count(children: Dict[int, List[procfs.Stat]], pid: int) -> int:
    """How many processes are below this one."""
    found = 0
    level = [pid]
    while level:
        level = [child.pid for one in level for child in children.get(one, ())]
        found += len(level)
    return found
