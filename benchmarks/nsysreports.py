"""What it costs a node to sum up an nsys report that is exported: MB/s of the export, and memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import BenchmarkError
from benchmarks.table import Level, Result
from benchmarks.traces import cost
from tests.node.nsys_exports import Export, global_pid

RANKS, STEPS, KERNELS, ROUNDS = 4, 20, 3000, 3
"""A report of a node; each step of a rank starts so many kernels, and marks two ranges for three of them."""
_EVERY_NS = 20_000
_ALL_REDUCE = 100
"""Every so many kernels."""

_SUM = (
    "import io, sys; from cockpit.node.profile import nsys_sum; "
    "sys.stdin = io.TextIOWrapper(io.BytesIO(b'{\"ranks\": {}}')); "
    "code = nsys_sum.main([sys.argv[1]] * 2)"
)


def run() -> Result:
    """Measure; needs nothing."""
    with tempfile.TemporaryDirectory() as name:
        export = made(Path(name) / "report.sqlite")
        size = export.stat().st_size / 1e6
        found = [cost(_SUM, export) for _ in range(ROUNDS)]
    rows = RANKS * STEPS * (2 * KERNELS + KERNELS * 2 // 3)
    if size < 1:
        raise BenchmarkError("the export is empty")
    return Result(
        "nsysreports",
        f"an nsys report of {RANKS} ranks, exported to {size:.0f} MB, summed up on its node",
        {"cockpit": "python -m cockpit.node nsyssum EXPORT REPORT"},
        levels=[
            Level("time of a MB of the export", [1000 * one.wall / size for one in found], "ms"),
            Level("the whole report", [one.wall for one in found], "s"),
            Level("CPU", [one.cpu for one in found], "s"),
            Level("peak RSS", [one.peak for one in found], "MB", 500),
        ],
        notes=[
            f"Made up, in the columns of nsys 2026: about {rows:,} events.",
            "The time that nsys takes for the export is not in it.",
        ],
    )


def made(path: Path) -> Path:
    """An export."""
    export = Export(path)
    names = [export.string(f"void kernel_{number}<float>(float*)") for number in range(60)]
    nccl = export.string("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    launch, forward = export.string("cudaLaunchKernel_v7000"), export.string("aten::linear, seq = 7")
    blob = export.payload(1 << 22)["binaryData"]
    for rank in range(RANKS):
        whose = global_pid(4000 + rank)
        thread = whose + 4000 + rank
        for step in range(STEPS):
            begin = (1 + step) * KERNELS * _EVERY_NS
            export.range(4000 + rank, f"ProfilerStep#{step}", begin, begin + KERNELS * _EVERY_NS)
            numbers = range(step * KERNELS, (step + 1) * KERNELS)
            export.db.executemany(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId,"
                " correlationId, globalPid, demangledName, shortName) VALUES (?, ?, 0, 1, ?, ?, ?, ?, ?)",
                _kernels(begin, numbers, whose, names, nccl),
            )
            export.db.executemany(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId, nameId,"
                " returnValue) VALUES (?, ?, ?, ?, ?, 0)",
                (
                    (at := begin + place * _EVERY_NS, at + 4000, thread, n, launch)
                    for place, n in enumerate(numbers)
                ),
            )
            export.db.executemany(
                "INSERT INTO NVTX_EVENTS (start, end, eventType, globalTid, textId, text, binaryData)"
                " VALUES (?, ?, 59, ?, ?, ?, ?)",
                _ranges(begin, thread, forward, blob),
            )
    return export.done()


def _kernels(
    begin: int, numbers: range, whose: int, names: list[int], nccl: int
) -> Iterator[tuple[Any, ...]]:
    for place, number in enumerate(numbers):
        at = begin + place * _EVERY_NS + 6000
        collective = place % _ALL_REDUCE == 0
        name = nccl if collective else names[place % len(names)]
        yield at, at + 12_000, 20 if collective else 7, number, whose, name, name


def _ranges(begin: int, thread: int, forward: int, blob: bytes) -> Iterator[tuple[Any, ...]]:
    for place in range(0, KERNELS, 3):
        at = begin + place * _EVERY_NS
        yield at - 500, at + 2 * _EVERY_NS, thread, forward, None, None
        collective = place % _ALL_REDUCE == 0
        yield (
            at - 100,
            at + 5000,
            thread,
            None,
            "ncclAllReduce" if collective else "inner",
            blob if collective else None,
        )
