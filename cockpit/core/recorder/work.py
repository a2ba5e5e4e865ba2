"""Work: how long a rank was busy in a step, without what it waited for others.

Waiting in one collective is within the span from the rank's own arrival to that of the last. Such spans
overlap (buckets of gradients are sent off while the backward pass goes on), so a step's waiting is their
union, never their sum. And not all of it is waiting, or ranks that compute meanwhile would seem to work less
than the innocent partner of a slow rank, which would then seem slow too:

- A rank that is seen to go on, because it enters another collective or ends its step, does not wait. Of each
  span only what comes after the last such moment counts.
- What is left lies in one gap between two such moments. If others got through the same gap of the same step
  without waiting, this rank waited there at most by how much longer it took. One other rank will not do: it
  may be the slow one, which took longer to get there; but at the end of a step it does.
- Ranks that wait for the same one go on together, whenever they came. Where the one that came a little later
  than the others, by chance, goes on later by as much, nobody waits: the collective goes on beside the
  computation. Else a rank that is a little late would be late anew in each bucket.

What a rank costs the others is the union of the spans in which only it was missing, without those in which
it waited itself. Blame goes by work, not by who arrives last: the innocent partner of a slow rank is last as
often.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from cockpit.base.recorder.trace import Call
from cockpit.core.masks import ranks_of
from cockpit.core.recorder.look import Collective, Look
from cockpit.core.recorder.spans import Span, union, within, without

CLOCKS_US = 5000
"""How far two clocks may differ, microseconds: who is released by the last arrival goes on right after it."""

ENOUGH = 16
"""Times that ranks waited, or did not, in one place, from which it can be told."""

SURE = 5
"""Standard errors that such a finding is away from chance."""


class Step(NamedTuple):
    """A step of a rank: from the end of the one before to its own; unix microseconds on our clock."""

    number: int
    begin_us: int
    end_us: int


class Work(NamedTuple):
    """What a rank did in a step.

    :param us: its work; None: that is not known, :attr:`why` says why
    :param cost_us: how long others waited for it alone
    :param lag: whether arrivals are moments at which a CPU enqueued something for a GPU: a GPU that is slow
        is not late there, so this is how far the CPU lags, and no GPU may be called slow from it
    """

    rank: int
    step: int
    length_us: int
    us: int | None
    cost_us: int = 0
    lag: bool = False
    why: str = ""


def work(
    look: Look, steps: Mapping[int, Sequence[Step]], *, stages: Mapping[int, int] | None = None
) -> list[Work]:
    """The work of each rank in each step.

    :param steps: of each rank, in their order
    :param stages: the stage of each rank in a pipeline, where that is known; else see :func:`parts`
    """
    timed = [one for one in look.collectives if one.members.bit_count() > 1]
    stage_of = stages if stages is not None else parts(timed)
    piped = len(set(stage_of.values())) > 1
    of_rank: dict[int, list[Collective]] = {}
    for one in timed:
        for rank in one.arrivals:
            of_rank.setdefault(rank, []).append(one)
    places = _Places()
    ranks = [_Rank(rank, look, of_rank.get(rank, []), own, stage_of, places) for rank, own in steps.items()]
    shortest, beside = _shortest(ranks), _beside(ranks)
    for each in ranks:
        each.measure(shortest, beside)
    return [each.work(step, piped) for each in ranks for step in each.steps]


def parts(collectives: Iterable[Collective]) -> dict[int, int]:
    """The part of the job that each rank is in: ranks of different parts have no collective in common.

    They are the stages of a pipeline, or have nothing to do with each other.
    """
    masks: list[int] = []
    for group_mask in {one.members for one in collectives}:
        joined = group_mask
        apart = []
        for mask in masks:
            if mask & joined:
                joined |= mask
            else:
                apart.append(mask)
        masks = [*apart, joined]
    masks.sort(key=lambda mask: mask & -mask)
    return {rank: number for number, mask in enumerate(masks) for rank in ranks_of(mask)}


_NEVER = 1 << 62


class _Places:
    """Numbers for places in the program, so that each is compared and looked up quickly.

    A place is the same on all ranks of a stage: the stage, what was entered, for which time in that step.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, str, int], int] = {}
        self._calls: dict[tuple[str, str], str] = {}

    def number(self, stage: int, entered: str, time: int) -> int:
        """Of a place, whichever the step."""
        return self._numbers.setdefault((stage, entered, time), len(self._numbers))

    def call(self, call: Call) -> str:
        """What is entered; the end of a step is empty."""
        key = call.op, call.shapes
        return self._calls.get(key) or self._calls.setdefault(key, " ".join(key))


class _Gap(NamedTuple):
    """From one moment at which a rank is seen to go on to the next.

    :param place: where that is in the program
    :param step: the number of the step
    :param released: when the last one arrived in what it may wait for here; ``begin`` if in nothing
    :param last: whether a step ends with it
    """

    begin: int
    end: int
    place: int
    step: int
    released: int
    last: bool

    @property
    def free(self) -> bool:
        """Whether there is nothing to wait for."""
        return self.released - self.begin <= CLOCKS_US

    @property
    def busy(self) -> int:
        """How long it computed at least."""
        return self.end - max(self.begin, min(self.released, self.end))


def _shortest(ranks: Iterable[_Rank]) -> dict[tuple[int, int], int]:
    """The shortest time for each gap, by place and step, of those ranks that did not wait there."""
    free: dict[tuple[int, int], tuple[int, int]] = {}
    alone: dict[tuple[int, int], int] = {}
    for each in ranks:
        for gap in each.gaps:
            if not gap.free:
                continue
            key, busy = (gap.place, gap.step), gap.busy
            many, least = free.get(key, (0, busy))
            free[key] = many + 1, min(least, busy)
            if gap.last:
                alone[key] = busy
    # A single one may be the slow one, which works on while the others wait. At the end of a step it counts,
    # because gradients are still computed there when the last ones that are ready have been sent off.
    return {**alone, **{key: least for key, (many, least) in free.items() if many > 1}}


def _beside(ranks: Iterable[_Rank]) -> set[int]:
    """The places that ranks get through without waiting, while others have not arrived yet.

    Who begins such a gap later, compared with others that would wait for the same and with itself in other
    steps, ends it later by as much: by more than half of it, as a line through all of them says.
    """
    places: dict[int, dict[tuple[int, int], list[tuple[int, int, int]]]] = {}
    for each in ranks:
        for gap in each.gaps:
            if not gap.free and gap.end < _NEVER:
                steps = places.setdefault(gap.place, {})
                steps.setdefault((gap.step, gap.released), []).append((each.rank, gap.begin, gap.end))
    found = set()
    for place, steps in places.items():
        of_rank: dict[int, list[tuple[float, float]]] = {}
        for those in steps.values():
            if len(those) < 2:
                continue
            for (rank, _, _), pair in zip(those, _centred([one[1:] for one in those]), strict=True):
                of_rank.setdefault(rank, []).append(pair)
        pairs = [pair for some in of_rank.values() for pair in _centred(some)]
        if len(pairs) >= ENOUGH and _goes_along(pairs):
            found.add(place)
    return found


def _goes_along(pairs: Sequence[tuple[float, float]]) -> bool:
    """Whether the second grows with the first, by half of it or more, and surely not by chance."""
    first = sum(one * one for one, _ in pairs)
    second = sum(other * other for _, other in pairs)
    both = sum(one * other for one, other in pairs)
    by_chance = (first * second - both * both) / len(pairs)
    return both > first / 2 and both * both > SURE * SURE * by_chance


def _centred(pairs: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The differences from the means."""
    first, second = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
    return [(one - first, other - second) for one, other in pairs]


class _Rank:
    """The waits of one rank."""

    def __init__(
        self,
        rank: int,
        look: Look,
        around: Sequence[Collective],
        steps: Sequence[Step],
        stage_of: Mapping[int, int],
        places: _Places,
    ) -> None:
        self.rank = rank
        self.steps = steps
        self._around = around
        self._lag = any(not one.group.timed for one in around)
        partners = 0
        for one in around:
            partners |= one.members
        self._from_us = look.complete_from(partners)
        self._silent = partners & ~look.heard
        # Whoever has not been heard of may be the one that all wait for.
        self._unsure = [one.arrivals[rank] for one in around if not one.complete]
        self._first = steps[0].number if steps else 0
        self.gaps = self._gaps(stage_of.get(rank, 0), places)
        self._waits: list[Span] = []
        self._costs: list[Span] = []

    def _gaps(self, stage: int, places: _Places) -> list[_Gap]:
        ends = [step.end_us for step in self.steps]
        rank = self.rank
        entered = [(one.arrivals[rank], places.call(one.calls[rank][0])) for one in self._around]
        moments = sorted([*((at, "") for at in ends), *entered])
        times = [at for at, _ in moments]
        released = times.copy()
        for one in self._around:
            if one.complete:
                last = one.last_two[1]
                own = bisect_left(times, one.arrivals[rank])
                number = max(own, bisect_left(times, last - CLOCKS_US, own) - 1)
                if last > released[number]:
                    released[number] = last
        gaps = []
        final = set(ends)
        step, ended = self._first, 0
        counts: dict[str, int] = {}
        for (at, what), until, last in zip(moments, [*times[1:], _NEVER], released, strict=True):
            while ended < len(ends) and ends[ended] <= at:
                ended += 1
                step += 1
                counts = {}
            count = counts.get(what, 0)
            counts[what] = count + 1
            gaps.append(_Gap(at, until, places.number(stage, what, count), step, last, until in final))
        return gaps

    def measure(self, shortest: Mapping[tuple[int, int], int], beside: set[int]) -> None:
        """Find the waits, knowing how long each gap takes at least, and in which nobody waits."""
        waits = []
        for gap in self.gaps:
            if gap.released <= gap.begin or gap.place in beside:
                continue
            longer = gap.end - gap.begin - shortest.get((gap.place, gap.step), 0)
            waits.append((gap.begin, min(gap.released, gap.begin + max(0, longer))))
        alone = [
            one.last_two
            for one in self._around
            if one.complete and one.arrivals[self.rank] == one.last_two[1]
        ]
        self._waits = union(waits)
        self._costs = without(union(alone), self._waits)

    def work(self, step: Step, piped: bool) -> Work:
        length = step.end_us - step.begin_us
        why = self._unknown(step, piped)
        if why:
            return Work(self.rank, step.number, length, None, 0, self._lag, why)
        waited = within(self._waits, step.begin_us, step.end_us)
        cost = within(self._costs, step.begin_us, step.end_us)
        return Work(self.rank, step.number, length, length - waited, cost, self._lag)

    def _unknown(self, step: Step, piped: bool) -> str:
        if not self._around:
            return "no collectives on record"
        if piped and not self._lag:
            return "gloo does not record what stages of a pipeline send to each other"
        if self._silent:
            return "some of its partners did not answer"
        if self._from_us > step.begin_us:
            return "a recorder does not reach back that far"
        if any(step.begin_us <= at < step.end_us for at in self._unsure):
            return "not all of its partners have entered"
        return ""
