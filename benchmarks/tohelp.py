"""``cockpit --help`` against a bare Python that does nothing."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.measure import interleave
from benchmarks.table import Level, Result

ROUNDS = 15
AIM_MS = 120
_HELP = [sys.executable, "-m", "cockpit", "--help"]


def run() -> Result:
    """Measure; needs nothing."""
    sides = {"cockpit": lambda: _wall_ms(_HELP), "python": lambda: _wall_ms([sys.executable, "-c", "pass"])}
    interleave(sides, 1)  # files into the cache
    walls = interleave(sides, ROUNDS)
    more = [ours - bare for ours, bare in zip(walls["cockpit"], walls["python"], strict=True)]
    level = Level("more than bare python", more, "ms", AIM_MS, "these imports: " + _slowest())
    return Result(
        "help",
        "time to help",
        {"cockpit": "python -m cockpit --help", "python": "python -c pass"},
        levels=[level, Level("bare python", walls["python"], "ms")],
    )


def _wall_ms(argv: list[str]) -> float:
    started = time.monotonic()
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
    return 1000 * (time.monotonic() - started)


def _slowest() -> str:
    """The five modules that take longest to import, with all they import."""
    done = subprocess.run(
        [_HELP[0], "-X", "importtime", *_HELP[1:]], capture_output=True, text=True, check=True
    )
    rows = [line.removeprefix("import time:").split("|") for line in done.stderr.splitlines()[1:]]
    slow = sorted(((int(row[1]), row[2].strip()) for row in rows if row[1].strip().isdigit()), reverse=True)
    return ", ".join(f"{name} {took // 1000} ms" for took, name in slow[:5])
