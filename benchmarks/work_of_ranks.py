"""What it costs to find the work of 1,024 ranks in ten steps, and the same as it is defined."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from random import Random

from benchmarks.measure import interleave
from benchmarks.table import Figure, Level, Result
from cockpit.core.recorder.members import Memberships
from cockpit.core.recorder.merge import Look, look
from cockpit.core.recorder.work import Step, work
from tests.recorder import plainly
from tests.recorder.training import Training

STEPS, ROUNDS = 10, 5
AIM = 0.5
"""Of the time that the definition takes."""

MISSING = "fewer gaps to compare: each wait of each rank is a few lookups in Python"

SHAPES = {
    "18 collectives a step, one group": (1, 1024, 0, 17),
    "30 collectives a step, one group": (1, 1024, 0, 29),
    "18 collectives a step, 8 tensor parallel × 128 data parallel": (8, 128, 12, 5),
}
"""Ranks of a tensor-parallel and of a data-parallel group, collectives forward and backward."""


def run() -> Result:
    """Measure; needs nothing."""
    figures, levels = [], []
    for name, shape in SHAPES.items():
        seen, steps = _look(*shape)
        sides: dict[str, Callable[[], float]] = {
            "sweep": lambda seen=seen, steps=steps: _took(work, seen, steps),  # type: ignore[misc]
            "defined": lambda seen=seen, steps=steps: _took(plainly.work, seen, steps),  # type: ignore[misc]
        }
        found = interleave(sides, ROUNDS)
        figures.append(
            Figure(
                f"{name}: CPU", found["sweep"], found["defined"], "ms", AIM, at_least=False, missing=MISSING
            )
        )
        entered = sum(len(one.arrivals) for one in seen.collectives)
        levels.append(
            Level(f"{name}: CPU for each entry", [1000 * took / entered for took in found["sweep"]], "µs")
        )
    return Result(
        "works",
        f"the work of 1,024 ranks in {STEPS} steps from their flight recorders, once a minute",
        {"cockpit": "core/recorder/work.py", "other": "tests/recorder/plainly.py: as it is defined"},
        figures,
        levels,
    )


Taken = tuple[Look, Mapping[int, Sequence[Step]]]


def _look(tensor: int, data: int, layers: int, buckets: int) -> Taken:
    chance = Random(1)
    usual = {"data": 2000, "forward": 40_000, "backward": 50_000}

    def busy(rank: int, _: int, what: str) -> int:
        late = 60_000 if (rank, what) == (13, "data") else 0
        return int((usual[what] + late) * chance.uniform(0.985, 1.015))

    run = Training(tensor, data, busy, max(1, layers), buckets, steps=STEPS)
    return look(run.recorded(), Memberships(run.world)), run.step_times()


def _took(what: Callable[..., object], seen: Look, steps: Mapping[int, Sequence[Step]]) -> float:
    """Milliseconds of CPU."""
    started = time.process_time()
    what(seen, steps)
    return 1000 * (time.process_time() - started)
