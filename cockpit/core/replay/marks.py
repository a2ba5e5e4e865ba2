"""What a person looks for in a run that is replayed: failures, stalls and checkpoints, and when they were."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from cockpit.base.events import EvidenceKept, RankExited, RankLost, Saved, Watched
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel

FAILURE, STALL, CHECKPOINT = "failure", "stall", "checkpoint"
KINDS = FAILURE, STALL, CHECKPOINT
"""The gravest first."""

APART_S = 3.0
"""Marks of one kind that follow each other by less are one: a whole node fails within a moment."""

FEW = 1000
"""Marks of a kind; of more, one of several stands for them."""


class Mark(NamedTuple):
    """A moment to look at.

    :param at: unix seconds on our clock
    :param kind: one of :data:`KINDS`
    """

    at: float
    kind: str


class Marks:
    """Collects marks from events in their order, as the model takes them in."""

    def __init__(self, model: RunModel) -> None:
        self._model = model
        self._found: dict[str, list[float]] = {kind: [] for kind in KINDS}
        self._stalled = False

    def take(self, at: float, event: Event) -> None:
        """An event was applied to the model.

        :param at: when it happened, unix seconds on our clock
        """
        kind = self._kind(event)
        if not kind:
            return
        known = self._found[kind]
        if not known or at - known[-1] >= APART_S:
            known.append(at)

    def _kind(self, event: Event) -> str:
        fact = event.fact
        if isinstance(fact, RankExited | RankLost):
            rank = self._model.ranks.get(fact.rank)
            # What ended after a stop was asked for did as it was told.
            failed = rank is not None and rank.failed and not self._model.told_to_stop(rank)
            return FAILURE if failed else ""
        if isinstance(fact, Watched):
            before, self._stalled = self._stalled, fact.state == "stalled"
            return STALL if self._stalled and not before else ""
        if isinstance(fact, EvidenceKept) and fact.why == "stall" and fact.over_s is None:
            return STALL
        return CHECKPOINT if isinstance(fact, Saved) else ""

    @property
    def all(self) -> list[Mark]:
        """The marks, the earliest first."""
        found: list[Mark] = []
        for kind, times in self._found.items():
            found += [Mark(at, kind) for at in times[:: -(-len(times) // FEW) or 1]]
        return sorted(found)


def beside(marks: Sequence[Mark], at: float, step: int) -> Mark | None:
    """The next (``step`` 1) or previous (-1) mark at another moment; None: there is none."""
    place = (
        bisect_right(marks, at, key=attrgetter("at"))
        if step > 0
        else bisect_left(marks, at, key=attrgetter("at")) - 1
    )
    return marks[place] if 0 <= place < len(marks) else None


def gravest(marks: Iterable[Mark]) -> Mark | None:
    """The one that is shown where there is room for one alone; None: there is none."""
    return min(marks, key=lambda mark: (KINDS.index(mark.kind), mark.at), default=None)
