"""How far the ranks of a run are: what is known of their steps, from the best source there is."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cockpit.core.pace.history import History
from cockpit.core.pace.phases import NOTHING, packed
from cockpit.core.pace.signs import Signs
from cockpit.core.pace.step import Key, Step
from cockpit.core.pace.steps import Steps

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


MOST = 1000
"""Steps that may pass unseen between two that are drawn as one."""
MOST_FOLDED = 1 << 16
"""Steps that a node may report as one."""
OFF = 100
"""From how many steps on a log counts otherwise than ranks do, and not just by chance."""
PORTIONS_S = 2.0
"""Lines of a log arrive in portions: over less than this, their times say nothing about a step's."""


@dataclass(slots=True)
class Known:
    """The last step of a rank, when it finished that, and whether it noted it itself."""

    key: Key
    at: float
    exact: bool
    since: tuple[int, float]
    """The step, and when it was finished, from which on the time of the next one is measured."""

    def supersedes(self, key: Key, exact: bool) -> bool:
        """Whether this says more than another report: what the rank noted itself counts more than its log."""
        return self.key >= key if self.exact == exact else self.exact


class Reached:
    """What ranks have reported of their steps, and how far they are. Times are unix seconds on our clock.

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
        self._known: dict[int, Known] = {}
        self._attempts: dict[int, int] = {}
        self._attempt = 0
        self._anew = Anew()
        self._generation = 0  # counts restarts, and how often steps were counted anew
        self._middle = 0
        self._middle_of = -1  # the version that it was last looked for in
        self._heard: dict[int, float] = {}
        self._front: tuple[int, Known | None] = (-1, None)
        self._worked_at = -math.inf
        self._work_kept = False
        self.lag = False
        """Whether work is how far CPUs lag that enqueue for GPUs: no GPU is slow because of it."""
        self.gpus = False
        """Whether ranks have GPUs: phases are times of CPUs, which run ahead of them."""
        self.unworked: dict[int, str] = {}
        """Why the work of ranks was not known at the last look at their recorders."""
        self.version = 0
        """Changes when anything does."""

    @property
    def about(self) -> str:
        """What stands before times of phases: ``~`` where they are those of CPUs that run ahead of GPUs."""
        return "~" if self.gpus else ""

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
        phases: Sequence[float | None] = (),
    ) -> None:
        """A rank finished a step; older than its last, of an unknown rank, or far from all others: ignored.

        If most ranks count lower than before, later, the run does: it has loaded an older checkpoint, or is
        in another epoch.

        :param span: seconds that the step took; None: what passed since the last one
        :param exact: the rank itself noted the time; else it is when a line of its log arrived
        :param anew: its log names a later epoch
        :param phases: seconds of those that it marked (:data:`cockpit.core.pace.phases.NAMES`)
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
        self._known[rank] = Known(key, at, exact, since)
        self._middle_of = -1
        if self._near(step) and (exact or not self._aside(self._known[rank])):
            word = packed(phases, span) if phases and span is not None else NOTHING
            self.steps.finish(rank, key, at, span, exact=exact, count=self._unseen(key, count), phases=word)
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
        """Of how many steps this one is the last: others may have reported what a rank left out."""
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
                self._known[rank] = Known(key, at, exact, (key[1], at))
        self.lag = self.lag or lag
        self._generation = max(self._generation, key[0])
        self.version += 1

    def remember(
        self,
        rank: int,
        step: int,
        at: float,
        span: float | None,
        *,
        attempt: int,
        count: int,
        phases: Sequence[float | None] = (),
    ) -> None:
        """Take in a step that a rank's node kept while nobody watched, unless it is known.

        :param attempt: how often its launcher had started the rank before
        :param count: of how many steps it is the last
        :param phases: seconds of those that it marked
        """
        place = self.steps.place.get(rank)
        if place is None:
            return
        key = (min(attempt + self._anew.before(at), self._generation), step)
        known = self._known.get(rank)
        if known is None or not known.supersedes(key, exact=True):
            self._known[rank] = Known(key, at, True, (step, at))
        there = self.steps.get(key)
        if self._near(step) and (there is None or there.end(place) is None):
            word = packed(phases, span) if phases and span is not None else NOTHING
            self.steps.finish(rank, key, at, span, exact=True, count=min(count, MOST_FOLDED), phases=word)
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
    def _foremost(self) -> Known | None:
        version, front = self._front
        if version != self.version:
            front = self._find_front()
            self._front = self.version, front
        return front

    def _find_front(self) -> Known | None:
        near = [known for known in self._known.values() if self._near(known.key[1])]
        if self.relative and any(known.exact for known in near):
            exact = max(known.key for known in near if known.exact)
            near = [known for known in near if not _otherwise(known, exact)]
        if not near:
            return None
        key = max(known.key for known in near)
        return min((known for known in near if known.key == key), key=lambda known: known.at)

    def _aside(self, known: Known) -> bool:
        """Whether a rank's log counts on another scale than other ranks do: further, as of a resumed run."""
        front = self._foremost if self.relative and not known.exact else None
        return front is not None and front.exact and _otherwise(known, front.key)

    def _behind(self, known: Known, rank: int) -> int:
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


def _otherwise(known: Known, key: Key) -> bool:
    """Whether a log names a step that is far from where a rank is that notes its steps itself."""
    return not known.exact and abs(known.key[1] - key[1]) > OFF
