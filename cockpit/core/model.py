"""The run model and its reducer: events in, state of nodes and ranks out; deterministic, no I/O."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from cockpit.core.events import Event
from cockpit.errors import Exit


class RankState(Enum):
    """Where a rank is in its life."""

    WAITING = "waiting"
    """Its node has not been launched yet."""
    STARTING = "starting"
    """The launcher runs, the training process does not yet."""
    RUNNING = "running"
    EXITED = "exited"
    KILLED = "killed"
    LOST = "lost"
    """Gone, and nobody recorded how."""


LIVE = frozenset({RankState.WAITING, RankState.STARTING, RankState.RUNNING})


@dataclass(frozen=True)
class Rank:
    """A training process as the run record tells it; times are unix seconds on its node's clock."""

    rank: int
    node: str
    state: RankState = RankState.WAITING
    code: int | None = None
    signal: int | None = None
    pid: int | None = None
    ticks: int | None = None
    """Start time of its process in clock ticks since the node's boot."""
    attempt: int = 0
    max_restarts: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    why: str = ""
    sample: Mapping[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Ended in any other way than exit 0."""
        return self.state not in LIVE and not (self.state is RankState.EXITED and self.code == 0)

    @property
    def text(self) -> str:
        """The state in words: ``running``, ``exited 3``, ``killed by SIGKILL``, ``lost: why``."""
        if self.state is RankState.EXITED:
            return f"exited {self.code}"
        if self.state is RankState.KILLED:
            return f"killed by {signal_name(self.signal or 0)}"
        if self.state is RankState.LOST and self.why:
            return f"lost: {self.why}"
        return str(self.state.value)


def signal_name(number: int) -> str:
    """``SIGKILL`` for 9; ``signal N`` for a number without a name here."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True)
class Node:
    """A node of the run."""

    name: str
    ranks: tuple[int, ...]
    link: str = "connecting"
    link_since: float = 0.0
    link_why: str = ""
    offset_s: float = 0.0
    rtt_s: float | None = None
    launched: bool = False
    stage: str = ""
    """Of a stop: term, finalising, kill, sweep."""
    launcher_code: int | None = None
    launcher_signal: int | None = None
    launcher_ended: bool = False
    stop_requested_at: float | None = None
    ended: bool = False
    """The supervisor wrote its last line: nothing more comes from this node."""
    complete: bool = False
    """It ended, and every byte it wrote is here."""
    lost: str = ""
    """Why nothing more can come although it did not end."""
    reports: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    survivors: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    sample: Mapping[str, Any] = field(default_factory=dict)
    gpus: tuple[Mapping[str, Any], ...] = ()
    sampled_at: float | None = None

    @property
    def over(self) -> bool:
        """Whether nothing of this node can change any more."""
        return self.ended or bool(self.lost)

    @property
    def done(self) -> bool:
        """Whether nothing more can be fetched from this node either."""
        return self.complete or bool(self.lost)


class RunModel:
    """The state of one run. :meth:`apply` is the only writer."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.ranks: dict[int, Rank] = {}
        self.stop_reason = ""

    def apply(self, event: Event) -> set[str | int]:
        """Take in one event; return the names of nodes and the numbers of ranks that changed.

        Kinds that this version does not know, nodes and ranks that are not of this run are passed over.
        """
        if event.kind == "planned":
            return self._planned(event)
        if event.kind == "stop_asked" and not self.stop_reason:
            self.stop_reason = str(event.data.get("reason", ""))
        node = self.nodes.get(event.node)
        reduce = _REDUCERS.get(event.kind)
        if node is None or reduce is None:
            return set()
        return reduce(self, node, event) or {node.name}

    def _planned(self, event: Event) -> set[str | int]:
        for name, ranks in event.data["nodes"].items():
            self.nodes[name] = Node(name, tuple(ranks))
            for rank in ranks:
                self.ranks[rank] = Rank(rank, name)
        return {*self.nodes, *self.ranks}

    @property
    def over(self) -> bool:
        """Whether every node is over: nothing of the run is left."""
        return bool(self.nodes) and all(node.over for node in self.nodes.values())

    @property
    def done(self) -> bool:
        """Whether every node is over and all its output is here."""
        return bool(self.nodes) and all(node.done for node in self.nodes.values())

    def alive(self) -> int:
        """How many ranks run."""
        return sum(rank.state is RankState.RUNNING for rank in self.ranks.values())

    def ended_at(self, rank: Rank) -> float:
        """When a rank ended, on our clock (unix seconds)."""
        return (rank.ended_at or 0.0) - self.nodes[rank.node].offset_s

    def failures(self) -> list[Rank]:
        """Ranks that failed for good, first one first on the common clock.

        A rank that its launcher will start again has not failed for good; what ended after a stop was
        asked for on its node is a consequence of that.
        """
        found = [rank for rank in self.ranks.values() if rank.failed and self._final(rank)]
        return sorted(found, key=lambda rank: (self.ended_at(rank), rank.rank))

    def _final(self, rank: Rank) -> bool:
        node = self.nodes[rank.node]
        if node.stop_requested_at is not None and (rank.ended_at or 0.0) >= node.stop_requested_at:
            return False
        return rank.attempt >= rank.max_restarts or node.launcher_ended or rank.state is RankState.LOST

    def first_failure(self) -> Rank | None:
        """The rank that failed first, on the common clock."""
        return next(iter(self.failures()), None)

    def exit_code(self) -> Exit:
        """What the run comes to, as far as it is known: see docs/exit-codes.md."""
        if any(rank.failed for rank in self.ranks.values()):
            return Exit.RANK_FAILED
        return Exit.OK if self.over else Exit.NODE_UNFIT

    def on(self, node: str) -> Iterator[Rank]:
        """The ranks of a node."""
        return (self.ranks[number] for number in self.nodes[node].ranks if number in self.ranks)

    # Reducers: one a kind. They return what changed besides the node.

    def _set(self, node: Node, **changes: Any) -> None:
        self.nodes[node.name] = replace(node, **changes)

    def _launched(self, node: Node, event: Event) -> set[str | int]:
        self._set(node, launched=True)
        return self._each_rank(node, RankState.WAITING, state=RankState.STARTING)

    def _each_rank(self, node: Node, before: RankState, **changes: Any) -> set[str | int]:
        changed: set[str | int] = {node.name}
        for rank in list(self.on(node.name)):
            if rank.state is before:
                self.ranks[rank.rank] = replace(rank, **changes)
                changed.add(rank.rank)
        return changed

    def _link(self, node: Node, event: Event) -> None:
        self._set(
            node, link=event.data["state"], link_since=event.at, link_why=str(event.data.get("why", ""))
        )

    def _clock(self, node: Node, event: Event) -> None:
        self._set(node, offset_s=float(event.data["offset_s"]), rtt_s=float(event.data["rtt_s"]))

    def _sample(self, node: Node, event: Event) -> set[str | int]:
        data = event.data
        self._set(node, sample=data["sample"], gpus=tuple(data.get("gpus", ())), sampled_at=event.at)
        changed: set[str | int] = {node.name}
        for number, sample in data.get("ranks", {}).items():
            rank = self._rank(node, int(number))
            if rank is not None:
                self.ranks[rank.rank] = replace(rank, sample=sample)
                changed.add(rank.rank)
        return changed

    def _rank(self, node: Node, number: int) -> Rank | None:
        rank = self.ranks.get(number)
        return rank if rank is not None and rank.node == node.name else None

    def _rank_of(self, node: Node, event: Event) -> Rank | None:
        """The rank an event is about; None where a later attempt at it has been heard of already.

        The end of an attempt may be recorded after the start of the next one.
        """
        rank = self._rank(node, int(event.data["rank"]))
        attempt = int(event.data.get("attempt") or 0)
        return None if rank is None or attempt < rank.attempt else rank

    def _rank_started(self, node: Node, event: Event) -> set[str | int]:
        rank = self._rank_of(node, event)
        if rank is None:
            return set()
        self.ranks[rank.rank] = Rank(
            rank.rank,
            node.name,
            RankState.RUNNING,
            pid=event.data.get("pid"),
            ticks=event.data.get("ticks"),
            attempt=int(event.data.get("attempt") or 0),
            max_restarts=int(event.data.get("max_restarts") or 0),
            started_at=event.at,
        )
        return {node.name, rank.rank}

    def _rank_exited(self, node: Node, event: Event) -> set[str | int]:
        rank = self._rank_of(node, event)
        if rank is None:
            return set()
        number = event.data.get("signal")
        self.ranks[rank.rank] = replace(
            rank,
            state=RankState.EXITED if number is None else RankState.KILLED,
            code=event.data.get("code"),
            signal=number,
            ended_at=event.at,
        )
        return {node.name, rank.rank}

    def _rank_lost(self, node: Node, event: Event) -> set[str | int]:
        rank = self._rank_of(node, event)
        if rank is None or rank.state not in LIVE:
            return set()
        why = str(event.data.get("why", ""))
        self.ranks[rank.rank] = replace(rank, state=RankState.LOST, ended_at=event.at, why=why)
        return {node.name, rank.rank}

    def _launcher_exited(self, node: Node, event: Event) -> None:
        self._set(
            node,
            launcher_ended=True,
            launcher_code=event.data.get("code"),
            launcher_signal=event.data.get("signal"),
        )

    def _stop_requested(self, node: Node, event: Event) -> None:
        self._set(node, stop_requested_at=node.stop_requested_at or event.at)

    def _stage(self, node: Node, event: Event) -> None:
        self._set(node, stage=str(event.data.get("stage", "")))

    def _report(self, node: Node, event: Event) -> None:
        self._set(node, reports={**node.reports, str(event.data.get("name", "")): dict(event.data)})

    def _survivors(self, node: Node, event: Event) -> None:
        self._set(node, survivors=tuple(event.data.get("procs", ())))

    def _note(self, node: Node, event: Event) -> None:
        self._set(node, notes=(*node.notes, str(event.data.get("text", ""))))

    def _ended(self, node: Node, event: Event) -> set[str | int]:
        self._set(node, ended=True, stage="")
        why = "the launcher ended before it started"
        changes = {"state": RankState.LOST, "ended_at": event.at, "why": why}
        return self._each_rank(node, RankState.STARTING, **changes)

    def _complete(self, node: Node, event: Event) -> None:
        self._set(node, complete=True)

    def _node_lost(self, node: Node, event: Event) -> set[str | int]:
        why = str(event.data.get("why", ""))
        self._set(node, lost=why or "gone")
        changed: set[str | int] = {node.name}
        for state in LIVE:
            changed |= self._each_rank(node, state, state=RankState.LOST, ended_at=event.at, why=why)
        return changed

    def _supervisor_gone(self, node: Node, event: Event) -> None:
        self._set(node, notes=(*node.notes, "its supervisor was killed: exits of ranks may go unrecorded"))


_REDUCERS: dict[str, Callable[[RunModel, Node, Event], set[str | int] | None]] = {
    "launched": RunModel._launched,
    "supervisor_started": RunModel._launched,
    "link": RunModel._link,
    "clock": RunModel._clock,
    "sample": RunModel._sample,
    "rank_started": RunModel._rank_started,
    "rank_exited": RunModel._rank_exited,
    "rank_lost": RunModel._rank_lost,
    "launcher_exited": RunModel._launcher_exited,
    "stop_requested": RunModel._stop_requested,
    "stage": RunModel._stage,
    "report": RunModel._report,
    "survivors": RunModel._survivors,
    "note": RunModel._note,
    "ended": RunModel._ended,
    "complete": RunModel._complete,
    "node_lost": RunModel._node_lost,
    "supervisor_gone": RunModel._supervisor_gone,
}
