"""Logs that are rotated while cockpits come, lag and leave: each byte is here, or declared missing."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from cockpit.base import verbs
from cockpit.base.answers import FollowItem
from cockpit.base.events import Gap
from cockpit.base.gate import read
from cockpit.base.record import rank_log
from cockpit.core.logs.sources import Writer
from cockpit.engine.links import pool as pools
from cockpit.engine.links.link import Clock
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.engine.run import own_run, succession
from cockpit.engine.run.session import Session
from cockpit.node import following
from cockpit.node.run.follow import _Reader
from tests.engine.pools import Fakes, MadeUp
from tests.engine.test_session import Heard
from tests.engine.test_succession import kill, until
from tests.node import folders
from tests.waiting import PATIENCE_S

LOG = rank_log(0)


class Rank:
    """Writes numbered lines to its log, which others shorten, copy, move and remove.

    :param seed: one that is odd does not append: it goes on where it is in a file that was emptied
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.log = folder, folder / LOG
        folders.make(folder, [0])
        self.said = b""
        self.random = random.Random(seed)
        self._line = self._copy = 0
        self._mode = "wb" if seed % 2 else "ab"
        self._file = self.log.open(self._mode, buffering=0)

    def write(self) -> None:
        """Some lines, perhaps half a one at the end."""
        for _ in range(self.random.choice((1, 3, 40, 400))):
            self._line += 1
            self.put(b"line %07d\n" % self._line)
        if self.random.random() < 0.3:
            self._line += 1
            self.put(b"half %07d" % self._line)

    def put(self, data: bytes) -> None:
        self.said += data
        self._file.write(data)

    def rotate(self) -> None:
        """What logrotate and people do to it."""
        match self.random.choice(("truncate", "copytruncate", "copytruncate", "compressed", "restart")):
            case "truncate":
                self.log.write_bytes(b"")
            case "copytruncate" | "compressed" as how:
                self._copy += 1
                copy = self.folder / f"{LOG}.{self._copy}"
                shutil.copy(self.log, copy)
                self.log.write_bytes(b"")
                if how == "compressed":
                    copy.rename(self.folder / f"old.{self._copy}.gz")
            case "restart":  # renamed, and what writes is started again
                self._copy += 1
                self.log.rename(self.folder / f"{LOG}.{self._copy}")
                self.close()
                self._file = self.log.open(self._mode, buffering=0)

    def close(self) -> None:
        """It ends."""
        self._file.close()


class Node(MadeUp):
    """A cockpit's way to the folder, over the real follower; it sends as often as it may."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.turns = asyncio.Semaphore(0)
        self.clock = Clock()
        self.idle = asyncio.Event()

    async def stream(self, request: object) -> Sending:
        return Sending(self, request)


class Sending:
    """The answer to one request."""

    def __init__(self, node: Node, request: object) -> None:
        self._node = node
        self._reader = None
        if isinstance(request, verbs.Follow):
            self._reader = _Reader(str(node.folder), [0], request.offsets, request.marks)

    async def parts(self) -> AsyncIterator[tuple[FollowItem, bytes]]:
        reader = self._reader
        if reader is None:
            await asyncio.Event().wait()
        assert reader is not None
        while True:
            self._node.idle.set()
            await self._node.turns.acquire()
            self._node.idle.clear()
            parts, data = reader.batch(4096)
            begun, reader.begun = reader.begun, []
            item = {"parts": parts, "sizes": reader.sizes, "alive": True, "begun": begun}
            yield read(FollowItem, item), data

    async def part(self, within_s: float) -> None:
        """Of its steps it has kept nothing."""

    async def credit(self, size: int) -> None:
        """It sends without."""

    async def close(self) -> None:
        """There is nothing to close."""


class Heard_(Heard):
    """Keeps what it is told of the log, by its place in the copy."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[tuple[int, bytes]] = []

    def log(self, node: str, writer: Writer, offset: int, data: bytes) -> None:
        self.pieces.append((offset, data))


class Cockpit:
    """One that is attached."""

    def __init__(self, run: Path, folder: Path) -> None:
        self.folder = RunFolder(run)
        self.node = Node(folder)
        self.heard = Heard_()
        writer = self.folder.lock()
        self.session = Session(self.folder, self.heard, pool=Fakes({"a": self.node}), writer=writer)

    async def attach(self) -> Cockpit:
        """Join."""
        await self.session.rejoin()
        self.session.watch()
        await asyncio.wait_for(self.node.idle.wait(), PATIENCE_S)
        return self

    async def take(self, turns: int) -> None:
        """Get so many answers."""
        for _ in range(turns):
            self.node.turns.release()
            await asyncio.sleep(0)
            await asyncio.wait_for(self.node.idle.wait(), PATIENCE_S)


@pytest.fixture
def rank(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Rank]:
    """One of a run, which is made known here."""
    (tmp_path / "node").mkdir()
    made = Rank(tmp_path / "node", getattr(request, "param", 0))
    manifest = Manifest("run", 0.0, [NodeEntry("a", str(made.folder), [0])], "command", ["true"], "/")
    RunFolder.create(manifest).close()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses, and no limit to how often a file begins anew."""
    monkeypatch.setattr(pools, "RETRY_S", (0.001,))
    monkeypatch.setattr(following, "OFTEN_S", 0.0)
    monkeypatch.setattr(following, "AGAIN_S", 0.0)
    monkeypatch.setattr(own_run, "_LOOK_S", 0.0)


@pytest.mark.few(1)
@pytest.mark.parametrize("rank", range(8), indirect=True)
def test_each_byte_is_here_or_declared_missing(rank: Rank) -> None:
    run = RunFolder.find("run").path

    async def main() -> list[Cockpit]:
        writer = await Cockpit(run, rank.folder).attach()
        along = [await Cockpit(run, rank.folder).attach() for _ in range(2)]
        rank.write()
        await writer.take(9)  # what is gone before anybody looks is not missed
        for _ in range(60):
            for _ in range(rank.random.choice((1, 1, 2, 5))):
                rank.write()
                if rank.random.random() < 0.2:
                    rank.rotate()
            turns = rank.random.choice((0, 1, 3, 9, 99))
            await writer.take(turns)
            for one in along if turns > 9 else ():
                await one.take(rank.random.choice((0, 0, 1, 9)))
            if rank.random.random() < 0.05:
                await writer.session.close()
                writer = await Cockpit(run, rank.folder).attach()
                assert writer.session.writer
        rank.write()
        for one in (writer, *along):
            await one.take(400)
        for one in (writer, *along):
            await one.session.close()
        return along

    along = asyncio.run(main())
    folder = RunFolder(run)
    copy = (folder.spool_dir(folder.manifest.nodes[0]) / LOG).read_bytes()
    gaps = [event.fact for event in folder.journal() if isinstance(event.fact, Gap)]
    assert len(gaps) > 3
    check(rank.said, copy, gaps)
    for one in along:
        assert not one.session.writer
        for offset, data in one.heard.pieces:
            assert copy[offset : offset + len(data)] == data


@pytest.mark.few(1)
@pytest.mark.parametrize("rank", range(4), indirect=True)
def test_whoever_takes_over_misses_nothing_and_tells_nothing_twice(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(succession, "LOOK_S", 0.003)
    run = RunFolder.find("run").path

    async def stands_by() -> tuple[int, Cockpit]:
        one = await Cockpit(run, rank.folder).attach()
        one.session.stand_by()
        return one.session.copies.size("a", LOG), one

    async def main() -> tuple[int, Cockpit]:
        writer = (await stands_by())[1]
        rank.write()
        await writer.take(9)
        begin, along = await stands_by()
        for _ in range(40):
            rank.write()
            if rank.random.random() < 0.3:
                rank.rotate()
            await writer.take(rank.random.choice((0, 1, 9, 99)))
            await along.take(rank.random.choice((0, 1, 9, 99)))
            if rank.random.random() < 0.15:
                await (kill if rank.random.random() < 0.5 else Session.close)(writer.session)
                await until(along.session._companions[0].done)
                assert along.session.writer
                writer = along
                begin, along = await stands_by()
        rank.write()
        for one in (writer, along):
            await one.take(400)
        await kill(writer.session)
        await until(along.session._companions[0].done)
        rank.write()
        await along.take(400)
        await along.session.close()
        return begin, along

    begin, along = asyncio.run(main())
    folder = RunFolder(run)
    copy = (folder.spool_dir(folder.manifest.nodes[0]) / LOG).read_bytes()
    check(rank.said, copy, [event.fact for event in folder.journal() if isinstance(event.fact, Gap)])
    assert along.heard.pieces
    for offset, data in along.heard.pieces:
        assert (offset, data) == (begin, copy[begin : begin + len(data)])
        begin += len(data)
    assert begin == len(copy)


def check(said: bytes, copy: bytes, gaps: list[Gap]) -> None:
    """The copy is what was said, but for what is missing at gaps: as much as these say, at least."""
    at = 0
    lost = 0
    for place, (start, end) in enumerate(pairwise([0, *(gap.at for gap in gaps), len(copy)])):
        if place:
            lost += gaps[place - 1].lost or 0
        piece = copy[start:end]
        if not piece:
            continue
        # Lines are numbered: a piece that has a whole one is found at one place alone.
        found = said.find(piece, at)
        assert found >= 0, (place, start, end)
        if place == 0:
            assert found == 0
        assert found - at >= lost
        if found > at:
            assert place, "missing, and nobody says so"
        at, lost = found + len(piece), 0
    assert at == len(said), "the end is here"


def test_one_who_reads_along_goes_by_the_one_who_writes(rank: Rank) -> None:
    """It lags behind when a log is shortened, and has what it missed from the copy."""
    run = RunFolder.find("run").path

    async def main() -> None:
        writer = await Cockpit(run, rank.folder).attach()
        along = await Cockpit(run, rank.folder).attach()
        rank.put(b"one\n")
        await writer.take(2)
        await along.take(2)
        rank.put(b"two\n")
        await writer.take(2)
        rank.log.write_bytes(b"")
        await writer.take(2)
        rank.put(b"three\n")
        await writer.take(3)
        await along.take(3)
        rank.put(b"four\n")
        await writer.take(3)
        await along.take(3)
        assert b"".join(data for _, data in along.heard.pieces) == b"one\ntwo\nthree\nfour\n"
        kept = [event.fact for event in writer.folder.journal() if event.kind == "gap"]
        assert kept == [event.fact for event in along.heard.events if event.kind == "gap"]
        await along.session.close()
        await writer.session.close()

    asyncio.run(main())
