"""One step over all ranks: when each finished it, how long it took, how much of it was work, its phases."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cockpit.core.pace.medians import known_of, middle, usual
from cockpit.core.pace.phases import Phases, quickest, typical

ASUNDER = 10
"""Usual steps between the ends of one, from which on its number seems to mean another step on each rank."""

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
    phases: Sequence[int] = ()
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
    kept: Phases | None = None
    """Of a step of the past, the phases of the median rank."""
    _typical: tuple[Phases | None, ...] = ()

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
        self._typical = ()
        self._excesses = self._slowest = None

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
    def typical_phases(self) -> Phases | None:
        """The phases of the median rank; None: not known."""
        if not self._typical:
            self._typical = (typical(self) or self.kept,)
        return self._typical[0]

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


def _middles(values: Sequence[float], stages: Sequence[int]) -> Iterable[float]:
    """For each place that of the median rank of its stage."""
    of_stage: dict[int, list[float]] = {stage: [] for stage in set(stages)}
    for value, stage in zip(values, stages, strict=True):
        of_stage[stage].append(value)
    middles = {stage: usual(some) for stage, some in of_stage.items()}
    return map(middles.__getitem__, stages)
