"""What is tried: kinds of training, where a rank is slow, and by how much; who, from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product

from tests.slowpool import RANKS

SETUPS = ("ddp", "zero1", "zero2", "zero3", "tpdp")
MICRO = (1, 4)
SITES = ("data", "forward", "backward", "update", "io")
SIZES = (0.15, 0.4, 1.0)
LAYERS = 4

STEP_S = 0.3
"""What the layers of a step take a healthy rank, on average."""

STEPS = 13
"""Of a phase: a rank is judged by its last ten."""


@dataclass(frozen=True)
class Fault:
    """A rank that is slow.

    :param layer: where, in a pass through the layers
    :param size: the delay in each step, as a share of what a healthy step computes
    """

    rank: int
    site: str
    layer: int
    size: float


@dataclass(frozen=True)
class Launch:
    """One run, in which now and then one rank is slow.

    :param micro: micro-steps of a step: gradient accumulation
    :param phases: one after the other; None: all ranks are healthy, as in the first
    """

    setup: str
    micro: int
    phases: tuple[Fault | None, ...]

    @property
    def name(self) -> str:
        """It has no blanks."""
        return f"{self.setup}-{self.micro}"


def launches(seed: int) -> list[Launch]:
    """All that are tried with this seed: each site with each size, and before three of them nobody."""
    return [_launch(seed, setup, micro) for setup, micro in product(SETUPS, MICRO)]


def _launch(seed: int, setup: str, micro: int) -> Launch:
    rng = random.Random(f"{seed} {setup} {micro}")
    faults = [
        Fault(
            rng.randrange(RANKS),
            site,
            rng.randrange(LAYERS) if site in ("forward", "backward") else 0,
            round(size * rng.uniform(0.95, 1.05), 3),
        )
        for site, size in product(SITES, SIZES)
    ]
    rng.shuffle(faults)
    phases: list[Fault | None] = []
    for number, fault in enumerate(faults):
        phases += [fault] if number % 3 else [None, fault]
    return Launch(setup, micro, tuple(phases))
