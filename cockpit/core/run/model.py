"""The run model: events in, states of nodes and ranks out; deterministic, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cockpit.core.run.event_table import TABLE
from cockpit.core.run.events import Event
from cockpit.core.run.states import LIVE, Node, Rank, RankState, Run

__all__ = ["LIVE", "Node", "Rank", "RankState", "RunModel"]

_NOBODY = Node("", ())


class RunModel(Run):
    """The state of one run. :meth:`apply` is the only writer."""

    @classmethod
    def of(cls, events: Iterable[Event]) -> RunModel:
        """The state after these events."""
        model = cls()
        for event in events:
            model.apply(event)
        return model

    def kept(self) -> Mapping[str, Any]:
        """The state as it is now, for :meth:`become`; nodes and ranks are shared with it."""
        return {name: dict(each) if isinstance(each, dict) else each for name, each in vars(self).items()}

    def become(self, kept: Mapping[str, Any]) -> None:
        """Go to a state that was kept."""
        vars(self).update(
            {name: dict(each) if isinstance(each, dict) else each for name, each in kept.items()}
        )

    def apply(self, event: Event) -> set[str | int]:
        """Take in one event; return the names of nodes and the numbers of ranks that changed.

        Nodes and ranks that are not part of this run are ignored.
        """
        kind = TABLE[type(event.fact)]
        node = _NOBODY if kind.whole else self.nodes.get(event.node)
        changed: set[str | int] = set()
        if node is not None and kind.reduce is not None:
            for state in kind.reduce(self, node, event.at, event.fact):
                changed |= self._put(state)
        return changed

    def _put(self, state: Node | Rank) -> set[str | int]:
        if isinstance(state, Node):
            self.nodes[state.name] = state
            return {state.name}
        self.ranks[state.rank] = state
        return {state.node, state.rank}
