"""What happened in a run, in sentences with a time on the common clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from cockpit.base import events
from cockpit.base.events import Fact
from cockpit.core.events import Event
from cockpit.core.model import NOTES, RankState, RunModel
from cockpit.core.ranks import in_order, nodes_text, ranks_text
from cockpit.core.text import RemoteText

LIMIT = 5000
"""Entries kept; the oldest go first."""

FOLD_S = 3.0
"""Ranks that end in the same way within so many seconds become one entry."""

STAGES = {
    "term": "asked its ranks to end (SIGTERM)",
    "finalising": "its ranks have ended; the profiler writes its report",
    "kill": "killing what is left (SIGKILL)",
    "sweep": "ending processes that the run left behind",
}


@dataclass(frozen=True)
class Entry:
    """One thing that happened.

    :param at: unix seconds on our clock
    :param text: one sentence, harmless for a terminal
    :param level: ``info``, ``warning`` or ``error``
    :param node: the node it is about; empty for the whole run
    :param rank: the rank it is about, where it is one
    :param aside: of no interest where only news are told, such as the start of a rank
    """

    at: float
    text: str
    level: str = "info"
    node: str = ""
    rank: int | None = None
    aside: bool = False


class Timeline:
    """Turns the events of one run into entries.

    :param model: the run's model; an event told has been applied to it already
    """

    def __init__(self, model: RunModel) -> None:
        self._model = model
        self._linked: set[str] = set()
        self._damaged_nodes: set[str] = set()
        self._complete = False
        self._fold: tuple[str, list[int]] = ("", [])
        self._nodes: dict[type[Fact], tuple[Entry | None, list[str]]] = {}
        self.entries: deque[Entry] = deque(maxlen=LIMIT)

    def tell(self, event: Event) -> Entry | None:
        """Take an event in; return the entry it made, if any. It may be an older one that grew."""
        entry = self._entry(event)
        if entry is None:
            return None
        entry = replace(entry, text=RemoteText.of(entry.text).shown(limit=2000))
        if entry.aside and type(event.fact) in _NODE_NEWS:
            return self._fold_node(type(event.fact), entry)
        if entry.rank is not None and entry.aside:
            entry = self._folded(entry)
        else:
            self._fold = ("", [])
        self.entries.append(entry)
        return entry

    def _fold_node(self, kind: type[Fact], entry: Entry) -> Entry:
        """An entry that many nodes make at the same time: one for all of them."""
        before, nodes = self._nodes.get(kind, (None, []))
        if before is None or entry.at - before.at >= FOLD_S or before not in self.entries:
            self._nodes[kind] = (entry, [entry.node])
            self._fold = ("", [])
            self.entries.append(entry)
            return entry
        nodes.append(entry.node)
        text = RemoteText.of(f"{nodes_text(in_order(nodes, self._model.nodes))}: {_NODE_NEWS[kind]}").shown(limit=400)
        folded = replace(before, text=text, node="")
        self.entries[self.entries.index(before)] = folded
        self._nodes[kind] = (folded, nodes)
        return folded

    def _entry(self, event: Event) -> Entry | None:
        tell = _TELLERS.get(type(event.fact))
        at = event.at
        if isinstance(event.fact, _ON_NODE_CLOCK) and event.node in self._model.nodes:
            at -= self._model.nodes[event.node].offset_s
        return tell(self, event.node, at, event.fact) if tell else None

    def _folded(self, entry: Entry) -> Entry:
        """An entry about a rank that ended, merged with the one before where that says the same."""
        assert entry.rank is not None
        rank = self._model.ranks[entry.rank]
        kind, ranks = self._fold
        if ranks and kind == rank.text and entry.at - self.entries[-1].at < FOLD_S:
            ranks.append(rank.rank)
            last = self.entries.pop()
            return replace(last, text=f"ranks {ranks_text(ranks)} {rank.text}", node="", rank=None)
        self._fold = (rank.text, [rank.rank])
        return entry

    # One method a kind: the entry, or None where it is no news.

    def _link(self, node: str, at: float, fact: events.LinkChanged) -> Entry | None:
        known = node in self._linked
        self._linked.add(node)
        if fact.state != "ok":
            return Entry(
                at, f"{node}: link lost, the run goes on; reconnecting ({fact.why})", "warning", node
            )
        return Entry(
            at, f"{node}: link is back" if known else f"{node}: link is up", "info", node, aside=not known
        )

    def _launched(self, node: str, at: float, fact: events.Launched) -> Entry:
        return Entry(at, f"{node}: launched", "info", node, aside=True)

    def _rank_started(self, node: str, at: float, fact: events.RankStarted) -> Entry | None:
        alive, total = self._model.alive(), len(self._model.ranks)
        if fact.attempt:
            text = f"rank {fact.rank} on {node} started again, attempt {fact.attempt + 1}"
            return Entry(at, text, "warning", node)
        complete, self._complete = self._complete, alive == total
        if alive == total and not complete:
            return Entry(at, f"{alive}/{total} ranks running", aside=True)
        return None

    def _rank_ended(self, node: str, at: float, fact: events.RankExited | events.RankLost) -> Entry | None:
        rank = self._model.ranks.get(fact.rank)
        if rank is None or rank.state in (RankState.RUNNING, RankState.STARTING, RankState.WAITING):
            return None
        # Its place in time is settled by clocks: records of earlier failures may still come.
        first = self._model.first_failure()
        if first is not None and first.rank == rank.rank:
            text = f"rank {rank.rank} on {rank.node} {rank.text}: first failure so far"
            return Entry(at, text, "error", rank.node, rank.rank)
        level = "warning" if rank.failed else "info"
        return Entry(
            at, f"rank {rank.rank} on {rank.node} {rank.text}", level, rank.node, rank.rank, aside=True
        )

    def _stop_asked(self, node: str, at: float, fact: events.StopAsked) -> Entry:
        return Entry(at, f"stopping: {fact.reason}", "warning")

    def _stop_requested(self, node: str, at: float, fact: events.StopRequested) -> Entry | None:
        if self._model.stop_reason:
            return None
        return Entry(at, f"{node}: asked to stop by {fact.by}: {fact.reason}", "warning", node)

    def _stage(self, node: str, at: float, fact: events.Stage) -> Entry:
        return Entry(at, f"{node}: {STAGES.get(fact.stage, fact.stage)}", "info", node)

    def _report(self, node: str, at: float, fact: events.Report) -> Entry:
        text = f"{node}: report {fact.name}: {_report_text(fact)}"
        return Entry(at, text, "info", node, aside=fact.state == "ready")

    def _survivors(self, node: str, at: float, fact: events.Survivors) -> Entry | None:
        found = [survivor_text(node, process) for process in fact.procs]
        return Entry(at, "; ".join(found), "error", node) if found else None

    def _note(self, node: str, at: float, fact: events.Note) -> Entry | None:
        known = self._model.nodes.get(node)
        if known is not None and known.notes_dropped:
            # A node may write notes without end: it is said once that they are no longer shown.
            first = known.notes_dropped == 1
            text = f"{node}: more than {NOTES} notes; the others are not shown"
            return Entry(at, text, "warning", node) if first else None
        return Entry(at, f"{node}: {fact.text}", "warning", node)

    def _damaged(self, node: str, at: float, fact: events.Damaged) -> Entry | None:
        if node in self._damaged_nodes:
            return None
        self._damaged_nodes.add(node)
        text = f"{node}: its run record has lines that make no sense; they are ignored"
        return Entry(at, text, "warning", node)

    def _node_lost(self, node: str, at: float, fact: events.NodeLost) -> Entry:
        return Entry(at, f"{node}: {fact.why}", "warning", node)

    def _supervisor_gone(self, node: str, at: float, fact: events.SupervisorGone) -> Entry:
        return Entry(at, f"{node}: its supervisor was killed", "warning", node)

    def _ended(self, node: str, at: float, fact: events.Ended) -> Entry:
        return Entry(at, f"{node}: ended", "info", node, aside=True)

    def _left(self, node: str, at: float, fact: events.Left) -> Entry:
        return Entry(at, "a cockpit left; the run goes on", "info", aside=True)


_TELLERS: dict[type[Fact], Callable[[Timeline, str, float, Any], Entry | None]] = {
    events.LinkChanged: Timeline._link,
    events.Launched: Timeline._launched,
    events.RankStarted: Timeline._rank_started,
    events.RankExited: Timeline._rank_ended,
    events.RankLost: Timeline._rank_ended,
    events.StopAsked: Timeline._stop_asked,
    events.StopRequested: Timeline._stop_requested,
    events.Stage: Timeline._stage,
    events.Report: Timeline._report,
    events.Survivors: Timeline._survivors,
    events.Note: Timeline._note,
    events.Damaged: Timeline._damaged,
    events.SupervisorGone: Timeline._supervisor_gone,
    events.NodeLost: Timeline._node_lost,
    events.Ended: Timeline._ended,
    events.Left: Timeline._left,
}

_NODE_NEWS: dict[type[Fact], str] = {
    events.LinkChanged: "link is up",
    events.Launched: "launched",
    events.Ended: "ended",
}
"""What nodes usually do all together."""

_ON_NODE_CLOCK = (
    events.RankStarted,
    events.RankExited,
    events.RankLost,
    events.StopRequested,
    events.Stage,
    events.Report,
    events.Survivors,
)
"""What the node itself recorded, with times on its clock."""


def survivor_text(node: str, process: events.Process) -> str:
    """One line about a process that no signal ended."""
    return f"{node}: survivor: {process.name} (pid {process.pid}, state {process.state})"


def _report_text(fact: events.Report) -> str:
    if fact.state == "writing":
        return f"being written, {fact.size / 1e6:.1f} MB so far"
    return f"{fact.state}: {fact.text}" if fact.text else fact.state
