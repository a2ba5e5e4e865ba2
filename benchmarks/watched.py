"""Whether training notices that it is watched: steps a second in windows with and without a cockpit."""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import mean

from benchmarks.here import Here, started, wait
from benchmarks.table import Figure, Result

CYCLES = 6
WINDOW_S = 2.5
_SETTLE_S = 1.0
_PROGRAM = ["env", "OMP_NUM_THREADS=1", sys.executable, "examples/train_torch.py"]


def run() -> Result:
    """Measure; needs torch."""
    with started(1, [*_PROGRAM, "--steps", "10000000", "--step-time", "0"]) as here:
        wait(lambda: step(here) > 0, "the first step")
        here.cockpit.kill()
        here.cockpit.wait()
        before, watched, after = [], [], []
        for _ in range(CYCLES):
            before.append(rate(here))
            cockpit = here.start("attach", here.name, "--headless")
            watched.append(_watched_rate(here, cockpit))
            after.append(rate(here))
    unwatched = [mean(pair) for pair in zip(before, after, strict=True)]
    band = Figure("unwatched on both sides (A/A)", before, after, "steps/s")
    return Result(
        "watched",
        "steps a second of one training process, watched and unwatched",
        {"watched": "cockpit attach RUN --headless (follow, samples)", "unwatched": "no cockpit"},
        [Figure("watched", watched, unwatched, "steps/s", min(band.ratios), True, _SLOWER), band],
        notes=[
            "The aim is the lower end of the A/A band of the same minutes.",
            "Client and node are one machine here; in a cluster the client's share is elsewhere.",
        ],
    )


def _watched_rate(here: Here, cockpit: subprocess.Popen[bytes]) -> float:
    try:
        spool = here.folder / "state"
        size = _spooled(here)
        wait(lambda: spool.is_dir() and _spooled(here) > size, "the cockpit's first bytes")
        return rate(here)
    finally:
        cockpit.kill()
        cockpit.wait()


def _spooled(here: Here) -> int:
    return sum(file.stat().st_size for file in here.folder.glob("state/**/spool/*/rank-0.log"))


def rate(here: Here, window_s: float = WINDOW_S) -> float:
    """Steps a second of rank 0 in a window, a moment from now."""
    time.sleep(_SETTLE_S)
    begin, first = time.monotonic(), step(here)
    time.sleep(window_s)
    last, end = step(here), time.monotonic()
    return (last - first) / (end - begin)


def step(here: Here) -> int:
    """The last step in the rank's log."""
    with here.log(0).open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 4096))
        lines = [line for line in file.read().split(b"\n")[:-1] if line.startswith(b"step ")]
    return int(lines[-1].split()[1].partition(b"/")[0]) if lines else 0


_SLOWER = "a follower that looks at the files less often while little comes."
