"""What is tried: the sites and sizes of the slow pool, beside healthy ranks whose steps are not all alike."""

from __future__ import annotations

import random

from tests.slowpool.cases import HABITS, Calm, Fault, Launch, drawn

RUNS = (
    ("ddp", 1, 4),
    ("ddp", 4, 4),
    ("ddp", 1, 2),
    ("zero2", 1, 4),
    ("zero2", 4, 2),
    ("zero3", 1, 3),
)
"""Setup, micro-steps of a step, ranks."""


def launches(seed: int) -> list[Launch]:
    """All that are tried with this seed: each site with each size, each habit of healthy ranks, and none."""
    return [_launch(seed, *run) for run in RUNS]


def _launch(seed: int, setup: str, micro: int, ranks: int) -> Launch:
    rng = random.Random(f"{seed} {setup} {micro} {ranks}")
    start, *habits = map(Calm, HABITS)
    rest: list[Fault | Calm | None] = [*drawn(rng, ranks), *habits, None]
    rng.shuffle(rest)
    return Launch(setup, micro, (start, *rest), ranks)
