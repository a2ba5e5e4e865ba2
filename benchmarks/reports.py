"""The report of a long run: what it costs to make it, its page, and a bundle of the run."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks.table import Level, Result
from cockpit.base.times import line
from cockpit.core.pace.past import PastStep
from cockpit.core.report.page import as_page
from cockpit.core.report.words import as_markdown
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.engine.report.bundle import pack
from cockpit.engine.report.gather import report_of

BEGAN = 1_795_233_881.0
NODES, SLOTS, HOURS, STEP_S = 8, 8, 8, 2.0
OTHERS = 10
"""Ranks other than 0 print a line each so many steps."""
ROUNDS = 5


def run() -> Result:
    """Measure; needs nothing."""
    with tempfile.TemporaryDirectory() as place, _state(place):
        folder = _made(int(HOURS * 3600 / STEP_S))
        report = asyncio.run(report_of(folder))
        target = f"{place}/run.tar.gz"
        made = _timed(lambda: asyncio.run(report_of(folder)))
        packed = _timed(lambda: pack(folder, target))
        size, page = os.path.getsize(target), len(as_page(report).encode())
        lines = len(as_markdown(report))
        opened = _timed(lambda: RunFolder.find(target), 1)
    return Result(
        "reports",
        f"{NODES * SLOTS} ranks, {HOURS} h, {report.course.steps:,} steps, a rank failed",
        {"cockpit": "cockpit report RUN --html FILE, --bundle FILE"},
        levels=[
            Level("the report: CPU", made, "s", 10),
            Level("its page", [page / 1e6], "MB", 2),
            Level("its Markdown", [lines], "lines", 60),
            Level("a bundle: CPU", packed, "s", 20),
            Level("its size", [size / 1e6], "MB"),
            Level("opened: CPU", opened, "s", 2),
        ],
        notes=[
            f"Made up: rank 0 prints each step, the others each {OTHERS}th; no snapshots and no profiles.",
            "CPU is of the process, one core.",
        ],
    )


@contextmanager
def _state(place: str) -> Iterator[None]:
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = place
    try:
        yield
    finally:
        os.environ.pop("XDG_STATE_HOME")
        if before is not None:
            os.environ["XDG_STATE_HOME"] = before


def _timed(what: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    found = []
    for _ in range(rounds):
        began = time.process_time()
        what()
        found.append(time.process_time() - began)
    return found


def _made(steps: int) -> RunFolder:
    entries = [
        NodeEntry(f"gpu{index + 1:02d}", f"/tmp/{index}", list(range(SLOTS * index, SLOTS * (index + 1))))
        for index in range(NODES)
    ]
    folder = RunFolder.create(
        Manifest("night", BEGAN, entries, "torchrun", ["train.py"], "/home", command=["cockpit", "run"])
    )
    for entry in entries:
        _node(folder, entry, steps)
    kept = (
        PastStep(
            0, step, BEGAN + 5 + step * STEP_S, 1, "", STEP_S, 1.5, 1.4, 1.6, step % (NODES * SLOTS),
            True, True, False, False, (), phases=(100, 300, 400, 50, 100, 50),
        ).line()
        for step in range(1, steps + 1)
    )  # fmt: skip
    (folder.path / "pace.jsonl").write_bytes(b"".join(kept))
    folder.close()
    return RunFolder(folder.path)


def _node(folder: RunFolder, entry: NodeEntry, steps: int) -> None:
    spool = folder.spool_dir(entry)
    spool.mkdir(parents=True)
    end = BEGAN + 10 + steps * STEP_S
    events = [
        {"t": BEGAN + 1, "e": "rank_started", "rank": rank, "pid": 9, "ticks": 9} for rank in entry.ranks
    ]
    for rank in entry.ranks:
        told = {"t": end, "e": "rank_exited", "rank": rank, "pid": 9, "signal": None, "by": "wrapper"}
        events.append({**told, "code": int(rank == 13)})
    events.append({"t": end + 1, "e": "ended"})
    (spool / "events.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))
    logs: dict[int, list[bytes]] = {rank: [] for rank in entry.ranks}
    sizes, index = dict.fromkeys(entry.ranks, 0), []
    for step in range(1, steps + 1):
        grown = {}
        for rank in entry.ranks:
            if rank == 0 or step % OTHERS == 0:
                said = b"step %d rank %d loss %.4f tokens/s 48211.3\n" % (step, rank, 9 / step)
                logs[rank].append(said)
                sizes[rank] += len(logs[rank][-1])
                grown[f"rank-{rank}.log"] = sizes[rank]
        if grown:
            index.append(line(BEGAN + 5 + step * STEP_S, grown))
    for rank, lines in logs.items():
        last = b"RuntimeError: CUDA error: an illegal memory access was encountered\n" if rank == 13 else b""
        (spool / f"rank-{rank}.log").write_bytes(b"".join(lines) + last)
    (spool / "times.jsonl").write_bytes(b"".join(index))
