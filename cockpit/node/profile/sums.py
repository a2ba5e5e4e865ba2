"""Sum up what was kept of a rank: unions of intervals by kind, own times of operations, collectives."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from cockpit.base.gate import COUNT
from cockpit.base.profile.summary import LENGTH, MOST_COLLECTIVES, MOST_OPERATIONS, NS
from cockpit.base.shared_fields import PROFILE_STEPS
from cockpit.base.union import Union
from cockpit.node.profile.events import BadTrace
from cockpit.node.profile.rank_events import (
    ANNOTATION,
    COMMUNICATION,
    COMPUTE,
    COPY,
    DATA,
    KERNEL,
    OF_GPU,
    OPERATOR,
    OTHER,
    READS,
    Call,
    Lane,
    Mark,
    Named,
    RankEvents,
    Where,
    hashed,
)

_BITS, _NAME_BITS = 53, 16


class About(NamedTuple):
    """What a file says beside its events.

    :param what: how sentences call it
    :param base: unix nanoseconds of its time 0
    :param version: of torch
    :param first: the first step that was asked for, of ``steps``
    :param world: ranks of the only group that there is; 0: not known, or there are others
    """

    what: str
    base: int
    events: int
    backend: str = ""
    version: str = ""
    first: int = 0
    steps: int = 0
    world: int = 0


class _Step(NamedTuple):
    number: int
    begin: int
    end: int


class Sum:
    """The sum of what was kept."""

    def __init__(self, kept: RankEvents, about: About) -> None:
        self._kept, self._about = kept, about
        self._notes: List[str] = []
        self._gpu = any(name.category == KERNEL for name in kept.names)
        self._steps = self._bounds()
        self._low, self._high = self._steps[0].begin, self._steps[-1].end
        # Numbers of names follow the order of events; what comes of a trace must not.
        order = sorted(range(len(kept.names)), key=lambda one: kept.names[one])
        self._named = [kept.names[one] for one in order]
        self._ranked = array("H", bytes(2 * len(order)))
        for place, one in enumerate(order):
            self._ranked[one] = place
        self._kinds = [[self._span_kind(name, gpu) for name in self._named] for gpu in (False, True)]
        self._starting = bytes(
            name.kind == COMMUNICATION and name.category == OPERATOR for name in self._named
        )
        self._own, self._counts = [0] * len(order), [0] * len(order)
        self._training = {mark.lane for mark in kept.marks}

    def told(self) -> Dict[str, Any]:
        """All that the trace tells, as JSON."""
        parts: Dict[str, List[Union]] = {DATA: [], COMPUTE: [], COMMUNICATION: []}
        for where in sorted(self._kept.lanes):
            # The main thread is one, where a thread of autograd steps the optimizer.
            training = not self._training or where in self._training or where[1] == where[2]
            for kind, spans in self._lane(self._kept.lanes.pop(where)).items():
                if training or kind != DATA:
                    parts[kind].append(spans)
        data, compute, communication = (Union.of(parts.pop(kind)) for kind in list(parts))
        busy = Union.of((data, compute))
        steps = self._times(data, compute, communication, busy)
        calls = self._collectives(busy)
        used = [one for one in range(len(self._named)) if self._own[one] or self._counts[one]]
        used.sort(key=lambda one: (-self._own[one], one))
        rows = [
            [
                self._named[one].text,
                self._kind(self._named[one]),
                LENGTH.nearest(self._own[one]),
                self._counts[one],
            ]
            for one in used[:MOST_OPERATIONS]
        ]
        self._note_the_rest(calls)
        return {
            "device": "gpu" if self._gpu else "cpu",
            "backend": self._about.backend,
            "torch": self._about.version,
            "steps": steps,
            "operations": rows,
            "operations_all": len(used),
            "names": self._names(used),
            "collectives": calls[:MOST_COLLECTIVES],
            "collectives_all": len(calls) + self._kept.calls_left,
            "events": self._about.events,
            "notes": self._notes,
        }

    def _bounds(self) -> List[_Step]:
        """The steps; each lasts until the next one begins."""
        what, first, steps = self._about.what, self._about.first, self._about.steps
        marks: List[Mark] = []
        seen = set()
        for mark in sorted(self._kept.marks):
            if mark.step not in seen and mark.length:
                seen.add(mark.step)
                marks.append(mark)
        if not marks:
            lanes = [lane for lane in self._kept.lanes.values() if lane.starts]
            if not lanes:
                raise BadTrace("it has no operation in it")
            begin = min(min(lane.starts) for lane in lanes)
            end = max(max(map(int.__add__, lane.starts, lane.lengths)) for lane in lanes)
            self._notes.append(
                "the %s does not mark its steps: it is summed up as if it were one step" % what
            )
            end = min(max(end, begin + 1), begin + LENGTH.most)
            return [_Step(COUNT.nearest(first), begin, end)]
        found = [
            _Step(mark.step, mark.start, following.start if following else mark.start + mark.length)
            for mark, following in zip(marks, [*marks[1:], None])
        ]
        found = [
            step._replace(end=min(step.end, step.begin + LENGTH.most))
            for step in found
            if step.end > step.begin
        ]
        if len(found) > PROFILE_STEPS:
            self._notes.append("only the first %d of %d steps are summed up" % (PROFILE_STEPS, len(found)))
            found = found[:PROFILE_STEPS]
        elif steps > len(found):
            self._notes.append("%d of %d steps are in the %s" % (len(found), steps, what))
        return found

    def _lane(self, lane: Lane) -> Dict[str, Union]:
        """Count own times and calls; return what is covered by each kind. The lane is empty then."""
        mask, names = (1 << _BITS) - 1, (1 << _NAME_BITS) - 1
        low, high, ranked, own, counts = self._low, self._high, self._ranked, self._own, self._counts
        # By begin, the longer one first: it is outside. One integer each takes little memory.
        order = [
            (start << _BITS | mask - length) << _NAME_BITS | ranked[name]
            for start, length, name in zip(lane.starts, lane.lengths, lane.names)
        ]
        order.sort()
        del lane.starts[:], lane.lengths[:], lane.names[:]
        spans = {DATA: Union(), COMPUTE: Union(), COMMUNICATION: Union()}
        kinds = self._kinds[lane.gpu]
        waiting = self._waiting(order)
        open_ends: List[int] = []
        open_names: List[int] = []
        for place, one in enumerate(order):
            name = one & names
            begin = one >> _BITS + _NAME_BITS
            end = begin + mask - (one >> _NAME_BITS & mask)
            kind = kinds[name]
            if kind is not None and not (kind == COMPUTE and waiting and waiting[place]):
                spans[kind].add(begin, end)
            if low <= begin < high:
                counts[name] += 1
            begin, end = max(begin, low), min(end, high)
            if end <= begin:
                continue
            own[name] += end - begin
            if lane.gpu:
                continue
            # Each moment belongs to what began last. Annotations may end in the middle of others; what ends
            # before the newest one can have no later moment.
            while open_ends and open_ends[-1] <= begin:
                open_ends.pop()
                open_names.pop()
            at = begin
            while open_ends and open_ends[-1] <= end:
                own[open_names.pop()] -= open_ends[-1] - at
                at = open_ends.pop()
            if open_ends:
                own[open_names[-1]] -= end - at
            open_ends.append(end)
            open_names.append(name)
        return spans

    def _waiting(self, order: Sequence[int]) -> bytearray:
        """Which events start a collective in what they call: hooks of gradients, and functions with a
        backward of their own, wait for it there. Only what else they call computes.

        :param order: as :meth:`_lane` has them
        :return: nothing: none does
        """
        mask, names, found = (1 << _BITS) - 1, (1 << _NAME_BITS) - 1, bytearray()
        if not any(self._starting):
            return found
        opened: List[Tuple[int, int]] = []
        for place, one in enumerate(order):
            begin = one >> _BITS + _NAME_BITS
            while opened and opened[-1][0] <= begin:
                opened.pop()
            if self._starting[one & names]:
                found = found or bytearray(len(order))
                for end, outer in reversed(opened):
                    if found[outer]:
                        break  # and so are those around it
                    found[outer] = end > begin
            opened.append((begin + mask - (one >> _NAME_BITS & mask), place))
        return found

    def _span_kind(self, name: Named, gpu: bool) -> Optional[str]:
        """The kind of span that an event of this name is part of; None: of none."""
        if name.kind == COMMUNICATION and name.category == OPERATOR:
            return None
        if name.kind in (COMPUTE, COPY):
            return COMPUTE if gpu or not self._gpu else None
        return name.kind if name.kind in (DATA, COMMUNICATION) else None

    def _kind(self, name: Named) -> str:
        """Where kernels compute, operators only launch them."""
        return OTHER if self._gpu and name.category == OPERATOR and name.kind == COMPUTE else name.kind

    def _names(self, used: Iterable[int]) -> str:
        """A hash over the set of operators and collectives; of kernels if there are none of these."""
        every = [self._named[one] for one in used if self._counts[one]]
        found = {
            name.text
            for name in every
            if name.category == OPERATOR or (name.category == ANNOTATION and name.kind == COMMUNICATION)
        }
        return hashed(sorted(found - READS or {name.text for name in every if name.category in OF_GPU}))[:16]

    def _times(self, data: Union, compute: Union, communication: Union, busy: Union) -> List[List[Any]]:
        any_of = Union.of((busy, communication))
        rows = []
        for step in self._steps:
            span = (step.begin, step.end)
            took = step.end - step.begin
            work, whole = busy.within(*span), any_of.within(*span)
            # A GPU continues while the host waits for data: waiting costs time only where the GPU is idle.
            in_data = work - compute.within(*span) if self._gpu else data.within(*span)
            exposed = whole - work
            overlapped = communication.within(*span) - exposed
            began = NS.nearest(self._about.base + step.begin)
            rows.append(
                [step.number, began, took, in_data, work - in_data, exposed, took - whole, overlapped, []]
            )
        return rows

    def _collectives(self, busy: Union) -> List[List[Any]]:
        """Those that begin in a step; one within another of its thread is part of that."""
        calls: List[Call] = []
        ends: Dict[Where, int] = {}
        for call in sorted(self._kept.calls, key=lambda one: (one.start, -one.length, one[2:])):
            end = call.start + call.length
            if end > ends.get(call.lane, -1) or not call.length:
                ends[call.lane] = end
                calls.append(call)
        begins = [step.begin for step in self._steps]
        counts: Dict[Tuple[int, str], int] = {}
        rows: List[List[Any]] = []
        for call in calls:
            place = bisect_right(begins, call.start) - 1
            if place < 0 or call.start >= self._steps[place].end:
                continue
            step = self._steps[place]
            count = counts[place, call.same] = counts.get((place, call.same), 0) + 1
            rows.append(
                [
                    step.number,
                    call.op,
                    call.group,
                    call.same if call.numbered and count == 1 else "%s #%d" % (call.same, count),
                    call.size,
                    call.ranks or self._about.world,
                    call.start - step.begin,
                    call.length,
                    call.length - busy.within(call.start, call.start + call.length),
                    -1,
                ]
            )
        return rows

    def _note_the_rest(self, rows: List[List[Any]]) -> None:
        kept, notes = self._kept, self._notes
        calls = [call for call in kept.calls if not call.numbered]
        if any(call.op != "barrier" for call in calls) and not any(call.sized for call in calls):
            notes.append(
                "the %s has no tensor sizes: collectives are matched by order alone" % self._about.what
            )
        if kept.calls_left or len(rows) > MOST_COLLECTIVES:
            notes.append("only the first of many collectives are listed one by one")
        if kept.unusable:
            notes.append(f"{kept.unusable:,} events have no usable times or names, and do not count")
        if kept.unnamed:
            notes.append(f"{kept.unnamed:,} events have more names than are told apart")
        if kept.graphs:
            notes.append(
                f"{kept.graphs:,} kernels were launched by CUDA graphs: no operator launches each of them"
            )
