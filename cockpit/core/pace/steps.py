"""When each rank finished each step, for the newest steps of a run; bounded."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from cockpit.core.pace.medians import known_of, middle, usual
from cockpit.core.pace.phases import NOTHING, Phases, quickest

CELLS = 3 << 18
"""Ranks × steps that are kept exactly: 12,288 steps of 64 ranks, an hour of those of 0.3 s, in 18 MB."""
FEWEST = 128
"""Steps that are kept however many ranks there are."""

WARM = 64
"""Newest steps that keep how much longer each rank took, which is asked for again and again."""

HELD = 4
"""A part of the steps that are kept, one in so many, may be older ones around events."""
AROUND_S = 60.0
"""Seconds before and after an event in which steps stay as they are."""
EVENTS = 64
"""Of the newest ones."""

ASUNDER = 10
"""Usual steps between the ends of one, from which on its number seems to mean another step on each rank."""

PAST_S = 100.0
"""Seconds after which a step is long over: of how much of it was work is learned until then."""

Key = tuple[int, int]
"""How often the run had been restarted or had begun to count anew, and the step: both repeat steps."""

_NAN = math.nan


@dataclass(slots=True)
class Step:
    """One step over all ranks.

    Places in the arrays are those of the ranks in :attr:`Steps.ranks`; NaN is *not known*.

    :param key: restarts and step
    :param base: unix seconds (our clock) that the ends are relative to: single precision does for the rest
    :param ends: when each rank finished it, seconds after ``base``
    :param spans: seconds that it took each rank
    :param works: seconds of it that each rank did not wait for others; empty: not known of anyone
    :param cost: seconds for which others waited for one rank alone, that which made them wait longest; NaN:
        not known
    :param costly: the place of that rank
    :param estimate: seconds that it took, by when lines of logs arrived: good enough to draw, not to compare
    :param count: of how many steps it is the last: logs may tell of every tenth only
    :param phases: how much of it each rank was in each phase (:func:`cockpit.core.pace.phases.packed`);
        empty: not known of anyone
    :param stages: of a pipeline, that of each rank; empty: there is one only
    :param version: changes with any number
    """

    key: Key
    base: float
    ends: array[float]
    spans: array[float]
    works: array[float] = field(default_factory=lambda: array("f"))
    cost: float = _NAN
    costly: int = 0
    estimate: float = _NAN
    count: int = 1
    phases: array[int] = field(default_factory=lambda: array("I"))
    stages: Sequence[int] = ()
    version: int = 0
    _end: float | None = None
    _first: float = _NAN
    _span: float | None = None
    _work: float | None = None
    _excesses: array[float] | None = None
    _slowest: int | None = None
    _together: bool | None = None
    _warm: bool = True
    _quickest: Sequence[float] | None = None
    middle_phases: list[Phases | None] | None = None  # as core.pace.phases found them

    @property
    def step(self) -> int:
        """Its number."""
        return self.key[1]

    def end(self, place: int) -> float | None:
        """When a rank finished it, unix seconds."""
        value = self.ends[place]
        return None if math.isnan(value) else self.base + value

    def _when(self) -> tuple[float, float]:
        """The median and the first of the ends."""
        if self._end is None:
            self._end, self._first = middle(self.ends), min(known_of(self.ends), default=_NAN)
        return self._end, self._first

    def cool(self) -> None:
        """It is not among the newest any more: what takes much room is worked out when it is asked for."""
        self._warm, self._excesses = False, None

    def touched(self, *, ended: bool = True, worked: bool = True) -> None:
        """Numbers were added: what was computed of them is out of date.

        :param ended: ends and spans
        :param worked: works, or the stages
        """
        self.version += 1
        if ended:
            self._end = self._span = self._together = self._quickest = None
        if worked:
            self._work = None
        self._excesses = self._slowest = self.middle_phases = None

    @property
    def typical_end(self) -> float:
        """The median of the ends, unix seconds; NaN: nobody has finished it."""
        return self.base + self._when()[0]

    @property
    def first_end(self) -> float:
        """When the first rank finished it, unix seconds; NaN: nobody has."""
        return self.base + self._when()[1]

    @property
    def typical_span(self) -> float:
        """What one step took the median rank, seconds; an estimate if need be; NaN: not known."""
        noted = self.noted_span
        return self.estimate if math.isnan(noted) else noted

    @property
    def noted_span(self) -> float:
        """The same as ranks themselves noted it; NaN: none of them did."""
        if self._span is None:
            self._span = usual(self.spans)
        return self._span

    @property
    def typical_work(self) -> float:
        """The work of the median rank, seconds; NaN: not known."""
        if self._work is None:
            self._work = usual(self.works)
        return self._work

    @property
    def quickest(self) -> Sequence[float]:
        """See :func:`cockpit.core.pace.phases.quickest`."""
        if self._quickest is None:
            self._quickest = quickest(self)
        return self._quickest

    @property
    def compared(self) -> tuple[Sequence[float], float]:
        """What says who is slow in this step: work, where it is known, and the median rank's.

        Whole steps are compared where it is not. In synchronous training they are alike on all ranks, so
        that they accuse nobody.
        """
        return (self.works, self.typical_work) if self.by_work else (self.spans, self.typical_span)

    @property
    def by_work(self) -> bool:
        """Whether work is compared: it is known, and of one step on all ranks, to judge by when it ended.

        Ranks that wait for each other finish a step together; else they count steps differently.
        """
        if not self.works:
            return False
        if self._together is None:
            known = known_of(self.ends)
            # How long it took may not be known.
            self._together = not known or not max(known) - min(known) > ASUNDER * self.typical_span
        return self._together

    @property
    def slowest(self) -> tuple[float, int]:
        """What is compared, of the rank that took longest, and that rank's place; NaN: not known of any."""
        values = self.compared[0]
        if self._slowest is None:
            most = max(known_of(values), default=_NAN)
            # The last of equals, as in the order of pairs.
            self._slowest = len(values) - 1 - values[::-1].index(most) if most == most else -1
        return (values[self._slowest], self._slowest) if self._slowest >= 0 else (_NAN, 0)

    @property
    def excesses(self) -> Sequence[float]:
        """How much longer each rank took than the median rank of its stage; NaN: not known.

        0.5 is half as long again.
        """
        known = self._excesses
        if known is None:
            values, typical = self.compared
            if self.stages:
                middles = _middles(values, self.stages)
                pairs = zip(values, middles, strict=True)
                found = [value / middle - 1 if middle > 0 else _NAN for value, middle in pairs]
            elif typical > 0:
                found = [value / typical - 1 for value in values]
            else:
                found = [_NAN] * len(values)
            known = array("f", found)
            self._excesses = known if self._warm else None
        return known

    def over(self, place: int) -> float:
        """Seconds that a rank took longer than the median rank of its stage; NaN: not known."""
        values, typical = self.compared
        if not self.stages:
            return values[place] - typical if typical > 0 else _NAN
        value, times = values[place], 1 + self.excesses[place]
        return value - value / times if times else -typical

    def excess(self, place: int) -> float | None:
        """That of one rank; None: not known."""
        found = self.excesses[place] if self._warm or self.stages else self._excess(place)
        return None if math.isnan(found) else found

    def _excess(self, place: int) -> float:
        values, typical = self.compared
        return values[place] / typical - 1 if typical > 0 else _NAN


class Steps:
    """The newest steps of a run, oldest first.

    :param ranks: the ranks of the run
    :param drop: is called with each step that is no longer kept
    """

    def __init__(self, ranks: Sequence[int], drop: Callable[[Step], object] = lambda step: None) -> None:
        self.ranks = tuple(sorted(ranks))
        self.place: Mapping[int, int] = {rank: place for place, rank in enumerate(self.ranks)}
        self._drop = drop
        self.limit = max(FEWEST, CELLS // max(1, len(self.ranks)))
        """Steps that are kept."""
        self.past = 0
        """Changes when anything is learned about steps that are long over."""
        self._steps: dict[Key, Step] = {}
        self._order: list[Step] = []  # the same, oldest first
        self._stages: tuple[int, ...] = ()
        self._dropped: Key = (-1, -1)
        self._events: deque[float] = deque(maxlen=EVENTS)
        self._held = 0  # so many of the oldest stay for events

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self._order)

    def newest(self) -> Iterator[Step]:
        """The steps, newest first."""
        return reversed(self._order)

    def get(self, key: Key) -> Step | None:
        """A step, if it is kept."""
        return self._steps.get(key)

    def back_from(self, key: Key, count: int) -> list[Step]:
        """So many steps up to this one, newest first; without those that are not kept."""
        found = (self._steps.get((key[0], key[1] - back)) for back in range(count))
        return [step for step in found if step is not None]

    def ended_by(self, at: float) -> Step | None:
        """The newest step that had ended at a moment (unix seconds), as whoever told of it first has it."""
        place = bisect_right(self._order, at, key=attrgetter("base"))
        return self._order[place - 1] if place else None

    def finish(
        self,
        rank: int,
        key: Key,
        at: float,
        span: float | None,
        *,
        exact: bool,
        count: int,
        phases: int = NOTHING,
    ) -> None:
        """A rank finished a step.

        :param at: unix seconds on our clock
        :param span: seconds that one step took; None: not known
        :param exact: the rank itself noted the times
        :param count: of how many steps it is the last
        :param phases: see :func:`cockpit.core.pace.phases.packed`
        """
        step = self._row(key, at)
        if step is None:
            return
        place = self.place[rank]
        step.ends[place] = at - step.base
        step.count = max(step.count, count)
        if phases != NOTHING:
            if not step.phases:
                step.phases = array("I", [NOTHING]) * len(self.ranks)
            step.phases[place] = phases
        if span is not None and exact:
            step.spans[place] = span
        elif span is not None:
            step.estimate = span
        step.touched(worked=False)
        self._look_back(step, span or 0.0)

    def work(self, rank: int, key: Key, seconds: float, cost: float | None = None) -> None:
        """A rank worked so long in a step that it finished; steps that nobody finished are ignored.

        :param cost: seconds for which others waited for it alone; None: not known
        """
        step = self._steps.get(key)
        if step is None:
            return
        if not step.works:
            step.works = self._unknown()
        place = self.place[rank]
        step.works[place] = seconds
        if cost is not None and (place == step.costly or not step.cost >= cost):
            step.cost, step.costly = cost, place
        step.touched(ended=False)
        self._look_back(step, 0.0)

    def recalled(self, step: Step) -> None:
        """Take in a step of the past, with all that is known about it; one that is there is left as it is."""
        if step.key in self._steps or step.key <= self._dropped:
            return
        step.stages = self._stages
        step.cool()
        self._steps[step.key] = step
        insort(self._order, step, key=attrgetter("key"))
        while len(self._order) > self.limit:
            self._drop_oldest()
        self.past += 1

    def happened(self, at: float) -> None:
        """There was an event, unix seconds: the steps around it stay longer than others."""
        if not self._events or at > self._events[-1]:
            self._events.append(at)

    def staged(self, stages: Mapping[int, int]) -> None:
        """These are the stages of a pipeline that ranks are in: only ranks of one stage are compared."""
        found = tuple(stages.get(rank, 0) for rank in self.ranks) if len(set(stages.values())) > 1 else ()
        if found == self._stages:
            return
        self._stages = found
        for step in self:
            step.stages = found
            step.touched()

    def _look_back(self, step: Step, span: float) -> None:
        """Something was learned about a step, and about all those of which it is the last."""
        if step.count > 1 and step.typical_span > span:
            span = step.typical_span
        if next(self.newest()).base - step.base + span * step.count > PAST_S:
            self.past += 1

    def _row(self, key: Key, at: float) -> Step | None:
        step = self._steps.get(key)
        if step is not None or key <= self._dropped:
            return step
        step = self._steps[key] = Step(key, at, self._unknown(), self._unknown(), stages=self._stages)
        insort(self._order, step, key=attrgetter("key"))
        if len(self._order) > WARM:
            self._order[-WARM - 1].cool()
            if key < self._order[-WARM].key:
                step.cool()
        while len(self._order) > self.limit:
            self._drop_oldest()
        return step

    def _drop_oldest(self) -> None:
        """Drop the oldest step that is not held for an event; if too many are, the oldest of these."""
        while (around := self._is_around_event(self._order[self._held])) and self._held < self.limit // HELD:
            self._held += 1
        # The one that is too many moves into the place of the oldest.
        dropped = self._order.pop(0 if around else self._held)
        self._dropped = max(self._dropped, dropped.key)
        del self._steps[dropped.key]
        self._drop(dropped)

    def _is_around_event(self, step: Step) -> bool:
        return any(abs(step.base - at) <= AROUND_S for at in self._events)

    def _unknown(self) -> array[float]:
        return array("f", [_NAN]) * len(self.ranks)


def _middles(values: Sequence[float], stages: Sequence[int]) -> Iterable[float]:
    """For each place that of the median rank of its stage."""
    of_stage: dict[int, list[float]] = {stage: [] for stage in set(stages)}
    for value, stage in zip(values, stages, strict=True):
        of_stage[stage].append(value)
    middles = {stage: usual(some) for stage, some in of_stage.items()}
    return map(middles.__getitem__, stages)
