"""The pace of a run: the newest step of every rank from the best source there is, and who is slow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from statistics import median

from cockpit.core.pace.anew import Anew
from cockpit.core.pace.history import History
from cockpit.core.pace.signs import Sign, Signs
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
from cockpit.core.pace.steps import Key, Step, Steps

FRESH_S, FRESH_STEPS = 150.0, 3
"""Seconds, and beyond them usual steps, for which a look at recorders counts: one is taken each minute, and
knows nothing of the step that goes on."""
MOST = 1000
"""Steps that may pass unseen between two that are drawn as one."""
MOST_FOLDED = 1 << 16
"""Steps that a node may tell of as one."""
USUAL = 20
"""Steps of which the usual time of a step is the median."""
OFF = 100
"""From how many steps on a log counts otherwise than ranks do, and not just by chance."""
PORTIONS_S = 2.0
"""Lines of a log arrive in portions: over less than this, their times say nothing about a step's."""


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


@dataclass(slots=True)
class _Known:
    key: Key
    at: float
    exact: bool
    since: tuple[int, float]
    """The step, and when it was finished, from which on the time of the next one is measured."""

    def supersedes(self, key: Key, exact: bool) -> bool:
        """Whether this says more than another report: what the rank noted itself counts more than its log."""
        return self.key >= key if self.exact == exact else self.exact


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


class Pace:
    """What is known about the steps of all ranks. Times are unix seconds on our clock.

    :param ranks: the ranks of each node
    """

    def __init__(self, ranks: Iterable[int] = ()) -> None:
        self.history = History()
        self.relative = False
        """Whether steps are counted from the start of the program: a resumed run is further than that."""
        self.steps = Steps(tuple(ranks), self._drop)
        self.signs = Signs(self.steps.ranks)
        """Of all ranks, also of those whose steps are known."""
        self.dropped: Callable[[Step], object] = lambda step: None
        """Is called with each step that is no longer kept rank by rank."""
        self._known: dict[int, _Known] = {}
        self._attempts: dict[int, int] = {}
        self._attempt = 0
        self._anew = Anew()
        self._generation = 0  # counts restarts, and how often steps were counted anew
        self._middle = 0
        self._middle_of = -1  # the version that it was last looked for in
        self._heard: dict[int, float] = {}
        self._front: tuple[int, _Known | None] = (-1, None)
        self._slow: tuple[int, list[Slow]] = (-1, [])
        self._lately = _Lately((-1, False), (), ())
        self._worked_at = -math.inf
        self._work_kept = False
        self.lag = False
        """Whether work is how far CPUs lag that enqueue for GPUs: no GPU is slow because of it."""
        self.unworked: dict[int, str] = {}
        """Why the work of ranks was not known at the last look at their recorders."""
        self.version = 0
        """Changes when anything does."""

    def _drop(self, step: Step) -> None:
        self.history.add(step)
        self.dropped(step)

    def restarted(self, rank: int, attempt: int) -> None:
        """A rank runs as a new process.

        :param attempt: how often its launcher had started it before
        """
        if rank not in self.steps.place or self._attempts.get(rank, 0) == attempt:
            return
        self._attempts[rank] = attempt
        self._known.pop(rank, None)
        self.signs.forget(rank)
        counts = sorted(self._attempts.get(other, 0) for other in self.steps.ranks)
        # One node may report any number of restarts: most ranks say which one the run is in.
        self._attempt = max(self._attempt, counts[len(counts) // 2])
        self._anew.forget(rank)
        self._generation = max(self._generation, self._attempt + len(self._anew))
        self.version += 1

    def stepped(
        self,
        rank: int,
        step: int,
        at: float,
        *,
        span: float | None = None,
        exact: bool = True,
        anew: bool = False,
    ) -> None:
        """A rank finished a step; older than its last, of an unknown rank, or far from all others: ignored.

        If most ranks count lower than before, later, the run does: it has loaded an older checkpoint, or is
        in another epoch.

        :param span: seconds that the step took; None: what passed since the last one
        :param exact: the rank itself noted the time; else it is when a line of its log arrived
        :param anew: its log tells a later epoch
        """
        before = self._known.get(rank)
        if before and before.exact == exact and step < before.key[1] and at > before.at:
            self._lower(rank, step, at, sure=exact or anew)
        key = (self._generation, step)
        if rank not in self.steps.place or (before and before.supersedes(key, exact)):
            return
        if self._anew:
            self._anew.forget(rank)
        count, since = 1, (step, at)
        if before and before.exact == exact and before.key[0] == key[0]:
            count = step - before.key[1]
            first, begun = (before.key[1], before.at) if at - before.at >= PORTIONS_S else before.since
            if not exact and 0 <= at - begun < PORTIONS_S:
                since = before.since
            elif span is None and at > begun:
                span = (at - begun) / (step - first)
        self._known[rank] = _Known(key, at, exact, since)
        self._middle_of = -1
        if self._near(step) and (exact or not self._aside(self._known[rank])):
            self.steps.finish(rank, key, at, span, exact=exact, count=self._unseen(key, count))
        self.version += 1

    def heard(self, rank: int, at: float) -> None:
        """All steps are known that a rank had finished at a moment."""
        if at > self._heard.get(rank, -math.inf):
            self._heard[rank] = at

    def _lower(self, rank: int, step: int, at: float, *, sure: bool) -> None:
        """A rank counts lower than before."""
        if self._known[rank].key[0] < self._generation:
            return  # the run does so already
        self._anew.told(rank, step, at, sure=sure)
        told = {other for other, known in self._known.items() if known.key[0] == self._generation}
        if self._anew.agreed(told):
            self._generation += 1

    def _unseen(self, key: Key, count: int) -> int:
        """Of how many steps this one is the last: of those that a rank left out, others may have told."""
        most = min(count, MOST)
        known = (back for back in range(1, most) if self.steps.get((key[0], key[1] - back)) is not None)
        return next(known, most)

    def worked(self, rank: int, step: int, seconds: float, cost: float | None = None) -> None:
        """In this step the rank did not wait for others so long (:mod:`cockpit.core.recorder.work`).

        :param cost: seconds for which others waited for it alone; None: not known
        """
        if rank in self.steps.place and seconds >= 0:
            self.steps.work(rank, (self._generation, step), seconds, cost)
            found = self.step(step)
            if found is not None:
                self._worked_at = max(self._worked_at, found.base)
            self._work_kept = False
            self.version += 1

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

    def recall(
        self,
        key: Key,
        at: float,
        span: float,
        seconds: Mapping[int, float],
        *,
        count: int,
        work: bool,
        exact: bool,
        lag: bool = False,
        cost: tuple[int, float] | None = None,
    ) -> None:
        """Take in a step of the past; of one that is known, only the work, unless that is known too.

        :param span: seconds of one step, of the median rank
        :param seconds: how long each rank that finished it took, or, if ``work``, did not wait for others
        :param lag: whether that work is when CPUs enqueued
        :param cost: the rank that made others wait for it alone, and for how long; None: not known
        """
        there = self.steps.get(key)
        if there is not None and (there.works or not work):
            return
        self.steps.past += 1
        self._work_kept = self._work_kept or work
        for rank, took in seconds.items():
            if rank not in self.steps.place:
                continue
            if there is None:
                self.steps.finish(rank, key, at, span if work else took, exact=exact, count=count)
            if work:
                told = cost[1] if cost and cost[0] == rank else 0.0
                self.steps.work(rank, key, took, told if cost else None)
                self._worked_at = max(self._worked_at, at)
            known = self._known.get(rank)
            if known is None or not known.supersedes(key, exact):
                self._known[rank] = _Known(key, at, exact, (key[1], at))
        self.lag = self.lag or lag
        self._generation = max(self._generation, key[0])
        self.version += 1

    def remember(
        self, rank: int, step: int, at: float, span: float | None, *, attempt: int, count: int
    ) -> None:
        """Take in a step that a rank's node kept while nobody watched, unless it is known.

        :param attempt: how often its launcher had started the rank before
        :param count: of how many steps it is the last
        """
        place = self.steps.place.get(rank)
        if place is None:
            return
        key = (min(attempt + self._anew.before(at), self._generation), step)
        known = self._known.get(rank)
        if known is None or not known.supersedes(key, exact=True):
            self._known[rank] = _Known(key, at, True, (step, at))
        there = self.steps.get(key)
        if self._near(step) and (there is None or there.end(place) is None):
            self.steps.finish(rank, key, at, span, exact=True, count=min(count, MOST_FOLDED))
        self.version += 1

    def _near(self, step: int) -> bool:
        """Whether a step is not far ahead of the median rank's: one node alone cannot move the front."""
        reach = self.steps.limit // 2
        if abs(step - self._middle) > reach and self._middle_of != self.version:
            reached = sorted(known.key[1] for known in self._known.values())
            self._middle = reached[(len(reached) - 1) // 2] if reached else 0
            self._middle_of = self.version
        return step <= self._middle + reach

    # What it says

    @property
    def front(self) -> tuple[int, float] | None:
        """The furthest step that a rank has finished, and when the first one did."""
        known = self._foremost
        return None if known is None else (known.key[1], known.at)

    @property
    def _foremost(self) -> _Known | None:
        version, front = self._front
        if version != self.version:
            front = self._find_front()
            self._front = self.version, front
        return front

    def _find_front(self) -> _Known | None:
        near = [known for known in self._known.values() if self._near(known.key[1])]
        if self.relative and any(known.exact for known in near):
            exact = max(known.key for known in near if known.exact)
            near = [known for known in near if not _otherwise(known, exact)]
        if not near:
            return None
        key = max(known.key for known in near)
        return min((known for known in near if known.key == key), key=lambda known: known.at)

    def _aside(self, known: _Known) -> bool:
        """Whether a rank's log counts on another scale than other ranks do: further, as of a resumed run."""
        front = self._foremost if self.relative and not known.exact else None
        return front is not None and front.exact and _otherwise(known, front.key)

    def _behind(self, known: _Known, rank: int) -> int:
        """Steps behind the front, as it was when all was known that the rank had finished.

        Nodes are not asked at the same moment, and in between ranks go on.
        """
        front = self._foremost
        if front is None or self._aside(known):
            return 0
        reached, heard = front.key[1], self._heard.get(rank, math.inf)
        if heard < front.at:
            then = self.steps.ended_by(heard)
            if then is not None and then.key[0] == front.key[0]:
                reached = min(reached, then.step)
        return max(0, reached - known.key[1])

    def step(self, number: int) -> Step | None:
        """A step of the present start of the run, if it is kept."""
        return self.steps.get((self._generation, number))

    @property
    def began_at(self) -> float | None:
        """When the first step that is known ended, unix seconds; None if no step is known."""
        oldest = next(iter(self.history.buckets), None)
        if oldest is not None:
            return oldest.at
        return next((step.typical_end for step in self.steps), None)

    @property
    def last_at(self) -> float | None:
        """When the newest step was finished, unix seconds; None if no step is known."""
        return max((known.at for known in self._known.values()), default=None)

    def noted_until(self, ranks: Iterable[int]) -> float | None:
        """When the newest step was finished that any of these ranks noted itself, or None (unix seconds)."""
        known = (self._known.get(rank) for rank in ranks)
        return max((one.at for one in known if one is not None and one.exact), default=None)

    @property
    def exact(self) -> bool:
        """Whether any rank notes its steps itself."""
        return any(known.exact for known in self._known.values())

    def notes(self, rank: int) -> bool:
        """Whether a rank notes its steps itself."""
        known = self._known.get(rank)
        return known is not None and known.exact

    def usual(self) -> float | None:
        """Seconds of a step: the median of the last ones; None: not known."""
        spans = (step.typical_span for step in self._newest(USUAL))
        known = [span for span in spans if span > 0]
        return median(known) if known else None

    def longest(self) -> float | None:
        """Seconds of the longest of the last steps, for the median rank; None: not known.

        Where a log tells of some steps only, from one of these to the next.
        """
        return max(self._gaps(LOOKED_AT), default=None)

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
            None if self.lag else _middle([step.works[place] for step in judged]),
            _middle([step.over(place) for step in judged]) if self.lag else None,
            cost=None if self.lag else _middle([_cost(step, place) for step in judged]),
            work_at=judged[0].typical_end if judged else None,
            work_kept=bool(judged) and self._work_kept,
        )

    def _after(self, known: _Known, place: int) -> float | None:
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
        known = list(islice(self._judging(), LOOKED_AT)) if self.works else [worked]
        spans = [step.typical_span for step in known]
        before = _middle(spans)
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


def _otherwise(known: _Known, key: Key) -> bool:
    """Whether a log tells a step that is far from where a rank is that notes its steps itself."""
    return not known.exact and abs(known.key[1] - key[1]) > OFF


def _cost(step: Step, place: int) -> float:
    """How long others waited for a rank alone: who made them wait most is known; NaN: not known."""
    return step.cost if step.costly == place or math.isnan(step.cost) else 0.0


def _middle(values: Sequence[float]) -> float | None:
    """The median of the known values; None if there are none."""
    total = sum(values)
    if total != total:  # one of them is NaN, which is not equal to itself
        values = [value for value in values if value == value]
    return median(values) if values else None
