"""Facts that change the run model: what a node's run record says, and what we saw of the node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Event:
    """One fact.

    :param at: unix seconds: the node's own clock for a line of its run record, ours for all else
    :param kind: a kind of the run record (``rank_exited``, …) or one of ours (:data:`OWN_KINDS`)
    :param node: the node it is about; empty for the whole run
    :param data: the other fields, as recorded
    """

    at: float
    kind: str
    node: str
    data: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """The event as one flat object; :meth:`from_json` is the way back."""
        return {"t": self.at, "e": self.kind, "node": self.node, **self.data}

    @classmethod
    def from_json(cls, line: Mapping[str, Any], node: str = "") -> Event:
        """An event from a line of a journal, or of the run record of ``node``.

        :raises ValueError: time or kind is missing
        """
        try:
            at, kind = float(line["t"]), str(line["e"])
        except (KeyError, TypeError, ValueError):
            raise ValueError("not an event: no time or no kind") from None
        rest = {name: value for name, value in line.items() if name not in ("t", "e", "node")}
        # A node speaks for itself only: the name it was asked under wins over what it says.
        return cls(at, kind, node or str(line.get("node", "")), rest)


OWN_KINDS = {
    "planned": "nodes of the run with their ranks: {nodes: {name: [rank, …]}}",
    "launched": "the node's supervisor was started: {dir}",
    "link": "state of the link: {state: connecting|ok|stale|gone, why}",
    "clock": "the node's clock against ours: {offset_s, rtt_s}",
    "sample": "measurements (not journaled): {sample: {…}, ranks: {…}, gpus: […]}",
    "complete": "the node ended and every byte it wrote is spooled: {}",
    "supervisor_gone": "the supervisor vanished without ending: {}",
    "node_lost": "the run folder or the node's boot is gone: {why}",
    "stop_asked": "a person or the failure policy asked to stop: {reason, by, hard}",
    "left": "the cockpit left, the run goes on: {}",
}
"""Kinds that come from the cockpit, not from a node's run record."""
