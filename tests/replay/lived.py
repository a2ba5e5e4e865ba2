"""A run that is watched by a real session while it goes on, on a clock of its own, and what was seen then."""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from cockpit.base.events import (
    ClockMeasured,
    Complete,
    LinkChanged,
    NodeSample,
    Progress,
    RankSample,
    Sample,
    StepSample,
)
from cockpit.base.record import EVENTS, TIMES
from cockpit.core.logs.query import Query
from cockpit.engine.logs.book import Logbook
from cockpit.engine.logs.reader import Reader
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry, planned
from cockpit.engine.run.board import Board
from cockpit.engine.run.session import Session
from tests.engine.books import all_after
from tests.engine.pools import Fakes

BEGIN = 1_795_233_881.0

NODES = {"gpu1": [0, 1], "gpu2": [2, 3]}


@dataclass(frozen=True)
class Seen:
    """What was on the screen at a moment.

    :param states: of ranks, in words
    :param links: of nodes
    :param steps: the last one of each rank
    :param rss: what each rank was measured to have
    :param lines: of the log, of each rank
    """

    at: float
    states: Mapping[int, str]
    links: Mapping[str, str]
    steps: Mapping[int, int | None]
    front: int | None
    usual: float | None
    rss: Mapping[int, int | None]
    lines: Mapping[int, int]


class Lived:
    """A run and who watches it.

    :param nodes: names of nodes, and their ranks
    :param ahead_s: by how many seconds the clock of a node is ahead of ours
    :param step_s: seconds of a step
    """

    def __init__(
        self,
        nodes: Mapping[str, Sequence[int]],
        ahead_s: Mapping[str, float],
        step_s: float,
        run: str = "run",
    ) -> None:
        entries = [NodeEntry(name, f"/none/{name}", list(ranks)) for name, ranks in nodes.items()]
        self.folder = RunFolder.create(Manifest(run, BEGIN, entries, "command", ["train.py"], "/"))
        self.board = Board(self.folder)
        self.session = Session(self.folder, self.board, pool=Fakes({}))
        self.now = BEGIN
        self.nodes = nodes
        self.ahead_s = dict(ahead_s)
        self.step_s = step_s
        self.steps: dict[int, float] = defaultdict(float)
        self.dead: set[int] = set()
        self.seen: list[Seen] = []
        self._printed: dict[int, int] = defaultdict(int)
        self.ended: dict[int, list[StepSample]] = defaultdict(list)
        self._done: dict[int, int] = defaultdict(int)

    async def begin(self) -> None:
        await self.session.rejoin()
        self.session.record(planned(self.folder.manifest))  # as a launch does
        for name, ranks in self.nodes.items():
            self.session.note(name, LinkChanged("ok"))
            self.session.note(name, ClockMeasured(self.ahead_s.get(name, 0.0), 0.01))
            await self.told(name, e="supervisor_started", pid=7)
            for rank in ranks:
                await self.told(name, e="rank_started", rank=rank, pid=100 + rank, attempt=0)

    async def told(self, node: str, **fields: object) -> None:
        """A line of a node's record, on its clock."""
        line = json.dumps({"t": self.now + self.ahead_s.get(node, 0.0), **fields}).encode() + b"\n"
        await self._grows(node, EVENTS, line)

    async def _grows(self, node: str, file: str, data: bytes) -> None:
        offset = self.session.copies.size(node, file)
        self.session.copies.add(node, file, data)
        await self.session.tell_of(node, file, offset, data)

    async def set_clock(self, node: str, ahead_s: float) -> None:
        """Somebody sets the clock of a node; a moment later it is measured."""
        self.ahead_s[node] = ahead_s
        self.session.note(node, ClockMeasured(ahead_s, 0.01))

    async def second(self, *, slow: bool = False, prints: bool = True) -> None:
        """A second goes by: ranks step and print, nodes are measured.

        :param slow: steps take half as long again
        """
        self.now = math.floor(self.now) + 1.0
        for name, ranks in self.nodes.items():
            living = [rank for rank in ranks if rank not in self.dead]
            for rank in living:
                self.goes(rank, self.step_s * (1.5 if slow else 1.0), name)
            if prints and living:
                await self.says(name, living)
            self._measured(name)
        self.board.flush(self.now)
        await asyncio.sleep(0)

    async def says(self, node: str, ranks: Sequence[int]) -> None:
        """Each of these ranks prints what it has to say of this second."""
        lines = {rank: b"rank %d at %d\n" % (rank, round(self.now - BEGIN)) for rank in ranks}
        await self.prints(node, lines, self.now)

    async def prints(self, node: str, lines: Mapping[int, bytes], at: float) -> None:
        """Ranks print, and the node notes how large their logs are then."""
        sizes = {}
        for rank, line in lines.items():
            await self._grows(node, file := f"rank-{rank}.log", line)
            self._printed[rank] += 1
            sizes[file] = self.session.copies.size(node, file)
        told = {"t": at + self.ahead_s.get(node, 0.0), "s": sizes}
        await self._grows(node, TIMES, json.dumps(told).encode() + b"\n")

    def goes(self, rank: int, took: float, node: str) -> None:
        """A rank makes steps for a second."""
        before = self.steps[rank]
        self.steps[rank] += 1.0 / took
        for step in range(int(before) + 1, int(self.steps[rank]) + 1):
            end = self.now - (self.steps[rank] - step) * took + self.ahead_s.get(node, 0.0)
            self.ended[rank].append(StepSample(step, end, took))
            self._done[rank] = step

    def _measured(self, node: str) -> None:
        ranks = {}
        for rank in self.nodes[node]:
            if rank in self.dead:
                continue
            steps = tuple(self.ended.pop(rank, ()))
            age = self.now + self.ahead_s.get(node, 0.0) - steps[-1].t if steps else 0.0
            told = Progress("deepspeed", self._done[rank], age, self.step_s, steps) if steps else None
            ranks[rank] = RankSample(
                90.0, (30 << 30) + round((self.now - BEGIN) * 1000) + rank, progress=told
            )
        sample = Sample(NodeSample(8.0, 32, 300 << 30, 512 << 30, 900 << 30), ranks)
        self.session.note(node, sample, record=False)

    async def dies(self, rank: int, code: int = 1) -> None:
        """A rank ends."""
        node = next(name for name, ranks in self.nodes.items() if rank in ranks)
        self.dead.add(rank)
        await self.told(node, e="rank_exited", rank=rank, code=code, signal=None)

    def look(self) -> None:
        """Keep what is on the screen."""
        model, pace = self.session.model, self.session.pace
        self.seen.append(
            Seen(
                self.now,
                {number: rank.text for number, rank in model.ranks.items()},
                {name: node.link for name, node in model.nodes.items()},
                {number: pace.of(number).step for number in model.ranks},
                None if pace.front is None else pace.front[0],
                pace.usual(),
                {
                    number: None if rank.sample is None else rank.sample.rss_bytes
                    for number, rank in model.ranks.items()
                },
                dict(self._printed),
            )
        )

    async def ends(self) -> None:
        """All ranks that live end well, and so does the run."""
        for name, ranks in self.nodes.items():
            for rank in ranks:
                if rank not in self.dead:
                    await self.dies(rank, 0)
            await self.told(name, e="ended")
            self.session.note(name, Complete())

    async def close(self) -> None:
        self.board.close()
        await self.session.close()


def lines_of(book: Logbook, rank: int) -> int:
    """How many lines of a rank a book has."""
    return len(all_after(Reader(book, Query(ranks=frozenset([rank]))), 1000))


@asynccontextmanager
async def watched(
    monkeypatch: pytest.MonkeyPatch,
    nodes: Mapping[str, Sequence[int]],
    ahead_s: Mapping[str, float] | None = None,
    step_s: float = 0.7,
) -> AsyncIterator[Lived]:
    """A run that has begun, and is closed afterwards; this process has its clock."""
    lived = Lived(nodes, ahead_s or {}, step_s)
    monkeypatch.setattr(time, "time", lambda: lived.now)
    await lived.begin()
    try:
        yield lived
    finally:
        await lived.close()


async def eventful(lived: Lived, seconds: int, looks: int, seed: int = 1) -> None:
    """Something of everything happens, and somebody looks at random moments."""
    chance = random.Random(seed)
    moments = set(chance.sample(range(1, seconds), looks))
    names = list(lived.nodes)
    for second in range(1, seconds + 1):
        lived.now += 0.5  # nobody looks just then
        if second == seconds // 4:
            lived.session.note(names[-1], LinkChanged("stale", "no answer for 15 s"))
        if second == seconds // 3:
            lived.session.note(names[-1], LinkChanged("ok"))
        if second == seconds // 2:
            await lived.dies(lived.nodes[names[-1]][-1])
        await lived.second(slow=second > seconds // 2, prints=second % 3 != 0)
        if second in moments:
            lived.look()
