"""The run model and its reducer: events in, states of nodes and ranks out; deterministic, no I/O."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from cockpit.base import events
from cockpit.base.events import Fact, GpuSample, NodeSample, Process, RankSample
from cockpit.core.run.events import Event
from cockpit.errors import Exit

NOTES = 200
"""Notes kept per node; further ones are only counted."""

REPORTS = 1000
"""Reports kept per node."""


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
    """A training process as in the run record; times are unix seconds on its node's clock."""

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
    sample: RankSample | None = None

    @property
    def failed(self) -> bool:
        """Ended in any way other than exit 0."""
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
    """Stage of a stop: term, finalising, kill, sweep."""
    launcher_code: int | None = None
    launcher_signal: int | None = None
    launcher_ended: bool = False
    stop_requested_at: float | None = None
    ended: bool = False
    """The supervisor wrote its last line: nothing more comes from this node."""
    complete: bool = False
    """It ended, and every byte it wrote is here."""
    lost: str = ""
    """Why nothing more can arrive although it did not end."""
    reports: Mapping[str, events.Report] = field(default_factory=dict)
    survivors: tuple[Process, ...] = ()
    supervisor_gone: bool = False
    """The supervisor vanished: what happens from now on may go unrecorded."""
    notes: tuple[str, ...] = ()
    notes_dropped: int = 0
    """How many more notes there were."""
    damaged: int = 0
    """Lines of its run record that make no sense and are ignored."""
    sample: NodeSample | None = None
    gpus: tuple[GpuSample, ...] = ()
    sampled_at: float | None = None

    @property
    def remarks(self) -> tuple[str, ...]:
        """Its notes, and how much of its record was not kept."""
        more = []
        if self.notes_dropped:
            more.append(f"and {self.notes_dropped:,} more notes, which are not kept")
        if self.damaged:
            lines = "1 line" if self.damaged == 1 else f"{self.damaged:,} lines"
            more.append(f"{lines} of its run record made no sense and were ignored")
        return (*self.notes, *more)

    @property
    def over(self) -> bool:
        """Whether nothing about this node can change any more."""
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

        Nodes and ranks that are not part of this run are ignored.
        """
        fact = event.fact
        if isinstance(fact, events.Planned):
            return self._planned(fact)
        if isinstance(fact, events.StopAsked) and not self.stop_reason:
            self.stop_reason = fact.reason
        node = self.nodes.get(event.node)
        reduce = _REDUCERS.get(type(fact))
        if node is None or reduce is None:
            return set()
        return reduce(self, node, event.at, fact) or {node.name}

    def _planned(self, fact: events.Planned) -> set[str | int]:
        for name, ranks in fact.nodes.items():
            self.nodes[name] = Node(name, ranks)
            for rank in ranks:
                self.ranks[rank] = Rank(rank, name)
        return {*self.nodes, *self.ranks}

    @property
    def over(self) -> bool:
        """Whether every node has ended: nothing of the run is left."""
        return bool(self.nodes) and all(node.over for node in self.nodes.values())

    @property
    def done(self) -> bool:
        """Whether every node has ended and all its output is here."""
        return bool(self.nodes) and all(node.done for node in self.nodes.values())

    def alive(self) -> int:
        """How many ranks are running."""
        return sum(rank.state is RankState.RUNNING for rank in self.ranks.values())

    def ended_at(self, rank: Rank) -> float:
        """When a rank ended, on our clock (unix seconds)."""
        return (rank.ended_at or 0.0) - self.nodes[rank.node].offset_s

    def failures(self) -> list[Rank]:
        """Ranks that failed for good, in the order of the common clock.

        A rank that its launcher will restart has not failed for good; what ended after a stop was
        requested on its node is a consequence of that.
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
        """The outcome of the run, as far as it is known: see docs/exit-codes.md."""
        if any(rank.failed for rank in self.ranks.values()):
            return Exit.RANK_FAILED
        return Exit.OK if self.over else Exit.NODE_UNFIT

    def on(self, node: str) -> Iterator[Rank]:
        """The ranks of a node."""
        return (self.ranks[number] for number in self.nodes[node].ranks if number in self.ranks)

    # Reducers: one per kind. They return what changed besides the node.

    def _set(self, node: Node, **changes: Any) -> None:
        self.nodes[node.name] = replace(node, **changes)

    def _launched(self, node: Node, at: float, fact: Fact) -> set[str | int]:
        self._set(node, launched=True)
        return self._each_rank(node, RankState.WAITING, state=RankState.STARTING)

    def _each_rank(self, node: Node, before: RankState, **changes: Any) -> set[str | int]:
        changed: set[str | int] = {node.name}
        for rank in list(self.on(node.name)):
            if rank.state is before:
                self.ranks[rank.rank] = replace(rank, **changes)
                changed.add(rank.rank)
        return changed

    def _link(self, node: Node, at: float, fact: events.LinkChanged) -> None:
        self._set(node, link=fact.state, link_since=at, link_why=fact.why)

    def _clock(self, node: Node, at: float, fact: events.ClockMeasured) -> None:
        self._set(node, offset_s=fact.offset_s, rtt_s=fact.rtt_s)

    def _sample(self, node: Node, at: float, fact: events.Sample) -> set[str | int]:
        self._set(node, sample=fact.sample, gpus=fact.gpus, sampled_at=at)
        changed: set[str | int] = {node.name}
        for number, sample in fact.ranks.items():
            rank = self._rank(node, number)
            if rank is not None and rank.state in LIVE:
                self.ranks[rank.rank] = replace(rank, sample=sample)
                changed.add(rank.rank)
        return changed

    def _rank(self, node: Node, number: int) -> Rank | None:
        rank = self.ranks.get(number)
        return rank if rank is not None and rank.node == node.name else None

    def _rank_of(self, node: Node, fact: _AboutRank) -> Rank | None:
        """The rank a fact is about; None if a later attempt at it is already known.

        The end of an attempt may be recorded after the start of the next one.
        """
        rank = self._rank(node, fact.rank)
        return None if rank is None or fact.attempt < rank.attempt else rank

    def _rank_started(self, node: Node, at: float, fact: events.RankStarted) -> set[str | int]:
        rank = self._rank_of(node, fact)
        if rank is None:
            return set()
        # Our journal, read before the node's record, may already have the end of this very attempt.
        ended = rank.state not in LIVE and rank.attempt == fact.attempt
        known = rank if ended else Rank(rank.rank, node.name, RankState.RUNNING)
        self.ranks[rank.rank] = replace(
            known,
            pid=fact.pid,
            ticks=fact.ticks,
            attempt=fact.attempt,
            max_restarts=fact.max_restarts,
            started_at=at,
        )
        return {node.name, rank.rank}

    def _rank_exited(self, node: Node, at: float, fact: events.RankExited) -> set[str | int]:
        rank = self._rank_of(node, fact)
        if rank is None:
            return set()
        self.ranks[rank.rank] = replace(
            rank,
            state=RankState.EXITED if fact.signal is None else RankState.KILLED,
            code=fact.code,
            signal=fact.signal,
            ended_at=at,
            why="",
        )
        return {node.name, rank.rank}

    def _rank_lost(self, node: Node, at: float, fact: events.RankLost) -> set[str | int]:
        rank = self._rank_of(node, fact)
        if rank is None or rank.state not in LIVE:
            return set()
        self.ranks[rank.rank] = replace(rank, state=RankState.LOST, ended_at=at, why=fact.why)
        return {node.name, rank.rank}

    def _launcher_exited(self, node: Node, at: float, fact: events.LauncherExited) -> None:
        self._set(node, launcher_ended=True, launcher_code=fact.code, launcher_signal=fact.signal)

    def _stop_requested(self, node: Node, at: float, fact: events.StopRequested) -> None:
        self._set(node, stop_requested_at=node.stop_requested_at or at)

    def _stage(self, node: Node, at: float, fact: events.Stage) -> None:
        self._set(node, stage=fact.stage)

    def _report(self, node: Node, at: float, fact: events.Report) -> None:
        if fact.name in node.reports or len(node.reports) < REPORTS:
            self._set(node, reports={**node.reports, fact.name: fact})

    def _survivors(self, node: Node, at: float, fact: events.Survivors) -> None:
        self._set(node, survivors=fact.procs)

    def _note(self, node: Node, at: float, fact: events.Note) -> None:
        self._add_note(node, fact.text)

    def _add_note(self, node: Node, text: str) -> None:
        if len(node.notes) < NOTES:
            self._set(node, notes=(*node.notes, text))
        else:
            self._set(node, notes_dropped=node.notes_dropped + 1)

    def _damaged(self, node: Node, at: float, fact: events.Damaged) -> None:
        self._set(node, damaged=fact.lines)

    def _ended(self, node: Node, at: float, fact: events.Ended) -> set[str | int]:
        self._set(node, ended=True, stage="")
        why = "the launcher ended before it started"
        return self._each_rank(node, RankState.STARTING, state=RankState.LOST, ended_at=at, why=why)

    def _complete(self, node: Node, at: float, fact: events.Complete) -> None:
        self._set(node, complete=True)

    def _node_lost(self, node: Node, at: float, fact: events.NodeLost) -> set[str | int]:
        self._set(node, lost=fact.why or "gone")
        changed: set[str | int] = {node.name}
        for state in LIVE:
            changed |= self._each_rank(node, state, state=RankState.LOST, ended_at=at, why=fact.why)
        return changed

    def _supervisor_gone(self, node: Node, at: float, fact: events.SupervisorGone) -> None:
        self._add_note(node, "its supervisor was killed: exits of ranks may go unrecorded")
        self._set(self.nodes[node.name], supervisor_gone=True)


_AboutRank = events.RankStarted | events.RankExited | events.RankLost

_REDUCERS: dict[type[Fact], Callable[[RunModel, Node, float, Any], set[str | int] | None]] = {
    events.Launched: RunModel._launched,
    events.SupervisorStarted: RunModel._launched,
    events.LinkChanged: RunModel._link,
    events.ClockMeasured: RunModel._clock,
    events.Sample: RunModel._sample,
    events.RankStarted: RunModel._rank_started,
    events.RankExited: RunModel._rank_exited,
    events.RankLost: RunModel._rank_lost,
    events.LauncherExited: RunModel._launcher_exited,
    events.StopRequested: RunModel._stop_requested,
    events.Stage: RunModel._stage,
    events.Report: RunModel._report,
    events.Survivors: RunModel._survivors,
    events.Note: RunModel._note,
    events.Damaged: RunModel._damaged,
    events.Ended: RunModel._ended,
    events.Complete: RunModel._complete,
    events.NodeLost: RunModel._node_lost,
    events.SupervisorGone: RunModel._supervisor_gone,
}
