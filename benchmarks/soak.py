"""What grows while ranks step and print for a long time: memory, CPU and files of all of cockpit."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from benchmarks.footprint import cpu_s, megabytes, ours
from benchmarks.here import Here, started, wait
from benchmarks.measure import FOLDER, BenchmarkError
from benchmarks.table import Level, Result
from benchmarks.watched import step

RANKS = 4
MINUTES = 45
FIRST = 5
"""Minutes after which it is measured first: all that happens once has happened."""
_PROGRAM = ["env", "OMP_NUM_THREADS=1", sys.executable, str(FOLDER / "talking.py")]
_OF_LOGS = ("rank-", "launcher.log")


def run() -> Result:
    """Measure; needs torch."""
    with started(RANKS, _PROGRAM, ["--probe", "on"]) as here:
        wait(lambda: step(here) > 0, "a step", 300)
        agent, supervisor, wrappers = ours(here, RANKS)
        processes = {
            "cockpit": psutil.Process(here.cockpit.pid),
            "agent": agent,
            "supervisor": supervisor,
            "a wrapper": wrappers[0],
        }
        time.sleep(60 * FIRST)
        first, began, from_step = _taken(processes), time.monotonic(), step(here)
        time.sleep(60 * (MINUTES - FIRST))
        last, seconds = _taken(processes), time.monotonic() - began
        steps = (step(here) - from_step) / seconds
        kept = {name: _size(here.folder / name) for name in ("node", "state")}
        equal = _compared(here)
    levels = [Level("steps of a rank, a second", [steps], "/s")]
    for name, (cpu, rss) in last.items():
        levels.append(Level(f"{name}, CPU", [100 * (cpu - first[name][0]) / seconds], "% of a core"))
        levels.append(Level(f"{name}, RSS after {FIRST} minutes", [first[name][1]], "MB"))
        levels.append(Level(f"{name}, RSS after {MINUTES} minutes", [rss], "MB"))
    levels.append(Level("the run folder on the node, besides logs", [kept["node"] / 1e6], "MB"))
    levels.append(Level("here, besides copies of logs", [kept["state"] / 1e6], "MB"))
    return Result(
        "soak",
        f"{MINUTES} minutes of {RANKS} ranks that make 10 steps and print 50 lines a second each",
        {"cockpit": "cockpit run --transport local --headless -- talking.py"},
        levels=levels,
        notes=[f"All {equal / 1e6:.0f} MB of logs are here byte for byte, once the run was stopped."],
    )


def _taken(processes: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Seconds of CPU so far, and MB of memory."""
    return {name: (cpu_s(process), megabytes(process, "rss")) for name, process in processes.items()}


def _size(folder: Path) -> int:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(_OF_LOGS))
    return sum(path.stat().st_size for path in files)


def _compared(here: Here) -> int:
    """Bytes of logs that are the same here, after a stop.

    :raises BenchmarkError: they are not
    """
    here.start("stop", here.name).wait(60)
    here.cockpit.wait(60)
    size = 0
    for rank in range(RANKS):
        there = here.log(rank).read_bytes()
        copy = next(here.folder.glob(f"state/**/spool/*/rank-{rank}.log")).read_bytes()
        if copy != there:
            raise BenchmarkError(f"the log of rank {rank} differs: {len(copy)} of {len(there)} bytes")
        size += len(copy)
    return size
