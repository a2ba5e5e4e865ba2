"""Whether a rank has room for the threads of torch's server: one that cannot be started ends the process.

Read as a file by ``hooks``. What is looked at is what can be seen from here: a limit above the root of a
container, or of users whose processes are in others, is not.
"""

from __future__ import annotations

import os
from typing import Iterator

RANKS = 8
"""That may start at this moment beside us, where no launcher has said how many there are."""
STACK, HEAP = 8 << 20, 64 << 20
"""Bytes of address space that a thread takes: its stack at least, and what malloc sets aside for it."""


def lacking(proc: str = "/proc", cgroups: str = "/sys/fs/cgroup") -> str:
    """Which limit is too near, in words; empty: none.

    There must be room for the servers of all ranks of this node, who look at the same time, and for as many
    threads again: what we leave is the program's.
    """
    each = (os.cpu_count() or 1) + 9  # torch starts max(8, processors - 1), and one that listens
    said = [os.environ.get(name, "") for name in ("LOCAL_WORLD_SIZE", "LOCAL_SIZE")]
    ranks = next((int(text) for text in said if text.isdigit() and len(text) < 6), RANKS)
    # Name and soft limit, in columns.
    limits = {line[:25].strip(): line[25:46].strip() for line in _text(proc, "self/limits").splitlines()}
    many = 2 * each * max(1, ranks)
    return (
        _tasks(proc, many, limits.get("Max processes", ""))
        or _group(proc, cgroups, many)
        or _memory(proc, 2 * each, limits)
        or _promised(proc, many * STACK)
    )


def _tasks(proc: str, many: int, limit: str) -> str:
    total = _text(proc, "loadavg").partition("/")[2].partition(" ")[0]
    here = int(total) if total.isdigit() else 0
    for name in ("threads-max", "pid_max"):
        most = _text(proc, "sys/kernel/" + name)
        if most.isdigit() and here + many > int(most):
            return "this machine may have %s threads (kernel.%s), and has %d" % (most, name, here)
    # To count what is the user's takes long; it is no more than all there is.
    if limit.isdigit() and here + many > int(limit):
        mine = sum(_threads(proc))
        if mine + many > int(limit):
            return "this user may have %s threads (ulimit -u), and has %d" % (limit, mine)
    return ""


def _threads(proc: str) -> Iterator[int]:
    """Of each process of this user."""
    for name in os.listdir(proc):
        try:
            if name.isdigit() and os.stat(os.path.join(proc, name)).st_uid == os.getuid():
                yield int(_text(proc, name + "/stat").rpartition(")")[2].split()[17])
        except (OSError, IndexError):
            pass  # it has ended


def _group(proc: str, cgroups: str, many: int) -> str:
    for line in _text(proc, "self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if (controllers and "pids" not in controllers.split(",")) or "/.." in path:
            continue
        root = os.path.join(cgroups, "pids") if controllers else cgroups
        while True:  # in a container, paths of its host lead nowhere; its own group is at the root
            most, here = (_text(root + path.rstrip("/"), "pids." + name) for name in ("max", "current"))
            if most.isdigit() and here.isdigit() and int(here) + many > int(most):
                return "its cgroup %s may have %s threads (pids.max), and has %s" % (path, most, here)
            if path in ("/", ""):
                break
            path = os.path.dirname(path)
    return ""


def _memory(proc: str, many: int, limits: dict[str, str]) -> str:
    stack = limits.get("Max stack size", "")
    needed = many * (max(STACK, int(stack) if stack.isdigit() else 0) + HEAP)
    sizes = _sizes(proc, "self/status")
    kinds = (("VmSize", "Max address space", "-v"), ("VmData", "Max data size", "-d"))
    for name, limit, option in kinds:
        most, has = limits.get(limit, ""), sizes.get(name, 0)
        if most.isdigit() and has + needed > int(most):
            told = (int(most) >> 20, option, has >> 20, needed >> 20)
            return "the process may map %d MiB of memory (ulimit %s), has %d and would need %d more" % told
    return ""


def _promised(proc: str, needed: int) -> str:
    """Where the kernel promises no more memory than there is, a stack is such a promise."""
    sizes = _sizes(proc, "meminfo")
    most, has = sizes.get("CommitLimit", 0), sizes.get("Committed_AS", 0)
    if _text(proc, "sys/vm/overcommit_memory") == "2" and has + needed > most:
        told = (most >> 20, has >> 20)
        return "this machine may commit %d MiB of memory (vm.overcommit_memory), and has committed %d" % told
    return ""


def _sizes(proc: str, name: str) -> dict[str, int]:
    """Bytes, by name."""
    lines = [line.split() for line in _text(proc, name).splitlines()]
    return {words[0].rstrip(":"): int(words[1]) << 10 for words in lines if words[2:] == ["kB"]}


def _text(folder: str, name: str) -> str:
    """All of a small file; empty if it cannot be read."""
    try:
        with open(os.path.join(folder, name), "rb") as file:
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""
