"""GPUs through NVML, if there is a driver; pynvml comes with the request."""

from __future__ import annotations

import ctypes
import sys
import zlib
from types import ModuleType
from typing import Any, Dict, List

NVML: Any = None
"""The ``pynvml`` module; a test may put a recorded one in its place."""

# Of nvml.h: memory errors that were not corrected, counted since the driver was loaded; the clock of SMs.
_UNCORRECTED, _VOLATILE, _SM_CLOCK = 1, 0, 1
_SLOWED = {0x8: "hardware", 0x20: "heat", 0x40: "heat (hardware)", 0x80: "power brake"}
"""Bits of nvmlClocksThrottleReasons that mean trouble."""


def _nvml(source: bytes) -> Any:
    if NVML is not None:
        return NVML
    ctypes.CDLL("libnvidia-ml.so.1")  # no driver is the common case: find out before compiling 8,000 lines
    module = sys.modules["pynvml"] = ModuleType("pynvml")
    exec(zlib.decompress(source), module.__dict__)
    return module


class Gpus:
    """Reads every GPU of the node; if NVML does not start, it never finds any.

    :param source: of pynvml, compressed with zlib
    """

    def __init__(self, source: bytes) -> None:
        self._nvml: Any = None
        self._handles: List[Any] = []
        try:
            nvml = _nvml(source)
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

    def health(self, index: int) -> Dict[str, Any]:
        """What a checkup wants to know besides: ``errors``, ``clock_mhz``, ``power_w``, ``persistent``,
        ``slowed`` (why, in words); a value the driver refuses is None."""
        nvml, handle = self._nvml, self._handles[index]
        ask = self._ask
        errors = ask(lambda gpu: nvml.nvmlDeviceGetTotalEccErrors(gpu, _UNCORRECTED, _VOLATILE), handle)
        milliwatts = ask(nvml.nvmlDeviceGetPowerManagementLimit, handle)
        persistent = ask(nvml.nvmlDeviceGetPersistenceMode, handle)
        reasons = ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0
        return {
            "errors": errors,
            "clock_mhz": ask(lambda gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, _SM_CLOCK), handle),
            "power_w": None if milliwatts is None else milliwatts // 1000,
            "persistent": None if persistent is None else bool(persistent),
            "slowed": [word for bit, word in _SLOWED.items() if reasons & bit],
        }

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
