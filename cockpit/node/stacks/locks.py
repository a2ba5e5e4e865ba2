"""The file of a lock that a rank polls: which one it is, how old, and who has it."""

from __future__ import annotations

import os
import re
import time
from typing import Dict, Iterator, Optional, Sequence, Tuple

from cockpit.base.secret import without
from cockpit.base.stacks.dump import Dump, Frame, LockFile
from cockpit.node import procfs

_POLLS = re.compile(r"^(torch/utils/file_baton|filelock/|fasteners/|portalocker/|python/multiprocessing/)")
_PAUSES = frozenset(("clock_nanosleep", "nanosleep", "select", "pselect6"))
"""What a loop does that asks for something again and again."""

_PATH = re.compile(r"""["'](/[^"'\0]{1,1000})["']""")
_NAMED = re.compile(r"\block(_?(file|path|name))?\b|_lock_?(file|path)?\b", re.IGNORECASE)
_BATON = "torch/utils/file_baton.py"

FRAMES = 8
"""Innermost frames whose variables are looked through."""


def polls(dump: Dump, call: str) -> bool:
    """Whether a rank may be polling a lock that is a file.

    :param call: the system call that its main thread is in; empty: none
    """
    if not dump.threads:
        return False
    inner = dump.frames[-3:]
    if any(_POLLS.match(frame.file) for frame in inner):
        return True
    return bool(dump.loop) and call in _PAUSES


def file_of(pid: int, frames: Sequence[Frame], variables: Sequence[Dict[str, str]]) -> Optional[LockFile]:
    """The lock that a stack is in; None: its variables do not say which one."""
    for path in _candidates(frames, variables):
        root = "/proc/%d/root" % pid
        try:
            found = os.stat(root + path)
        except OSError:
            continue
        holder = _holder(pid, path)
        age_s = max(0.0, time.time() - found.st_mtime)
        return LockFile(without(path), age_s, *holder)
    return None


def _candidates(frames: Sequence[Frame], variables: Sequence[Dict[str, str]]) -> Iterator[str]:
    """Paths of files that may be the lock, the likeliest first."""
    inner = list(zip(frames, variables))[-FRAMES:]
    for _, names in reversed(inner):
        for name, value in names.items():
            found = _PATH.search(value)
            if found and (_NAMED.search(name) or found.group(1).endswith(("lock", ".lck"))):
                yield found.group(1)
    if any(frame.file == _BATON for frame, _ in inner):
        for _, names in reversed(inner):
            found = _PATH.search(names.get("build_directory", ""))
            if found:
                yield os.path.join(found.group(1), "lock")


def _holder(waiter: int, path: str) -> Tuple[int, str]:
    """A process of ours, other than the one that waits, which has this file open."""
    own = procfs.link("/proc/%d/ns/mnt" % waiter)
    for pid in procfs.pids():
        # What a link says is known without asking a file server that may be dead.
        links = (procfs.link("/proc/%d/fd/%d" % (pid, number)) for number in procfs.numbers(pid, "fd"))
        if pid != waiter and path in links:
            stat = procfs.stat(pid)
            if stat is not None and procfs.link("/proc/%d/ns/mnt" % pid) == own:
                return pid, stat.name
    return 0, ""
