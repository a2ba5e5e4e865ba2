"""The Python processes of this node, whatever their files are called."""

from __future__ import annotations

import os
import re
from typing import Container, Dict, Iterable, List, NamedTuple, Tuple

from cockpit.base import record
from cockpit.node import procfs
from cockpit.node.stacks import kernel

MOST = 1024
"""Python processes that are looked at."""

SMALL = 16 << 20
"""Bytes in memory; what is not called Python and has less is not looked at: a rank has much more."""

_HELPER = re.compile(
    rb"from multiprocessing[. ]|loky\.backend|compile_worker|torch\._inductor|torch/_inductor", re.DOTALL
)
"""Python programs that only help a rank: they sometimes outlive it."""

_PAGE = os.sysconf("SC_PAGE_SIZE")
_AGENTS = (b"from cockpit.node.agent import", os.fsencode(record.FACTS))
"""In the command lines of agents, and of what they ask a python with."""


class Pythons(NamedTuple):
    """What is Python among some processes, without agents and what they have started.

    :param dead: processes that nobody has waited for, by their parent: name, start time and pid
    """

    stats: Dict[int, procfs.Stat]
    dead: Dict[int, List[Tuple[str, int, int]]]


def pythons(pids: Iterable[int], closed: Container[int] = ()) -> Pythons:
    """Look at these processes.

    :param closed: those that may not be inspected: of these, only the dead ones count, since what has ended
        is root's, whoever started it
    """
    found = Pythons({}, {})
    for pid in pids:
        stat = procfs.stat(pid)
        if stat is None:
            continue
        if stat.state in "ZX":
            found.dead.setdefault(stat.parent, []).append((stat.name, stat.ticks, pid))
        elif (
            len(found.stats) < MOST
            and pid not in closed
            and _is_python(stat)
            and not _is_agent(procfs.arguments(pid))
        ):
            found.stats[pid] = stat
    return found


def is_ours(words: List[bytes]) -> bool:
    """Whether this is the command line of our own program."""
    for number, word in enumerate(words[:6]):
        if word.endswith(os.fsencode(record.NODE_PYZ)):
            return words[number + 1 : number + 2] in ([b"wrap"], [b"inner"], [b"supervise"], [b"agent"])
    return _is_agent(words)


def is_cockpit(words: List[bytes]) -> bool:
    """Whether this is the command line of a cockpit, which may name a program, or of a part of it."""
    return is_ours(words) or any(os.path.basename(word) == b"cockpit" for word in words[:4])


def _is_agent(words: List[bytes]) -> bool:
    return any(mark in word for word in words[:6] for mark in _AGENTS)


def _is_python(stat: procfs.Stat) -> bool:
    if "python" in kernel.program(stat.pid):
        return True
    return stat.pages * _PAGE > SMALL and kernel.is_python(stat.pid)


def only_helps(pid: int) -> bool:
    """Whether a process is part of our own program, passes on to another one, or helps one."""
    words = procfs.arguments(pid)
    if is_ours(words) or kernel.forked(pid):
        return True
    # `conda run` stays above the program that it runs.
    if len(words) > 2 and os.path.basename(words[1]) in (b"conda", b"mamba") and b"run" in words[2:4]:
        return True
    return any(_HELPER.search(word) for word in words[1:4])


def only_wraps(pid: int, inner: int) -> bool:
    """Whether a program does nothing but wait for the one that it has started."""
    return not kernel.has_torch(pid) and (kernel.has_torch(inner) or kernel.waits_for_child(pid))
