"""A run that is watched for an hour in a second: steps, logs, samples and both sides' clocks, made up."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from cockpit.base.events import GpuSample, NodeSample, Notice, Sample
from cockpit.core.finding import Finding
from cockpit.core.pace.pace import Pace
from cockpit.core.run.event_table import witnessed
from cockpit.core.run.model import RunModel
from cockpit.core.run.notices.rule import About
from cockpit.core.run.notices.watch import Watch
from cockpit.core.run.notices.words import findings
from cockpit.core.run.timeline import Timeline
from tests.happened import happened

BEGAN = 1_700_000_000.0
GIB = 1 << 30

Of = Callable[[int], float]
"""Something of each step."""


def usual_loss(step: int) -> float:
    """Falls as losses do."""
    return 2.0 + 9.0 / (1 + step / 40)


@dataclass
class Program:
    """What a training does.

    :param seconds: of a step
    :param pause: seconds after a step in which something else goes on
    :param loss: after a step; printed each ``prints`` steps
    :param says: more lines after a step
    :param probed: whether ranks note their steps; else only the log tells
    """

    seconds: Of = lambda step: 1.0
    pause: Of = lambda step: 0.0
    loss: Of = usual_loss
    says: Callable[[int], str] = lambda step: ""
    prints: int = 5
    noise: float = 0.03
    probed: bool = True


@dataclass
class World:
    """Two nodes and four ranks; rank 0 prints."""

    program: Program = field(default_factory=Program)
    free: Callable[[float], float] = lambda second: 800 * GIB
    gpus: Callable[[float], tuple[GpuSample, ...]] = lambda second: ()
    away: tuple[float, float] = (0.0, 0.0)
    asleep: tuple[float, float] = (0.0, 0.0)
    set_by: tuple[float, float] = (0.0, 0.0)
    restarts_at: float = 0.0
    off: tuple[str, ...] = ()
    job: str = ""
    seed: int = 0

    def __post_init__(self) -> None:
        self.model = RunModel()
        self.model.apply(happened(BEGAN, "planned", "", {"nodes": {"gpu0": (0, 1), "gpu1": (2, 3)}}))
        for rank in range(4):
            self._happens(BEGAN, "rank_started", f"gpu{rank // 2}", rank=rank, pid=100 + rank)
        self._link("ok", BEGAN)
        self.pace = Pace(range(4))
        self.watch = Watch(About("my run", {"gpu0": "/tmp/c/r/gpu0"}, self.job), self.off)
        self.timeline = Timeline(self.model)
        self.facts: list[tuple[float, Notice]] = []
        self.news: list[str] = []
        self._random = random.Random(self.seed)
        self._step, self._at = 0, 20.0
        self._begun = 0.0
        self._held: list[tuple[float, bytes]] = []
        self._steps: list[tuple[int, float, float]] = []

    def _happens(self, at: float, kind: str, node: str, **fields: object) -> None:
        self.model.apply(happened(at, kind, node, fields))

    def _link(self, state: str, at: float) -> None:
        for node in self.model.nodes:
            self._happens(at, "link", node, state=state)

    def run(self, hours: float, begin: int = 0) -> World:
        """Watch for so long, from so many seconds after the start on."""
        for second in range(begin, begin + int(hours * 3600)):
            self._train(second)
            if self.asleep[0] <= second < self.asleep[1]:
                continue
            ours = second + (self.set_by[1] if second >= self.set_by[0] > 0 else 0.0)
            # A clock that only counts while this machine is awake.
            ticks = second - (self.asleep[1] - self.asleep[0] if second >= self.asleep[1] else 0.0)
            self.see(second, BEGAN + ours, ticks)
        return self

    def see(self, second: float, at: float, ticks: float) -> None:
        """What a session does in a second."""
        linked = not self.away[0] <= second < self.away[1]
        if linked != (self.model.nodes["gpu0"].link == "ok"):
            self._link("ok" if linked else "stale", at)
        if linked:
            for step, ended, took in self._steps:
                for rank in range(4):
                    self.pace.stepped(rank, step, BEGAN + ended + (at - BEGAN - second), span=took)
            self._steps.clear()
            data = b"".join(text for _, text in self._held)
            self._held.clear()
            if data:
                self.watch.log(at, "gpu0", 0, data)
            for node in self.model.nodes:
                measured = NodeSample(
                    disk_free_bytes=int(max(0, self.free(second))), disk_total_bytes=1000 * GIB
                )
                gpus = self.gpus(second) if node == "gpu1" else ()
                self.watch.sampled(at, node, Sample(measured, {}, gpus), self.model)
        for fact in self.watch.look(at, ticks, self.model, self.pace):
            self.facts.append((second, fact))
            event = witnessed(self.model, at, "", fact)
            self.model.apply(event)
            entry = self.timeline.tell(event)
            self.news += [entry.text] if entry else []
        self.now = at

    def _train(self, second: float) -> None:
        if self.restarts_at and second == int(self.restarts_at):
            for rank in range(4):
                node = f"gpu{rank // 2}"
                self._happens(BEGAN + second, "rank_started", node, rank=rank, pid=200 + rank, attempt=1)
                self.pace.restarted(rank, 1)
            self._step = self._step // 500 * 500
            self._at = second + 60.0
            self._begun = self._at
        program = self.program
        while True:
            slow = 3.0 if self._at - self._begun < 120 else 1.0
            took = program.seconds(self._step + 1) * slow * self._random.uniform(0.97, 1.05)
            before = program.pause(self._step)
            if self._at + before + took > second:
                return
            self._step += 1
            self._at += before + took
            if program.probed:
                self._steps.append((self._step, self._at, before + took))
            if self._step % program.prints == 0:
                self._print(took)
            more = program.says(self._step)
            if more:
                self._held.append((self._at, more.encode() + b"\n"))

    def _print(self, took: float) -> None:
        loss = self.program.loss(self._step) * self._random.gauss(1.0, self.program.noise)
        text = f"step {self._step} | loss {loss:.5f} | lr 3.0e-04 | tokens/s {8192 / took:.1f}\n"
        self._held.append((self._at, text.encode()))

    @property
    def found(self) -> list[Finding]:
        """What is said now."""
        return findings(self.model, "my run", self.now)
