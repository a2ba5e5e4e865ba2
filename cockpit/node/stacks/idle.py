"""For how long a thread has not run: the scheduler notes when each one ran last, and nobody has to watch.

It notes that by a clock of its own on each CPU, which stands still while the machine is taken away from it,
or serves interrupts: so what time it is by that clock is asked on that very CPU.
"""

from __future__ import annotations

import os
import re
import threading

from cockpit.node import procfs

_RAN = re.compile(rb"se\.exec_start\s*:\s*(\d+)\.(\d{6})")
_lock = threading.Lock()


def seconds(pid: int, tid: int) -> float:
    """For how long this thread has not run; 0: it runs; -1: the kernel does not say, or not for sure."""
    path = "/proc/%d/task/%d" % (pid, tid)
    fields = procfs.contents(path + "/stat").decode("ascii", "replace").rpartition(")")[2].split()
    if len(fields) < 37:
        return -1.0
    if fields[0] == "R":
        return 0.0
    try:
        # One at a time: a hundred threads of ours need not crowd the CPUs on which ranks run.
        with _lock:
            return _asked_on(int(fields[36]), path + "/sched")
    except (OSError, ValueError, AttributeError):
        return -1.0


def _asked_on(cpu: int, path: str) -> float:
    before = os.sched_getaffinity(0)
    # This moves the calling thread only.
    os.sched_setaffinity(0, {cpu})
    try:
        ran, now = _ran(path), _ran("/proc/self/task/%d/sched" % threading.get_native_id())
    finally:
        os.sched_setaffinity(0, before)
    return max(0.0, now - ran) if ran >= 0 and now >= 0 else -1.0


def _ran(path: str) -> float:
    """When a thread ran last, in seconds by the clock of its CPU; -1: not known."""
    found = _RAN.search(procfs.contents(path))
    return int(found.group(1)) / 1e3 + int(found.group(2)) / 1e9 if found else -1.0
