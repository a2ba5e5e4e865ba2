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
HABITS = ("start", "noise", "evaluation", "checkpoint")
"""Of healthy ranks: the first steps of rank 0 take longer; all layers differ; all ranks evaluate now and
then; rank 0 writes now and then what it has learned."""

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
class Calm:
    """All ranks are healthy, though their steps are not all alike.

    :param habit: what they do: of :data:`HABITS`
    """

    habit: str


@dataclass(frozen=True)
class Launch:
    """One run, in which now and then one rank is slow.

    :param micro: micro-steps of a step: gradient accumulation
    :param phases: one after the other; None: all ranks are healthy, as in the first
    :param ranks: how many it has
    """

    setup: str
    micro: int
    phases: tuple[Fault | Calm | None, ...]
    ranks: int = RANKS

    @property
    def name(self) -> str:
        """It has no blanks."""
        return f"{self.setup}-{self.micro}" + (f"-of{self.ranks}" if self.ranks != RANKS else "")


def launches(seed: int) -> list[Launch]:
    """All that are tried with this seed: each site with each size, and before three of them nobody."""
    return [_launch(seed, setup, micro) for setup, micro in product(SETUPS, MICRO)]


def _launch(seed: int, setup: str, micro: int) -> Launch:
    rng = random.Random(f"{seed} {setup} {micro}")
    faults = drawn(rng, RANKS)
    rng.shuffle(faults)
    phases: list[Fault | None] = []
    for number, fault in enumerate(faults):
        phases += [fault] if number % 3 else [None, fault]
    return Launch(setup, micro, tuple(phases))


def drawn(rng: random.Random, ranks: int) -> list[Fault]:
    """Each site with each size, on any rank."""
    return [
        Fault(
            rng.randrange(ranks),
            site,
            rng.randrange(LAYERS) if site in ("forward", "backward") else 0,
            round(size * rng.uniform(0.95, 1.05), 3),
        )
        for site, size in product(SITES, SIZES)
    ]
