"""The events of a run in the order in which they happened, on our clock.

A node's record is on the node's clock, and clocks are set while runs go on. What one file says stays in its
order, whatever its times are; between files the times on our clock decide. A node that is stopped was asked
to before, whatever its clock says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter

from cockpit.base.events import ClockMeasured, Planned, StopAsked, StopRequested
from cockpit.core.run.event_table import TABLE, WhoseClock
from cockpit.core.run.events import Event

Timed = tuple[float, Event]
"""When an event happened, unix seconds on our clock, and the event, whose own time fits the clocks as they
were measured last."""

_BACK_S = 1.0
"""A record that goes back by more is of a clock that was set: whoever writes it does so in order."""


class Clocks:
    """How far the clocks of nodes were ahead of ours, and when that was measured.

    :param offsets: of each node the moments (unix seconds on our clock), the seconds that it was ahead, and
        how many the round trip took
    """

    def __init__(self, offsets: Mapping[str, Sequence[tuple[float, float, float]]]) -> None:
        self._offsets = offsets

    def last(self, node: str) -> float:
        """How far a node's clock is ahead, as it was measured last; 0 if it never was."""
        known = self._offsets.get(node)
        return known[-1][1] if known else 0.0

    def rtt_s(self, node: str) -> float:
        """How exact that is: the round trip when it was measured last, seconds."""
        known = self._offsets.get(node)
        return known[-1][2] if known else 0.0

    def placed(self, node: str, record: Iterable[Event], asked: Sequence[Timed] = ()) -> Iterator[Timed]:
        """The events of a node's record in its order, on our clock: none before the one before.

        :param asked: what it was asked for: it cannot have been told so earlier
        """
        known = self._offsets.get(node) or [(0.0, 0.0, 0.0)]
        place, before = 0, float("-inf")
        for event in record:
            theirs = event.at
            while place + 1 < len(known):
                ours = theirs - known[place][1]
                # Measured anew by then; or the clock was set back, and only the next measurement knows it.
                back = ours < before - _BACK_S <= theirs - known[place + 1][1]
                if ours < known[place + 1][0] and not back:
                    break
                place += 1
            before = max(before, theirs - known[place][1])
            before = max(before, _asked(event, before, asked))
            yield before, event


def _asked(event: Event, at: float, asked: Iterable[Timed]) -> float:
    """When this machine requested the stop that a node recorded; else the time of the record itself."""
    fact = event.fact
    if isinstance(fact, StopRequested):
        for when, cause in asked:
            said = cause.fact
            if (
                isinstance(said, StopAsked)
                and at < when <= at + _BACK_S
                and (said.by, said.reason) == (fact.by, fact.reason)
            ):
                return when
    return at


def clocks_of(journal: Iterable[Event]) -> Clocks:
    """The clocks as a run's journal tells of them."""
    offsets: dict[str, list[tuple[float, float, float]]] = {}
    for event in journal:
        if isinstance(event.fact, ClockMeasured):
            offsets.setdefault(event.node, []).append((event.at, event.fact.offset_s, event.fact.rtt_s))
    for known in offsets.values():
        known.sort(key=itemgetter(0))
    return Clocks(offsets)


def written(journal: Iterable[Event]) -> Iterator[Timed]:
    """Our own events in the order in which they were written, none before the one before."""
    before, offsets = float("-inf"), dict[str, float]()
    for event in journal:
        if isinstance(event.fact, ClockMeasured):
            offsets[event.node] = event.fact.offset_s
        # What we saw of a node has its clock's time, as that was known when it was written.
        before = max(before, event.at - _ahead(event, offsets.get(event.node, 0.0)))
        yield before, event


def standing(states: Iterable[Event], clocks: Clocks) -> Iterator[Timed]:
    """Those that only say how things stand: each has its place by its own time."""
    return ((event.at - _ahead(event, clocks.last(event.node)), event) for event in states)


def rebased(found: Iterable[Timed], clocks: Clocks) -> Iterator[Timed]:
    """The same events with times that fit the clocks as they were measured last.

    Without these measurements, and the plan, which would take them back: the model begins with both.
    """
    for at, event in found:
        if not isinstance(event.fact, ClockMeasured | Planned):
            theirs = at + _ahead(event, clocks.last(event.node))
            yield at, event if event.at == theirs else replace(event, at=theirs)


def _ahead(event: Event, offset_s: float) -> float:
    return offset_s if TABLE[type(event.fact)].clock is WhoseClock.NODE else 0.0
