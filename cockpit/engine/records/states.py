"""How things stand: the journal has what is worth keeping of that, a small file beside it how they stand now.

A notice that holds is seen each minute, a bad link comes and goes for weeks. Of the same news about one thing
the journal has each until there were :data:`KEPT`, then half as many each time they are twice as many.
"""

from __future__ import annotations

import json
import time
from collections.abc import Hashable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from cockpit.base.events import ClockMeasured, Filling, LinkChanged, Notice
from cockpit.base.gate import Malformed
from cockpit.core.run.events import Event, journaled
from cockpit.engine.files import lines, replace
from cockpit.errors import CockpitError

FILE = "now.jsonl"

KEPT = 16

EVERY_S = 15.0
"""Between two times that the file is written."""

READ = 4 << 20
"""Bytes of it that are read."""


def thing(event: Event) -> Hashable | None:
    """What an event says the state of; None: it is about something that has happened."""
    fact = event.fact
    if isinstance(fact, Notice):
        return "notice", fact.id, fact.of
    if isinstance(fact, Filling):
        return "filling", event.node, fact.of
    if isinstance(fact, LinkChanged | ClockMeasured):
        return event.kind, event.node
    return None


def _news(event: Event) -> Hashable:
    """What makes it other news about the same thing."""
    fact = event.fact
    if isinstance(fact, Notice):
        return fact.over, fact.due is None, fact.certainty, fact.severity
    if isinstance(fact, Filling):
        return fact.full_at is None
    if isinstance(fact, LinkChanged):
        return fact.state, fact.asks
    return ()


class States:
    """The states that the journal does not have, and the file of them.

    :param folder: the run's
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._counts: dict[Hashable, int] = {}
        self._now: dict[Hashable, Event] | None = None
        self._dirty = False
        self._written = float("-inf")

    def take(self, event: Event) -> bool:
        """Whether the journal should have an event; else it will be in the file."""
        of = thing(event)
        if of is None:
            return True
        if self._now is None:
            self._now = {thing(one): one for one in read(self._path.parent)}
        count = self._counts[of, _news(event)] = self._counts.get((of, _news(event)), 0) + 1
        kept = count <= KEPT or count % (1 << (count.bit_length() - KEPT.bit_length() + 1)) == 0
        if kept:
            self._dirty |= self._now.pop(of, None) is not None
        else:
            self._now[of], self._dirty = event, True
        if time.monotonic() >= self._written + EVERY_S:
            self.flush()
        return kept

    def flush(self) -> None:
        """Write the file, if there is anything new; what keeps it from being written, the journal tells."""
        if self._dirty and self._now is not None:
            data = "".join(json.dumps(event.as_json()) + "\n" for event in self._now.values())
            with suppress(CockpitError):
                replace(self._path, data.encode())
            self._dirty, self._written = False, time.monotonic()


def read(folder: Path) -> Iterator[Event]:
    """What the file of a run's folder says; damaged lines are ignored, and all of it if it cannot be read."""
    with suppress(CockpitError):
        for line in lines(folder / FILE, READ):
            with suppress(Malformed):
                event = journaled(line)
                if event is not None and thing(event) is not None:
                    yield event


def with_now(journal: Iterable[Event], folder: Path) -> Iterator[Event]:
    """The events of a journal, and then the states that have changed since, as far as they are not in it."""
    known: dict[Hashable, float] = {}
    for event in journal:
        of = thing(event)
        if of is not None:
            known[of] = event.at
        yield event
    for event in read(folder):
        if event.at > known.get(thing(event), float("-inf")):
            yield event
