"""Measurements at 1 Hz: each rank's process, the node, its GPUs."""

from __future__ import annotations

import os
import re
import time
from typing import Any, Dict, List, Optional, Tuple

from cockpit.base import record, verbs
from cockpit.base.gate import SIZE, TIME
from cockpit.node import memory_limits, procfs, safefiles, space
from cockpit.node.calls import Call, NodeError
from cockpit.node.measure import gpu
from cockpit.node.measure.disks import Disks
from cockpit.node.measure.main_thread import main_thread
from cockpit.node.measure.progress import Rings
from cockpit.node.run.ranks import Identity, Start, recorded
from cockpit.node.run.status import read_record, ring_folder

_TICKS_S = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROCESSES = 16384
"""Whose CPU time is remembered: more than a node has ranks; those that were started again are others."""

CHILDREN_EVERY = 5
"""Samples between two looks at every process of the node, which is most of the cost of a sample."""

LIMITS = 64
"""Limits on memory that are told of one node."""

_HELD = re.compile(rb"(?m)^Rss(?:Anon|Shmem):\s*([0-9]+) kB$")


def samples(call: Call) -> Dict[str, Any]:
    """Send a sample each ``interval`` seconds (1) until cancelled; answers ``{}`` then.

    Request: ``dir``, the run folder; or ``targets``, the ranks of a job that others started.
    Item: ``node`` {load, cores, memory_bytes, memory_total_bytes, disk_free_bytes,
    disk_total_bytes};
    ``ranks`` {rank: {cpu_percent, rss_bytes, threads, children, held_bytes, progress, main_cpu_s,
    main_switches}}; ``gpus`` (see ``node.measure.gpu``); ``memory`` [{of, used_bytes, limit_bytes, ranks}];
    ``disks`` [{path, free_bytes, total_bytes, free_files, total_files, nsys_folder, nsys_bytes}], without
    path: the run folder's; ``nsys_…``: on the one where nsys records.
    ``held_bytes``, ``memory``, ``disks`` and what ails a GPU are in each :data:`CHILDREN_EVERY`-th sample;
    ``main_…`` where there is no ``progress``.
    """
    asked = call.asked(verbs.Samples)
    sampler = _Sampler(asked.dir, {one.rank: (one.pid, one.ticks) for one in asked.targets})
    gpus = gpu.Gpus(call.payload)
    while True:
        item = sampler.sample()
        item["gpus"] = gpus.sample(health=sampler.looks)
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
        self._seen_at: Dict[int, float] = {}
        """When we looked at the process of each rank last (monotonic seconds)."""
        self._children: Dict[int, List[procfs.Stat]] = {}
        self._looked = 0
        self.looks = False
        """Whether this sample has what is measured at times only."""
        self._rings: Optional[Rings] = None
        self._disks = Disks(folder, None if targets else _nsys_since(folder))

    def sample(self) -> Dict[str, Any]:
        free = whole = None
        try:
            free, whole = map(SIZE.nearest, space.measured(self._folder))
        except OSError as error:
            if not self._targets:
                raise NodeError("gone", "run folder %s: %s" % (self._folder, error.strerror)) from None
        used, total = procfs.memory() or (None, None)
        looks = self.looks = self._looked % CHILDREN_EVERY == 0
        self._looked += 1
        if looks:
            self._children = procfs.children()
        processes, rings = self._processes(), self._look_at_rings()
        return {
            "node": {
                "load": os.getloadavg()[0],
                "cores": os.cpu_count(),
                "memory_bytes": used,
                "memory_total_bytes": total,
                "disk_free_bytes": free,
                "disk_total_bytes": whole,
            },
            "ranks": {
                str(rank): {**self._rank(rank, one, looks), **_progress(rings, rank, one.pid)}
                for rank, one in processes.items()
            },
            "memory": _memory(processes, used, total) if looks else [],
            "disks": self._disks.look(one.pid for one in processes.values()) if looks else [],
        }

    def _processes(self) -> Dict[int, procfs.Stat]:
        """The process of each rank that can be measured."""
        found: Dict[int, procfs.Stat] = {}
        for rank in self._targets or self._own():
            if (
                not self._targets
                and safefiles.size(os.path.join(self._folder, record.rank_exit(rank))) is not None
            ):
                continue
            process = self._process(rank)
            # What is ending has no memory left to measure; its exit comes through the run record.
            if process is not None and process.pages:
                found[rank] = process
        return found

    def _rank(self, rank: int, process: procfs.Stat, looks: bool) -> Dict[str, Any]:
        below = _below(self._children, process.pid)
        return {
            "cpu_percent": self._cpu_percent(process, self._seen_at[rank]),
            "rss_bytes": process.pages * _PAGE,
            "threads": process.threads,
            "children": len(below),
            "held_bytes": _held([process.pid, *below]) if looks else None,
        }

    def _own(self) -> List[int]:
        try:
            ranks: List[int] = read_record(self._folder)["ranks"]
            return ranks
        except NodeError:
            return []  # the node itself can be measured all the same

    def _look_at_rings(self) -> Rings:
        if self._rings is None:
            self._rings = Rings("" if self._targets else ring_folder(self._folder))
        self._rings.look()
        return self._rings

    def _process(self, rank: int) -> Optional[procfs.Stat]:
        identity = self._targets.get(rank)
        if identity is None:
            try:
                start = recorded(Start, os.path.join(self._folder, record.rank_start(rank)), rank)
            except (OSError, ValueError):
                return None
            identity = start.pid, start.ticks
        # Not later: on a busy node that may be much later.
        self._seen_at[rank] = time.monotonic()
        process = procfs.stat(identity[0])
        return process if process is not None and process.ticks == identity[1] else None

    def _cpu_percent(self, process: procfs.Stat, t: float) -> Optional[float]:
        """Of one core, since the last look; None at the first.

        :param t: when we looked at it
        """
        identity = process.pid, process.ticks
        before = self._used.pop(identity, None)  # the newest comes last
        used = process.cpu_ticks
        self._used[identity] = t, used
        if len(self._used) > _PROCESSES:
            del self._used[next(iter(self._used))]
        if before is None:
            return None
        return 100 * max(0, used - before[1]) / _TICKS_S / max(1e-3, t - before[0])


def _nsys_since(folder: str) -> Optional[float]:
    """When a run was launched that nsys is around; None: it is not."""
    try:
        facts = read_record(folder)
        return TIME.read(facts.get("t")) if "nsys" in (facts.get("profile") or {}) else None
    except (NodeError, TypeError, ValueError):
        return None  # the program can write there, too


def _progress(rings: Rings, rank: int, pid: int) -> Dict[str, Any]:
    """How far a rank is; where its probe does not tell, that its main thread runs."""
    told = rings.progress(rank)
    return {"progress": told} if told is not None else {"progress": None, **main_thread(pid)}


def _below(children: Dict[int, List[procfs.Stat]], pid: int) -> List[int]:
    """The processes below this one."""
    found: List[int] = []
    level = [pid]
    while level:
        level = [child.pid for one in level for child in children.get(one, ())]
        found += level
    return found


def _held(pids: List[int]) -> Optional[int]:
    """The memory of processes, files that they have mapped left out; None before Linux 4.5."""
    sizes = [size for pid in pids for size in _HELD.findall(procfs.contents("/proc/%d/status" % pid))]
    return sum(int(size) << 10 for size in sizes) if sizes else None


def _memory(
    processes: Dict[int, procfs.Stat], used: Optional[int], total: Optional[int]
) -> List[Dict[str, Any]]:
    """The machine's memory and that of each cgroup with a limit that ranks are in."""
    found: Dict[str, Dict[str, Any]] = {}
    if used is not None and total:
        ranks = list(processes)
        found[""] = {"of": "", "used_bytes": used, "limit_bytes": total, "ranks": ranks}
    groups: Dict[bytes, List[int]] = {}
    for rank, process in processes.items():
        groups.setdefault(procfs.contents("/proc/%d/cgroup" % process.pid), []).append(rank)
    for ranks in groups.values():
        for room in memory_limits.rooms(str(processes[ranks[0]].pid), total):
            sizes = {"of": room.path, "used_bytes": room.used, "limit_bytes": room.limit, "ranks": []}
            found.setdefault(room.path, sizes)["ranks"] += ranks
    return list(found.values())[:LIMITS]
