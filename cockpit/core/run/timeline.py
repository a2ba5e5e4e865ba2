"""What happened in a run, in sentences with a time on the common clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from cockpit.base import events
from cockpit.base.events import Fact
from cockpit.core.ranks import in_order, nodes_text, ranks_text
from cockpit.core.run.events import Event
from cockpit.core.run.model import NOTES, RankState, RunModel
from cockpit.core.text import RemoteText

LIMIT = 5000
"""Entries kept; the oldest go first."""

FOLD_S = 3.0
"""What nodes or ranks do within this many seconds of the first that does it is one entry."""

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
    :param rank: the rank it is about, if it is one
    :param aside: left out if only news is wanted; the start of a rank, for example
    :param common: the sentence without its subject, if several may do it at once
    """

    at: float
    text: str
    level: str = "info"
    node: str = ""
    rank: int | None = None
    aside: bool = False
    common: str = ""


class Timeline:
    """Turns the events of one run into entries.

    :param model: the run's model; each event is applied to it before listeners see it
    """

    def __init__(self, model: RunModel) -> None:
        self._model = model
        self._linked: set[str] = set()
        self._damaged_nodes: set[str] = set()
        self._complete = False
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
        entry = self._entry(event)
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

    def _entry(self, event: Event) -> Entry | None:
        tell = _TELLERS.get(type(event.fact))
        at = event.at
        if isinstance(event.fact, _ON_NODE_CLOCK) and event.node in self._model.nodes:
            at -= self._model.nodes[event.node].offset_s
        return tell(self, event.node, at, event.fact) if tell else None

    # One method per kind: the entry, or None if it is not news.

    def _link(self, node: str, at: float, fact: events.LinkChanged) -> Entry | None:
        known = node in self._linked
        self._linked.add(node)
        if fact.state != "ok":
            return _of_node(at, node, f"link lost, the run goes on; reconnecting ({fact.why})", "warning")
        return _of_node(at, node, "link is back" if known else "link is up", aside=not known)

    def _launched(self, node: str, at: float, fact: events.Launched) -> Entry:
        return _of_node(at, node, "launched", aside=True)

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
        # Clocks settle its place in time: records of earlier failures may still arrive.
        first = self._model.first_failure()
        if first is not None and first.rank == rank.rank:
            text = f"rank {rank.rank} on {rank.node} {rank.text}: first failure so far"
            return Entry(at, text, "error", rank.node, rank.rank)
        level = "warning" if rank.failed else "info"
        text = f"rank {rank.rank} on {rank.node} {rank.text}"
        return Entry(at, text, level, rank.node, rank.rank, aside=True, common=rank.text)

    def _stop_asked(self, node: str, at: float, fact: events.StopAsked) -> Entry:
        return Entry(at, f"stopping: {fact.reason}", "warning")

    def _stop_requested(self, node: str, at: float, fact: events.StopRequested) -> Entry | None:
        if self._model.stop_reason:
            return None
        return Entry(at, f"{node}: asked to stop by {fact.by}: {fact.reason}", "warning", node)

    def _stage(self, node: str, at: float, fact: events.Stage) -> Entry:
        return _of_node(at, node, STAGES.get(fact.stage, fact.stage))

    def _report(self, node: str, at: float, fact: events.Report) -> Entry:
        text = f"{node}: report {fact.name}: {_report_text(fact)}"
        ready = fact.state == "ready"
        return Entry(at, text, "info", node, aside=ready, common="reports are ready" if ready else "")

    def _survivors(self, node: str, at: float, fact: events.Survivors) -> Entry | None:
        found = [survivor_text(node, process) for process in fact.procs]
        return Entry(at, "; ".join(found), "error", node) if found else None

    def _note(self, node: str, at: float, fact: events.Note) -> Entry | None:
        known = self._model.nodes.get(node)
        if known is not None and known.notes_dropped:
            # A node may write endless notes: say once that they are no longer shown.
            first = known.notes_dropped == 1
            text = f"{node}: more than {NOTES} notes; the others are not shown"
            return Entry(at, text, "warning", node) if first else None
        return _of_node(at, node, fact.text, "warning")

    def _damaged(self, node: str, at: float, fact: events.Damaged) -> Entry | None:
        if node in self._damaged_nodes:
            return None
        self._damaged_nodes.add(node)
        return _of_node(at, node, "its run record has lines that make no sense; they are ignored", "warning")

    def _node_lost(self, node: str, at: float, fact: events.NodeLost) -> Entry:
        return _of_node(at, node, fact.why, "warning")

    def _supervisor_gone(self, node: str, at: float, fact: events.SupervisorGone) -> Entry:
        return _of_node(at, node, "its supervisor was killed", "warning")

    def _ended(self, node: str, at: float, fact: events.Ended) -> Entry:
        return _of_node(at, node, "ended", aside=True)

    def _left(self, node: str, at: float, fact: events.Left) -> Entry:
        return Entry(at, "a cockpit left; the run goes on", "info", aside=True)


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


def _of_node(at: float, node: str, sentence: str, level: str = "info", *, aside: bool = False) -> Entry:
    return Entry(at, f"{node}: {sentence}", level, node, aside=aside, common=sentence)


def _harmless(entry: Entry) -> Entry:
    shown = RemoteText.of(entry.text).shown(limit=2000)
    return replace(entry, text=shown, common=RemoteText.of(entry.common).shown(limit=2000))


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
