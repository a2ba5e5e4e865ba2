"""GPUs, read through a recorded NVML: there is no GPU here."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from cockpit.engine.links import payload
from cockpit.node.measure import gpu


class NVMLError(Exception):
    """As pynvml's."""


def recorded(**refuses: bool) -> Any:
    """What pynvml answers for two GPUs, one process on the first; ``refuses`` names calls that fail."""

    def call(name: str, value: Any) -> Any:
        def ask(handle: int) -> Any:
            if refuses.get(name):
                raise NVMLError("Not Supported")
            return value(handle)

        return ask

    gib = 1 << 30
    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=call("name", lambda handle: b"NVIDIA H100 80GB HBM3" if handle else "NVIDIA H100"),
        nvmlDeviceGetMemoryInfo=call(
            "memory", lambda handle: SimpleNamespace(used=(40 - 39 * handle) * gib, total=80 * gib)
        ),
        nvmlDeviceGetUtilizationRates=call("rates", lambda handle: SimpleNamespace(gpu=97 - 97 * handle)),
        nvmlDeviceGetComputeRunningProcesses=call(
            "processes",
            lambda handle: [] if handle else [SimpleNamespace(pid=4711, usedGpuMemory=39 * gib)],
        ),
    )


def test_the_pynvml_that_came_along_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    source = payload.pynvml()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: {"libnvidia-ml.so.1": None}[name])
    monkeypatch.setitem(sys.modules, "pynvml", None)
    module = gpu._nvml(source)
    assert issubclass(module.NVMLError_NotSupported, module.NVMLError)
    assert callable(module.nvmlDeviceGetComputeRunningProcesses)


def test_two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "NVML", recorded())
    first, second = gpu.Gpus(b"").sample()
    assert first == {
        "index": 0,
        "name": "NVIDIA H100",
        "utilisation_percent": 97,
        "memory_bytes": 40 << 30,
        "memory_total_bytes": 80 << 30,
        "processes": {"4711": 39 << 30},
        "xids": [],
    }
    assert (second["utilisation_percent"], second["memory_bytes"], second["processes"]) == (0, 1 << 30, {})
    assert second["name"] == "NVIDIA H100 80GB HBM3"


def test_what_the_driver_refuses_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "NVML", recorded(rates=True, processes=True))
    sample = gpu.Gpus(b"").sample()[0]
    assert sample["utilisation_percent"] is None
    assert sample["processes"] == {}
    assert sample["memory_total_bytes"] == 80 << 30


def test_no_driver_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = recorded()

    def fails() -> None:
        raise NVMLError("Driver Not Loaded")

    broken.nvmlInit = fails
    monkeypatch.setattr(gpu, "NVML", broken)
    assert gpu.Gpus(b"").sample() == []


def test_what_ails_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of the driver (Xid), each once; the rest only when it is asked for."""
    nvml = recorded()
    waiting = [SimpleNamespace(device=1, eventData=79), SimpleNamespace(device=0, eventData=31)]
    registered: list[tuple[int, int]] = []

    def wait(events: str, milliseconds: int) -> Any:
        assert (events, milliseconds) == ("set", 0)
        if not waiting:
            raise NVMLError("Timeout")
        return waiting.pop(0)

    nvml.nvmlEventSetCreate = lambda: "set"
    nvml.nvmlDeviceRegisterEvents = lambda handle, kind, events: registered.append((handle, kind))
    nvml.nvmlEventSetWait_v2 = wait
    nvml.nvmlDeviceGetIndex = lambda handle: handle
    nvml.nvmlDeviceGetTotalEccErrors = lambda handle, kind, counter: 2 * handle
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = lambda handle: 0x5 | 0x60 * handle
    monkeypatch.setattr(gpu, "NVML", nvml)
    gpus = gpu.Gpus(b"")
    assert registered == [(0, 8), (1, 8)]
    first, second = gpus.sample(health=True)
    assert (first["xids"], first["errors"], first["slowed"]) == ([31], 0, [])
    assert (second["xids"], second["errors"], second["slowed"]) == ([79], 2, ["heat", "heat (hardware)"])
    assert [one["xids"] for one in gpus.sample()] == [[], []]
    assert "slowed" not in gpus.sample()[0]
