"""What :mod:`cockpit.node.stacks.infer` needs to know of the processes on this node."""

from __future__ import annotations

import os
import re
from typing import Dict, Iterable, List, Tuple

from cockpit.node import procfs
from cockpit.node.stacks import kernel
from cockpit.node.stacks.infer import Above, Given, Scene, Worker
from cockpit.node.stacks.wires import Held, held, wires

WORKERS = 1024
"""Python processes that are looked at."""

THREADS = 2048
"""Threads of one process whose names are read."""

SMALL = 16 << 20
"""Bytes in memory; what is not called Python and has less is not looked at: a rank has much more."""

LINES = 30
"""Processes above one that are looked at."""

_PAGE = os.sysconf("SC_PAGE_SIZE")

_JOINED = re.compile(rb"pt_(nccl|gloo|tcpstore|mpi|ucc)|gloo_tcp|NCCL ")
"""Names of threads that only torch.distributed, or what it uses, starts."""

_HELPS = re.compile(rb"pt_data_|pt_elastic")
"""Short names of data loaders' workers and of torchrun."""

_NOTED = re.compile(
    rb"(?:^|\0)(LOCAL_RANK|NODE_RANK|GROUP_RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT)=([^\0]{0,300})"
)


def scene(pids: Iterable[int], environments: Dict[int, bytes], given: Iterable[Given]) -> Scene:
    """Everything that says which Python process is which rank.

    :param pids: processes that may be read
    :param environments: of those that have one
    :param given: ranks that are known from their environment
    """
    stats: Dict[int, procfs.Stat] = {}
    dead: Dict[int, List[Tuple[str, int, int]]] = {}
    for pid in pids:
        stat = procfs.stat(pid)
        if stat is None:
            continue
        if stat.state in "ZX":
            dead.setdefault(stat.parent, []).append((stat.name, stat.ticks, pid))
        elif len(stats) < WORKERS and _is_python(stat):
            stats[pid] = stat
    holds = {pid: held(pid) for pid in stats}
    workers = {
        pid: _worker(stat, environments.get(pid, b""), holds)
        for pid, stat in stats.items()
        if not _HELPS.match(os.fsencode(stat.name)) and not _orphan(stat, stats)
    }
    parents = {one.parent for one in workers.values()}
    above = {
        pid: Above(kernel.program(pid), tuple(procfs.arguments(pid)), tuple(dead.get(pid, ())))
        for pid in parents
    }
    connected = [pid for pid, one in workers.items() if one.sockets]
    return Scene(workers, above, wires(connected), kernel.has_torch, _below(workers, given))


def _is_python(stat: procfs.Stat) -> bool:
    """Whether this is Python, whatever its file is called."""
    if "python" in kernel.program(stat.pid):
        return True
    return stat.pages * _PAGE > SMALL and kernel.is_python(stat.pid)


def _worker(stat: procfs.Stat, environment: bytes, holds: Dict[int, Held]) -> Worker:
    pid = stat.pid
    noted = _NOTED.findall(environment)
    return Worker(
        pid,
        stat.parent,
        stat.ticks,
        stat.state,
        stat.name,
        tuple(procfs.arguments(pid)),
        {name.decode(): value.decode("utf-8", "surrogateescape") for name, value in noted},
        _joined(pid),
        holds[pid].sockets - holds.get(stat.parent, Held()).sockets,
        holds[pid].gpus,
    )


def _orphan(stat: procfs.Stat, stats: Dict[int, procfs.Stat]) -> bool:
    """Whether what forked this process is gone: it has inherited what it has open."""
    return kernel.forked(stat.pid) and stat.parent not in stats


def _joined(pid: int) -> bool:
    """Whether a process has threads of torch.distributed."""
    try:
        threads = os.listdir("/proc/%d/task" % pid)[:THREADS]
    except OSError:
        return False
    return any(_JOINED.match(procfs.contents("/proc/%d/task/%s/comm" % (pid, thread))) for thread in threads)


def _below(workers: Dict[int, Worker], given: Iterable[Given]) -> Dict[int, Given]:
    """For each worker the rank that it is, or is below of."""
    ranks = {one.pid: one for one in given}
    found = {}
    for pid in workers if ranks else ():
        at = pid
        for _ in range(LINES):
            if at in ranks:
                found[pid] = ranks[at]
                break
            stat = procfs.stat(at)
            if stat is None or stat.parent <= 1:
                break
            at = stat.parent
    return found
