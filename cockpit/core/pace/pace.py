"""The pace of a run: how far each rank is, how long its steps take, and who is slow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile
from statistics import median

from cockpit.base.stillness import Pause
from cockpit.core.pace.medians import middle
from cockpit.core.pace.phases import LOOKED_AT as PHASED
from cockpit.core.pace.phases import (
    MOST_RANKS,
    Bound,
    Phases,
    Reason,
    bound,
    middle_phases,
    rank_phases,
    reason,
    why,
)
from cockpit.core.pace.reached import Known, Reached
from cockpit.core.pace.signs import Sign
from cockpit.core.pace.slow import (
    EXCESS,
    LOOKED_AT,
    NEEDED,
    Slow,
    SlowLately,
    ranks_slow_lately,
    slow_ranks,
    slow_since,
)
from cockpit.core.pace.step import Step

FRESH_S, FRESH_STEPS = 150.0, 3
"""Seconds, and beyond them usual steps, for which a look at recorders counts: one is taken each minute, and
knows nothing of the step that goes on."""
CHANGED = 20
"""Steps of which it is said what they were bound by, before and after."""
USUAL = 20
"""Steps of which the usual time of a step is the median."""


@dataclass(frozen=True)
class RankPace:
    """How far a rank is.

    :param step: the last step that it finished; None: not known
    :param at: when, unix seconds on our clock
    :param estimated: read from its log, so that times are those of the arrival of a line
    :param behind: steps behind the front
    :param behind_s: seconds after the first rank that it finished its last step; None: not comparable
    :param span: seconds of a step, median of the last ten
    :param work: seconds of it in which it did not wait for others; None: not known
    :param lag: seconds by which its CPU enqueued later than that of the median rank of its stage; None: not
        known, or what is known is work
    :param sign: where no step of it is known: its last sign of progress; None: there is none, or steps tell
    :param cost: seconds of it in which others waited for this rank alone; None: not known
    :param work_at: when the newest step ended of which either is known, unix seconds
    :param work_kept: that is from the run's folder, where ranks that were not slow have the median one's
    """

    step: int | None = None
    at: float | None = None
    estimated: bool = False
    behind: int = 0
    behind_s: float | None = None
    span: float | None = None
    work: float | None = None
    lag: float | None = None
    sign: Sign | None = None
    cost: float | None = None
    work_at: float | None = None
    work_kept: bool = False


@dataclass(frozen=True, slots=True)
class _Lately:
    """What all ranks are looked at by, until anything changes.

    :param version: that of the pace, and whether it lags
    :param newest: the last steps
    :param judged: those of them by which work is compared; empty if nobody knows it
    :param paces: what was made of them, by rank
    """

    version: tuple[int, bool]
    newest: Sequence[Step]
    judged: Sequence[Step]
    paces: dict[int, RankPace] = field(default_factory=dict)


@dataclass(slots=True)
class _Phased:
    """Where the time of the last steps goes, until anything changes.

    :param newest: steps with phases, newest first
    :param run: of the median rank, in a list once it is known
    """

    version: int
    newest: Sequence[Step]
    ranks: dict[int, Phases | None] = field(default_factory=dict)
    why: dict[int, Reason | None] = field(default_factory=dict)
    run: list[Phases | None] | None = None


class Pace(Reached):
    """What is known about the steps of all ranks, and who is slow. Times are unix seconds on our clock.

    :param ranks: the ranks of each node
    """

    def __init__(self, ranks: Iterable[int] = ()) -> None:
        super().__init__(ranks)
        self._slow: tuple[int, list[Slow]] = (-1, [])
        self._lately = _Lately((-1, False), (), ())
        self._phases = _Phased(-1, ())

    def ends(self, rank: int, since: float) -> list[tuple[int, float]]:
        """The steps that a rank noted itself from this moment on, oldest first, and when it finished them."""
        known = self._known.get(rank)
        if known is None or not known.exact:
            return []
        place, found = self.steps.place[rank], []
        for step in self._lasts(rank, list(self.steps.newest())):
            end = step.end(place)
            if end is None or step.key[0] != known.key[0]:
                continue
            found.append((step.step, end))
            if end < since:
                break
        return found[::-1]

    def usual(self, count: int = USUAL) -> float | None:
        """Seconds of a step: the median of so many last ones; None: not known."""
        spans = (step.typical_span for step in self._newest(count))
        known = [span for span in spans if span > 0]
        return median(known) if known else None

    def judged(self) -> float | None:
        """The same of the last steps by which ranks are compared: those that their work is known of."""
        return _middle([step.typical_span for step in islice(self._judging(), LOOKED_AT)])

    def longest(self) -> float | None:
        """Seconds of the longest of the last steps, for the median rank; None: not known.

        Where a log tells of some steps only, from one of these to the next.
        """
        return max(self._gaps(LOOKED_AT), default=None)

    def paused(self) -> Pause:
        """The longest of all steps that are known, as the ranks themselves noted them."""
        spans = ((step.noted_span, step.step) for step in self.steps)
        return Pause(*max((one for one in spans if not math.isnan(one[0])), default=()))

    def lately(self) -> float | None:
        """The same of the shorter one of the last two: steps may have become long; None: not known."""
        gaps = self._gaps(LOOKED_AT)[:2]
        return min(gaps) if len(gaps) == 2 else None

    def _gaps(self, count: int) -> list[float]:
        spans = (step.typical_span * step.count for step in self._newest(count))
        return [span for span in spans if span > 0]

    def of(self, rank: int) -> RankPace:
        """How far a rank is."""
        if rank not in self._known:
            return RankPace(sign=self.signs.of(rank))
        version = self.version, self.lag
        if self._lately.version != version:
            judged = list(islice(self._judging(), LOOKED_AT)) if self.works else ()
            self._lately = _Lately(version, list(self._newest(LOOKED_AT)), judged)
        found = self._lately.paces.get(rank)
        if found is None:
            found = self._lately.paces[rank] = self._of(rank, self._lately)
        return found

    def _of(self, rank: int, lately: _Lately) -> RankPace:
        known, front = self._known.get(rank), self.front
        if known is None or front is None:
            return RankPace()
        place = self.steps.place[rank]
        lasts = self._lasts(rank, lately.newest)
        judged = [step for step in lately.judged if not math.isnan(step.works[place])]
        return RankPace(
            known.key[1],
            known.at,
            not known.exact,
            self._behind(known, rank),
            self._after(known, place),
            _middle([step.spans[place] for step in lasts] if known.exact else [s.estimate for s in lasts]),
            None if self.lag else _middle([step.works[place] for step in lately.judged]),
            _middle([step.over(place) for step in lately.judged]) if self.lag else None,
            cost=None if self.lag else _middle([_cost(step, place) for step in judged]),
            work_at=judged[0].typical_end if judged else None,
            work_kept=bool(judged) and self._work_kept,
        )

    def _after(self, known: Known, place: int) -> float | None:
        step = self.steps.get(known.key)
        if step is None or not known.exact:
            return None
        end = step.end(place)
        return None if end is None else end - step.first_end

    def lagging(self) -> list[int]:
        """Ranks that are several steps behind the front; one behind is everybody for a moment."""
        return [rank for rank, known in self._known.items() if known.exact and self._behind(known, rank) > 1]

    @property
    def lags(self) -> bool:
        """Whether ranks are compared by when their CPUs enqueued, so that nobody is slow because of it."""
        return self.lag and self.works

    def slow(self) -> list[Slow]:
        """Ranks that are slow, the slowest first."""
        return [] if self.lags else self._apart()

    def slow_lately(self) -> list[SlowLately]:
        """Ranks that may be slow, the slowest first: for whoever asks early, and never said unasked."""
        if self.lags:
            return []
        known = {one.rank for one in self.slow()}
        newest = list(islice(self._judging(), LOOKED_AT))
        lately = ranks_slow_lately(self.steps.ranks, lambda rank: self._lasts(rank, newest))
        found = (one for one in lately if one.rank not in known)
        return sorted(found, key=lambda one: one.usual_s - one.took_s)

    def late(self) -> list[Slow]:
        """Ranks whose CPUs enqueue later than the others', the latest first, where only that is known."""
        return self._apart() if self.lags else []

    def _apart(self) -> list[Slow]:
        version, found = self._slow
        if version != self.version:
            newest = list(islice(self._judging(), LOOKED_AT * 2))
            known = map(self._known.get, self.steps.ranks)
            keys = [None if one is None else one.key for one in known]
            slow = slow_ranks(self.steps, newest, keys)
            found = sorted(slow, key=lambda one: (-one.excess, one.rank))
            self._slow = self.version, found
        return found

    def _lasts(self, rank: int, newest: Sequence[Step]) -> Sequence[Step]:
        """Steps of a rank, newest first; its own where it is far behind the newest of all."""
        known = self._known.get(rank)
        if known is None or not newest or known.key >= newest[-1].key:
            return newest
        return self.steps.back_from(known.key, LOOKED_AT * 2)

    def phases_of(self, rank: int) -> Phases | None:
        """Seconds that a rank is in each phase of a step, the median of its last ones; None: not known."""
        found = self._phased()
        if rank not in found.ranks:
            found.ranks[rank] = rank_phases(self.steps.place[rank], self._lasts(rank, found.newest))
        return found.ranks[rank]

    def phases(self) -> Phases | None:
        """The same of the median rank."""
        found = self._phased()
        if found.run is None:
            found.run = [middle_phases(self._each())]
        return found.run[0]

    def _each(self) -> list[Phases]:
        """The same of each rank; of many ranks some speak for all."""
        every = max(1, len(self.steps.ranks) // MOST_RANKS)
        each = map(self.phases_of, self.steps.ranks[::every])
        return [one for one in each if one is not None]

    def bound(self) -> Bound | None:
        """What the steps are bound by; None: nothing takes so much of them, or it is not known."""
        return bound(self._each(), ranks=len(self.steps.ranks), gpus=self.gpus)

    def why(self, one: Slow) -> Reason | None:
        """Which phase of a slow rank differs by what it is slow by; None: none does."""
        known = self._phased().why
        if one.rank not in known:
            found = self._why(one.rank)
            known[one.rank] = found and replace(found, about=self.about)
        return known[one.rank]

    def _why(self, rank: int) -> Reason | None:
        place = self.steps.place[rank]
        newest = self._lasts(rank, self._phased().newest)
        return why(place, newest, lambda: self._before(rank))

    def _before(self, rank: int) -> Sequence[Step]:
        """Steps with phases before a rank became slow, newest first."""
        since = self.apart_since(rank)
        older = (step for step in self._reached() if step.phases and step.step < since)
        return list(islice(older, PHASED))

    def changed(self, at: float) -> Reason | None:
        """Which phase of the median rank makes steps longer since a moment, unix seconds; None: none does."""
        since = takewhile(lambda step: step.typical_end >= at, self._reached())
        before = (step for step in self._reached() if step.typical_end < at)
        both = [list(islice(some, CHANGED)) for some in (since, before)]
        now, then = (
            middle_phases([one for step in some if (one := step.typical_phases) is not None]) for some in both
        )
        took, usual = (_middle([step.typical_span for step in some]) for some in both)
        found = None if took is None or usual is None else reason(now, then, took - usual)
        return found and replace(found, whose="before", about=self.about)

    def _phased(self) -> _Phased:
        if self._phases.version != self.version:
            newest = list(islice((step for step in self._judging() if step.phases), PHASED))
            self._phases = _Phased(self.version, newest)
        return self._phases

    def apart_since(self, rank: int) -> int:
        """The first step of those in which a rank was slow or late, never more than two apart."""
        return slow_since(self.steps.place[rank], self._judging())

    @property
    def works(self) -> bool:
        """Whether ranks are compared by their work: the last look at it is not long ago."""
        front = self.front
        if front is None or math.isinf(self._worked_at):
            return False
        old = front[1] - self._worked_at - FRESH_S
        return old <= 0 or old <= FRESH_STEPS * (self.usual() or 0.0)

    def moved_on(self) -> bool:
        """Whether steps take clearly longer, or less long, than the last ones of which the work is known.

        Eight of the last ten do: since then, and by as much, as make a rank slow.
        """
        worked = next((step for step in self._newest(self.steps.limit) if step.works), None)
        if worked is None:
            return False
        before = self.judged() if self.works else _middle([worked.typical_span])
        since = list(takewhile(lambda step: step.key > worked.key, self._newest(LOOKED_AT)))
        if before is None or len(since) < NEEDED:
            return False
        longer = sum(step.typical_span > before * (1 + EXCESS) for step in since)
        shorter = sum(step.typical_span < before / (1 + EXCESS) for step in since)
        return max(longer, shorter) >= NEEDED

    def _judging(self) -> Iterator[Step]:
        """The steps by which ranks are compared, newest first.

        Those since the last look at recorders would be whole steps among work.
        """
        works = self.works
        return (step for step in self._reached() if step.works or not works)

    def _newest(self, count: int) -> Iterable[Step]:
        return islice(self._reached(), count)

    def _reached(self) -> Iterable[Step]:
        """The steps up to the front, newest first: what one rank alone tells may be further."""
        front = self._foremost
        newest = self.steps.newest()
        return newest if front is None else (step for step in newest if step.key <= front.key)


def _cost(step: Step, place: int) -> float:
    """How long others waited for a rank alone: who made them wait most is known; NaN: not known."""
    return step.cost if step.costly == place or math.isnan(step.cost) else 0.0


def _middle(values: Sequence[float]) -> float | None:
    """The median of the known values; None if there are none."""
    found = middle(values)
    return None if math.isnan(found) else found
