"""Runs that are watched for hours in a second: progress, clocks, links and looks, made up."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from cockpit.base.events import NodeSample, Progress, RankSample, Sample, StepSample, Watched
from cockpit.core.finding import Finding
from cockpit.core.masks import mask_of
from cockpit.core.pace.pace import Pace
from cockpit.core.run.event_table import witnessed
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.core.run.timeline import Timeline
from cockpit.core.watch.judge import Inspection
from cockpit.core.watch.progress import Tracker
from cockpit.core.watch.watch import StallWatch, Terms
from tests.happened import happened

BEGAN = 1_700_000_000.0
NODES = {"gpu0": (0, 1), "gpu1": (2, 3)}
EVERYBODY = 0b1111

Ends = Callable[[int], Iterator[float]]
"""When a rank ends its steps, seconds after the start of the run."""


def steps(
    rank: int, seconds: Callable[[int], float], *, first_s: float = 8.0, until: float = 1e9
) -> Iterator[float]:
    """The ends of steps that take so long each; the first begins with the run."""
    at, step = first_s, 1
    while at < until:
        yield at
        step += 1
        at += seconds(step)


def together(seconds: Callable[[int], float], **more: float) -> Ends:
    """All ranks end each step at the same time, as those do that wait for each other."""
    return lambda rank: steps(rank, seconds, **more)


@dataclass
class Run:
    """Four ranks on two nodes, and the watch over them.

    :param ends: of the steps of each rank
    :param probed: whether ranks note their steps
    :param logs: seconds between two lines with a step in the log; 0: none
    :param cpu: percent that a rank uses of a core, at this second
    :param frozen: ranks that stand still at this second, as a look at their stacks shows, as a mask
    :param verdict: of a look at this second
    :param missing: ranks that recorders miss at this second
    :param away: nodes without a link, from one second to another
    :param paused: a node that does nothing, nor answers, from one second to another; its link is lost later
    :param asleep: the cockpit's machine sleeps, from one second to another
    :param set_by: at this second its clock is set, by so much
    :param joined: second at which the cockpit is started
    :param lies: what a node says of its ranks in place of what is so: steps and ages
    :param never: a rank that is not started
    :param exits: ranks that end with status 0 at a second
    :param total: steps that its log says it will make; 0: it does not say
    :param look_s: seconds that a look takes; 0: it never ends
    """

    ends: Ends
    probed: bool = True
    logs: float = 0.0
    cpu: Callable[[int, float], float] = lambda rank, second: 95.0
    frozen: Callable[[float], int] = lambda second: 0
    verdict: Callable[[float], Finding] = lambda second: Finding(
        "moving", "no rank is stuck", severity="info"
    )
    missing: Callable[[float], int] = lambda second: 0
    waiting: Callable[[float], int] = lambda second: 0
    away: dict[str, tuple[float, float]] = field(default_factory=dict)
    asleep: tuple[float, float] = (0.0, 0.0)
    set_by: tuple[float, float] = (0.0, 0.0)
    joined: float = 0.0
    lies: Callable[[int, float], tuple[int, float] | None] = lambda rank, second: None
    never: int = -1
    exits: dict[int, tuple[int, ...]] = field(default_factory=dict)
    total: int = 0
    look_s: float = 4.0
    terms: Terms = field(default_factory=Terms)

    def __post_init__(self) -> None:
        self.model = RunModel()
        self._happens(BEGAN, "planned", "", nodes=NODES)
        for node, ranks in NODES.items():
            self._happens(BEGAN, "link", node, state="ok")
            for rank in set(ranks) - {self.never}:
                self._happens(BEGAN, "rank_started", node, rank=rank, pid=100 + rank)
                if self.probed:
                    self._happens(BEGAN, "rank_probe", node, rank=rank, pid=100 + rank, torch="2.13.0")
        self.pace = Pace(range(4))
        self.timeline = Timeline(self.model)
        self.tracker = Tracker(self.terms.hang_after_s)
        self.watch = StallWatch(self.terms)
        self.facts: list[tuple[float, Watched]] = []
        self.looks: list[float] = []
        self.proven: list[float] = []
        self.overstayed: list[float] = []
        self._ends = {rank: self.ends(rank) for rank in range(4)}
        self._next = {rank: next(ends, 1e12) for rank, ends in self._ends.items()}
        self.done: dict[int, list[float]] = {rank: [] for rank in range(4)}
        self._sent = dict.fromkeys(range(4), 0)
        self._looking_until = 0.0
        self._logged = -1e9
        self._linked = dict.fromkeys(NODES, True)

    def _happens(self, at: float, kind: str, node: str, **fields: object) -> None:
        self.model.apply(happened(at, kind, node, fields))

    def leaves(self, rank: int, second: float) -> None:
        """A rank ends with status 0."""
        node = next(node for node, ranks in NODES.items() if rank in ranks)
        self._happens(BEGAN + second, "rank_exited", node, rank=rank, pid=100 + rank, code=0, signal=None)

    def run(self, hours: float, begin: int = 0) -> Run:
        """Let so much time pass, from so many seconds after the start on."""
        for second in range(begin, begin + int(hours * 3600)):
            self._train(second)
            for rank in self.exits.get(second, ()):
                self.leaves(rank, second)
            if second < self.joined or self.asleep[0] <= second < self.asleep[1]:
                continue
            # A clock that only counts while this machine is awake.
            ticks = second - (self.asleep[1] - self.asleep[0] if second >= self.asleep[1] else 0.0)
            ahead = self.set_by[1] if second >= self.set_by[0] > 0 else 0.0
            self._see(float(second), BEGAN + second + ahead, ahead, ticks)
        return self

    def _train(self, second: float) -> None:
        for rank, ends in self._ends.items():
            while self._next[rank] <= second:
                self.done[rank].append(self._next[rank])
                self._next[rank] = next(ends, 1e12)

    def _see(self, second: float, at: float, ahead: float, ticks: float) -> None:
        for node, ranks in NODES.items():
            begin, end = self.away.get(node, (0.0, 0.0))
            # After a sleep its connections are dead; they are made again.
            woke = bool(self.asleep[1]) and self.asleep[1] <= second < self.asleep[1] + 6
            lost = begin <= second < end or (woke and second >= self.asleep[1] + 3)
            silent = lost or woke
            if lost == self._linked[node]:
                self._linked[node] = not lost
                self._happens(at, "link", node, state="stale" if lost else "ok")
            if not silent:
                self._measure(node, ranks, second, at, ahead)
        if self.logs and self._linked["gpu0"] and self.done[0] and second - self._logged >= self.logs:
            self._logged = second
            self.tracker.spoke(at)
            self.tracker.said(len(self.done[0]), at, len(self.done[0]) == self.total)
        seen = self.tracker.look(at, self.model, self.pace)
        self.watch.paused(self.model.longest)
        self._say(second, at, self.watch.tick(at, ticks, seen))
        if self.watch.proven:
            self.proven.append(second)
        if self.watch.overstayed_s is not None:
            self.overstayed.append(second)
        if self._looking_until and second >= self._looking_until:
            self._looking_until = 0.0
            self._say(second, at, self.watch.looked(at, ticks, self._looked(second)))
        if self.watch.due:
            self.looks.append(second)
            self._say(second, at, self.watch.begin(at, ticks))
            self._looking_until = second + self.look_s if self.look_s else 0.0

    def _measure(self, node: str, ranks: tuple[int, ...], second: float, at: float, ahead: float) -> None:
        told = {}
        for rank in ranks:
            done = self.done[rank]
            progress = None
            if self.probed and done:
                fresh = done[self._sent[rank] :][-500:]
                self._sent[rank] = len(done)
                rows = tuple(
                    StepSample(len(done) - len(fresh) + n + 1, BEGAN + end + ahead, None)
                    for n, end in enumerate(fresh)
                )
                progress = Progress("optimizer", len(done), max(0.0, second - done[-1]), None, rows)
                for row in rows:
                    self.pace.stepped(rank, row.step, row.t)
            if (lie := self.lies(rank, second)) is not None:
                progress = Progress("optimizer", *lie)
            told[rank] = RankSample(cpu_percent=self.cpu(rank, second), progress=progress)
        self.model.apply(Event(at, node, Sample(NodeSample(), told)))

    def _looked(self, second: float) -> Inspection | None:
        there = mask_of(rank for node, ranks in NODES.items() if self._linked[node] for rank in ranks)
        if not there:
            return None
        still = self.frozen(second) & there
        why = "" if there == EVERYBODY else "a node did not answer"
        found, missing, waiting = self.verdict(second), self.missing(second), self.waiting(second)
        return Inspection(
            found, still, there & ~still, missing, waiting, "train.py:31", "20261121-045802", why
        )

    def _say(self, second: float, at: float, facts: Iterator[Watched]) -> None:
        for fact in facts:
            self.facts.append((second, fact))
            event = witnessed(self.model, at, "", fact)
            self.model.apply(event)
            self.timeline.tell(event)

    @property
    def states(self) -> list[str]:
        """The states that it had, one after the other."""
        found = [fact.state for _, fact in self.facts]
        return [state for place, state in enumerate(found) if not place or found[place - 1] != state]

    def first(self, state: str) -> float:
        """The second at which it came to this state first."""
        return next(second for second, fact in self.facts if fact.state == state)

    @property
    def news(self) -> list[str]:
        """What was said."""
        return [entry.text for entry in self.timeline.entries]


def uneven(seed: int, usual: float, spread: float) -> Callable[[int], float]:
    """Seconds of steps that differ."""
    dice = random.Random(seed)
    return lambda step: usual * dice.lognormvariate(0.0, spread)
