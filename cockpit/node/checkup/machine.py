"""The machine itself: kernel, memory, limits, disks, what it does at logout; the code of a program on it."""

from __future__ import annotations

import glob
import os
import re
import resource
from typing import Any, Dict, List, Optional, Tuple

from cockpit.base import openfiles, users, verbs
from cockpit.base.gate import SIZE
from cockpit.node import cgroups, private_folder, procfs, space
from cockpit.node.checkup.deadline import Silent, within

_LINGER = "/var/lib/systemd/linger"
_LOGIND = ("/usr/lib/systemd/logind.conf", "/etc/systemd/logind.conf")
_DROP_INS = ("/usr/lib/systemd/logind.conf.d", "/run/systemd/logind.conf.d", "/etc/systemd/logind.conf.d")
_NVIDIA = "/proc/driver/nvidia/params"
_CODE_FILES = 300
_CODE_BYTES = 4 << 20


def system(asked: verbs.Checkup, payload: bytes) -> Dict[str, Any]:
    """Kernel, C library, processor, memory."""
    used, total = procfs.memory() or (None, None)
    return {
        "kernel": os.uname().release,
        "libc": _libc(),
        "cpu": _cpu(),
        "cores": os.cpu_count() or 0,
        "governor": _text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "load": os.getloadavg()[0],
        "memory_bytes": total,
        "memory_free_bytes": None if used is None or total is None else total - used,
        "memory_max_bytes": _least("memory.max", "memory/memory.limit_in_bytes", total),
        "pids_max": _least("pids.max", "pids/pids.max", None),
    }


def limits(asked: verbs.Checkup, payload: bytes) -> Dict[str, Any]:
    """Limits as ranks get them; None: unlimited."""
    return {
        "open_files": openfiles.theirs(),
        "processes": _limit(resource.RLIMIT_NPROC),
        "locked_bytes": _limit(resource.RLIMIT_MEMLOCK),
    }


def disks(asked: verbs.Checkup, payload: bytes) -> Tuple[List[Dict[str, Any]], Silent]:
    """The file systems of the folders that a launch uses, without those that are not there."""
    places = {
        "run folders": asked.base or private_folder.base(),
        "/tmp": "/tmp",
        "/dev/shm": "/dev/shm",
        "working directory": asked.cwd,
    }
    mounts = _mounts()
    wanted = [role for role, path in places.items() if path]
    found, silent = within(asked.limit_s, wanted, lambda role: _disk(role, places[role], mounts), threads=4)
    return [disk for disk in found.values() if disk], {places[role]: why for role, why in silent.items()}


def profiling(asked: verbs.Checkup, payload: bytes) -> Dict[str, Any]:
    """Whom the kernel lets look into other processes, and NVIDIA's driver into GPUs."""
    restricted = re.search(r"(?m)^RmProfilingAdminOnly:\s*([01])$", _text(_NVIDIA))
    return {
        "ptrace_scope": procfs.number("/proc/sys/kernel/yama/ptrace_scope"),
        "perf_event_paranoid": procfs.number("/proc/sys/kernel/perf_event_paranoid"),
        "gpu_counters": restricted[1] == "0" if restricted else None,
    }


def session(asked: verbs.Checkup, payload: bytes) -> Dict[str, Any]:
    """Whether logind ends a user's processes after the last logout."""
    kills = False
    if os.path.isdir("/run/systemd/seats"):  # logind runs
        files = [*_LOGIND, *(path for folder in _DROP_INS for path in sorted(glob.glob(folder + "/*.conf")))]
        for path in files:
            for value in re.findall(r"(?im)^\s*KillUserProcesses\s*=\s*(\w+)", _text(path)):
                kills = value.lower() in ("yes", "true", "1", "on")
    return {"kills": kills, "lingers": os.path.exists("%s/%s" % (_LINGER, users.name(os.geteuid())))}


def code(asked: verbs.Checkup, payload: bytes) -> Dict[str, str]:
    """A checksum of each Python file in the folder of the script, by name; of the largest ones none."""
    import hashlib  # costs more than all else here, and most checkups are without a script

    folder = os.path.dirname(os.path.join(asked.cwd, asked.script))
    found: Dict[str, str] = {}
    room = _CODE_BYTES
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*.py")))[:_CODE_FILES]:
        try:
            size = os.path.getsize(path)
            if size <= room:
                room -= size
                found[os.path.basename(path)[:255]] = hashlib.sha256(procfs.read(path)).hexdigest()[:16]
        except OSError:
            continue
    return found


def _libc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ""


def _cpu() -> str:
    found = re.search(r"(?m)^(?:model name|CPU part)\s*:\s*(.*)$", _text("/proc/cpuinfo"))
    return found[1].strip()[:200] if found else os.uname().machine


def _limit(which: int) -> Optional[int]:
    soft = resource.getrlimit(which)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _least(name: str, old: str, most: Optional[int]) -> Optional[int]:
    """The least limit of this process's cgroup and of those above it; None: none below ``most``."""
    controller, _, file = old.partition("/")
    found = []
    for _, folder, second in cgroups.folders("self", controller):
        value = procfs.number("%s/%s" % (folder, name if second else file))
        if value is not None and (most is None or value < most):
            found.append(value)
    return min(found, default=None)


def _disk(role: str, path: str, mounts: Dict[str, str]) -> Optional[Dict[str, Any]]:
    """A folder's file system, or that of the folder in which it would be made; None: there is no such."""
    place = path
    while role == "run folders" and place not in ("", "/") and not os.path.isdir(place):
        place = os.path.dirname(place)
    if not os.path.isdir(place):
        return None
    disk, (free, whole) = os.statvfs(place), space.measured(place)
    real = os.path.realpath(place)
    while real not in mounts and real != "/":
        real = os.path.dirname(real)
    return {
        "role": role,
        "path": path,
        "type": mounts.get(real, "")[:100],
        "total_bytes": SIZE.nearest(whole),
        "free_bytes": SIZE.nearest(free),
        "inodes": SIZE.nearest(disk.f_files),
        "inodes_free": SIZE.nearest(disk.f_favail),  # CephFS says 2**64 - 1
    }


def _mounts() -> Dict[str, str]:
    """The type of each mounted file system, by where it is; the last one mounted there counts."""
    lines = [line.split() for line in _text("/proc/mounts").splitlines()]
    return {re.sub(r"\\([0-7]{3})", _byte, words[1]): words[2] for words in lines if len(words) > 2}


def _byte(octal: re.Match[str]) -> str:
    return chr(int(octal[1], 8))


def _text(path: str) -> str:
    return procfs.contents(path).decode("utf-8", "replace").strip()
