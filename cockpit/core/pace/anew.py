"""When the steps of a run begin to be counted anew: an older checkpoint was loaded, an epoch has begun."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass

TOLD = 5
"""Rising numbers below the last step in a log after which it counts anew: a single one may be of something
else."""


@dataclass(slots=True)
class _Lower:
    """What a rank tells below its last step.

    :param step: the last such number
    :param at: when the first one was told, unix seconds
    :param told: how many of them rose one after the other
    :param sure: whether one is enough
    """

    step: int
    at: float
    told: int
    sure: bool


class Anew:
    """Which ranks count lower than before; most of them say it for the run, so that no node does so alone."""

    def __init__(self) -> None:
        self._lower: dict[int, _Lower] = {}
        self._begun: list[float] = []

    def forget(self, rank: int) -> None:
        """It runs as a new process, or has counted further than before."""
        self._lower.pop(rank, None)

    def told(self, rank: int, step: int, at: float, *, sure: bool) -> None:
        """A rank told a step that is lower than its last one, but later.

        :param at: when it was finished, unix seconds
        :param sure: it noted it itself, or told a later epoch
        """
        before = self._lower.get(rank)
        if before is None:
            self._lower[rank] = _Lower(step, at, 1, sure)
            return
        before.told = before.told + 1 if step > before.step else before.told if step == before.step else 1
        before.step, before.sure = step, before.sure or sure

    def agreed(self, ranks: Collection[int]) -> bool:
        """Whether more than half of these ranks count anew; if so, that is taken down."""
        found = sorted(
            one.at for rank, one in self._lower.items() if rank in ranks and (one.sure or one.told >= TOLD)
        )
        if 2 * len(found) <= len(ranks):
            return False
        self._begun.append(found[0])
        self._lower.clear()
        return True

    def before(self, at: float) -> int:
        """How often that has been so before a moment, unix seconds."""
        return bisect_right(self._begun, at)

    def __len__(self) -> int:
        """How often it has been so."""
        return len(self._begun)

    def __bool__(self) -> bool:
        """Whether any rank counts lower than before."""
        return bool(self._lower)
