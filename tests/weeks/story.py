"""What happens in the simulated weeks, and what is seen of it.

What repeats every second by itself (measurements, the watch, the rules of notices) repeats each minute while
training goes on as always, and each second around pauses, and in the last hour.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from unittest import mock

from cockpit.base.events import Gap, Notice, StopAsked, Watched
from cockpit.base.record import TIMES, rank_log
from cockpit.core.pace.pace import Pace
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.core.watch.options import WatchOptions
from cockpit.engine import watching
from cockpit.engine.links.link import Link
from cockpit.engine.links.pool import LinkPool
from cockpit.engine.records.folder import Manifest, NodeEntry, RunFolder
from cockpit.engine.run import noticing
from cockpit.engine.run.board import Board
from cockpit.engine.run.session import Session
from tests.weeks.clock import Clock
from tests.weeks.link import Cadence, Line
from tests.weeks.node import PID, Node

HOUR, DAY = 3600.0, 86400.0
SLOTS = 8
STEP_S = 10.0
QUIET_S, FINE_S = 60.0, 1.0
OTHERS_PRINT = 100
"""Ranks other than 0 print a line each so many steps."""
CHECKPOINT, CHECKPOINT_S = 4 * HOUR, 60.0
EVALUATION, EVALUATION_S = DAY, 300.0
FULL_S = HOUR
"""For so long a disk is full, each week."""
HANG_S, FAILURE_S = 50 * 60.0, 10 * 60.0
"""Before the end, these begin; the hang ends by itself when half of the time is over."""
HUNG, FAILED = 3, 13
ROTATIONS = ("copytruncate", "rename", "truncate")


class Pool(LinkPool):
    """Links to simulated nodes."""

    def __init__(self, nodes: dict[str, Node]) -> None:
        super().__init__(["python3"])
        self._nodes = nodes

    async def _connect(self, node: str) -> Link:
        return cast(Link, Line(self._nodes[node]))


@dataclass
class Seen:
    """What a cockpit was told; a listener of its session."""

    stalls: list[Event] = field(default_factory=list)
    stops: list[Event] = field(default_factory=list)
    notices: int = 0
    gaps: dict[tuple[str, str], list[Gap]] = field(default_factory=dict)
    lost: list[Event] = field(default_factory=list)

    def joined(self, model: RunModel, pace: Pace) -> None:
        """See :class:`cockpit.engine.run.listener.Listener`."""

    def log(self, node: str, rank: int | None, offset: int, data: bytes) -> None:
        """See :class:`cockpit.engine.run.listener.Listener`."""

    def event(self, event: Event, changed: set[str | int]) -> None:
        """See :class:`cockpit.engine.run.listener.Listener`."""
        if event.kind == "note": print(event)
        match event.fact:
            case Watched(state="quiet" | "stalled"):
                self.stalls.append(event)
            case StopAsked():
                self.stops.append(event)
            case Notice():
                self.notices += 1
            case Gap() as gap:
                self.gaps.setdefault((event.node, gap.file), []).append(gap)
        if event.kind == "node_lost":
            self.lost.append(event)


@dataclass
class Cockpit:
    """One that is attached."""

    session: Session
    seen: Seen
    board: Board | None = None

    async def leave(self) -> None:
        """The run goes on."""
        await self.session.close()
        if self.board is not None:
            self.board.close()


class Month:
    """A run of some weeks.

    :param place: a folder for all of it
    :param days: how long it takes
    """

    def __init__(self, clock: Clock, place: Path, days: float, nodes: int = 16) -> None:
        self.clock, self.place = clock, place
        self.began, self.ends = clock.ticks, clock.ticks + days * DAY
        self.random = random.Random(20261126)
        names = [f"node{index:02}" for index in range(nodes)]
        entries = [
            NodeEntry(name, str(place / "there" / name), list(range(SLOTS * index, SLOTS * (index + 1))))
            for index, name in enumerate(names)
        ]
        manifest = Manifest("weeks", time.time(), entries, "command", ["train.py"], "/", on_failure="stop")
        self.folder = RunFolder.create(manifest)
        self.nodes = {
            entry.name: Node(
                entry.name, index, entry.ranks, "weeks", Path(entry.dir), keeps=index < 2
            )
            for index, entry in enumerate(entries)
        }
        self.step = 0
        self.hung_at = self.failed_at = 0.0
        self.over = False

    # Cockpits

    async def attach(self, folder: RunFolder | None = None, *, board: bool = False) -> Cockpit:
        """Another cockpit."""
        folder = folder or RunFolder(self.folder.path)
        seen = Seen()
        drawn = Board(folder) if board else None
        listeners = [seen, drawn] if drawn is not None else [seen]
        writer = folder.writer.take()
        session = Session(folder, *listeners, pool=Pool(self.nodes), writer=writer)
        await session.rejoin()
        session.watch()
        watching.watch_stalls(session, WatchOptions())
        return Cockpit(session, seen, drawn)

    # What happens

    async def train(self) -> None:
        """The ranks make their steps until one of them fails."""
        first = self.nodes["node00"]
        until_checkpoint = self.clock.ticks + CHECKPOINT
        until_evaluation = self.clock.ticks + EVALUATION
        while self.clock.ticks < self.ends - FAILURE_S:
            pause_s = 0.0
            if self.clock.ticks >= until_checkpoint:
                until_checkpoint, pause_s = until_checkpoint + CHECKPOINT, CHECKPOINT_S
                first.prints(0, b"saving checkpoint to /data/ckpt/step-%d\n" % self.step)
            elif self.clock.ticks >= until_evaluation:
                until_evaluation, pause_s = until_evaluation + EVALUATION, EVALUATION_S
            elif not self.hung_at and self.clock.ticks >= self.ends - HANG_S:
                await self._hang()
            coming = min(until_checkpoint, until_evaluation) - self.clock.ticks
            last_hour = self.clock.ticks > self.ends - HOUR - QUIET_S
            _cadence(FINE_S if pause_s or coming < 3 * QUIET_S or last_hour else QUIET_S)
            await asyncio.sleep(STEP_S + pause_s)
            self._make_step()
        self._fail()

    def _make_step(self) -> None:
        self.step += 1
        step = self.step
        for index, node in enumerate(self.nodes.values()):
            node.stepped(step)
            told = index == 0 or step % OTHERS_PRINT == 0
            for rank in node.ranks:
                if rank == 0 or step % OTHERS_PRINT == 0:
                    node.prints(rank, b"step %d rank %d loss %.4f lr 3.0e-04 tokens/s 48211.3\n" % (step, rank, 2 + 9 / step))
            if told or step % 6 == index % 6:
                node.tick()
            if told:
                node.news()

    async def _hang(self) -> None:
        self.hung_at = time.time()
        for node in self.nodes.values():
            node.hung = HUNG
        await asyncio.sleep((HANG_S - FAILURE_S) / 2)
        for node in self.nodes.values():
            node.hung = None

    def _fail(self) -> None:
        node = next(node for node in self.nodes.values() if FAILED in node.ranks)
        self.failed_at = time.time()
        node.prints(FAILED, b"RuntimeError: CUDA error: an illegal memory access was encountered\n")
        node.emit("rank_exited", rank=FAILED, pid=PID + FAILED, attempt=0, code=1, signal=None)
        node.news()

    async def keep_house(self) -> None:
        """Logs are rotated each day, a disk is full each week, somebody sets the clock."""
        for day in range(10_000):
            await asyncio.sleep(DAY / 2)
            self.clock.set(self.random.choice((-1, 1)) * self.random.uniform(20, 4000))
            for node in self.nodes.values():
                node.rotate(ROTATIONS[day % 3])
                node.news()
            if day % 7 == 6:
                self.nodes["node00"].fill_disk(True)
                await asyncio.sleep(FULL_S)
                self.nodes["node00"].fill_disk(False)
            await asyncio.sleep(DAY / 2 - FULL_S * (day % 7 == 6))

    async def visit(self) -> None:
        """Two more cockpits attach, and leave, now and then."""
        while True:
            await asyncio.sleep(self.random.uniform(1, 3) * DAY)
            visitors = [await self.attach() for _ in range(2)]
            await asyncio.sleep(self.random.uniform(0.2, 2) * HOUR)
            for visitor in visitors:
                await visitor.leave()

    async def pass_by(self) -> Cockpit:
        """All of it; return the cockpit that has written."""
        with _paced():
            for node in self.nodes.values():
                node.tick()
            cockpit = await self.attach(self.folder)
            background = [asyncio.create_task(self.keep_house()), asyncio.create_task(self.visit())]
            try:
                await self.train()
                await asyncio.sleep(self.ends - self.clock.ticks)
            finally:
                for task in background:
                    task.cancel()
                for result in await asyncio.gather(*background, return_exceptions=True):
                    if isinstance(result, Exception):
                        raise result
            return cockpit

    # What is there afterwards

    def wrong_copies(self, seen: Seen) -> list[str]:
        """What is wrong with the copies of the logs."""
        found = []
        for entry in self.folder.manifest.nodes:
            for rank, truth in self.nodes[entry.name].truths.items():
                file = rank_log(rank)
                copy = (self.folder.spool_dir(entry) / file).read_bytes()
                if what := truth.wrong(copy, seen.gaps.get((entry.name, file), [])):
                    found.append(f"{entry.name}: {file}: {what}")
        return found

    def kept_there(self) -> int:
        """Bytes of what a node keeps besides its logs, at most."""
        return max(
            sum(each.stat().st_size for each in node.folder.rglob("*") if each.is_file() and "rank-" not in each.name)
            for node in self.nodes.values()
        )

    def kept_here(self) -> dict[str, int]:
        """Bytes that are kept here besides copies of logs, by what they are."""
        found = {each.name: each.stat().st_size for each in self.folder.path.iterdir() if each.is_file()}
        index = self.folder.path.glob(f"spool/*/{TIMES}")
        return {**found, TIMES: sum(each.stat().st_size for each in index)}


def _cadence(every_s: float) -> None:
    Cadence.every_s = noticing._LOOK_S = watching.TICK_S = every_s


@contextmanager
def _paced() -> Iterator[None]:
    with mock.patch.multiple(noticing, _LOOK_S=QUIET_S), mock.patch.multiple(watching, TICK_S=QUIET_S):
        yield
