"""``cockpit run`` typed, until a rank's first line is here, and from the last line to the prompt."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.here import start
from benchmarks.measure import BenchmarkError, Cost, compiled, interleave, timed
from benchmarks.table import Figure, Level, Result
from tests.lab.lab import Lab

NODES = 8
ROUNDS = 7
_OPTIONS = ["--headless", "--launcher", "command", "--cwd", "/tmp"]
_PROGRAM = ["echo", "hello"]


def run() -> Result:
    """Measure; needs the lab."""
    env = compiled()
    with Lab(nodes=NODES) as lab:
        names = ",".join(lab.nodes)

        def ours() -> Cost:
            words = ["run", "-w", names, "--slots", "1", *_OPTIONS, "--", *_PROGRAM]
            return timed(lab, [sys.executable, "-m", "cockpit", *words], "-", env)

        sides: dict[str, Callable[[], Cost]] = {"cockpit": ours}
        if shutil.which("pdsh"):
            words = ["pdsh", "-R", "ssh", "-f", "64", "-w", names, " ".join(_PROGRAM)]
            sides["pdsh"] = lambda: timed(lab, words, "-")
        interleave(sides, 1)  # files into the cache
        costs = interleave(sides, ROUNDS)
    mine, theirs = costs["cockpit"], costs.get("pdsh", [])
    wall = [cost.first for cost in mine], [cost.first for cost in theirs]
    return Result(
        "launch",
        f"a program on {NODES} nodes, from the command to its first line here, and from its last to the exit",
        {
            "cockpit": f"cockpit run -w NODES --slots 1 {' '.join(_OPTIONS)} -- {' '.join(_PROGRAM)}",
            "pdsh": f"pdsh -R ssh -f 64 -w NODES {' '.join(_PROGRAM)}",
        },
        figures=[Figure(f"first line of {NODES} nodes", *wall, aim=1.5, missing=_FIRST)] if theirs else [],
        levels=[
            Level("last line to the exit", [cost.wall - cost.last for cost in mine], "s", 0.3, _LAST),
            Level(f"client CPU, {NODES} nodes", [cost.cpu for cost in mine], "s"),
            Level("one node, local: the whole command", [_local() for _ in range(ROUNDS)], "s", 0.8, _LOCAL),
        ],
        notes=[
            "Nodes, their sshds and the client share the cores, so wall is the sum of both ends' work.",
            *([] if theirs else ["pdsh is not installed."]),
        ],
    )


def _local() -> float:
    with tempfile.TemporaryDirectory(prefix="cockpit-bench-") as folder:
        words = ["run", "-w", "localhost:1", *_OPTIONS, "--transport", "local", "--node-dir", folder]
        began = time.monotonic()
        process = start(Path(folder), [*words, "--", *_PROGRAM])
        try:
            code = process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise BenchmarkError("a run of one node did not end") from None
        if code:
            raise BenchmarkError(f"a run of one node ended with {code}")
        return time.monotonic() - began


_FIRST = (
    "starting an agent and a supervisor on each node costs a Python twice, pdsh's `echo` none; and all nodes "
    "share this machine's cores"
)
_LAST = "a run that hears of its end at once, instead of at the next look at its files"
_LOCAL = "fewer imports: they are two thirds of it"
