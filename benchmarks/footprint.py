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
        agent, supervisor, wrappers = ours(here, RANKS)
        both = [agent, supervisor]
        before = sum(cpu_s(process) for process in both)
        time.sleep(SECONDS)
        percent = 100 * (sum(cpu_s(process) for process in both) - before) / SECONDS
        rss, pss = [sum(megabytes(process, kind) for process in both) for kind in ("rss", "pss")]
        levels = [
            Level("agent + supervisor, CPU", [percent], "% of a core", 1.0, _CPU),
            Level("agent + supervisor, RSS together", [rss], "MB", 40, _MEMORY),
            Level("agent + supervisor, PSS together", [pss], "MB"),
            Level("agent, RSS", [megabytes(agent, "rss")], "MB"),
            Level("supervisor, RSS", [megabytes(supervisor, "rss")], "MB"),
            Level("a wrapper, RSS", [megabytes(wrapper, "rss") for wrapper in wrappers], "MB", 10, _MEMORY),
            Level("a wrapper, PSS", [megabytes(wrapper, "pss") for wrapper in wrappers], "MB"),
        ]
    return Result(
        "footprint",
        f"our processes on a node with {RANKS} idle ranks, watched for {SECONDS} s",
        {"cockpit": "cockpit run --transport local --launcher command HOSTFILE -- sleep 300"},
        levels=levels,
        notes=["RSS counts what processes share in each of them, PSS divides it."],
    )


def ours(here: Here, ranks: int) -> tuple[Any, Any, list[Any]]:
    """Agent, supervisor and wrappers of a run with so many ranks.

    :raises BenchmarkError: they are not there
    """
    found: dict[str, list[Any]] = {"supervise": [], "wrap": [], "agent": []}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = process.cmdline()
            if any(here.name in word for word in words):
                for word in set(found) & set(words):
                    found[word].append(process)
            elif process.ppid() == here.cockpit.pid and "-I" in words:
                found["agent"].append(process)
    if [len(processes) for processes in found.values()] != [1, ranks, 1]:
        raise BenchmarkError(f"not the processes of one node: {found}")
    return found["agent"][0], found["supervise"][0], found["wrap"]


def cpu_s(process: Any) -> float:
    """CPU seconds of a process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def megabytes(process: Any, kind: str) -> float:
    """Its memory: ``rss``, ``pss`` or ``uss``."""
    return float(getattr(process.memory_full_info(), kind)) / 1e6


_CPU = "longer intervals between two looks at files and processes."
_MEMORY = "fewer imports: a bare Python without site packages takes 9 to 10 MB of it."
