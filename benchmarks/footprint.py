"""What our processes on a node cost while eight idle ranks are followed and sampled once a second."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import psutil

from benchmarks.here import Here, started
from benchmarks.measure import BenchmarkError
from benchmarks.table import Level, Result

RANKS = 8
SECONDS = 20
_SETTLE_S = 3


def run() -> Result:
    """Measure; needs nothing."""
    with started(RANKS, ["sleep", "300"]) as here:
        time.sleep(_SETTLE_S)  # past the start: agent's imports, first samples
        agent, supervisor, wrappers = _ours(here)
        both = [agent, supervisor]
        before = sum(_cpu(process) for process in both)
        time.sleep(SECONDS)
        percent = 100 * (sum(_cpu(process) for process in both) - before) / SECONDS
        rss, pss = [sum(_mb(process, kind) for process in both) for kind in ("rss", "pss")]
        levels = [
            Level("agent + supervisor, CPU", [percent], "% of a core", 1.0, _CPU),
            Level("agent + supervisor, RSS together", [rss], "MB", 40, _MEMORY),
            Level("agent + supervisor, PSS together", [pss], "MB"),
            Level("agent, RSS", [_mb(agent, "rss")], "MB"),
            Level("supervisor, RSS", [_mb(supervisor, "rss")], "MB"),
            Level("a wrapper, RSS", [_mb(wrapper, "rss") for wrapper in wrappers], "MB", 10, _MEMORY),
            Level("a wrapper, PSS", [_mb(wrapper, "pss") for wrapper in wrappers], "MB"),
        ]
    return Result(
        "footprint",
        f"our processes on a node with {RANKS} idle ranks, watched for {SECONDS} s",
        {"cockpit": "cockpit run --transport local --launcher command HOSTFILE -- sleep 300"},
        levels=levels,
        notes=["RSS counts what processes share in each of them, PSS divides it."],
    )


def _ours(here: Here) -> tuple[Any, Any, list[Any]]:
    """Agent, supervisor and wrappers of the run."""
    found: dict[str, list[Any]] = {"supervise": [], "wrap": [], "agent": []}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = process.cmdline()
            if any(here.name in word for word in words):
                for word in set(found) & set(words):
                    found[word].append(process)
            elif process.ppid() == here.cockpit.pid and "-I" in words:
                found["agent"].append(process)
    if [len(processes) for processes in found.values()] != [1, RANKS, 1]:
        raise BenchmarkError(f"not the processes of one node: {found}")
    return found["agent"][0], found["supervise"][0], found["wrap"]


def _cpu(process: Any) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _mb(process: Any, kind: str) -> float:
    return float(getattr(process.memory_full_info(), kind)) / 1e6


_CPU = "longer intervals between two looks at files and processes."
_MEMORY = "fewer imports: a bare Python without site packages takes 9 to 10 MB of it."
