"""What is left of a run, according to the processes themselves: the truth if its run folder is gone.

Ranks carry the tags of their run in their environment, each below its wrapper; the supervisor, which has no
tags, shows its run folder in its arguments.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, NamedTuple, Optional

from cockpit.base import record
from cockpit.node import procfs
from cockpit.node.run.ranks import Identity

PROCESSES = 200
"""Processes that are reported by name."""


class Leftovers(NamedTuple):
    """What lives of a run on this node.

    :param supervisor: its pid and start time
    :param ranks: the training process of each rank that runs, by rank
    :param processes: everything with the run's tags, the training processes among them
    """

    supervisor: Optional[Identity]
    ranks: Dict[int, Identity]
    processes: List[procfs.Stat]

    def __bool__(self) -> bool:
        """Whether anything is left."""
        return self.supervisor is not None or bool(self.processes)

    def told(self, why: str) -> Dict[str, Any]:
        """As sent to a cockpit: ``why`` the run folder cannot be read, ``ranks`` {rank, pid, ticks} that run,
        ``processes`` {pid, name, state} of the run."""
        return {
            "why": why,
            "ranks": [
                {"rank": rank, "pid": pid, "ticks": ticks}
                for rank, (pid, ticks) in sorted(self.ranks.items())
            ],
            "processes": [named(process) for process in self.processes[:PROCESSES]],
        }


def named(process: procfs.Stat) -> Dict[str, Any]:
    """A process in the form of a survivor: pid, name and state."""
    return {"pid": process.pid, "name": process.name, "state": process.state}


def find(folder: str, run: str, node: str) -> Leftovers:
    """Look for what lives of a run's node, whose run folder is or was ``folder``."""
    processes = procfs.tagged(run, node, folder)
    wrappers: Dict[int, int] = {}
    inner: Dict[int, int] = {}
    for process in processes:
        for part, pids in (b"wrap", wrappers), (record.INNER.encode(), inner):
            rank = _wrapped(process.pid, part)
            if rank is not None:
                pids[process.pid] = rank
    # A rank is the child of its wrapper and dies with it, whatever the rank does to its environment.
    # A child that looks like a wrapper is one that records an environment; the rank is always the older one.
    below = procfs.children() if wrappers or inner else {}
    ranks = {}
    # The wrapper of a rank with a profiler of its own has that for a child: see rank_profiler.py.
    for pid, rank in [*wrappers.items(), *inner.items()]:
        child = procfs.oldest(
            child
            for child in below.get(pid, ())
            if child.state not in "ZX" and child.pid not in wrappers and _stays(child)
        )
        if child is not None:
            ranks[rank] = (child.pid, child.ticks)
    return Leftovers(_supervisor(folder), ranks, processes)


def _stays(child: procfs.Stat) -> bool:
    """Whether a wrapper's child is still there, and no recorder that came after the wrappers were listed."""
    # In this order: the arguments of a process that is ending are empty, which says nothing.
    if _wrapped(child.pid) is not None:
        return False
    now = procfs.stat(child.pid)
    return now is not None and now.ticks == child.ticks and now.state not in "ZX"


def supervised(pid: int) -> str:
    """The run folder whose supervisor this process is; empty: it is not a supervisor."""
    words = procfs.arguments(pid)
    # `python -I -S node.pyz supervise FOLDER`
    if words[4:5] != [b"supervise"] or os.path.basename(words[3]) != os.fsencode(record.NODE_PYZ):
        return ""
    return os.fsdecode(words[-1])


def _supervisor(folder: str) -> Optional[Identity]:
    for pid in procfs.pids():
        if supervised(pid) == folder and procfs.owner(pid) == os.geteuid():
            found = procfs.stat(pid)
            if found is not None and found.state not in "ZX":
                return found.pid, found.ticks
    return None


def _wrapped(pid: int, part: bytes = b"wrap") -> Optional[int]:
    """The rank whose wrapper this process is, or which other part of our code it is."""
    words = procfs.arguments(pid)
    # `python -I -S node.pyz wrap …`: the script before it has been replaced by this.
    if words[4:5] != [part] or os.path.basename(words[3]) != os.fsencode(record.NODE_PYZ):
        return None
    for variable in procfs.environment(pid):
        name, _, value = variable.partition(b"=")
        if name == b"RANK" and value.isdigit():
            return int(value)
    return None
