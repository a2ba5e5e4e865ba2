"""States of a run: its nodes and ranks, as events have made them, and questions about them."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from cockpit.base.events import (
    EvidenceKept,
    Filling,
    Gap,
    GpuSample,
    NodeSample,
    Notice,
    Profiled,
    RankProbe,
    RankSample,
    Report,
    Survivor,
)
from cockpit.base.stillness import NEVER, Pause
from cockpit.core.finding import Finding
from cockpit.errors import Exit


class RankState(Enum):
    """Where a rank is in its life."""

    WAITING = "waiting"
    """Its node has not been launched yet."""
    STARTING = "starting"
    """The launcher is running, but the training process hasn't started."""
    RUNNING = "running"
    EXITED = "exited"
    KILLED = "killed"
    LOST = "lost"
    """Gone, and nobody recorded how."""
    GONE = "gone"
    """Gone, as a rank of a job that others started: whether it failed cannot be known."""


_NOTICED_S = 10.0
"""Whoever ends a job may tell its ranks so many seconds before it shows here."""

_REACHES_S = 10.0
"""A stop that a cockpit asks for has reached a node after so many seconds, or reaches none for now."""

_CLOCK_S = 0.005
"""Half of the round trip, and this, is how far a node's clock may be from what is known of it."""

_JOB_ENDS_WITH = (signal.SIGTERM, signal.SIGKILL)

T = TypeVar("T", "Node", "Rank")

PROFILES = 100
"""Profiles that are remembered, the newest ones."""

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
    recorded: bool = False
    """Whether its wrapper, its supervisor or the kernel recorded its end; else it is only not there."""
    oom_kills: int | None = None
    """Processes of its cgroup that the kernel killed for lack of memory while it ran; None: not known."""
    why: str = ""
    sample: RankSample | None = None
    probe: RankProbe | None = None
    """What its probe can do; None: it has not said so, and does not before torch is imported."""

    @property
    def failed(self) -> bool:
        """Ended in any way other than exit 0, as far as that can be known."""
        if self.state is RankState.EXITED:
            return self.code != 0
        # Asked of every rank at every look: a set would have to hash the state each time.
        return self.state is RankState.KILLED or self.state is RankState.LOST

    @property
    def text(self) -> str:
        """The state in words: ``running``, ``exited 3``, ``killed by SIGKILL``, ``lost: why``, ``gone``."""
        if self.state is RankState.EXITED:
            return f"exited {self.code}"
        if self.state is RankState.KILLED:
            return f"killed by {signal_name(self.signal or 0)}"
        if self.state is RankState.LOST and self.why:
            return f"lost: {self.why}"
        return str(self.state.value)


def renewed(it: T, **changes: object) -> T:
    """The node or rank with these fields changed: as ``dataclasses.replace``, at a fifth of what that takes.

    For what comes every second of every rank; names of fields are not checked.
    """
    made: T = object.__new__(type(it))
    made.__dict__.update(it.__dict__, **changes)
    return made


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
    probe: str = ""
    """How its ranks are probed: ``auto``, ``on`` or ``off``; empty: not known."""
    stage: str = ""
    """Stage of a stop: term, finalising, kill, sweep."""
    launcher_code: int | None = None
    launcher_signal: int | None = None
    launcher_ended: bool = False
    stop_requested_at: float | None = None
    stop_by: str = ""
    """Who asked for that first; ``signal``: whoever sent its supervisor a SIGTERM, as SLURM does;
    ``supervisor``: it stops by itself, as what held it is gone."""
    ended: bool = False
    """The supervisor wrote its last line: nothing more comes from this node."""
    complete: bool = False
    """It ended, and every byte it wrote is here."""
    lost: str = ""
    """Why nothing more can arrive although it did not end."""
    evidence: tuple[tuple[float, EvidenceKept], ...] = ()
    """What its supervisor kept of its ranks, and when (unix seconds on its clock), the oldest first."""
    reports: Mapping[str, Report] = field(default_factory=dict)
    survivors: tuple[Survivor, ...] = ()
    supervisor_gone: bool = False
    """The supervisor vanished: what happens from now on may go unrecorded."""
    notes: tuple[str, ...] = ()
    notes_dropped: int = 0
    unmeasured: str = ""
    """Why there are no measurements of it; empty: nothing says so."""
    """How many more notes there were."""
    damaged: int = 0
    """Lines of its run record that make no sense and are ignored."""
    gaps: Mapping[str, Gap] = field(default_factory=dict)
    """The last gap in the copy of each of its files that was shortened or replaced there."""
    sample: NodeSample | None = None
    gpus: tuple[GpuSample, ...] = ()
    sampled_at: float | None = None
    filling: Mapping[str, tuple[float, Filling]] = field(default_factory=dict)
    """Memory that is approaching its limit, by what it is of; and when that was seen (unix seconds)."""

    def begin(self, file: str) -> int:
        """Where our copy has the first byte of a file that is there now."""
        gap = self.gaps.get(file)
        return 0 if gap is None or gap.of else gap.at

    @property
    def remarks(self) -> tuple[str, ...]:
        """Its notes, and how much of its record was not kept."""
        more = []
        if self.notes_dropped:
            more.append(f"and {self.notes_dropped:,} more notes, which are not saved")
        if self.damaged:
            lines = "1 invalid line" if self.damaged == 1 else f"{self.damaged:,} invalid lines"
            more.append(f"{lines} in its run record ignored")
        return (*self.notes, *more)

    @property
    def off_s(self) -> float:
        """How far its clock may be from what is known of it, in seconds."""
        return math.inf if self.rtt_s is None else self.rtt_s / 2 + _CLOCK_S

    @property
    def over(self) -> bool:
        """Whether nothing about this node can change any more."""
        return self.ended or bool(self.lost)

    @property
    def done(self) -> bool:
        """Whether nothing more can be fetched from this node either."""
        return self.complete or bool(self.lost)


@dataclass(frozen=True)
class Watching:
    """What whoever watches the run knows of its progress; times are unix seconds on our clock.

    :param state: ``going``; ``quiet``: no step for a while, ranks are looked at; ``stalled``: they
        stand still, or some do, for which the others wait; ``blind``: nothing tells its steps;
        empty: nothing was said yet
    :param at: when this was so
    :param since: when the last step ended, or the last of the ranks began
    :param still_s: seconds without a step when this was so; of ``going``: before it went on again
    :param step: the last step of the front; None: there was none, or it is not known
    :param looking: whether ranks are being looked at
    :param looks: how often they have been, since then; ``total``: since the run began
    :param looked: when they were, last
    :param next_at: when they will be again; None: not by themselves
    :param finding: what the last look has found; also while ``quiet``: it then says where ranks are that move
    :param waiting: ranks that wait for others, as a mask
    :param snapshot: its stacks: a folder in ``stacks`` in the run's folder here; empty: there are none
    :param why: what is not known, and why, in a sentence
    :param stuck: of a stalled run: ``sure``, it is proven not to go on; ``likely``, it has stood still for
        much longer than ever before; ``waiting``, it has not
    :param before: the longest time without a step that it has ended by itself
    :param ending: whether no step is to follow, according to its log
    """

    state: str = ""
    at: float = 0.0
    since: float = 0.0
    still_s: float = 0.0
    step: int | None = None
    looking: bool = False
    looks: int = 0
    total: int = 0
    looked: float | None = None
    next_at: float | None = None
    finding: Finding | None = None
    waiting: int = 0
    snapshot: str = ""
    why: str = ""
    stuck: str = ""
    before: Pause = NEVER
    ending: bool = False

    @property
    def stalled(self) -> bool:
        """Whether ranks stand still."""
        return self.state == "stalled"

    @property
    def alarm(self) -> Finding | None:
        """What is worth a call: whom the others wait for, unless it has ended as long a pause by itself."""
        return self.finding if self.stalled and self.stuck != "waiting" else None

    @property
    def culprits(self) -> int:
        """The ranks that hold up the others, as a mask; 0 unless the run is stalled."""
        return self.finding.ranks if self.stalled and self.finding is not None else 0

    def for_s(self, now: float) -> float:
        """Seconds for which there has been no step."""
        return max(0.0, now - self.since)


HUNG = "the watch"
"""Who stops a run that is stalled (:attr:`cockpit.base.events.StopAsked.by`)."""


class Run:
    """Nodes and ranks of one run; :class:`cockpit.core.run.model.RunModel` changes them."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.ranks: dict[int, Rank] = {}
        self.stop_reason = ""
        self.stop_asked_at: float | None = None
        """When a cockpit first asked all nodes to stop, on our clock (unix seconds)."""
        self.rest_kept = False
        """Whether a person decided that the failure policy leaves alone what still runs."""
        self.hung = False
        """Whether the watch stopped the run because it was stalled (``--on-hang stop``)."""
        self.watch = Watching()
        self.judged: Finding | None = None
        """Who broke first, and why, as whoever read their logs has found."""
        self.longest = NEVER
        """Seconds of the longest time without a step that was seen to end by itself."""
        self._job_end = ""
        self.job_end_final = False
        """Whether nothing better will be known of why the nodes were taken back."""
        self.job_ended_at = 0.0
        """When that was seen, on our clock (unix seconds)."""
        self.notices: dict[tuple[str, str], tuple[float, Notice]] = {}
        """What rules have seen and not taken back, by rule and of what; and when last (unix seconds)."""
        self.profiles: dict[int, tuple[float, Profiled]] = {}
        """Profiles of its ranks, by number, and when each was over (unix seconds)."""

    @property
    def over(self) -> bool:
        """Whether every node has ended: nothing of the run is left."""
        return bool(self.nodes) and all(node.over for node in self.nodes.values())

    @property
    def done(self) -> bool:
        """Whether every node has ended and all its output is here."""
        return bool(self.nodes) and all(node.done for node in self.nodes.values())

    @property
    def asked_to_stop(self) -> bool:
        """Whether anybody has asked it to stop: a cockpit that told why, or whoever asked its nodes.

        Of a run that goes on, those count that go on: SLURM may want one node alone to stop.
        """
        live = [node for node in self.nodes.values() if not node.over] or self.nodes.values()
        return bool(self.stop_reason) or any(node.stop_requested_at is not None for node in live)

    @property
    def may_finish(self) -> bool:
        """Whether it may still reach its last step, also where it is stalled now."""
        return not (self.over or self.asked_to_stop or self.first_failure())

    @property
    def ended_by_itself(self) -> bool:
        """Whether every node has recorded its end, and none was stopped but by us, or a person."""
        return bool(self.nodes) and all(
            node.ended and not node.supervisor_gone and node.stop_by not in ("signal", "supervisor")
            for node in self.nodes.values()
        )

    @property
    def job_end(self) -> str:
        """Why whoever lent the nodes has ended the run, in one sentence; empty: nobody has.

        What they do with the nodes after the run has ended does not change how it did.
        """
        return self._job_end if self._job_end and not self.ended_by_itself else ""

    def take_job_end(self, why: str, at: float, *, final: bool) -> None:
        """Whoever lent the nodes has ended the run; the first final reason stays."""
        if not self.job_end_final:
            self._job_end, self.job_end_final = why, final
            self.job_ended_at = self.job_ended_at or at

    def new_profile(self, number: int) -> bool:
        """Whether a profile is not known here, and not older than all that are remembered."""
        oldest = min(self.profiles) if len(self.profiles) >= PROFILES else 0
        return number > oldest and number not in self.profiles

    def alive(self) -> int:
        """How many ranks are running."""
        return sum(rank.state is RankState.RUNNING for rank in self.ranks.values())

    def ended_at(self, rank: Rank) -> float:
        """When a rank ended, on our clock (unix seconds)."""
        return (rank.ended_at or 0.0) - self.nodes[rank.node].offset_s

    def failures(self) -> list[Rank]:
        """Ranks that failed for good, in the order of the common clock.

        A rank that its launcher will restart has not failed for good; what ended after the run was asked
        to stop is a consequence of that, and so is what its job's end killed.
        """
        found = [rank for rank in self.ranks.values() if rank.failed and self._final(rank)]
        return sorted(found, key=lambda rank: (self.ended_at(rank), rank.rank))

    def told_to_stop(self, rank: Rank) -> bool:
        """Whether a rank ended after the run was asked to stop: on its node, or, for sure, on another.

        Ranks of one node may be gone before another node is asked, and take others along.
        """
        node = self.nodes[rank.node]
        if node.stop_requested_at is not None and (rank.ended_at or 0.0) >= node.stop_requested_at:
            return True
        if rank.state is RankState.LOST:
            return False
        ended, asked = self.ended_at(rank) - node.off_s, self.stop_asked_at
        return (asked is not None and 0 <= ended - asked <= _REACHES_S) or any(
            one.stop_requested_at is not None
            and ended >= one.stop_requested_at - one.offset_s + one.off_s
            # Others than a cockpit, such as SLURM, may want one node alone to stop.
            and one.stop_by not in ("signal", "supervisor")
            for one in self.nodes.values()
        )

    def _final(self, rank: Rank) -> bool:
        node = self.nodes[rank.node]
        if self.told_to_stop(rank):
            return False
        if self.job_end and (rank.state is RankState.LOST or rank.signal in _JOB_ENDS_WITH):
            return self.ended_at(rank) < self.job_ended_at - _NOTICED_S
        return rank.attempt >= rank.max_restarts or node.launcher_ended or rank.state is RankState.LOST

    def first_failure(self) -> Rank | None:
        """The rank that failed first, on the common clock."""
        return next(iter(self.failures()), None)

    def recorded_failure(self) -> Rank | None:
        """The first of those whose end was recorded: that a rank is out of sight ends no others."""
        return next((rank for rank in self.failures() if rank.recorded), None)

    @property
    def unknown_end(self) -> str:
        """Why it will not be known how ranks ended, whose nodes were taken back; empty: it is, or may be."""
        return next(
            (
                node.lost
                for rank in self.ranks.values()
                if rank.state is RankState.GONE and (node := self.nodes[rank.node]).lost
            ),
            "",
        )

    def exit_code(self) -> Exit:
        """The outcome of the run, as far as it is known: see docs/exit-codes.md."""
        if self.hung:
            return Exit.HUNG
        if any(rank.failed for rank in self.ranks.values()):
            return Exit.RANK_FAILED
        if self.unknown_end:
            return Exit.RANK_FAILED if self.job_end else Exit.NODE_UNFIT
        return Exit.OK if self.over else Exit.NODE_UNFIT

    def on(self, node: str) -> Iterator[Rank]:
        """The ranks of a node."""
        return (self.ranks[number] for number in self.nodes[node].ranks if number in self.ranks)
