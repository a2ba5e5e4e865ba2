"""What happened in a run, in sentences with a time on the common clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cockpit.core.events import Event
from cockpit.core.model import RankState, RunModel
from cockpit.core.ranks import nodes_text, ranks_text
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
        self._complete = False
        self._fold: tuple[str, list[int]] = ("", [])
        self._nodes: dict[str, tuple[Entry | None, list[str]]] = {}
        self.entries: deque[Entry] = deque(maxlen=LIMIT)

    def tell(self, event: Event) -> Entry | None:
        """Take an event in; return the entry it made, if any. It may be an older one that grew."""
        entry = self._entry(event)
        if entry is None:
            return None
        entry = replace(entry, text=RemoteText.of(entry.text).shown(limit=2000))
        if entry.aside and event.kind in _NODE_NEWS:
            return self._fold_node(event.kind, entry)
        if entry.rank is not None and entry.aside:
            entry = self._folded(entry)
        else:
            self._fold = ("", [])
        self.entries.append(entry)
        return entry

    def _fold_node(self, kind: str, entry: Entry) -> Entry:
        """An entry that many nodes make at the same time: one for all of them."""
        before, nodes = self._nodes.get(kind, (None, []))
        if before is None or entry.at - before.at >= FOLD_S or before not in self.entries:
            self._nodes[kind] = (entry, [entry.node])
            self._fold = ("", [])
            self.entries.append(entry)
            return entry
        nodes.append(entry.node)
        text = RemoteText.of(f"{nodes_text(nodes)}: {_NODE_NEWS[kind]}").shown(limit=400)
        folded = replace(before, text=text, node="")
        self.entries[self.entries.index(before)] = folded
        self._nodes[kind] = (folded, nodes)
        return folded

    def _entry(self, event: Event) -> Entry | None:
        tell = _TELLERS.get(event.kind)
        at = event.at
        if event.kind in _ON_NODE_CLOCK and event.node in self._model.nodes:
            at -= self._model.nodes[event.node].offset_s
        return tell(self, event, at) if tell else None

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

    def _link(self, event: Event, at: float) -> Entry | None:
        node, state = event.node, event.data["state"]
        known = node in self._linked
        self._linked.add(node)
        if state != "ok":
            text = f"{node}: link lost, the run goes on; reconnecting ({event.data.get('why')})"
            return Entry(at, text, "warning", node)
        return Entry(
            at, f"{node}: link is back" if known else f"{node}: link stands", "info", node, aside=not known
        )

    def _launched(self, event: Event, at: float) -> Entry:
        return Entry(at, f"{event.node}: launched", "info", event.node, aside=True)

    def _rank_started(self, event: Event, at: float) -> Entry | None:
        alive, total = self._model.alive(), len(self._model.ranks)
        attempt = int(event.data.get("attempt") or 0)
        if attempt:
            number = int(event.data["rank"])
            return Entry(
                at,
                f"rank {number} on {event.node} started again, attempt {attempt + 1}",
                "warning",
                event.node,
            )
        complete, self._complete = self._complete, alive == total
        if alive == total and not complete:
            return Entry(at, f"{alive}/{total} ranks running", aside=True)
        return None

    def _rank_ended(self, event: Event, at: float) -> Entry | None:
        rank = self._model.ranks.get(int(event.data["rank"]))
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

    def _stop_asked(self, event: Event, at: float) -> Entry:
        return Entry(at, f"stopping: {event.data.get('reason')}", "warning")

    def _stop_requested(self, event: Event, at: float) -> Entry | None:
        if self._model.stop_reason:
            return None
        text = f"{event.node}: asked to stop by {event.data.get('by')}: {event.data.get('reason')}"
        return Entry(at, text, "warning", event.node)

    def _stage(self, event: Event, at: float) -> Entry:
        stage = str(event.data.get("stage"))
        return Entry(at, f"{event.node}: {STAGES.get(stage, stage)}", "info", event.node)

    def _report(self, event: Event, at: float) -> Entry:
        ready = event.data.get("state") == "ready"
        text = f"{event.node}: report {event.data.get('name', '')}: {_report_text(event.data)}"
        return Entry(at, text, "info", event.node, aside=ready)

    def _survivors(self, event: Event, at: float) -> Entry | None:
        found = [survivor_text(event.node, process) for process in event.data.get("procs", ())]
        return Entry(at, "; ".join(found), "error", event.node) if found else None

    def _note(self, event: Event, at: float) -> Entry:
        text = event.data.get("text") or event.data.get("why") or "its supervisor was killed"
        return Entry(at, f"{event.node}: {text}", "warning", event.node)

    def _ended(self, event: Event, at: float) -> Entry:
        return Entry(at, f"{event.node}: ended", "info", event.node, aside=True)

    def _left(self, event: Event, at: float) -> Entry:
        return Entry(at, "a cockpit left; the run goes on", "info", aside=True)


_TELLERS = {
    "link": Timeline._link,
    "launched": Timeline._launched,
    "rank_started": Timeline._rank_started,
    "rank_exited": Timeline._rank_ended,
    "rank_lost": Timeline._rank_ended,
    "stop_asked": Timeline._stop_asked,
    "stop_requested": Timeline._stop_requested,
    "stage": Timeline._stage,
    "report": Timeline._report,
    "survivors": Timeline._survivors,
    "note": Timeline._note,
    "supervisor_gone": Timeline._note,
    "node_lost": Timeline._note,
    "ended": Timeline._ended,
    "left": Timeline._left,
}

_NODE_NEWS = {"link": "link stands", "launched": "launched", "ended": "ended"}
"""What nodes usually do all together."""

_ON_NODE_CLOCK = {
    "rank_started",
    "rank_exited",
    "rank_lost",
    "stop_requested",
    "stage",
    "report",
    "survivors",
}
"""Kinds that the node itself recorded, whose times are on its clock."""


def survivor_text(node: str, process: Mapping[str, Any]) -> str:
    """One line about a process that no signal ended."""
    name, pid, state = (process.get(field) for field in ("name", "pid", "state"))
    return f"{node}: survivor: {name} (pid {pid}, state {state})"


def _report_text(data: Mapping[str, Any]) -> str:
    size, state = int(data.get("size") or 0), data.get("state")
    if state == "writing":
        return f"being written, {size / 1e6:.1f} MB so far"
    return f"{state}: {data['text']}" if data.get("text") else str(state)
