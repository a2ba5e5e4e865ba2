"""Events: facts that change the run model, from a node's run record and from the cockpit itself.

The table of all kinds is :mod:`cockpit.base.events`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from cockpit.base.events import ABOUT_RANKS, OWN, RECORD, Fact, RankLost, RecordLine, read_line
from cockpit.base.gate import NODE_NAME, Malformed, parsed

_JOURNALED = {**RECORD, **OWN}

LINE_LIMIT = 1 << 20
"""Bytes of one line of a run record; a longer one makes no sense."""


@dataclass(frozen=True)
class Event:
    """One fact.

    :param at: unix seconds: the node's own clock for a line of its run record, ours for everything else
    :param node: the node it is about; empty for the whole run
    :param fact: what happened
    """

    at: float
    node: str
    fact: Fact

    @property
    def kind(self) -> str:
        """The name of what happened: ``rank_exited``."""
        return self.fact.kind

    def as_json(self) -> dict[str, Any]:
        """The event as one flat object of a journal."""
        return {**RecordLine(self.at, self.fact).as_json(), "node": self.node}


class RecordReader:
    """Reads a node's run record as its bytes arrive; lines that make no sense are counted.

    :param node: the node whose record it is
    :param ranks: its ranks: what a record says about others is not believed
    """

    def __init__(self, node: str, ranks: Iterable[int]) -> None:
        self._node = node
        self._ranks = frozenset(ranks)
        self._partial = b""
        self._skips = False
        self.bad = 0
        """Lines so far that make no sense."""

    def feed(self, data: bytes) -> list[Event]:
        """The events of the lines that these bytes complete."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        events = [event for line in lines if (event := self._event(line)) is not None]
        if len(self._partial) > LINE_LIMIT:
            # Everything up to the end of the line belongs to it.
            self._partial, self._skips = b"", True
        return events

    def _event(self, line: bytes) -> Event | None:
        if self._skips:
            self._skips = False
            self.bad += 1
            return None
        try:
            found = read_line(parsed(line), RECORD)
            if found is None:
                return None
            if isinstance(found.fact, RankLost):
                # Whoever wrote it is the one who writes here.
                found = found._replace(fact=replace(found.fact, by="supervisor"))
            return self._own(found)
        except Malformed:
            self.bad += 1
            # What was cut off by the end of one file may stand before the first line of the next.
            begins = line.rfind(b'{"t"')
            return self._event(line[begins:]) if begins > 0 else None

    def events(self, lines: Iterable[RecordLine]) -> list[Event]:
        """The events of lines that the gate has already read."""
        found = []
        for line in lines:
            try:
                found.append(self._own(line))
            except Malformed:
                self.bad += 1
        return found

    def _own(self, line: RecordLine) -> Event:
        if isinstance(line.fact, ABOUT_RANKS) and line.fact.rank not in self._ranks:
            raise Malformed("not a rank of this node")
        return Event(line.t, self._node, line.fact)


def journaled(line: bytes) -> Event | None:
    """The event of a line of our journal; None for a kind of a later version.

    The journal also has kinds of run records: what a dead supervisor could no longer record.

    :raises Malformed: it is not an event
    """
    value = parsed(line)
    found = read_line(value, _JOURNALED)
    if found is None:
        return None
    node = value.get("node", "")
    return Event(found.t, NODE_NAME.read(node) if node else "", found.fact)
