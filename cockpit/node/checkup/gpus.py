"""GPUs and their driver, as NVML and /proc tell."""

from __future__ import annotations

import os
from typing import Any, Dict, List

from cockpit.base import users, verbs
from cockpit.node import procfs

DRIVER = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg")
"""What is there if an NVIDIA driver is; the last one in WSL."""


def driver(asked: verbs.Checkup, payload: bytes) -> str:
    """The version of the kernel's NVIDIA driver; empty if it is not loaded."""
    return procfs.nvidia_driver()


def gpus(asked: verbs.Checkup, payload: bytes) -> List[Dict[str, Any]]:
    """Each GPU: its memory and who has it, its errors, clocks and limits."""
    if not any(map(os.path.exists, DRIVER)):
        return []
    from cockpit.node.measure import gpu  # loads ctypes, which nodes without GPUs save

    there = gpu.Gpus(payload)
    return [{**_told(sample), **there.health(sample["index"])} for sample in there.sample()]


def _told(sample: Dict[str, Any]) -> Dict[str, Any]:
    told = {name: sample[name] for name in ("index", "name", "memory_bytes", "memory_total_bytes")}
    return {**told, "users": [_user(int(pid), size) for pid, size in sample["processes"].items()]}


def _user(pid: int, size: Any) -> Dict[str, Any]:
    process = procfs.stat(pid)
    owner = procfs.owner(pid)
    user = "" if owner is None else users.name(owner)
    return {"pid": pid, "bytes": size, "name": process.name if process else "", "user": user}
