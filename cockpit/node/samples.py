"""Measurements at 1 Hz: each rank's process, the node, its GPUs."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Dict, List, Tuple

from cockpit.base import record, verbs
from cockpit.node import gpu
from cockpit.node.calls import Call, NodeError
from cockpit.node.extensions import psutil

CHILDREN_EVERY = 5
"""Samples between two looks at every process of the node, which is most of what a sample costs."""


def samples(call: Call) -> Dict[str, Any]:
    """Send a sample each ``interval`` seconds (1) until cancelled; answers ``{}`` then.

    Item: ``t`` the node's clock; ``node`` {load, cores, memory_bytes, memory_total_bytes, disk_free_bytes};
    ``ranks`` {rank: {cpu_percent, rss_bytes, threads, children}}; ``gpus`` (see :mod:`cockpit.node.gpu`).

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
        self._processes: Dict[str, Tuple[Tuple[int, int], Any]] = {}
        self._children: Dict[int, List[int]] = {}
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
            self._children = _children_of()
        self._looked += 1
        for name in os.listdir(self._folder):
            if not name.endswith(".start.json"):
                continue
            rank = name[len("rank-") : -len(".start.json")]
            if os.path.exists(os.path.join(self._folder, record.rank_exit(int(rank)))):
                continue
            try:
                process = self._process(rank, os.path.join(self._folder, name))
                with process.oneshot():
                    found[rank] = {
                        "cpu_percent": process.cpu_percent(),
                        "rss_bytes": process.memory_info().rss,
                        "threads": process.num_threads(),
                        "children": _count(self._children, process.pid),
                    }
            except (self._psutil.Error, OSError, ValueError, KeyError):
                continue  # it ended between two looks; its exit comes through the run record
        return found

    def _process(self, rank: str, path: str) -> Any:
        with open(path) as file:
            start = json.load(file)
        identity = (int(start["pid"]), int(start["ticks"]))
        known = self._processes.get(rank)
        if known is None or known[0] != identity:
            known = self._processes[rank] = (identity, self._psutil.Process(identity[0]))
            known[1].cpu_percent()  # the first call only sets the zero of the next one
        return known[1]


def _children_of() -> Dict[int, List[int]]:
    children: Dict[int, List[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            children.setdefault(parent, []).append(int(name))
    return children


def _count(children: Dict[int, List[int]], pid: int) -> int:
    return sum(1 + _count(children, child) for child in children.get(pid, ()))
