"""Work as it is defined, with no care for how long it takes: what the quick way must agree with."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median, median_low
from typing import NamedTuple

from cockpit.core.recorder.merge import Collective, Look
from cockpit.core.recorder.overlap import ENOUGH, SPELL, SURE
from cockpit.core.recorder.spans import CLOCKS_US, Span, union
from cockpit.core.recorder.step_tail import ENOUGH as ENOUGH_SHARES
from cockpit.core.recorder.step_tail import LEFT, STEPS
from cockpit.core.recorder.two_ranks import ALIKE, AS_LONG, MOST, ROUNDS
from cockpit.core.recorder.two_ranks import ENOUGH as ENOUGH_FREE
from cockpit.core.recorder.two_ranks import LEFT as LEFT_OF_TWO
from cockpit.core.recorder.work import Step, Work, parts, shares


def work(
    look: Look, steps: Mapping[int, Sequence[Step]], *, stages: Mapping[int, int] | None = None
) -> list[Work]:
    """The work of each rank in each step.

    :param steps: of each rank, in their order
    :param stages: the stage of each rank in a pipeline, where that is known; else see :func:`parts`
    """
    timed = [one for one in look.collectives if one.members.bit_count() > 1]
    stage_of = stages if stages is not None else parts(timed)
    piped = len(set(stage_of.values())) > 1 or (bool(timed) and not any(shares(one) for one in timed))
    of_rank: dict[int, list[Collective]] = {}
    for one in timed:
        for rank in one.arrivals:
            of_rank.setdefault(rank, []).append(one)
    ranks = [
        _Rank(rank, look, of_rank.get(rank, []), own, stage_of, _ends(rank, of_rank.get(rank, []), steps))
        for rank, own in steps.items()
    ]
    newest = max((step.number for each in ranks for step in each.steps), default=0)
    if len(ranks) == 2:
        for each, other in (ranks, ranks[::-1]):
            each.measure_two(_waited(each.gaps, other.gaps, newest))
    else:
        shortest, beside = _shortest(ranks), _beside(ranks)
        for each in ranks:
            each.measure(shortest, beside, newest)
    return [each.work(step, piped) for each in ranks for step in each.steps]


Place = tuple[int | str, ...]

_NEVER = 1 << 62


class _Gap(NamedTuple):
    """From one moment at which a rank is seen to go on to the next.

    :param place: where that is in the program, the same on all ranks of a stage: stage, step, what was
        entered, for which time in that step
    :param released: when the last one arrived in what it may wait for here; ``begin`` if in nothing
    :param last: whether a step ends with it
    :param step: how long that step took
    :param length: how long the step took that it begins in; 0: that is not known
    """

    begin: int
    end: int
    place: Place
    released: int
    last: bool
    step: int
    length: int

    @property
    def of_each_step(self) -> Place:
        """The place, whichever the step."""
        stage, _, *entered = self.place
        return (stage, *entered)

    @property
    def free(self) -> bool:
        """Whether there is nothing to wait for."""
        return self.released - self.begin <= CLOCKS_US

    @property
    def busy(self) -> int:
        """How long it computed at least."""
        return self.end - max(self.begin, min(self.released, self.end))


def _ends(rank: int, around: Sequence[Collective], steps: Mapping[int, Sequence[Step]]) -> list[int]:
    """When the steps of a rank ended: what is entered right then is on the same side of it on all ranks."""
    found: list[int] = []
    for number, step in enumerate(steps[rank], steps[rank][0].number if steps[rank] else 0):
        near = [one for one in around if abs(one.arrivals[rank] - step.end_us) <= CLOCKS_US]
        after = [one.arrivals[rank] for one in near if _step_of(one, steps) > number]
        before = [one.arrivals[rank] + 1 for one in near if _step_of(one, steps) <= number]
        found.append(max([min([step.end_us, *after]), *before, *found[-1:]]))
    return found


def _step_of(one: Collective, steps: Mapping[int, Sequence[Step]]) -> int:
    off: Counter[int] = Counter()
    for rank, at in one.arrivals.items():
        ends = [step.end_us for step in steps.get(rank, ())]
        if ends:
            first = steps[rank][0].number
            nearest = min(range(len(ends)), key=lambda index: (abs(ends[index] - at), -index))
            if abs(ends[nearest] - at) > CLOCKS_US:
                return first + bisect_right(ends, at)
            off[first + nearest] += ends[nearest] - at
    end = max(off, key=lambda end: abs(off[end]))
    return end if off[end] > 0 else end + 1


def _waited(own: Iterable[_Gap], others: Iterable[_Gap], newest: int) -> dict[Place, int]:
    """How long one of two ranks waited in each gap."""
    known = [gap for gap in own if gap.length]
    other = {gap.place: gap.end - gap.begin for gap in others if gap.length and gap.free}
    behind = [gap for gap in known if gap.released > gap.begin]
    lengths: dict[int | str, int] = {}
    for gap in known:
        most = max((one.released - one.begin for one in behind if one.place[1] == gap.place[1]), default=0)
        lengths[gap.place[1]] = max(1, gap.length - most)
    usual = median([*lengths.values()] or [1])
    free: dict[Place, list[tuple[int, float]]] = {}
    for gap in filter(lambda gap: gap.free, known):
        share = (gap.end - gap.begin) / min(lengths[gap.place[1]], usual)
        spell = (newest - int(gap.place[1])) // SPELL
        free.setdefault(gap.of_each_step, []).append((spell, share))
    spells: dict[tuple[Place, int], list[_Gap]] = {}
    for gap in behind:
        spells.setdefault((gap.of_each_step, (newest - int(gap.place[1])) // SPELL), []).append(gap)
    found: dict[Place, int] = {}
    for _ in range(ROUNDS):
        before, found = found, {}
        for (place, _), some in spells.items():
            known_share = _share_of_two(free.get(place, []), some)
            longer: dict[Place, int] = {}
            for gap in some:
                took = gap.end - gap.begin
                if known_share is not None:
                    elsewhere = sum(
                        us for at, us in before.items() if at[1] == gap.place[1] and at != gap.place
                    )
                    more = int((took - known_share * (gap.length - elsewhere)) / (1 - known_share))
                    if gap.place in other:
                        more = max(more, took - int(AS_LONG * other[gap.place]))
                elif gap.place in other:
                    more = took - other[gap.place]
                else:
                    continue
                longer[gap.place] = min(more, gap.released - gap.begin)
            until = sum(gap.released - gap.begin for gap in some if gap.place in longer)
            if sum(longer.values()) > LEFT_OF_TWO * until:
                found.update((at, max(0, more)) for at, more in longer.items())
    return found


def _share_of_two(shares: Sequence[tuple[int, float]], some: Iterable[_Gap]) -> float | None:
    if not shares:
        return None
    few = len(shares) < ENOUGH_FREE
    share = median_low([one for _, one in shares])
    for spell in {spell for spell, _ in shares}:
        of_spell = [one for of, one in shares if of == spell]
        if len(of_spell) >= min(ENOUGH_FREE, len(shares)):
            share = max(share, median_low(of_spell))
    if share > MOST:
        return None
    then = [
        (gap.end - gap.released) / (gap.length - gap.released + gap.begin)
        for gap in some
        if gap.length > gap.released - gap.begin
    ]
    alike = bool(then) and ALIKE[0] * share <= median(then) <= ALIKE[1] * share
    return share if alike or not few else None


def _shortest(ranks: Iterable[_Rank]) -> dict[Place, int]:
    """The shortest time for each gap of those ranks that did not wait there."""
    free: dict[Place, list[tuple[int, _Gap]]] = {}
    held: dict[Place, list[_Gap]] = {}
    for each in ranks:
        for gap in each.gaps:
            if gap.free:
                free.setdefault(gap.place, []).append((each.rank, gap))
            elif gap.last:
                held.setdefault(gap.place, []).append(gap)
    found = {place: min(gap.busy for _, gap in some) for place, some in free.items() if len(some) > 1}
    # A single one may be the slow one, which works on while the others wait. At the end of a step gradients
    # are still computed when the last that are ready were sent off: there it counts, unless it hides itself.
    alone = {place: some[0] for place, some in free.items() if len(some) == 1 and place in held}
    alone = {place: (rank, gap) for place, (rank, gap) in alone.items() if gap.last}
    for place, (rank, gap) in alone.items():
        shares = [
            one.busy / max(one.step, 1)
            for some in free.values()
            for _, one in some
            if len(some) > 1 and one.last and one.of_each_step == gap.of_each_step
        ]
        if len(shares) >= ENOUGH_SHARES:
            found[place] = min(gap.busy, int(median_low(shares) * gap.step))
            continue
        mine = [(at, one) for at, (who, one) in alone.items() if who == rank]
        mine = [(at, one) for at, one in mine if one.of_each_step == gap.of_each_step]
        left = until = 0
        for at, one in sorted(mine, key=lambda pair: pair[1].begin)[-STEPS:]:
            for late in held[at]:
                left += min(late.released - late.begin, max(0, late.end - late.begin - one.busy))
                until += late.released - late.begin
        found[place] = 0 if left < LEFT * until else gap.busy
    return found


def _beside(ranks: Iterable[_Rank]) -> set[tuple[Place, int]]:
    """The gaps that ranks get through without waiting, while others have not arrived yet; and in which spell.

    Who begins such a gap later, compared with others that would wait for the same and with itself in other
    steps, ends it later by as much: by more than half of it, as a line through all of them says.
    """
    places: dict[Place, dict[tuple[int, int], list[tuple[int, int, int]]]] = {}
    for each in ranks:
        for gap in each.gaps:
            if not gap.free and gap.end < _NEVER:
                steps = places.setdefault(gap.of_each_step, {})
                steps.setdefault((int(gap.place[1]), gap.released), []).append(
                    (each.rank, gap.begin, gap.end)
                )
    newest = max((step.number for each in ranks for step in each.steps), default=0)
    found = set()
    for place, steps in places.items():
        spells: dict[int, list[tuple[float, float]]] = {}
        for spell in {(newest - step) // SPELL for step, _ in steps}:
            of_rank: dict[int, list[tuple[float, float]]] = {}
            for (step, _), those in steps.items():
                if len(those) > 1 and (newest - step) // SPELL == spell:
                    for (rank, _, _), pair in zip(those, _centred([one[1:] for one in those]), strict=True):
                        of_rank.setdefault(rank, []).append(pair)
            spells[spell] = [pair for some in of_rank.values() for pair in _centred(some)]
        always = _goes_along([pair for some in spells.values() for pair in some])
        for spell, pairs in spells.items():
            along = _goes_along(pairs)
            if always if along is None else along:
                found.add((place, spell))
    return found


def _goes_along(pairs: Sequence[tuple[float, float]]) -> bool | None:
    """Whether the second grows with the first, by half of it or more; None: that may be chance."""
    if len(pairs) < ENOUGH:
        return None
    first = sum(one * one for one, _ in pairs)
    second = sum(other * other for _, other in pairs)
    both = sum(one * other for one, other in pairs)
    chance = SURE * SURE * (first * second - both * both) / len(pairs)
    for along, away in ((True, both), (False, first / 2 - both)):
        if along == (both > first / 2):
            return along if away * away > chance else None
    return None


def _centred(pairs: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The differences from the means."""
    first, second = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
    return [(one - first, other - second) for one, other in pairs]


def _alone_missing(one: Collective, rank: int) -> Span:
    """From when on only this rank had not arrived, until it did."""
    others = max(at for other, at in one.arrivals.items() if other != rank)
    own = one.arrivals[rank]
    return (others, own) if own - others > CLOCKS_US else (own, own)


class _Rank:
    """The waits of one rank."""

    def __init__(
        self,
        rank: int,
        look: Look,
        around: Sequence[Collective],
        steps: Sequence[Step],
        stage_of: Mapping[int, int],
        ends: Sequence[int],
    ) -> None:
        self.rank = rank
        self.steps = steps
        self._ends = ends
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
        self._late = union(_alone_missing(one, rank) for one in around if one.complete)
        self.gaps = self._gaps(stage_of.get(rank, 0))
        self._waits: Iterable[Span] = ()

    def _gaps(self, stage: int) -> list[_Gap]:
        ends = self._ends
        entered = [*((at, "") for at in ends), *map(self._entered, self._around)]
        moments = sorted(entered, key=lambda moment: moment[0])
        times = [at for at, _ in moments]
        released = times.copy()
        for one in self._around:
            if one.complete:
                last = max(one.arrivals.values())
                own = bisect_left(times, one.arrivals[self.rank])
                number = max(own, bisect_left(times, last - CLOCKS_US) - 1)
                released[number] = max(released[number], last)
        gaps = []
        final = set(ends)
        begins = [*(step.begin_us for step in self.steps[:1]), *ends[:-1]]
        counts: Counter[Place] = Counter()
        for (at, what), until, last in zip(moments, [*times[1:], _NEVER], released, strict=True):
            number = bisect_right(ends, at)
            place = (stage, number + self._first, what)
            known = number < len(ends) and at >= begins[number]
            length = ends[number] - begins[number] if known else 0
            took = until - max((end for end in begins if end < until), default=0)
            gaps.append(_Gap(at, until, (*place, counts[place]), last, until in final, took, length))
            counts[place] += 1
        return gaps

    def _entered(self, one: Collective) -> tuple[int, str]:
        call = one.calls[self.rank][0]
        return one.arrivals[self.rank], f"{call.op} {call.shapes}"

    def measure(self, shortest: Mapping[Place, int], beside: set[tuple[Place, int]], newest: int) -> None:
        """Find the waits, knowing how long each gap takes at least, and in which nobody waits."""
        waits = []
        for gap in self.gaps:
            if (gap.of_each_step, (newest - int(gap.place[1])) // SPELL) in beside:
                continue
            longer = gap.end - gap.begin - shortest.get(gap.place, 0)
            waits.append((gap.begin, min(gap.released, gap.begin + max(0, longer))))
        self._waits = union(waits)

    def measure_two(self, waited: Mapping[Place, int]) -> None:
        """Find the waits, knowing how long they are at most."""
        self._waits = union(
            (gap.begin, min(gap.released, gap.begin + waited.get(gap.place, 0))) for gap in self.gaps
        )

    def work(self, step: Step, piped: bool) -> Work:
        why = self._unknown(step, piped)
        if why:
            return Work(self.rank, step.number, None, self._lag, why)
        begin, end = step.begin_us, step.end_us
        waited = sum(max(0, min(end, until) - max(begin, since)) for since, until in self._waits)
        cost = sum(max(0, min(end, until) - max(begin, since)) for since, until in self._late)
        return Work(self.rank, step.number, end - begin - waited, self._lag, "", cost)

    def _unknown(self, step: Step, piped: bool) -> str:
        if not self._around:
            return "no collectives on record"
        if self._silent:
            return "some of its partners did not answer"
        if self._from_us > step.begin_us:
            return "a recorder does not go back that far"
        if piped and not self._lag:
            return "gloo does not record sends between ranks, such as those of pipeline stages"
        if any(step.begin_us <= at < step.end_us for at in self._unsure):
            return "not all of its partners have entered"
        return ""
