"""What earlier jobs left behind: locks of builds, shared memory. Their processes are found by ``seek``."""

from __future__ import annotations

import glob
import os
import re
import stat
import time
from typing import Any, Dict, List, Set

from cockpit.base import verbs
from cockpit.node import procfs

_MOST = 100
_LEAST = 1 << 20
_OURS = re.compile(r"(?:nccl-|torch_|psm_)")
"""Names in /dev/shm that NCCL, PyTorch and Python's shared memory use."""


def leftovers(asked: verbs.Checkup, payload: bytes) -> Dict[str, Any]:
    """Lock files in torch's folder of extensions; shared memory that no process of ours has mapped."""
    return {"locks": _locks()[:_MOST], "memory": _memory()[:_MOST]}


def _locks() -> List[Dict[str, Any]]:
    home = os.path.expanduser("~")
    folder = os.environ.get("TORCH_EXTENSIONS_DIR") or os.path.join(home, ".cache", "torch_extensions")
    found = []
    # py312_cu128/NAME/lock, or NAME/lock in a folder that the user chose.
    for pattern in ("*/lock", "*/*/lock"):
        for path in glob.iglob(os.path.join(glob.escape(folder), pattern)):
            try:
                found.append({"path": path, "age_s": time.time() - os.stat(path).st_mtime})
            except OSError:
                continue
    return found


def _memory() -> List[Dict[str, Any]]:
    ours: Dict[str, int] = {}
    for name in os.listdir("/dev/shm"):
        if _OURS.match(name):
            try:
                entry = os.lstat("/dev/shm/" + name)
            except OSError:
                continue
            if entry.st_uid == os.geteuid() and stat.S_ISREG(entry.st_mode) and entry.st_size >= _LEAST:
                ours[name] = entry.st_size
    if not ours:
        return []
    held = _mapped()
    return [{"name": name, "bytes": size} for name, size in sorted(ours.items()) if name not in held]


def _mapped() -> Set[str]:
    """Names in /dev/shm that some process has mapped or open, as far as we may see."""
    found: Set[bytes] = set()
    for pid in procfs.pids():
        found.update(re.findall(rb"/dev/shm/([^\n]+)", procfs.contents("/proc/%d/maps" % pid)))
    for path in glob.iglob("/proc/[0-9]*/fd/*"):
        place = procfs.link(path)
        if place.startswith("/dev/shm/"):
            found.add(os.fsencode(place[len("/dev/shm/") :]))
    return {os.fsdecode(name) for name in found}
