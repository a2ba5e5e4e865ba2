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

_XID_EVENT = 0x8
"""nvmlEventTypeXidCriticalError."""
_XIDS = 64
"""Reports that are taken in at a time."""


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
        self._reports = self._subscribe()

    def sample(self, *, health: bool = False) -> List[Dict[str, Any]]:
        """One entry per GPU: ``index``, ``name``, ``utilisation_percent``, ``memory_bytes``,
        ``memory_total_bytes``, ``processes`` {pid: bytes}, ``xids`` [number]; what a driver refuses is None.

        :param health: whether ``errors`` and ``slowed`` are read too, see :meth:`health`
        """
        xids = self._xids()
        return [
            {
                **self._read(index, handle),
                "xids": xids.get(index, []),
                **({"errors": self._errors(handle), "slowed": self._slowed(handle)} if health else {}),
            }
            for index, handle in enumerate(self._handles)
        ]

    def _subscribe(self) -> Any:
        """What the driver's reports (Xid) arrive at; None: it gives none."""
        if not self._handles:
            return None
        nvml = self._nvml
        try:
            reports = nvml.nvmlEventSetCreate()
            for handle in self._handles:
                self._ask(lambda gpu: nvml.nvmlDeviceRegisterEvents(gpu, _XID_EVENT, reports), handle)
            return reports
        except Exception:  # an old driver, a container that may not
            return None

    def _xids(self) -> Dict[int, List[int]]:
        """What the driver has reported since the last call, by GPU."""
        found: Dict[int, List[int]] = {}
        nvml = self._nvml
        for _ in range(_XIDS if self._reports is not None else 0):
            try:
                report = nvml.nvmlEventSetWait_v2(self._reports, 0)
                found.setdefault(nvml.nvmlDeviceGetIndex(report.device), []).append(report.eventData)
            except Exception:  # most often: no more
                break
        return found

    def _errors(self, handle: Any) -> Any:
        nvml = self._nvml
        return self._ask(lambda gpu: nvml.nvmlDeviceGetTotalEccErrors(gpu, _UNCORRECTED, _VOLATILE), handle)

    def _slowed(self, handle: Any) -> Any:
        """None: the driver does not say."""
        reasons = self._ask(self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        return None if reasons is None else [word for bit, word in _SLOWED.items() if reasons & bit]

    def health(self, index: int) -> Dict[str, Any]:
        """What a checkup wants to know besides: ``errors``, ``clock_mhz``, ``power_w``, ``persistent``,
        ``slowed`` (why, in words); a value the driver refuses is None."""
        nvml, handle = self._nvml, self._handles[index]
        ask = self._ask
        milliwatts = ask(nvml.nvmlDeviceGetPowerManagementLimit, handle)
        persistent = ask(nvml.nvmlDeviceGetPersistenceMode, handle)
        return {
            "errors": self._errors(handle),
            "clock_mhz": ask(lambda gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, _SM_CLOCK), handle),
            "power_w": None if milliwatts is None else milliwatts // 1000,
            "persistent": None if persistent is None else bool(persistent),
            "slowed": self._slowed(handle) or [],
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
