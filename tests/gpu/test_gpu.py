"""Parts of ``make gpu`` over stand-ins: what each takes for right, and for wrong; a machine without a GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cockpit.base.answers import RecorderItem
from cockpit.base.gate import read
from cockpit.base.profile.summary import RankProfile
from cockpit.base.recorder import trace as flight
from cockpit.base.stacks.dump import Frame
from cockpit.core.stacks.snapshot import Snapshot
from cockpit.node.measure import gpu
from cockpit.node.profile import traces
from tests import needs
from tests.core.test_ras import comm, ras
from tests.core.test_verdict import MAIN, SYNC, USER, dump, snapshot, still
from tests.gpu import __main__ as program
from tests.gpu import job, parts
from tests.gpu.parts import Lacking
from tests.node.kineto import Made
from tests.node.test_gpu import recorded as nvml
from tests.node.test_traces import CALLERS, GROUP, NCCL

TABLE = """Processing [report.sqlite] with [cuda_gpu_kern_sum.py]...

Time (%),Total Time (ns),Instances,Avg (ns),Name
60.0,600,{calls},100.0,"void gemm<float, 4>(x)"
"""


def made(**more: Any) -> RankProfile:
    """The summary of two steps with kernels."""
    trace = Made(distributedInfo={"backend": "nccl", "world_size": 1, "pg_count": 1, **more})
    for step in (1, 2):
        trace.step(step, 1000 * step, 1000).op("aten::mm", 1000 * step, 500)
        trace.kernel("gemm", 1000 * step + 100, 300)
        trace.kernel("ncclDevKernel_AllReduce", 1000 * step + 450, 100, 30, **NCCL, **GROUP, Seq=step)
    return read(RankProfile, {**traces.summed(trace.file()), **CALLERS})


def test_the_columns_of_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "NVML", nvml())
    samples = [[{**one, "errors": 0, "slowed": []} for one in gpu.Gpus(b"").sample()]]
    assert parts.measured(samples, 4711) == "NVIDIA H100: 97 %, 40.0 of 80.0 GiB; the process is named"
    assert "does not name the process" in parts.measured(samples, 1)
    for name, value in (("utilisation_percent", 0), ("memory_bytes", 1 << 50), ("name", "")):
        with pytest.raises(AssertionError):
            parts.measured([[{**samples[0][0], name: value}]], 4711)


def test_a_rank_that_waits_in_cuda() -> None:
    inner = Frame("cudaStreamSynchronize", "libcudart.so.12", 0, native=True)
    native = snapshot(1, still((*SYNC, inner)))
    assert parts.waits(snapshot(1, still(SYNC)), native).endswith("; cudaStreamSynchronize")
    by_line = snapshot(1, lambda look: replace(dump(look, MAIN), source="loss.item()"))
    assert "at 'loss.item()'" in parts.waits(by_line, snapshot(1, still(MAIN)))
    with pytest.raises(AssertionError, match="it waits for its device, it is said"):
        parts.waits(snapshot(1, still(USER)), native)


def test_phases_of_steps() -> None:
    row = {"step_s": 0.1, **dict.fromkeys(parts.PHASES, 0.0)}
    row |= {"forward_s": 0.04, "backward_s": 0.05, "update_s": 0.01}
    assert parts.phases([row] * 9, [0.1] * 9).startswith("0.1000 s: input 0%, forward 40%")
    for wrong, own in (
        ([row] * 4, 0.1),
        ([row] * 9, 0.2),
        ([{**row, "other_s": 0.05}] * 9, 0.1),
        ([{**row, "update_s": 0.0, "other_s": 0.01}] * 9, 0.1),
        ([{**row, "input_s": None}] * 9, 0.1),
    ):
        with pytest.raises(AssertionError):
            parts.phases(wrong, [own] * 9)


def test_a_profile_with_kernels() -> None:
    found = made()
    assert parts.profiled(found, 2) == "compute 30% of 2 steps; most in gemm; all_reduce"
    for wrong in (
        {"device": "cpu"},
        {"backend": "gloo"},
        {"steps": found.steps[:1]},
        {"steps": tuple(replace(step, compute=0) for step in found.steps)},
        {"steps": tuple(replace(step, idle=step.idle + 1) for step in found.steps)},
        {"operations": ()},
        {"collectives": ()},
    ):
        with pytest.raises(AssertionError):
            parts.profiled(replace(found, **wrong), 2)


def test_the_flight_recorder() -> None:
    call = flight.Call(flight.Group("nccl", "0", "default_pg"), "all_reduce", "8", 8, 8, "Float", -1)
    entries = flight.Entry(call, 6, 1, flight.DONE), flight.Entry(call, 7, 2, flight.GOING)
    item, trace = RecorderItem(0, 1.0), flight.Trace("fr_trace_json", "2.10", entries)
    said = parts.recorded(item, [trace])
    assert said == "2 collectives of nccl, under way: all_reduce 7"
    for wrong in (
        (replace(item, kind="absent", what="no probe"), [trace]),
        (item, []),
        (item, [trace._replace(entries=())]),
    ):
        with pytest.raises(AssertionError):
            parts.recorded(*wrong)
    with pytest.raises(AssertionError):
        parts.recorded(item, [trace], "gloo")


def test_nccls_ras() -> None:
    said = ras([comm([{"AllReduce": 5}])])
    assert "1 communicators, 0 with something odd" in parts.heard(said)
    with pytest.raises(Lacking, match="no rank listens"):
        parts.heard(None)
    with pytest.raises(AssertionError, match="RAS answers"):
        parts.heard(replace(said, node="", silent={"gpu1": "silent"}))


def test_kernels_in_a_report_of_nsys() -> None:
    assert parts.traced(TABLE.format(calls=6)) == "1 kernels, most time in void gemm<float, 4>(x)"
    for wrong in (TABLE.format(calls=0), "SKIPPED: report.sqlite does not contain CUDA kernel data."):
        with pytest.raises(AssertionError):
            parts.traced(wrong)


def test_without_a_gpu_each_part_is_skipped_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 2.13.0+cpu False False\n")
    python.chmod(0o755)
    assert program.main(["--python", str(python)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[:-1]] == [[part, "skipped"] for part in (*job.PARTS, "nsys")]
    assert all(line.endswith(f"torch 2.13.0+cpu of {python} finds no GPU") for line in lines[:-1])
    assert lines[-1] == "0 held, 8 skipped, 0 failed"
    python.write_text("#!/bin/sh\necho no torch >&2; exit 1\n")
    assert program.main(["--python", str(python)]) == 0
    assert "has no torch: no torch" in capsys.readouterr().out


def test_a_part_that_fails_costs_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacks(run: object) -> str:
        raise Lacking("no driver")

    def fails(run: object) -> str:
        raise AssertionError("a GPU has a name")

    class Never:
        def __init__(self, *args: object) -> None: ...
        def __enter__(self) -> None: ...
        def __exit__(self, *error: object) -> None: ...

    looks: dict[str, Callable[[object], str]] = {"a": lacks, "b": fails, "c": lambda run: "seen"}
    for name, value in (("PARTS", looks), ("training", Never), ("nsys", lacks)):
        monkeypatch.setattr(program, name, value)
    monkeypatch.setattr(program, "torch_of", lambda python: "2.13")
    assert program.main([]) == 1
    out = capsys.readouterr().out
    assert [line.split()[1] for line in out.splitlines()] == ["skipped", "failed", "held", "skipped", "held,"]


@pytest.mark.slow
@pytest.mark.launch
def test_the_same_run_without_a_gpu(tmp_path: Path) -> None:
    """Over gloo, on the CPU: everything that the parts look at is there but for what is a GPU's."""
    needs.require_module("torch")
    with job.training(tmp_path, sys.executable, "cpu", "--probe", "on") as run:
        with pytest.raises(Lacking, match="finds no GPU"):
            job.measured(run)
        assert job.phases(run, within=0.5)  # beside other tests no two steps are alike
        with pytest.raises(AssertionError, match="the trace has kernels"):
            job.profiled(run)
        look = run.waiting("synchronize")
        assert parts.recorded(look.item, look.traces, "gloo")
        assert isinstance(look.native, Snapshot)
        with pytest.raises(Lacking):
            job.heard(run)
