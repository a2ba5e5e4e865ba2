"""What :mod:`cockpit.node.stacks.infer_ranks` needs to know of the processes on this node."""

from __future__ import annotations

import os
import re
from typing import Dict, Iterable

from cockpit.node import procfs
from cockpit.node.stacks import kernel
from cockpit.node.stacks.infer_ranks import Above, Given, Scene, Worker
from cockpit.node.stacks.pythons import Pythons
from cockpit.node.stacks.tcp_peers import Held, held, wires

THREADS = 2048
"""Threads of one process whose names are read."""

LINES = 30
"""Processes above one that are looked at."""

_JOINED = re.compile(rb"pt_(nccl|gloo|tcpstore|mpi|ucc)|gloo_tcp|NCCL ")
"""Names of threads that only torch.distributed, or what it uses, starts."""

_HELPS = re.compile(rb"pt_data_|pt_elastic")
"""Short names of data loaders' workers and of torchrun."""

_NOTED = re.compile(
    rb"(?:^|\0)(LOCAL_RANK|NODE_RANK|GROUP_RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT)=([^\0]{0,300})"
)


def scene(found: Pythons, environments: Dict[int, bytes], given: Iterable[Given]) -> Scene:
    """Everything that says which Python process is which rank.

    :param found: all processes that may be looked at
    :param environments: of those that have one
    :param given: ranks that are known from their environment
    """
    stats, dead = found
    holds = {pid: held(pid) for pid in stats}
    workers = {
        pid: _worker(stat, environments.get(pid, b""), holds)
        for pid, stat in stats.items()
        if not _HELPS.match(os.fsencode(stat.name)) and not _orphan(stat, stats)
    }
    parents = {one.parent for one in workers.values()}
    above = {
        pid: Above(
            kernel.program(pid),
            tuple(procfs.arguments(pid)),
            tuple(dead.get(pid, ())),
            (holds[pid] if pid in holds else held(pid)).sockets,
        )
        for pid in parents
    }
    connected = [pid for pid, one in workers.items() if one.sockets]
    return Scene(workers, above, wires(connected), kernel.has_torch, _below(workers, given))


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
        holds[pid].numbers,
    )


def _orphan(stat: procfs.Stat, stats: Dict[int, procfs.Stat]) -> bool:
    """Whether what forked this process is gone: it has inherited what it has open."""
    return kernel.forked(stat.pid) and stat.parent not in stats


def _joined(pid: int) -> bool:
    """Whether a process has threads of torch.distributed."""
    threads = procfs.numbers(pid, "task")[:THREADS]
    return any(_JOINED.match(procfs.contents("/proc/%d/task/%d/comm" % (pid, thread))) for thread in threads)


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
