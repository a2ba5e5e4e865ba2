"""What happens in the simulated weeks.

What repeats every second by itself (measurements, the watch, the rules of notices) repeats each minute while
training goes on as always, and each second around pauses, and in the last hour.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from cockpit.base.growing_file import Lasting
from cockpit.engine import watching
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.engine.run import failures, noticing
from cockpit.engine.run.session import Session
from tests.weeks.clock import Clock
from tests.weeks.cockpits import Told, attached
from tests.weeks.link import Cadence
from tests.weeks.memory import resident
from tests.weeks.node import PID, Node

HOUR, DAY = 3600.0, 86400.0
SLOTS = 8
STEP_S = 10.0
QUIET_S, FINE_S = 60.0, 1.0
OTHERS_PRINT = 100
"""Ranks other than 0 print a line each so many steps."""
CHECKPOINT_S, EVALUATION_S = 60.0, 300.0
FULL_S = 1200.0
"""For so long a disk is full, each week."""
HANG_S, FAILURE_S = 50 * 60.0, 10 * 60.0
"""So long before the end they begin; the hang ends by itself in the middle between them."""
TAKEN_S = 10.0
"""Within so long after a cockpit has left another one writes."""
HUNG, FAILED = 3, 13
ROTATIONS = ("copytruncate", "rename", "truncate")

_LINE = b"step %d rank %d loss %.4f lr 3.0e-04 tokens/s 48211.3\n"
_ERROR = b"RuntimeError: CUDA error: an illegal memory access was encountered\n"


@dataclass(frozen=True)
class Scale:
    """How long it all takes.

    :param days: of the run
    :param day_s: seconds of such a day: between two rotations, and six checkpoints
    :param keepers: nodes whose supervisors keep the steps of their ranks; of the others only logs are real
    """

    days: float = 30.0
    day_s: float = DAY
    nodes: int = 16
    keepers: int = 2


class Story:
    """A run of some weeks, and the cockpits that watch it.

    :param place: a folder for all of it
    """

    def __init__(self, clock: Clock, place: Path, scale: Scale) -> None:
        self.clock, self.scale = clock, scale
        self.ends = clock.ticks + scale.days * scale.day_s
        self._chance = random.Random(20261126)
        (place / "truths").mkdir()
        entries = [
            NodeEntry(name, str(place / "there" / name), list(range(SLOTS * index, SLOTS * (index + 1))))
            for index, name in enumerate(f"node{index:02}" for index in range(scale.nodes))
        ]
        command = ["train.py"]
        manifest = Manifest("weeks", time.time(), entries, "command", command, "/", on_failure="stop")
        self.folder = RunFolder.create(manifest)
        self.nodes = {
            entry.name: Node(
                entry.name,
                index,
                list(entry.ranks),
                "weeks",
                Path(entry.dir),
                place / "truths",
                keeps=index < scale.keepers,
            )
            for index, entry in enumerate(entries)
        }
        self.told = Told()
        self._session: Session
        self.step = 0
        self.hung_at = self.failed_at = 0.0
        """By the clock's ticks."""
        self.resident: list[int] = []
        """Bytes of memory of this process, once a day."""

    async def pass_by(self) -> Session:
        """All of it; return the session of the cockpit that stays to the end."""
        with _paced():
            for node in self.nodes.values():
                node.tick()
            self._session = await attached(self.folder, self.nodes, self.told)
            chores = [asyncio.create_task(self._keep_house()), asyncio.create_task(self._visit())]
            try:
                await self._train()
                await asyncio.sleep(self.ends - self.clock.ticks)
            finally:
                for task in chores:
                    task.cancel()
                for result in await asyncio.gather(*chores, return_exceptions=True):
                    if isinstance(result, Exception):
                        raise result
            return self._session

    # The ranks

    async def _train(self) -> None:
        """They make steps, save and evaluate, hang once for a while, and one of them fails."""
        save_at = self.clock.ticks + self.scale.day_s / 6
        evaluate_at = self.clock.ticks + self.scale.day_s
        while self.clock.ticks < self.ends - FAILURE_S:
            now, pause_s = self.clock.ticks, 0.0
            if now >= evaluate_at:
                evaluate_at, pause_s = evaluate_at + self.scale.day_s, EVALUATION_S
            elif now >= save_at:
                save_at, pause_s = save_at + self.scale.day_s / 6, CHECKPOINT_S
                self._first.prints(0, b"saving checkpoint to /data/ckpt/step-%d\n" % self.step)
            elif not self.hung_at and now >= self.ends - HANG_S:
                await self._hang()
            near = min(save_at, evaluate_at) - now < 2 * QUIET_S
            _repeat_each(FINE_S if pause_s or near or now > self.ends - HOUR else QUIET_S)
            await asyncio.sleep(STEP_S + pause_s)
            self._make_step()
        self._fail()

    def _make_step(self) -> None:
        self.step += 1
        every = self.step % OTHERS_PRINT == 0
        for index, node in enumerate(self.nodes.values()):
            node.stepped(self.step)
            for rank in node.ranks:
                if every or rank == 0:
                    node.prints(rank, _LINE % (self.step, rank, 2 + 9 / self.step))
            news = every or index == 0
            if news or self.step % 6 == index % 6:
                node.tick()
            if news:
                node.news()

    async def _hang(self) -> None:
        self.hung_at = self.clock.ticks
        for node in self.nodes.values():
            node.hung = HUNG
        await asyncio.sleep((HANG_S - FAILURE_S) / 2)
        for node in self.nodes.values():
            node.hung = None

    def _fail(self) -> None:
        node = next(node for node in self.nodes.values() if FAILED in node.ranks)
        self.failed_at = self.clock.ticks
        node.prints(FAILED, _ERROR)
        node.emit("rank_exited", rank=FAILED, pid=PID + FAILED, attempt=0, code=1, signal=None)
        node.news()

    @property
    def _first(self) -> Node:
        return next(iter(self.nodes.values()))

    # What else goes on

    async def _keep_house(self) -> None:
        """Logs are rotated each day, a disk is full each week, somebody sets the clock."""
        day, day_s = 0, self.scale.day_s
        while True:
            await asyncio.sleep(day_s / 2)
            self.resident.append(resident())
            self.clock.set(self._chance.choice((-1, 1)) * self._chance.uniform(20, 4000))
            for node in self.nodes.values():
                node.rotate(ROTATIONS[day % 3])
                node.news()
            full_s = min(FULL_S, day_s / 4) if day % 7 == 1 else 0.0
            if full_s:
                self._first.fill_disk(True)
                await asyncio.sleep(full_s)
                self._first.fill_disk(False)
            await asyncio.sleep(day_s / 2 - full_s)
            day += 1

    async def _visit(self) -> None:
        """Two more cockpits attach now and then, and two of the three leave: often the one that writes."""
        while True:
            await asyncio.sleep(self._chance.uniform(0.3, 2) * self.scale.day_s)
            if self.clock.ticks > self.ends - HOUR:
                return  # all that is told in the last hour is to be told by one
            sessions = [self._session]
            for _ in range(2):
                visitor = await attached(RunFolder(self.folder.path), self.nodes, self.told)
                visitor.stand_by()
                sessions.append(visitor)
            await asyncio.sleep(self._chance.uniform(0.01, 0.1) * self.scale.day_s)
            self._session = sessions.pop(self._chance.randrange(3))
            for session in sessions:
                await session.close()
            await asyncio.sleep(TAKEN_S)
            assert self._session.writer, "nobody has taken over"


def _repeat_each(seconds: float) -> None:
    Cadence.every_s = noticing._LOOK_S = watching.TICK_S = failures._LOOK_S = seconds


_begin = Lasting._begin


def _begin_and_end(file: Lasting) -> None:
    """Files are thinned at once: a thread takes no time by this clock, or days would pass in the meantime."""
    _begin(file)
    file.wait()


@contextmanager
def _paced() -> Iterator[None]:
    """What is changed by the way is put back."""
    ticks = ((noticing, "_LOOK_S"), (watching, "TICK_S"), (failures, "_LOOK_S"), (Cadence, "every_s"))
    with ExitStack() as stack:
        for module, name in ticks:
            stack.enter_context(mock.patch.object(module, name, QUIET_S))
        stack.enter_context(mock.patch.object(Lasting, "_begin", _begin_and_end))
        yield
