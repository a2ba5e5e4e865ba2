"""GPUs through NVML, if there is a driver; pynvml comes from the cockpit, as a zip that stays in memory."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from typing import Any, Dict, List

from cockpit.node.calls import Call

NVML: Any = None
"""The ``pynvml`` module; a test may put a recorded one in its place."""


def equip(call: Call) -> Dict[str, Any]:
    """Take in the zip with pynvml; once per link, before anything needs it."""
    try:
        number = os.memfd_create("cockpit")
    except OSError:
        number, path = tempfile.mkstemp()
        os.unlink(path)
    with os.fdopen(os.dup(number), "wb") as file:
        file.write(call.payload)
    sys.path.append("/proc/self/fd/%d" % number)
    return {}


def _nvml() -> Any:
    if NVML is not None:
        return NVML
    ctypes.CDLL("libnvidia-ml.so.1")  # no driver is the common case: find out before compiling 8,000 lines
    import pynvml

    return pynvml


class Gpus:
    """Reads every GPU of the node; if NVML does not start, it never finds any."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles: List[Any] = []
        try:
            nvml = _nvml()
            nvml.nvmlInit()
            count = nvml.nvmlDeviceGetCount()
            self._handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
            self._nvml = nvml
        except Exception:  # no driver, no library, no permission: a node without GPUs is a normal node
            self._handles = []

    def sample(self) -> List[Dict[str, Any]]:
        """One entry per GPU: ``index``, ``name``, ``utilisation_percent``, ``memory_bytes``,
        ``memory_total_bytes``, ``processes`` {pid: bytes}; a value the driver refuses is None."""
        return [self._read(index, handle) for index, handle in enumerate(self._handles)]

    def _read(self, index: int, handle: Any) -> Dict[str, Any]:
        nvml = self._nvml
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        rates = self._ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        name = self._ask(nvml.nvmlDeviceGetName, handle)
        processes = self._ask(nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
        return {
            "index": index,
            "name": name.decode() if isinstance(name, bytes) else name,
            "utilisation_percent": rates and rates.gpu,
            "memory_bytes": memory and memory.used,
            "memory_total_bytes": memory and memory.total,
            "processes": {str(process.pid): process.usedGpuMemory for process in processes},
        }

    def _ask(self, question: Any, handle: Any) -> Any:
        try:
            return question(handle)
        except self._nvml.NVMLError:
            return None
