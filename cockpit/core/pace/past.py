"""One step over all ranks as a line of a file: what is kept of a run's pace on disk."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from cockpit.base.gate import (
    RANK,
    Flag,
    ListOf,
    Malformed,
    Number,
    RowOf,
    Text,
    Whole,
    bound,
    plain,
)
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.steps import Step
from cockpit.core.ranks import ranks_text, read_ranks

APART = 64
"""Ranks whose own excess is kept with a step, the slowest first."""

MISSING = 4096
"""Characters that name the ranks that did not finish a step; more are not kept."""

KEPT_FROM = 0.15
"""The excess from which it is kept."""

_SECONDS = Number(0, 1e9)


@dataclass(frozen=True)
class Apart:
    """A rank that took longer than the median rank.

    :param excess: by how much: 0.5 is half as long again
    """

    rank: int = bound(RANK)
    excess: float = bound(Number(0, 1e9))


@dataclass(frozen=True)
class PastStep:
    """A step as it was when it was over.

    :param restarts: how often the run had been restarted
    :param at: when the median rank finished it, unix seconds
    :param count: of how many steps it is the last
    :param missing: the ranks that did not finish it: ``0-5,7``
    :param span: seconds of one step, of the median rank
    :param median, least, greatest: what ranks are compared by: their work in it, else their own spans
    :param slowest: the rank that took longest
    :param work: they are compared by work
    :param exact: ranks noted the times themselves
    :param lag: the work is how long CPUs took to enqueue: no GPU is slow because of it
    :param relative: steps are counted from the start of the program
    """

    restarts: int = bound(Whole(0, 1 << 30))
    step: int = bound(Whole(0, 1 << 53))
    at: float = bound(Number(0, 1e11))
    count: int = bound(Whole(1, 1 << 30))
    missing: str = bound(Text(MISSING))
    span: float = bound(_SECONDS)
    median: float = bound(_SECONDS)
    least: float = bound(_SECONDS)
    greatest: float = bound(_SECONDS)
    slowest: int = bound(RANK)
    work: bool = bound(Flag())
    exact: bool = bound(Flag())
    lag: bool = bound(Flag())
    relative: bool = bound(Flag())
    apart: tuple[Apart, ...] = bound(ListOf(RowOf(Apart), APART))

    def line(self) -> bytes:
        """The line of the file, a list of the fields in their order."""
        values = list(plain(self).values())
        values[-1] = [[one.rank, round(one.excess, 3)] for one in self.apart]
        return json.dumps(values, separators=(",", ":")).encode() + b"\n"


def past(step: Step, ranks: tuple[int, ...], *, lag: bool = False, relative: bool = False) -> PastStep | None:
    """What is kept of a step; None: nothing is known about how long it took.

    :param ranks: those of the run, in the order of the places
    :param lag: whether work is when CPUs enqueued
    :param relative: whether steps are counted from the start of the program
    """
    missing = ranks_text(ranks[place] for place, end in enumerate(step.ends) if math.isnan(end))
    values, typical = step.compared
    known = sorted((value, ranks[place]) for place, value in enumerate(values) if not math.isnan(value))
    exact = bool(known)
    if not known:
        if math.isnan(step.estimate):
            return None
        known, typical = [(step.estimate, ranks[0])], step.estimate
    over = [(value / typical - 1, rank) for value, rank in reversed(known) if typical > 0]
    apart = tuple(Apart(rank, excess) for excess, rank in over[:APART] if excess >= KEPT_FROM)
    return PastStep(
        step.key[0],
        step.step,
        round(step.typical_end, 3),
        step.count,
        missing if len(missing) <= MISSING else "",
        round(typical if math.isnan(step.typical_span) else step.typical_span, 6),
        round(typical, 6),
        round(known[0][0], 6),
        round(known[-1][0], 6),
        known[-1][1],
        step.by_work,
        exact,
        lag and step.by_work,
        relative,
        apart,
    )


def past_of(line: bytes) -> PastStep:
    """The step of a line.

    :raises Malformed: it is none
    """
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise Malformed("not JSON") from None
    found: PastStep = RowOf(PastStep).read(value)
    return found


def recall(pace: Pace, found: PastStep) -> None:
    """Take a step of the past in: ranks of which nothing was kept did as the median rank.

    :raises CockpitError: it names ranks that cannot be
    """
    missing = read_ranks(found.missing) if found.missing else frozenset()
    seconds = {one.rank: found.median * (1 + one.excess) for one in found.apart}
    pace.recall(
        (found.restarts, found.step),
        found.at,
        found.span,
        dict.fromkeys((rank for rank in pace.steps.ranks if rank not in missing), found.median) | seconds,
        count=found.count,
        work=found.work,
        exact=found.exact,
        lag=found.lag,
    )
    pace.relative = pace.relative or found.relative
