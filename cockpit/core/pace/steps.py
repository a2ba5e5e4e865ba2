"""When each rank finished each step, for the newest steps of a run; bounded."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter

from cockpit.core.pace.phases import NOTHING
from cockpit.core.pace.step import Key, Step

CELLS = 3 << 18
"""Ranks × steps that are kept exactly: 12,288 steps of 64 ranks, an hour of those of 0.3 s, in 19 MB, and in
23 MB with their phases."""
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

PAST_S = 100.0
"""Seconds after which a step is long over: of how much of it was work is learned until then."""

_NAN = math.nan


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
            if not isinstance(step.phases, array):
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
