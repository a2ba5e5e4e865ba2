"""How much the main thread of a process has run: a sign of progress where nothing tells steps."""

from __future__ import annotations

import os
import re
from typing import Any, Dict

from cockpit.base.gate import COUNT
from cockpit.node import procfs

_TICKS_S = os.sysconf("SC_CLK_TCK")
_SWITCHES = re.compile(rb"(?m)^(?:non)?voluntary_ctxt_switches:\s*([0-9]+)$")


def main_thread(pid: int) -> Dict[str, Any]:
    """``main_cpu_s`` and ``main_switches`` of a sample; both None if the kernel does not tell.

    Both only grow while the process is the same. ``main_switches`` is how often a processor was given to the
    thread, or, where the kernel does not count that, taken from it.
    """
    told = procfs.contents("/proc/%d/schedstat" % pid).split()
    # Three zeros are a kernel that does not count.
    if len(told) == 3 and any(map(int, told)):
        return _told(int(told[0]) / 1e9, int(told[2]))
    fields = procfs.contents("/proc/%d/task/%d/stat" % (pid, pid)).rpartition(b")")[2].split()
    switches = _SWITCHES.findall(procfs.contents("/proc/%d/status" % pid))
    if len(fields) < 13 or not switches:
        return {"main_cpu_s": None, "main_switches": None}
    return _told((int(fields[11]) + int(fields[12])) / _TICKS_S, sum(map(int, switches)))


def _told(cpu_s: float, switches: int) -> Dict[str, Any]:
    return {"main_cpu_s": cpu_s, "main_switches": COUNT.nearest(switches)}
