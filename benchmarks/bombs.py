"""What answers cost that are made to hurt: memory of the whole client, and how late its loop is."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from benchmarks.measure import FOLDER, BenchmarkError
from benchmarks.table import Level, Result
from tests.engine.bombs import BOMBS, RANKS

ROUNDS = 3
MEMORY_MB = 300
LAG_MS = 100


def run() -> Result:
    """Measure; needs nothing: two made-up nodes, of which one sends a bomb."""
    levels = []
    for name, bomb in BOMBS.items():
        found = [_once(name) for _ in range(ROUNDS)]
        what = (bomb.__doc__ or "").strip().rstrip(".").partition(":")[0]
        levels.append(Level(f"{name}: {what}; peak RSS", _all(found, "peak_mb"), "MB", MEMORY_MB, _MEMORY))
        levels.append(Level(f"{name}: loop lag, p99", _all(found, "p99_ms"), "ms", LAG_MS, _LAG))
    return Result(
        "bombs",
        f"a node with {RANKS} ranks sends stacks that are made to hurt, another one its own",
        {"cockpit": "a sample of both nodes, kept on disk, opened again, written as text and as a page"},
        levels=levels,
        notes=["The other node's stacks are there each time; of the first one it is said what is wrong."],
    )


def _once(name: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.bombs", name],
        cwd=FOLDER.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BenchmarkError(f"bomb {name}: {done.stderr[-1000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _all(found: list[dict[str, Any]], what: str) -> list[float]:
    return [float(each[what]) for each in found]


_MEMORY = "smaller bounds, or parsing without objects for what is refused"
_LAG = "shorter lines: while one is parsed nothing else runs"
