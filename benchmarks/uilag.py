"""How late the app's loop is while 64 real ranks print 1,000 lines a second each."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from benchmarks.measure import BenchmarkError
from benchmarks.table import Level, Result

SECONDS = 30
AIM_MS = 50


def run() -> Result:
    """Measure; needs nothing: the node is this machine, without ssh."""
    found = screens("uilag", str(SECONDS))
    at_start, half, at_end = found["rss_mb"]
    what = "folding a batch costs most: draw only the rows that fit"
    return Result(
        "uilag",
        f"the app follows 64 ranks that print 1,000 lines/s each for {SECONDS} s",
        {"cockpit": "the app, headless, 140 x 45, on a run of 64 real processes of this machine"},
        levels=[
            Level("loop lag, p99", [found["p99_ms"]], "ms", AIM_MS, what),
            Level("loop lag, median", [found["p50_ms"]], "ms"),
            Level("loop lag, worst", [found["max_ms"]], "ms"),
            Level("age of the newest line on the screen, median", [1000 * found["age_s"]], "ms"),
            Level("age of the newest line on the screen, worst", [1000 * found["age_max_s"]], "ms"),
            Level("RSS at the end", [at_end], "MB"),
            Level("RSS grown in the second half", [max(0.0, at_end - half)], "MB", 5),
        ],
        notes=[
            f"{found['lines_s']:,.0f} lines/s came through; RSS {at_start:.0f} MB at first.",
            "The 64 printing processes, their supervisor and the agent share the cores with the app.",
        ],
    )


def screens(*words: str) -> dict[str, Any]:
    """What a benchmark of the app found, in a process of its own.

    :raises BenchmarkError: it could not measure
    """
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.screens", *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BenchmarkError(f"screens {' '.join(words)}: {done.stderr[-1000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
