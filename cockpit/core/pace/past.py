"""One step over all ranks as a line of a file: what is kept of a run's pace on disk."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from statistics import median_low
from typing import Any

from cockpit.base.gate import (
    RANK,
    Flag,
    ListOf,
    Malformed,
    Maybe,
    Number,
    RowOf,
    Text,
    Whole,
    bound,
    parsed,
    plain,
)
from cockpit.core.pace.history import FIRST_S, SOME, Bucket
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.phases import NAMES, Phases
from cockpit.core.pace.step import Step
from cockpit.core.ranks import ranks_text, read_ranks
from cockpit.errors import CockpitError

APART = 64
"""Ranks whose own excess is kept with a step, the slowest first."""

MISSING = 4096
"""Characters that name the ranks that did not finish a step; more are not kept."""

KEPT_FROM = 0.15
"""The excess from which it is kept."""

_OPTIONAL = (None, 0, ())
"""What the last fields of a line are where it lacks them: older ones do, and so do some where they are not
known."""
_WHOLE = 1000
"""Of so many parts of a step its phases are kept; ``-1`` is not known."""

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

    :param restarts: how often the run had been restarted, or had begun to count steps anew
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
    :param cost: seconds for which the others waited for one rank alone; None: not known
    :param costly: which one that is
    :param phases: of the median rank: so many thousandths of ``span`` in each of
        :data:`cockpit.core.pace.phases.NAMES`; -1: not known; empty: none is
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
    cost: float | None = bound(Maybe(_SECONDS), None)
    costly: int = bound(RANK, 0)
    phases: tuple[int, ...] = bound(ListOf(Whole(-1, _WHOLE), len(NAMES)), ())

    def __post_init__(self) -> None:
        """Refuse phases of which it is not clear which is which."""
        if len(self.phases) not in (0, len(NAMES)):
            raise Malformed(f"expected {len(NAMES)} phases, or none")

    @property
    def seconds(self) -> Phases | None:
        """The phases of the median rank."""
        if not self.phases:
            return None
        return Phases._make(math.nan if one < 0 else self.span * one / _WHOLE for one in self.phases)

    def line(self) -> bytes:
        """The line of the file, a list of the fields in their order."""
        told = plain(self)
        told["apart"] = [[one.rank, round(one.excess, 3)] for one in self.apart]
        values = list(told.values())
        if not self.phases:
            del values[-1:]
            if self.cost is None:
                del values[-2:]
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
        None if lag or math.isnan(step.cost) else round(step.cost, 6),
        ranks[step.costly],
        _shares(step),
    )


def _shares(step: Step) -> tuple[int, ...]:
    found, span = step.typical_phases, step.typical_span
    if found is None or not span > 0:
        return ()
    return tuple(-1 if math.isnan(one) else min(_WHOLE, round(_WHOLE * one / span)) for one in found)


def worse(one: PastStep, other: PastStep) -> PastStep:
    """The one in which the ranks differed more, in the place of both: it ends where the later one ends."""
    most = max(one, other, key=lambda step: step.greatest * (1 + len(step.missing)) / (step.median or 1.0))
    return replace(most, at=other.at, step=other.step, restarts=other.restarts, count=one.count + other.count)


class Lasted:
    """How long the steps took that lines stand for, asked in their order.

    A line of several steps has the time of one of them, that in which ranks differed most: how long all of
    them took, the ends tell.
    """

    def __init__(self) -> None:
        self._last: tuple[int, int, float] | None = None

    def of(self, restarts: int, step: int, count: int, at: float, span: float, *, exact: bool) -> float:
        """Seconds that all steps of a line took; see :class:`PastStep`. What logs tell is a mean already."""
        before, self._last = self._last, (restarts, step, at)
        follows = before is not None and before[:2] == (restarts, step - count) and at > before[2]
        return at - before[2] if exact and count > 1 and before is not None and follows else count * span


def past_of(line: bytes) -> PastStep:
    """The step of a line.

    :raises Malformed: it is none
    """
    value = parsed(line)
    if isinstance(value, list) and 0 < (lacks := len(fields(PastStep)) - len(value)) <= len(_OPTIONAL):
        value += _OPTIONAL[-lacks:]
    found: PastStep = RowOf(PastStep).read(value)
    return found


def ended(line: bytes) -> float | None:
    """When the step of a line ended, unix seconds; None: the line is damaged."""
    step = _step_of(line)
    return None if step is None else step.at


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
        cost=None if found.cost is None else (found.costly, found.cost),
    )
    if (there := pace.steps.get((found.restarts, found.step))) is not None:
        there.kept = found.seconds
    pace.relative = pace.relative or found.relative


def recall_all(pace: Pace, found: Sequence[PastStep]) -> None:
    """Take in steps of the past, oldest first; those that name ranks that cannot be are left out.

    As :func:`recall` for each, but for the thousands of which nothing but themselves depends at once.
    """
    # Whose newest step is not found yet, by whether it was noted; what a rank notes counts more than its log.
    unseen = {exact: frozenset(pace.steps.ranks) for exact in (True, False)}
    works = False
    for step in reversed(found):
        try:
            missing = _missing(step.missing)
        except CockpitError:
            continue
        newest = not unseen[step.exact] <= missing or (step.work and not works)
        works = works or step.work
        if newest or pace.steps.get((step.restarts, step.step)) is not None:
            unseen[step.exact] &= missing
            recall(pace, step)
        else:
            pace.steps.recalled(_whole(step, pace, missing))
            pace.lag = pace.lag or step.lag
            pace.relative = pace.relative or step.relative
    pace.version += 1


@lru_cache(maxsize=256)
def _missing(text: str) -> frozenset[int]:
    return frozenset(read_ranks(text)) if text else frozenset()


def _whole(past: PastStep, pace: Pace, missing: frozenset[int]) -> Step:
    """A step with what is known of all ranks, as :func:`recall` takes it in."""
    places, count = pace.steps.place, len(pace.steps.ranks)
    took, unknown = array("f", [past.median]) * count, array("f", [math.nan]) * count
    for one in past.apart:
        if one.rank in places:
            took[places[one.rank]] = past.median * (1 + one.excess)
    ends = array("f", [0.0]) * count
    spans = array("f", [past.span]) * count if past.work else array("f", took)
    for rank in missing:
        if rank in places and all(one.rank != rank for one in past.apart):
            place = places[rank]
            ends[place] = spans[place] = took[place] = math.nan
    step = Step((past.restarts, past.step), past.at, ends, unknown, count=past.count)
    step.kept = past.seconds
    if past.work:
        step.works = took
    if past.work and past.cost is not None and past.costly in places:
        step.cost, step.costly = past.cost, places[past.costly]
    if past.exact:
        step.spans = spans
    else:
        step.estimate = past.span if past.work else past.median
    return step


# -- steps that are too old to be kept rank by rank ---------------------------------------------------

_NUMBERS = (2, 5, 6, 7, 8)
"""Of the fields of a line: the times."""


def buckets(lines: Sequence[bytes], pace: Pace) -> Iterator[Bucket]:
    """What the history has of steps, from their lines, oldest first; damaged lines are ignored."""
    columns = _columns(lines)
    if columns is None:  # look at each
        exact = [step for line in lines if (step := _step_of(line)) is not None and step.exact]
        rows = [(s.step, s.at, s.median, s.least, s.greatest, s.slowest, s.work) for s in exact]
        columns = tuple(zip(*rows, strict=True)) if rows else ((),) * 7
    steps, ends, middles, leasts, greatests, slowest, works = columns
    begin = 0
    for place in range(1, len(ends) + 1):
        if place < len(ends) and 0 <= ends[place] - ends[begin] < FIRST_S:
            continue
        part = slice(begin, place)
        # Work and whole steps have no common median.
        work = any(works[part])
        told = [at for at in range(begin, place) if works[at] == work]
        excesses = [greatests[at] / (middles[at] or math.inf) for at in told]
        most = max(excesses)
        rank = pace.steps.place.get(slowest[told[excesses.index(most)]])
        each = -(-len(told) // SOME)
        some = tuple(middles[at] for at in told[::each])
        yield Bucket(
            ends[begin],
            max(ends[part]),
            place - begin,
            min(steps[part]),
            max(steps[part]),
            min(leasts[at] for at in told),
            median_low(some),
            max(greatests[at] for at in told),
            0.0 if rank is None else max(0.0, most - 1),
            rank or 0,
            work,
            some,
            each,
        )
        begin = place


def _step_of(line: bytes) -> PastStep | None:
    with suppress(Malformed):
        return past_of(line)
    return None


def _columns(lines: Sequence[bytes]) -> tuple[Sequence[Any], ...] | None:
    """The columns that the history needs, of steps that ranks timed; None: a line is not as it should be.

    Checked by columns: there may be a hundred thousand lines.
    """
    # Ranks that are apart come last, and would take most of the time.
    short = (line[:cut] for line in lines if (cut := line.find(b",[")) > 0)
    try:
        rows = json.loads(b"[" + b"],".join(short) + b"]]", parse_constant=_refused)
        columns = list(zip(*rows, strict=True))
    except (ValueError, TypeError, RecursionError):
        return None
    if len(rows) != len(lines) or len(columns) != 14:
        return None
    if not all(set(map(type, columns[at])) <= {int, float} for at in _NUMBERS):
        return None
    whole = [columns[at] for at in (0, 1, 3, 9)]
    if not all(set(map(type, column)) == {int} and min(column) >= 0 for column in whole):
        return None
    times = [columns[at] for at in _NUMBERS]
    if any(min(column) < 0 for column in times) or any(max(column) > 1e9 for column in times[1:]):
        return None
    if max(times[0]) > 1e11 or max(whole[1]) > 1 << 53 or not set(columns[11]) <= {True, False}:
        return None
    if not set(map(type, columns[10])) <= {bool}:
        return None
    if not all(columns[11]):
        rows = [row for row in rows if row[11]]
        columns = list(zip(*rows, strict=True)) if rows else [()] * 14
    return tuple(columns[at] for at in (1, 2, 6, 7, 8, 9, 10))


def _refused(text: str) -> Any:
    raise ValueError(text)
