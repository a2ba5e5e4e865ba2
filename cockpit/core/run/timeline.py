"""What happened in a run, in sentences with a time on the common clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from cockpit.core.ranks import in_order, nodes_text, ranks_text
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
        self._folds: dict[tuple[bool, str, str], _Fold] = {}
        self._grown: list[_Fold] = []
        self._entries: deque[Entry] = deque(maxlen=LIMIT)

    @property
    def entries(self) -> deque[Entry]:
        """What happened, in the order it was reported."""
        # Folding thousands of numbers takes long: once per look, not once per rank.
        for fold in self._grown:
            if fold.shown in self._entries:
                at = self._entries.index(fold.shown)
                self._entries[at] = fold.grow(self._model.nodes)
        self._grown.clear()
        return self._entries

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
            self._entries.append(entry)
        return entry

    def _fold(self, entry: Entry) -> None:
        """Add an entry that many ranks or nodes may make at the same time: one for all of them."""
        key = (entry.rank is None, entry.level, entry.common)
        fold = self._folds.get(key)
        if fold is None or abs(entry.at - fold.shown.at) >= FOLD_S:
            if len(self._folds) >= LIMIT:
                self._folds.clear()  # a node may say something else each time
            fold = self._folds[key] = _Fold(entry)
            self._entries.append(entry)
        elif fold not in self._grown:
            self._grown.append(fold)
        fold.nodes.add(entry.node)
        if entry.rank is not None:
            fold.ranks.add(entry.rank)


@dataclass(eq=False)
class _Fold:
    """An entry as it is shown, and whom it is about by now."""

    shown: Entry
    nodes: set[str] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)

    def grow(self, order: Iterable[str]) -> Entry:
        """Show all of them as one, its nodes in this order."""
        nodes, ranks = self.nodes, self.ranks
        if len(ranks or nodes) > 1:
            who = f"ranks {ranks_text(ranks)} " if ranks else f"{nodes_text(in_order(nodes, order))}: "
            text = f"{who}{self.shown.common}"
            self.shown = _harmless(replace(self.shown, text=text, node="", rank=None))
        return self.shown


def _harmless(entry: Entry) -> Entry:
    shown = one_line(entry.text, limit=2000)
    return replace(entry, text=shown, common=one_line(entry.common, limit=2000))
