"""What happened in a run, in sentences with a time on the common clock."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from cockpit.core.logs.folding import Folded, folded
from cockpit.core.logs.shapes import shape_of
from cockpit.core.logs.sources import Source, rank_of
from cockpit.core.ranks import in_order, nodes_text, ranks_named
from cockpit.core.run.event_table import TABLE, Entry, our_time
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.core.text import one_line

LIMIT = 5000
"""Entries kept; the oldest go first."""

FOLD_S = 3.0
"""What nodes or ranks do within this many seconds of the first that does it is one entry."""


class Timeline:
    """Turns the events of one run into entries.

    :param model: the run's model; each event is applied to it before listeners see it
    """

    def __init__(self, model: RunModel) -> None:
        self._model = model
        self._said: set[str] = set()
        self._folds: dict[tuple[bool, str, str | bytes], _Fold] = {}
        self._told: deque[_Fold] = deque(maxlen=LIMIT)
        self.until = math.inf
        """What happened later is left out of :attr:`entries`: unix seconds on our clock."""

    @property
    def entries(self) -> list[Entry]:
        """What happened, in the order it was reported."""
        return [entry for fold in self._told for entry in fold.entries(self._model.nodes, self.until)]

    def precede(self, earlier: Timeline) -> None:
        """Put what another one has told before all that this one has."""
        self._told = deque([*earlier._told, *self._told], LIMIT)

    def tell(self, event: Event) -> Entry | None:
        """Take in an event; return what it says by itself, if anything.

        In :attr:`entries` it may be part of one that others began.
        """
        tell = TABLE[type(event.fact)].tell
        at = our_time(self._model, event)
        entry = tell and tell(self._model, self._said, event.node, at, event.fact)
        if entry is None:
            return None
        entry = _harmless(entry)
        if entry.common:
            self._fold(entry)
        else:
            self._told.append(_Fold(entry))
        return entry

    def _fold(self, entry: Entry) -> None:
        """Add an entry that many ranks or nodes may make at the same time: one for all of them."""
        key = (entry.rank is None, entry.level, _alike(entry))
        fold = self._folds.get(key)
        if fold is None or abs(entry.at - fold.first.at) >= FOLD_S or not fold.takes(entry):
            if len(self._folds) >= LIMIT:
                self._folds.clear()  # a node may say something else each time
            fold = self._folds[key] = _Fold(entry)
            self._told.append(fold)
        fold.add(entry)


def _alike(entry: Entry) -> str | bytes:
    """What entries that are told as one have in common.

    Nodes differ in numbers, as log lines do. How a rank ended is a number: exit 1 is not exit 2.
    """
    shape = shape_of(entry.common.encode()) if entry.rank is None else None
    return entry.common if shape is None else shape.of(entry.common.encode())[0]


@dataclass(eq=False)
class _Fold:
    """What was said at once in like words, and by whom so far."""

    first: Entry
    said: dict[Source, bytes] = field(default_factory=dict)
    _when: dict[Source, float] = field(default_factory=dict)
    _shown: list[Entry] = field(default_factory=list)
    _shown_for: int = 0

    def takes(self, entry: Entry) -> bool:
        """Whether it may be part of this: nobody says two things at once."""
        text = entry.common.encode()
        return self.said.get((entry.node, entry.rank), text) == text

    def add(self, entry: Entry) -> None:
        """Make it a part of this."""
        self.said[entry.node, entry.rank] = entry.common.encode()
        self._when.setdefault((entry.node, entry.rank), entry.at)
        self._shown = []

    def entries(self, order: Iterable[str], until: float) -> list[Entry]:
        """All of it that had been said by a moment as few entries, their nodes in this order."""
        if not self.said:
            return [self.first] if self.first.at <= until else []
        said = self.said.items()
        if until < self.first.at + FOLD_S:
            said = {source: text for source, text in said if self._when[source] <= until}.items()
        # Folding thousands of numbers takes long: once per look, not once per rank.
        if not self._shown or self._shown_for != len(said):
            self._shown = [self._one(item, order) for item in folded(said)]
            self._shown_for = len(said)
        return self._shown

    def _one(self, item: Folded, order: Iterable[str]) -> Entry:
        if list(item.sources) == [(self.first.node, self.first.rank)]:
            return self.first
        ranks = [rank for _, rank in item.sources if isinstance(rank, int)]
        nodes = in_order({node for node, _ in item.sources}, order)
        who = f"{ranks_named(ranks)} " if ranks else f"{nodes_text(nodes)}: "
        node, writer = item.sources[0] if len(item.sources) == 1 else ("", None)
        text = f"{who}{item.text.decode()}"
        sources, rank = tuple(item.sources), rank_of(writer)
        return _harmless(replace(self.first, text=text, node=node, rank=rank, sources=sources))


def _harmless(entry: Entry) -> Entry:
    shown = one_line(entry.text, limit=2000)
    see = one_line(entry.see, limit=2000)
    return replace(entry, text=shown, common=one_line(entry.common, limit=2000), see=see)
