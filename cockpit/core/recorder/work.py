"""Work: how long a rank was busy in a step, without what it waited for others.

Waiting in one collective is within the span from the rank's own arrival to that of the last. Such spans
overlap (buckets of gradients are sent off while the backward pass goes on), so a step's waiting is their
union, never their sum. And not all of it is waiting, or ranks that compute meanwhile would seem to work less
than the innocent partner of a slow rank, which would then seem slow too:

- A rank that is seen to go on, because it enters another collective or ends its step, does not wait. Of each
  span only what comes after the last such moment counts.
- What is left lies in one gap between two such moments. If others got through the same gap of the same step
  without waiting, this rank waited there at most by how much longer it took. One other rank will not do: it
  may be the slow one, which took longer to get there; of the end of a step see :mod:`.step_tail`.
- What is entered right at the end of a step may seem to be on its other side, by a clock that is not quite
  right: it is in that step in which those are who enter it at another time. Else the gap after it would be
  taken for one of the next step, and be the measure there.
- Ranks that wait for the same one go on together, whenever they came. Where the one that came a little later
  than the others, by chance, goes on later by as much, nobody waits: the collective goes on beside the
  computation. Else a rank that is a little late would be late anew in each bucket. A dozen steps are judged
  together, for once somebody is slow, the others do wait where they did not before.

Of two ranks one has nobody else to be compared with: see :mod:`.two_ranks`.

Blame goes by work, not by who arrives last: the innocent partner of a slow rank is last as often.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cockpit.base.union import Union
from cockpit.core.masks import ranks_of
from cockpit.core.recorder.merge import Collective, Look
from cockpit.core.recorder.overlap import NEVER, STEP, Gap, beside, when
from cockpit.core.recorder.spans import CLOCKS_US, Span, union
from cockpit.core.recorder.step_tail import Ends, Held, Through
from cockpit.core.recorder.two_ranks import Behind, Free, TwoRanks

SMALL = 16
"""Elements of what ranks agree on, such as a loss or a norm, at most; training shares more than that."""

OBJECTS = ("Byte", "Long")
"""Types in which torch sends pickled objects and their sizes."""


class Step(NamedTuple):
    """A step of a rank: from the end of the one before to its own; unix microseconds on our clock."""

    number: int
    begin_us: int
    end_us: int


class Work(NamedTuple):
    """What a rank did in a step.

    :param us: its work; None: that is not known, :attr:`why` says why
    :param lag: whether arrivals are moments at which a CPU enqueued something for a GPU: a GPU that is slow
        is not late there, so this is how far the CPU lags, and no GPU may be called slow from it
    :param cost_us: how long it was the only one that had not arrived where others had: what it cost them
    """

    rank: int
    step: int
    us: int | None
    lag: bool = False
    why: str = ""
    cost_us: int = 0


def work(
    look: Look, steps: Mapping[int, Sequence[Step]], *, stages: Mapping[int, int] | None = None
) -> list[Work]:
    """The work of each rank in each step.

    :param steps: of each rank, in their order
    :param stages: the stage of each rank in a pipeline, where that is known; else see :func:`parts`
    """
    timed = [one for one in look.collectives if one.members.bit_count() > 1]
    stage_of = stages if stages is not None else parts(timed)
    piped = _unrecorded(timed, stage_of)
    ranks = {rank: _Rank(rank, own) for rank, own in steps.items()}
    _enter(timed, ranks)
    sweep = _Sweep(pair=len(ranks) == 2)
    sides = _Sides(timed, ranks)
    for each in ranks.values():
        sweep.over(each, stage_of.get(each.rank, 0), sides)
    sweep.compare(ranks.values())
    return [one for each in ranks.values() for one in each.works(look, sweep, piped=piped)]


def unknown(works: Iterable[Work], silent: Mapping[int, str]) -> dict[int, str]:
    """Why the work of ranks is not known, of those of which it is known in no step.

    :param works: of each rank in the order of its steps
    :param silent: why recorders did not answer, by rank
    """
    known, why = set(), dict(silent)
    for one in works:
        if one.us is not None:
            known.add(one.rank)
        else:
            why[one.rank] = one.why
    return {rank: text for rank, text in why.items() if rank not in known}


def parts(collectives: Iterable[Collective]) -> dict[int, int]:
    """The part of the job that each rank is in: ranks of different parts share nothing in collectives.

    They are the stages of a pipeline, or have nothing to do with each other. A few numbers, as a loss or the
    norm of gradients, all ranks may agree on; where nothing but that is on record, nobody has a part.
    """
    masks: list[int] = []
    some = list(collectives)
    sharing = [one for one in some if shares(one)]
    shared = {one.members for one in sharing}
    alone: set[int] = set()
    if sharing and all(one.sure for one in sharing):  # else a rank may be in one of them, and have forgotten
        alone = {1 << rank for one in some for rank in ranks_of(one.members)}
    for group_mask in shared | alone:
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


def shares(one: Collective) -> bool:
    """Whether gradients, parameters or activations go through it: more than a few numbers, and not bytes."""
    call = next(iter(one.calls.values()))[0]
    return max(call.inputs, call.outputs) > SMALL and call.dtype not in OBJECTS


def _unrecorded(timed: Sequence[Collective], stage_of: Mapping[int, int]) -> bool:
    """Whether ranks send each other what is not on record on gloo: they share a model in no other way.

    A rank that waits for what another one sends would seem to be busy all the time.
    """
    return len(set(stage_of.values())) > 1 or (bool(timed) and not any(map(shares, timed)))


_Entered = tuple[int, int, str, int]
"""When, which of all collectives (-1: a step has ended), what it is, and when the last one entered it; 0 if
that is not known."""

_Next = dict[str, tuple[int, Any]]
"""For what may be entered next: the number of the place, and what may follow there."""


class _Rank:
    """What one rank entered."""

    __slots__ = ("ends", "entered", "gaps", "lag", "late", "partners", "rank", "steps", "unsure")

    def __init__(self, rank: int, steps: Sequence[Step]) -> None:
        self.rank = rank
        self.steps = steps
        self.ends = [step.end_us for step in steps]
        self.entered: list[_Entered] = []
        self.gaps: list[Gap] = []
        self.late: list[Span] = []
        """From the arrival of the last one but it to its own."""
        self.unsure: list[int] = []
        """When it entered what not all are known to have entered: one of those may be whom all wait for."""
        self.partners = 0
        self.lag = False

    def works(self, look: Look, sweep: _Sweep, *, piped: bool) -> Iterator[Work]:
        """Its work in each of its steps."""
        waited, late = sweep.waits(self), union(self.late)
        from_us, silent = look.complete_from(self.partners), self.partners & ~look.heard
        for step in self.steps:
            why = self._unknown(step, from_us, silent, piped)
            if why:
                yield Work(self.rank, step.number, None, self.lag, why)
                continue
            own = step.end_us - step.begin_us - waited.within(step.begin_us, step.end_us)
            cost = late.within(step.begin_us, step.end_us)
            yield Work(self.rank, step.number, own, self.lag, "", cost)

    def _unknown(self, step: Step, from_us: int, silent: int, piped: bool) -> str:
        if not self.entered:
            return "no collectives on record"
        if silent:
            return "some of its partners did not answer"
        if from_us > step.begin_us:
            return "a recorder does not go back that far"
        if piped and not self.lag:
            return "gloo does not record sends between ranks, such as those of pipeline stages"
        if any(step.begin_us <= at < step.end_us for at in self.unsure):
            return "not all of its partners have entered"
        return ""


def _enter(collectives: Iterable[Collective], ranks: Mapping[int, _Rank]) -> None:
    """Hand each rank what it entered."""
    together: dict[int, set[int]] = {}
    lagging: set[int] = set()
    for index, one in enumerate(collectives):
        together.setdefault(one.members, set()).update(one.arrivals)
        if not one.group.timed:
            lagging.update(one.arrivals)
        calls, complete = one.calls, one.complete
        released = max(one.arrivals.values()) if complete else 0
        if complete:
            _blame(one.arrivals, released, ranks)
        op = shapes = what = ""
        for rank, at in one.arrivals.items():
            each = ranks.get(rank)
            if each is None:
                continue
            call = calls[rank][0]
            if call.shapes != shapes or call.op != op:  # nearly always all call the same
                op, shapes = call.op, call.shapes
                what = f"{op} {shapes}"
            each.entered.append((at, index, what, released))
            if not complete:
                each.unsure.append(at)
    for members, some in together.items():
        for rank in some & ranks.keys():
            ranks[rank].partners |= members
    for rank in lagging & ranks.keys():
        ranks[rank].lag = True


def _blame(arrivals: Mapping[int, int], released: int, ranks: Mapping[int, _Rank]) -> None:
    """Hand the last one to arrive how long only it was missing."""
    second, last = 0, -1
    for rank, at in arrivals.items():
        if at == released and last < 0:
            last = rank
        elif at > second:
            second = at
    if released - second > CLOCKS_US and len(arrivals) > 1 and last in ranks:
        ranks[last].late.append((second, released))


class _Sides:
    """On which side of the ends of steps collectives are, for all ranks alike."""

    def __init__(self, collectives: Sequence[Collective], ranks: Mapping[int, _Rank]) -> None:
        self._collectives = collectives
        self._ranks = ranks
        self._found: dict[int, int] = {}

    def ends(self, rank: _Rank) -> list[int]:
        """When the steps of a rank ended, by the clock of its recorder."""
        entered, ends = sorted(rank.entered), rank.ends
        times = [one[0] for one in entered]
        found: list[int] = []
        for place, end in enumerate(ends):
            before, after = 0, NEVER
            for at, index, _, _ in entered[
                bisect_left(times, end - CLOCKS_US) : bisect_right(times, end + CLOCKS_US)
            ]:
                if self._step(index) > rank.steps[0].number + place:
                    after = min(after, at)
                else:
                    before = max(before, at + 1)
            # Of steps that are shorter than clocks are wrong none ends before the one before it.
            found.append(max(before, min(end, after), *found[-1:]))
        return found

    def _step(self, index: int) -> int:
        """The step that a collective is in."""
        found = self._found.get(index)
        if found is None:
            found = self._found[index] = self._agreed(self._collectives[index])
        return found

    def _agreed(self, one: Collective) -> int:
        """As those have it who are not near the end of a step; else on which side they are on average."""
        off: dict[int, int] = {}
        for rank, at in one.arrivals.items():
            each = self._ranks.get(rank)
            if each is None or not each.ends:
                continue
            ends, first = each.ends, each.steps[0].number
            next_ = bisect_right(ends, at)
            left = ends[next_] - at if next_ < len(ends) else NEVER
            past = at - ends[next_ - 1] if next_ else NEVER
            if min(left, past) > CLOCKS_US:
                return first + next_
            end = first + next_ - (past < left)
            off[end] = off.get(end, 0) + (-past if past < left else left)
        end = max(off, key=lambda end: abs(off[end]))
        return end + (off[end] <= 0)


class _Sweep:
    """Goes over the moments of one rank after the other, and compares the gaps between them.

    A place is the same on all ranks of a stage: the stage, what was entered, for which time in that step. The
    programs of ranks are nearly always the same, so places are found by following what came before.

    :param pair: whether there are two ranks
    """

    def __init__(self, *, pair: bool = False) -> None:
        self._pair = pair
        self._numbers: dict[tuple[int, str, int], int] = {}
        self._programs: dict[int, _Next] = {}
        self._least: dict[int, int] = {}
        """For each gap, the shortest time of those ranks that did not wait there."""
        self._alone: set[int] = set()
        """Those that only one such rank got through."""
        self._ends = Ends()
        self._two = TwoRanks()
        self._waited: dict[int, dict[int, int]] = {}
        """Of two ranks, how long each waited in which gaps."""
        self._beside: set[tuple[int, int]] = set()
        self._newest = 0

    def over(self, rank: _Rank, stage: int, sides: _Sides) -> None:
        """Find the gaps of a rank."""
        ends = sides.ends(rank)
        moments = sorted([*((at, -1, "", 0) for at in ends), *rank.entered])
        times = [at for at, _, _, _ in moments]
        times.append(NEVER)
        self._gaps(rank, stage, moments, times, _released(moments, times), ends)

    def _gaps(
        self,
        rank: _Rank,
        stage: int,
        moments: Sequence[_Entered],
        times: Sequence[int],
        released: Sequence[int],
        ends: Sequence[int],
    ) -> None:
        least, alone, gaps, final_gaps = self._least, self._alone, rank.gaps, self._ends
        program = follows = self._programs.setdefault(stage, {})
        coming, final = iter([*ends, NEVER]), set(ends)
        end, begun = next(coming), 0
        began = rank.steps[0].begin_us if rank.steps else 0
        step = (rank.steps[0].number if rank.steps else 0) << STEP
        for index, (at, _, what, _) in enumerate(moments):
            if end <= at:
                while end <= at:
                    began, end = end, next(coming)
                    step += 1 << STEP
                follows, begun = program, index
            place = follows.get(what)
            if place is None:
                time = sum(other == what for _, _, other, _ in moments[begun:index])
                number = self._numbers.setdefault((stage, what, time), len(self._numbers))
                place = follows[what] = (number, {})
            number, follows = place
            key, until, last = step | number, times[index + 1], released[index]
            if self._pair:
                if last > at:
                    gaps.append((at, until, last, key))
                if began <= at and end < NEVER:
                    self._of_two(rank.rank, key, until - at, last - at, end - began)
                continue
            if last - at > CLOCKS_US:
                gaps.append((at, until, last, key))
                if until in final:
                    final_gaps.held.append(Held(key, until - at, last - at))
                continue
            # Nothing to wait for.
            busy = until - at
            if last > at:
                gaps.append((at, until, max(at, last), key))
            if last > at:
                busy = max(0, until - last)
            if until in final:
                final_gaps.through.append(Through(key, rank.rank, busy, until - began))
            shortest = least.get(key)
            if shortest is None:
                least[key] = busy
                alone.add(key)
            else:
                alone.discard(key)
                if busy < shortest:
                    least[key] = busy

    def _of_two(self, rank: int, key: int, took: int, until: int, step: int) -> None:
        if until > 0:
            self._two.behind.setdefault(rank, []).append(Behind(key, took, until, step))
        if until <= CLOCKS_US:
            self._two.free.setdefault(rank, []).append(Free(key, took, step))

    def compare(self, ranks: Iterable[_Rank]) -> None:
        """Find what is only known from all ranks together; call it after :meth:`over`, once."""
        some = list(ranks)
        self._newest = max((step.number for rank in some for step in rank.steps), default=0)
        if self._pair:
            self._waited = self._two.waited(self._newest)
            return
        # A single one may be the slow one, which works on while the others wait.
        for key in self._alone:
            del self._least[key]
        self._least.update(self._ends.least(self._alone))
        self._beside = beside({rank.rank: rank.gaps for rank in some}, self._newest)

    def waits(self, rank: _Rank) -> Union:
        """When a rank waited, knowing how long each gap takes at least, and in which nobody waits."""
        if self._pair:
            waited = self._waited.get(rank.rank, {})
            return union(
                (begin, min(released, begin + waited.get(key, 0))) for begin, _, released, key in rank.gaps
            )
        least, skipped, newest = self._least, self._beside, self._newest
        return union(
            (begin, min(released, begin + max(0, end - begin - least.get(key, 0))))
            for begin, end, released, key in rank.gaps
            if when(key, newest) not in skipped
        )


def _released(moments: Sequence[_Entered], times: Sequence[int]) -> list[int]:
    """For each moment, until when one may have to wait from then on: for the last one to enter something.

    :param times: of the moments, and one after all of them
    """
    released = list(times)
    own, before = 0, -1
    for index, (at, _, _, last) in enumerate(moments):
        if at != before:
            own, before = index, at
        if last <= at:
            continue
        until = last - CLOCKS_US  # who is released by the last one goes on right after it
        if until <= at:
            number = own
        elif times[index + 1] >= until:
            number = index
        else:
            number = bisect_left(times, until, index + 1) - 1
        if last > released[number]:
            released[number] = last
    return released
