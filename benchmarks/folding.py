"""What it costs to fold what 64 ranks print, by shape and by equality alone."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from benchmarks.measure import interleave
from benchmarks.table import Figure, Level, Result
from cockpit.core.logs.folding import Folder

RANKS, LINES = 64, 32
RANKS_LINES_S = 64_000
ROUNDS = 15

LACKS = (
    "taking lines apart outside of Python: the shape of a new line costs as much as all else in folding it"
)

Streams = Sequence[Sequence[bytes]]


def run() -> Result:
    """Measure; needs nothing."""
    chance = random.Random(1)
    streams = {name: [make(rank, chance) for rank in range(RANKS)] for name, make in KINDS.items()}
    figures, levels = [], []
    for name, lines in streams.items():
        size = sum(len(line) for some in lines for line in some) / 1e6
        sides: dict[str, Callable[[], float]] = {
            "shapes": lambda lines=lines, size=size: size / _fold(lines, shapes=True),  # type: ignore[misc]
            "equal": lambda lines=lines, size=size: size / _fold(lines, shapes=False),  # type: ignore[misc]
        }
        rates = interleave(sides, ROUNDS)
        figures.append(
            Figure(
                f"{name}: bytes/s", rates["shapes"], rates["equal"], "MB/s", 1.0, at_least=True, missing=LACKS
            )
        )
        mean = size * 1e6 / (RANKS * LINES)
        shares = [RANKS_LINES_S * mean / (rate * 1e6) for rate in rates["shapes"]]
        levels.append(
            Level(f"{name}: a core's share at 64,000 lines/s", [100 * share for share in shares], "%")
        )
    return Result(
        "folding",
        f"{LINES} lines of each of {RANKS} ranks, folded",
        {"cockpit": "Folder: lines of one shape are one", "other": "Folder: equal lines are one"},
        figures,
        levels,
    )


def _fold(streams: Streams, *, shapes: bool) -> float:
    """Seconds of CPU."""
    started = time.process_time()
    folder = Folder(0.0, shapes=shapes)
    for rank, lines in enumerate(streams):
        folder.add(("", rank), lines)
    folder.flush()
    return time.process_time() - started


def _equal(rank: int, chance: random.Random) -> list[bytes]:
    return [b"[INFO] step %d/999999 loss 2.4131 lr 1e-4 tokens/s 41200" % step for step in range(LINES)]


def _numbers(rank: int, chance: random.Random) -> list[bytes]:
    return [
        b"step %d/999999 loss %.4f lr 1e-4 at=%.3f rank %d" % (step, 2 + chance.random(), 1.7e9 + step, rank)
        for step in range(LINES)
    ]


def _words(rank: int, chance: random.Random) -> list[bytes]:
    return [b"request %032x of rank %d is done" % (chance.getrandbits(128), rank) for _ in range(LINES)]


KINDS = {"equal lines": _equal, "lines that differ in numbers": _numbers, "no two alike": _words}
