"""What ``cockpit --help`` costs over a bare Python."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.measure import interleave
from benchmarks.table import Level, Result

ROUNDS = 15
_HELP = "from cockpit.cli.main import main; main(['--help'])"


def run() -> Result:
    """Measure; needs nothing."""

    def wall(code: str) -> float:
        started = time.monotonic()
        subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
        return 1000 * (time.monotonic() - started)

    walls = interleave({"help": lambda: wall(_HELP), "bare": lambda: wall("pass")}, ROUNDS)
    extra = [ours - bare for ours, bare in zip(walls["help"], walls["bare"], strict=True)]
    return Result(
        "help",
        "the first thing a person sees",
        {"cockpit": "cockpit --help", "bare python": "python -c pass"},
        levels=[Level("--help, beyond bare python", extra, "ms", 120)],
    )
