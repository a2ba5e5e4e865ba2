"""Samples of a job: streaming, silent nodes, what a node may say; with nodes made up here."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from cockpit.base import verbs
from cockpit.base.answers import SeekAnswer, SpyAnswer
from cockpit.base.gate import read
from cockpit.base.stacks.dump import Dump, Frame, Process, Thread
from cockpit.base.stacks.packing import pack
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.core.stacks.collectives import Collectives, Wait
from cockpit.core.stacks.fate import End, Fate
from cockpit.core.stacks.progress import Done, Progress, SlowRank
from cockpit.core.stacks.ras import Ras
from cockpit.core.stacks.snapshot import Place, Sample, Snapshot
from cockpit.core.stacks.verdict import verdict
from cockpit.engine.links import payload
from cockpit.engine.links.link import RemoteError
from cockpit.engine.links.pool import LinkPool
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry, planned
from cockpit.engine.stacks import saved, take, targets
from cockpit.engine.stacks.ask import Ask, RankProcess
from cockpit.engine.stacks.listed import listed
from cockpit.engine.stacks.take import ReplayedStacks, Sampler
from cockpit.engine.stacks.targets import RunParty, open_run
from cockpit.errors import CockpitError, Exit
from cockpit.transport.base import LinkError
from tests.core.fates import end
from tests.happened import happened
from tests.waiting import PATIENCE_S, soon

MAIN = Frame("<module>", "./train.py", 240)
STEP = Frame("train_step", "./train.py", 188)


def dump(rank: int, *frames: Frame, **more: Any) -> Dump:
    """A rank's answer, at ``frames`` or in its main module."""
    thread = Thread("MainThread", 100 + rank, True, False, frames or (MAIN, STEP))
    return Dump(rank, 1.0, Process(1000 + rank, 7, "S"), "plain", (thread,), **more)


class Answer:
    """A stream that gives what a test puts into it; None ends it."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.closed = False

    async def parts(self) -> AsyncIterator[tuple[dict[str, Any], bytes]]:
        while (part := await self.queue.get()) is not None:
            if isinstance(part, Exception):
                raise part
            yield {}, part

    async def close(self) -> None:
        self.closed = True


class FakeLink:
    """A link to a made-up node."""

    def __init__(self, node: str, *, machine: str = "x86_64", has_spy: bool = True) -> None:
        self.node = node
        self.hello = SimpleNamespace(machine=machine)
        self.lost: asyncio.Future[CockpitError] = asyncio.get_running_loop().create_future()
        self.has_spy = has_spy
        self.sent = 0
        self.asked: list[verbs.Stacks] = []
        self.answer = Answer()

    def by_hand(self, *command: str) -> str:
        return " ".join(["ssh", "-F", "mine", self.node, *command])

    async def call(self, request: Any, data: bytes = b"", **fields: Any) -> SpyAnswer:
        assert isinstance(request, verbs.Spy)
        if data:
            await asyncio.sleep(0)
            self.sent += 1
            self.has_spy = True
        return SpyAnswer(self.has_spy)

    async def stream(self, request: Any) -> Answer:
        assert isinstance(request, verbs.Stacks)
        self.asked.append(request)
        return self.answer


class FakeParty:
    """A job on made-up nodes: two ranks on each."""

    title = run = "otter"
    command = "cockpit stacks otter"

    def __init__(self, links: Sequence[FakeLink]) -> None:
        self.links = {link.node: link for link in links}
        self.nodes = list(self.links)

    def ranks(self, node: str) -> list[int]:
        first = 2 * self.nodes.index(node)
        return [first, first + 1]

    def places(self) -> dict[int, Place]:
        return {rank: Place(node) for node in self.nodes for rank in self.ranks(node)}

    twice: Mapping[int, str] = {}

    async def refresh(self) -> None:
        pass

    def folder(self, node: str) -> str:
        return ""

    async def link(self, node: str) -> Any:
        return self.links[node]

    async def targets(self, node: str, link: Any) -> list[RankProcess]:
        return [RankProcess(rank, 1000 + rank, 7) for rank in self.ranks(node)]


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a scene."""
    asyncio.run(scene())


def test_what_a_quick_node_says_is_there_before_a_slow_one_answers(tmp_path: Path) -> None:
    async def scene() -> None:
        quick, slow = FakeLink("gpu01"), FakeLink("gpu02")
        stacks = Sampler(FakeParty([quick, slow]), Ask(), tmp_path)
        taking = asyncio.create_task(stacks.take())
        quick.answer.queue.put_nowait(pack([dump(0)]))
        await soon(lambda: stacks.snapshot.samples and 0 in stacks.snapshot.samples[0].dumps)
        assert stacks.busy
        assert stacks.snapshot.missing()[3] == "no answer yet"
        for part in (pack([dump(1)]), None):
            quick.answer.queue.put_nowait(part)
        for part in (pack([dump(2), dump(3)]), None):
            slow.answer.queue.put_nowait(part)
        sample = await taking
        assert sorted(sample.dumps) == [0, 1, 2, 3]
        assert not stacks.busy
        assert stacks.snapshot.ranks[2] == Place("gpu02", None, 1002)
        assert stacks.snapshot.missing() == {}
        assert quick.answer.closed

    play(scene)


@pytest.mark.parametrize(
    ("parts", "kept", "why"),
    [
        ([pack([dump(0), dump(3, what="a lie")])], [0], "a dump of rank 3, which was not requested"),
        ([pack([dump(0), dump(10**5)])], [0], "a dump of rank 100000"),
        ([pack([dump(0), dump(0, what="no, so")])], [0], "a dump of rank 0 twice"),
        ([pack([dump(0)]), pack([dump(0, what="no, so")]), pack([dump(1)])], [0], "a dump of rank 0"),
        ([pack([dump(1)]), pack([])], [1], "a part of an answer without a dump"),
        ([pack([dump(0)]), b"junk"], [0], "something that is not a dump"),
        ([pack([dump(0, *[STEP] * 5000)])], [], "too much: a stack of more than 4000 frames"),
    ],
)
def test_a_node_speaks_once_for_each_of_its_own_ranks_and_for_no_other(
    tmp_path: Path, parts: list[bytes], kept: list[int], why: str
) -> None:
    async def scene() -> None:
        links = [FakeLink("gpu01"), FakeLink("gpu02")]
        stacks = Sampler(FakeParty(links), Ask(), tmp_path)
        for part in parts:
            links[0].answer.queue.put_nowait(part)
        for good in (pack([dump(2), dump(3)]), None):
            links[1].answer.queue.put_nowait(good)
        sample = await stacks.take()
        assert sorted(sample.dumps) == [*kept, 2, 3]
        assert all(not one.what for one in sample.dumps.values())
        assert list(sample.silent) == ["gpu01"]
        assert f"sent {why}" in sample.silent["gpu01"]
        assert links[0].answer.closed
        assert sorted(saved.load(await stacks.kept()).samples[0].dumps) == [*kept, 2, 3]

    play(scene)


def test_a_node_cannot_take_a_rank_from_another_one(tmp_path: Path) -> None:
    class Greedy(FakeParty):
        async def targets(self, node: str, link: Any) -> list[RankProcess]:
            return [RankProcess(rank, 1000 + rank, 7, number) for number, rank in enumerate(range(4))]

    async def scene() -> None:
        links = [FakeLink("gpu01"), FakeLink("gpu02")]
        stacks = Sampler(Greedy(links), Ask(), tmp_path)
        for link, part in zip(links, (pack([dump(0), dump(1)]), pack([dump(2), dump(3)])), strict=True):
            link.answer.queue.put_nowait(part)
            link.answer.queue.put_nowait(None)
        sample = await stacks.take()
        assert [target.rank for link in links for target in link.asked[0].targets] == [0, 1, 2, 3]
        assert {rank: place.node for rank, place in stacks.snapshot.ranks.items()} == {
            0: "gpu01",
            1: "gpu01",
            2: "gpu02",
            3: "gpu02",
        }
        assert not sample.silent

    play(scene)


def test_a_node_of_a_run_is_asked_about_its_own_ranks_only() -> None:
    folders: dict[str, str] = {}

    class Lies:
        async def call(self, request: verbs.Seek) -> SeekAnswer:
            assert request == verbs.Seek("otter", "gpu02", folders["gpu02"])
            told = {
                "world_size": 2, "local_rank": 0, "ticks": 7, "state": "S", "run": "otter",
                "job": {}, "user": "ada", "launcher": "command", "command": "python", "started": 1.0,
            }  # fmt: skip
            return read(
                SeekAnswer, {"ranks": [{**told, "rank": rank, "pid": 65 + rank} for rank in range(3)]}
            )

    async def scene() -> None:
        manifest = a_run().manifest
        folders.update({node.name: node.dir for node in manifest.nodes})
        model = RunModel()
        model.apply(planned(manifest))
        for node, rank in (("gpu01", 0), ("gpu02", 1)):
            model.apply(started(node, rank))
        link: Any = Lies()
        party = RunParty(manifest, model, AsyncMock(return_value=link))
        assert await party.targets("gpu02", link) == [RankProcess(1, 66, 7, 0)]

    play(scene)


@pytest.mark.parametrize("where", ["link", "targets", "folder"])
def test_a_mistake_of_ours_with_one_node_costs_no_other_one(tmp_path: Path, where: str) -> None:
    class Faulty(FakeParty):
        async def link(self, node: str) -> Any:
            self.fails("link", node)
            return await super().link(node)

        async def targets(self, node: str, link: Any) -> list[RankProcess]:
            self.fails("targets", node)
            return await super().targets(node, link)

        def folder(self, node: str) -> str:
            self.fails("folder", node)
            return ""

        def fails(self, here: str, node: str) -> None:
            if here == where and node == "gpu01":
                raise KeyError("sizes\x1b[31m")

    async def scene() -> None:
        links = [FakeLink("gpu01"), FakeLink("gpu02")]
        stacks = Sampler(Faulty(links), Ask(), tmp_path)
        for good in (pack([dump(2), dump(3)]), None):
            links[1].answer.queue.put_nowait(good)
        sample = await stacks.take()
        assert sorted(sample.dumps) == [2, 3]
        assert sample.silent["gpu01"].startswith("internal error: KeyError")
        assert "\x1b" not in sample.silent["gpu01"]

    play(scene)


def test_a_node_that_is_slow_with_every_rank_is_given_up_in_the_end(tmp_path: Path) -> None:
    class Hasty(Ask):
        silence_s = 30.0

        def whole_s(self, ranks: int) -> float:
            return 0.3

    async def scene() -> None:
        link = FakeLink("gpu01")
        stacks = Sampler(FakeParty([link]), Hasty(), tmp_path)
        link.answer.queue.put_nowait(pack([dump(0)]))
        sample = await stacks.take()
        assert sample.silent["gpu01"] == "not finished within 0.3 s"
        assert list(sample.dumps) == [0]

    play(scene)


def test_a_snapshot_holds_no_more_than_it_may_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        link = FakeLink("gpu01")
        stacks = Sampler(FakeParty([link]), Ask(), tmp_path)

        async def taken() -> Sample:
            for part in (pack([dump(0), dump(1)]), None):
                link.answer.queue.put_nowait(part)
            return await stacks.take()

        await taken()
        one = sum(stacks._used)
        assert 2000 < one < 10_000
        monkeypatch.setattr(take, "SNAPSHOT_LIMIT", 3 * one)
        for _ in range(2):
            assert not (await taken()).silent
        with pytest.raises(CockpitError, match=r"snapshot is full \(3 samples, 0 MB\); begin another one"):
            await taken()
        assert len(stacks.snapshot.samples) == 3
        # One rank alone is no part of it.
        assert await stacks.look(0) == dump(0)
        # A node has its share, and its line where that is too little.
        monkeypatch.setattr(take, "KEPT", one - 100)
        monkeypatch.setattr(take, "SNAPSHOT_LIMIT", 9 * one)
        link.answer.queue = asyncio.Queue()
        sample = await taken()
        assert list(sample.dumps) == [0]
        assert "sent too much: stacks of more than" in sample.silent["gpu01"]

    play(scene)


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (b"junk", "sent something that is not a dump"),
        (LinkError("link is down", where="gpu01"), "link is down"),
        (RemoteError("denied", "may not", where="gpu01", hint="ask root"), "may not; ask root"),
    ],
)
def test_why_a_node_did_not_answer_is_said_and_the_others_count(
    tmp_path: Path, part: bytes | Exception, why: str
) -> None:
    async def scene() -> None:
        links = [FakeLink("gpu01"), FakeLink("gpu02")]
        stacks = Sampler(FakeParty(links), Ask(), tmp_path)
        links[0].answer.queue.put_nowait(part)
        for good in (pack([dump(2), dump(3)]), None):
            links[1].answer.queue.put_nowait(good)
        sample = await stacks.take()
        assert sorted(sample.dumps) == [2, 3]
        assert why in sample.silent["gpu01"]
        assert "gpu01" in stacks.snapshot.missing()[0]

    play(scene)


def test_a_node_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    class Hasty(Ask):
        silence_s = 0.05

    async def scene() -> None:
        link = FakeLink("gpu01")
        stacks = Sampler(FakeParty([link]), Hasty(), tmp_path)
        sample = await stacks.take()
        assert "no answer within" in sample.silent["gpu01"]
        assert link.answer.closed

    play(scene)


def test_cancel_keeps_what_has_come(tmp_path: Path) -> None:
    async def scene() -> None:
        link, quick = FakeLink("gpu01"), FakeLink("gpu02")
        stacks = Sampler(FakeParty([link, quick]), Ask(), tmp_path)
        taking = asyncio.create_task(stacks.take())
        for part in (pack([dump(2), dump(3)]), None):
            quick.answer.queue.put_nowait(part)
        await soon(lambda: quick.answer.closed)
        link.answer.queue.put_nowait(pack([dump(0)]))
        await soon(lambda: 0 in stacks.snapshot.samples[0].dumps)
        stacks.cancel()
        sample = await taking
        assert sorted(sample.dumps) == [0, 2, 3]
        assert list(sample.silent) == ["gpu01"]
        assert sample.took_s is not None
        assert "cancelled" in stacks.snapshot.missing()[1]
        assert link.answer.closed

    play(scene)


class Late:
    """Explains a sample once it is let."""

    def __init__(self) -> None:
        self.asked, self.let = asyncio.Event(), asyncio.Event()

    async def gather(self, sampler: Sampler) -> None:
        self.asked.set()
        await self.let.wait()
        sampler.snapshot.progress = Progress(1.0, 0.5, True, {0: Done(7, 1.0), 1: Done(7, 1.0)})

    async def look_closer(self, sampler: Sampler) -> None:
        pass


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_sample_is_complete_once_it_is_explained_and_no_verdict_is_sure_before(
    tmp_path: Path, cancelled: bool
) -> None:
    async def scene() -> None:
        link, more = FakeLink("gpu01"), Late()
        stacks = Sampler(FakeParty([link]), Ask(), tmp_path, more)
        for _ in range(2):
            for part in (pack([dump(0), dump(1)]), None):
                link.answer.queue.put_nowait(part)
        assert (await stacks.take()).took_s is not None
        taking = asyncio.create_task(stacks.take())
        await more.asked.wait()
        sample = stacks.snapshot.samples[1]
        assert stacks.busy
        assert (sorted(sample.dumps), sample.took_s) == ([0, 1], None)
        found = verdict(stacks.snapshot)
        assert found.certainty != "sure"
        assert "steps and flight recorders have not answered yet" in found.evidence
        if cancelled:
            stacks.cancel()
        else:
            more.let.set()
        await taking
        assert sample.took_s is not None
        assert not stacks.busy
        assert (stacks.snapshot.progress is None) is cancelled
        assert not any("no answer yet" in text for text in verdict(stacks.snapshot).evidence)

    play(scene)


def test_an_earlier_look_is_read_while_the_next_sample_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, known = threading.Event(), {0: 9.5}
    monkeypatch.setattr(Sampler, "_stood", lambda _: read.wait() and known)

    async def scene() -> None:
        link = FakeLink("gpu01")
        stacks = Sampler(FakeParty([link]), Ask(), tmp_path)
        for part in (pack([dump(0), dump(1)]), None):
            link.answer.queue.put_nowait(part)
        await stacks.take()
        assert not stacks.snapshot.stood
        read.set()
        assert saved.load(await stacks.kept()).stood == known
        assert stacks.snapshot.stood == known

    play(scene)


def test_py_spy_is_sent_once_to_a_node_that_has_none(tmp_path: Path) -> None:
    async def scene() -> None:
        spy = payload.spy()
        assert spy is not None
        link = FakeLink("gpu01", machine=spy.machine, has_spy=False)
        stacks = Sampler(FakeParty([link]), Ask(), tmp_path)
        for _ in range(2):
            for part in (pack([dump(0), dump(1)]), None):
                link.answer.queue.put_nowait(part)
            await stacks.take()
        assert link.sent == 1
        assert len(stacks.snapshot.samples) == 2

    play(scene)


def test_py_spy_is_packed_once_however_many_nodes_are_asked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed: list[int] = []

    def pack_one(data: bytes, level: int) -> bytes:
        packed.append(len(data))
        return zlib.compress(data, level)

    monkeypatch.setattr(payload, "zlib", SimpleNamespace(compress=pack_one))
    payload.spy.cache_clear()

    async def scene() -> None:
        links = [FakeLink(f"gpu{number:02}") for number in range(16)]
        stacks = Sampler(FakeParty(links), Ask(), tmp_path)
        for link in links:
            link.answer.queue.put_nowait(None)
        await stacks.take()

    play(scene)
    assert len(packed) == 1


def test_no_py_spy_for_that_machine(tmp_path: Path) -> None:
    async def scene() -> None:
        link = FakeLink("gpu01", machine="ppc64le", has_spy=False)
        stacks = Sampler(FakeParty([link]), Ask(), tmp_path)
        sample = await stacks.take()
        assert "not for ppc64le; install it there: ssh -F mine gpu01 python3" in sample.silent["gpu01"]
        assert link.sent == 0

    play(scene)


def test_one_rank_alone_is_no_sample(tmp_path: Path) -> None:
    async def scene() -> None:
        link = FakeLink("gpu01")
        stacks = Sampler(FakeParty([link]), Ask(), tmp_path)
        for part in (pack([dump(1)]), None):
            link.answer.queue.put_nowait(part)
        found = await stacks.look(1, native=True)
        assert found == dump(1)
        assert link.asked[0].native
        assert [target.rank for target in link.asked[0].targets] == [1]
        assert stacks.snapshot.samples == []
        with pytest.raises(CockpitError, match="no node that was asked"):
            await stacks.look(99)

    play(scene)


def test_a_rank_that_went_away_between_two_samples(tmp_path: Path) -> None:
    async def scene() -> None:
        link = FakeLink("gpu01")
        party = FakeParty([link])
        stacks = Sampler(party, Ask(), tmp_path)
        for part in (pack([dump(0), dump(1)]), None, pack([dump(0)]), None):
            link.answer.queue.put_nowait(part)
        await stacks.take()

        async def fewer(node: str, link: Any) -> list[RankProcess]:
            return [RankProcess(0, 1000, 7)]

        party.targets = fewer  # type: ignore[method-assign]
        await stacks.take()
        assert stacks.snapshot.missing() == {1: "gone: its process no longer exists"}

    play(scene)


def test_only_the_ranks_that_were_asked_are_in_the_snapshot(tmp_path: Path) -> None:
    async def scene() -> None:
        link = FakeLink("gpu01")
        stacks = Sampler(FakeParty([link]), Ask(ranks=0b10), tmp_path)
        for part in (pack([dump(1)]), None):
            link.answer.queue.put_nowait(part)
        await stacks.take()
        assert [target.rank for target in link.asked[0].targets] == [1]
        folder = await stacks.kept()
        assert list(saved.load(folder).ranks) == [1]
        assert stacks.snapshot.missing() == {}

    play(scene)


def test_a_snapshot_that_cannot_be_kept_is_said_and_still_shown(tmp_path: Path) -> None:
    async def scene() -> None:
        (tmp_path / "file").write_text("")
        link = FakeLink("gpu01")
        stacks = Sampler(FakeParty([link]), Ask(), tmp_path / "file" / "stacks")
        for part in (pack([dump(0), dump(1)]), None):
            link.answer.queue.put_nowait(part)
        sample = await stacks.take()
        assert sorted(sample.dumps) == [0, 1]
        with pytest.raises(CockpitError, match="cannot make a folder"):
            await stacks.kept()
        assert "cannot make a folder" in stacks.trouble

    play(scene)


def made_up() -> Snapshot:
    """Two samples of three ranks, one of which is gone."""
    ranks = {
        0: Place("gpu01", 0, 1000, ns_pid=7, inferred="order"),
        1: Place("gpu01", 1, 1001),
        2: Place("gpu02", why="exited 3", end=end("exited 3")),
    }
    first = Sample(10.0, {0: dump(0), 1: dump(1, MAIN)}, {}, 0.2)
    second = Sample(11.0, {0: dump(0), 1: dump(1, notes=("continued",))}, {"gpu03": "no route"}, 0.3)
    told = {"native": False}
    return Snapshot("20261121-040000", "otter", "otter", ranks, [first, second], told, stood={0: 9.5})


def test_a_snapshot_reopens_as_it_was(tmp_path: Path) -> None:
    folder = saved.new_folder(tmp_path, made_up())
    saved.save(made_up(), folder)
    assert saved.is_snapshot(folder)
    assert saved.load(folder) == made_up()
    tree = json.loads((folder / "tree.json").read_text())
    assert [(branch["depth"], branch["ranks"]) for branch in tree[1]] == [(0, "0-1"), (1, "0-1")]
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
    assert saved.new_folder(tmp_path, made_up()).name == "20261121-040000-2"


def test_what_became_of_ranks_is_known_of_an_older_snapshot_too(tmp_path: Path) -> None:
    """It has that in words only."""
    words = (
        "",
        "exited 3",
        "killed by SIGKILL",
        "lost: its node is gone",
        "starting",
        "gone: it was",
        "not found",
    )
    taken = made_up()
    taken.ranks = {rank: Place("gpu01", why=why, end=end(why)) for rank, why in enumerate(words)}
    taken.ranks[7] = Place("gpu01", why="killed by signal 64", end=End(Fate.KILLED, signal=64))
    taken.twice = {3: "rank 3 is there twice: process 7 on a is taken, not process 9 on b"}
    taken.problems = ("no answer",)
    folder = saved.new_folder(tmp_path, taken)
    saved.save(taken, folder)
    head = json.loads((folder / "snapshot.json").read_text())
    for place in head["ranks"].values():
        del place["end"]
    head["problems"] += head.pop("twice").values()
    (folder / "snapshot.json").write_text(json.dumps(head))
    assert saved.load(folder) == taken


DAMAGES = ["", "[]", "{}", '{"format": 99}', "\udcff", '{"samples": [{"rank": 7}]}', "[" * 99999]


def damaged(root: Path, name: str, damage: str) -> Path:
    """A snapshot one file of which is not what was written."""
    folder = saved.new_folder(root, made_up())
    saved.save(made_up(), folder)
    (folder / name).write_bytes(damage.encode("utf-8", "surrogateescape"))
    return folder


def sparse(path: Path) -> None:
    """An endless file, nearly."""
    path.touch()
    os.truncate(path, 1 << 40)


PLACED: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "link": lambda path: path.symlink_to("verdict.json"),
    "folder": Path.mkdir,
    "sparse": sparse,
}


@pytest.mark.parametrize("kind", PLACED)
def test_what_is_no_file_of_a_snapshot_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    folder = damaged(tmp_path, "tree.json", "")
    (folder / "rank-1.json").unlink()
    PLACED[kind](folder / "rank-1.json")
    assert "rank-1.json cannot be read: " in saved.load(folder).missing()[1]
    (folder / "snapshot.json").unlink()
    PLACED[kind](folder / "snapshot.json")
    assert saved.is_snapshot(folder)
    for reads in (saved.load, saved.head):
        with pytest.raises(CockpitError, match=r"snapshot\.json: cannot be read: "):
            reads(folder)
    assert listed(folder.parent) == []


@pytest.mark.parametrize("damage", [*DAMAGES, '{"format": 1e999}'])
def test_a_damaged_snapshot_is_refused_by_name(tmp_path: Path, damage: str) -> None:
    with pytest.raises(CockpitError, match=r"snapshot\.json"):
        saved.load(damaged(tmp_path, "snapshot.json", damage))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('"1": {', '"-1": {'),
        ('"1": {', '"99999999999": {'),
        ('"at": 10.0', '"at": NaN'),
        ('"at": 10.0', '"at": 1e99'),
        ('"took_s": 0.2', '"took_s": Infinity'),
        ('"0": 9.5', '"0": NaN'),
        ('"0": 9.5', '"0": 1e99'),
        ('"0": 9.5', '"-1": 9.5'),
        ('"0": 9.5', '"0": "9.5"'),
    ],
)
def test_a_number_that_cannot_be_is_refused(tmp_path: Path, right: str, wrong: str) -> None:
    folder = damaged(tmp_path, "verdict.json", "")
    head = (folder / "snapshot.json").read_text()
    assert right in head
    (folder / "snapshot.json").write_text(head.replace(right, wrong))
    with pytest.raises(CockpitError, match=r"snapshot\.json: is damaged"):
        saved.load(folder)


@pytest.mark.parametrize("wrong", ['"0": 10.5', '"7": 9.5'])
def test_a_rank_has_not_stood_still_since_later_nor_one_that_is_not_there(tmp_path: Path, wrong: str) -> None:
    folder = damaged(tmp_path, "verdict.json", "")
    head = (folder / "snapshot.json").read_text()
    (folder / "snapshot.json").write_text(head.replace('"0": 9.5', wrong))
    assert saved.load(folder).stood == {}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_rank_whose_file_is_damaged_has_no_stack_and_the_others_have(tmp_path: Path, damage: str) -> None:
    snapshot = saved.load(damaged(tmp_path, "rank-1.json", damage))
    assert list(snapshot.missing()) == [1, 2]
    assert "rank-1.json is damaged" in snapshot.missing()[1]
    assert snapshot.dumps(0) == made_up().dumps(0)
    found = verdict(snapshot)
    # Its process was not looked at: nothing is known against it.
    assert not found.ranks & 0b10 or found.certainty == "unsure"


@pytest.mark.parametrize(
    "told",
    [
        '{"samples": [1, 2]}',
        '{"samples": [null, {"rank": 1}]}',
        '{"samples": [null]}',
        '{"samples": ' + "9" * 400 + "}",
        '{"samples": [null, {"rank": 1e400}]}',
        '{"samples": [null, ' + "[" * 100_000,
    ],
)
def test_what_is_no_dump_on_disk_costs_no_other_rank(tmp_path: Path, told: str) -> None:
    snapshot = saved.load(damaged(tmp_path, "rank-1.json", told))
    assert "rank-1.json is damaged" in snapshot.missing()[1]
    assert snapshot.dumps(0) == made_up().dumps(0)


def test_files_that_are_too_large_are_neither_read_nor_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = damaged(tmp_path, "rank-1.json", " " * 3000)
    monkeypatch.setattr(saved, "FILE_LIMIT", 2900)
    snapshot = saved.load(folder)
    assert "larger than" in snapshot.missing()[1]
    assert snapshot.dumps(0) == made_up().dumps(0)
    monkeypatch.setattr(saved, "FILE_LIMIT", (1 << 20) + 2000)
    large = made_up()
    large.samples[0].dumps[0] = dump(0, *[STEP] * 300)
    folder = saved.new_folder(tmp_path, large)
    saved.save(large, folder)
    assert "its stacks take up more than" in saved.load(folder).missing()[0]
    assert saved.load(folder).dumps(1) == made_up().dumps(1)


def test_a_snapshot_from_disk_has_its_room_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = saved.new_folder(tmp_path, made_up())
    saved.save(made_up(), folder)
    monkeypatch.setattr(saved, "ROOM", 4500)
    snapshot = saved.load(folder)
    assert snapshot.dumps(0) == made_up().dumps(0)
    assert "stacks of more than" in snapshot.missing()[1]


def test_ranks_that_said_nothing_have_no_file(tmp_path: Path) -> None:
    snapshot = made_up()
    snapshot.ranks.update({rank: Place("", why="not found", end=end("not found")) for rank in range(3, 5000)})
    folder = saved.new_folder(tmp_path, snapshot)
    saved.save(snapshot, folder)
    assert len(list(folder.iterdir())) == 5
    assert saved.load(folder) == snapshot


def test_a_disk_that_is_full_leaves_the_snapshot_that_was_there(tmp_path: Path) -> None:
    folder = saved.new_folder(tmp_path, made_up())
    saved.save(made_up(), folder)
    changed = made_up()
    changed.samples[0].dumps[0] = dump(0, *[STEP] * 4000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(CockpitError, match=r"rank-0\.json: cannot write: File too large"):
            saved.save(changed, folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert saved.load(folder) == made_up()
    assert not list(folder.glob("*.new"))


def test_a_file_of_a_rank_that_did_not_come_along(tmp_path: Path) -> None:
    folder = damaged(tmp_path, "tree.json", "")
    (folder / "rank-0.json").unlink()
    assert saved.load(folder).missing()[0] == "rank-0.json cannot be read: No such file or directory"


@pytest.mark.parametrize("below", [".", "stacks"])
def test_a_folder_that_is_none_names_the_newest_one_in_it(tmp_path: Path, below: str) -> None:
    with pytest.raises(CockpitError, match=r"is not a snapshot: .*give the folder"):
        saved.load(tmp_path)
    folders = [damaged(tmp_path / below, "tree.json", "") for _ in range(2)]
    with pytest.raises(CockpitError, match=f"is not a snapshot: .*cockpit stacks {folders[1]}$"):
        saved.load(tmp_path)


def test_text_of_nodes_in_a_snapshot_is_made_harmless(tmp_path: Path) -> None:
    snapshot = made_up()
    snapshot.samples[1].dumps[0] = dump(0, Frame("\x1b]0;evil\x07", "./a.py", 1))
    folder = saved.new_folder(tmp_path, snapshot)
    saved.save(snapshot, folder)
    assert "\x1b" not in saved.load(folder).stack(0)[0].name


def test_a_recorded_snapshot_says_what_it_cannot_tell(tmp_path: Path) -> None:
    folder = saved.new_folder(tmp_path, made_up())
    saved.save(made_up(), folder)

    async def scene() -> None:
        recorded = ReplayedStacks(folder)
        assert (await recorded.look(1)).notes == ("continued",)
        with pytest.raises(CockpitError, match="taken without C frames"):
            await recorded.look(1, native=True)
        with pytest.raises(CockpitError, match="no dump of it"):
            await recorded.look(2)
        with pytest.raises(CockpitError, match="can no longer be asked"):
            await recorded.take()

    play(scene)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Event]]:
    """What the nodes of a run answer; a node that is not in it does not answer."""
    answers: dict[str, list[Event]] = {}

    async def lend(pool: LinkPool, node: str) -> None:
        if node not in answers:
            raise LinkError("no route", where=node)

    async def recorded(link: Any, manifest: Manifest, entry: NodeEntry) -> tuple[list[Event], bool]:
        return [*answers[entry.name], happened(2.0, "link", entry.name, {"state": "ok"})], True

    monkeypatch.setattr(LinkPool, "lend", lend)
    monkeypatch.setattr(targets, "recorded", recorded)
    return answers


def started(node: str, rank: int) -> Event:
    """A rank has started."""
    more = {"rank": rank, "attempt": 0, "pid": 7, "ticks": 7, "local_rank": 0, "world_size": 2}
    return happened(1.0, "rank_started", node, more)


def a_run() -> RunFolder:
    """A run of two nodes with a rank on each."""
    nodes = [NodeEntry(f"gpu0{number + 1}", "/tmp/x", [number]) for number in range(2)]
    return RunFolder.create(Manifest("otter", 1.0, nodes, "command", ["train.py"], "/"))


def test_of_a_node_that_does_not_answer_it_is_not_known_whether_ranks_have_started(
    heard: dict[str, list[Event]],
) -> None:
    async def scene() -> None:
        folder = a_run()
        folder.write(happened(1.0, "link", "gpu02", {"state": "ok"}))  # then, and not now
        heard["gpu01"] = []
        async with open_run(folder) as party:
            places = party.places()
        assert places[0].why == "waiting"
        assert places[1].why == ""
        assert party.nodes == ["gpu01", "gpu02"]

    play(scene)


def test_a_node_that_is_over_is_not_asked_again(heard: dict[str, list[Event]]) -> None:
    async def scene() -> None:
        folder = a_run()
        folder.write(happened(1.0, "node_lost", "gpu02", {"why": "rebooted"}))
        heard["gpu01"] = [started("gpu01", 0)]
        async with open_run(folder) as party:
            assert party.nodes == ["gpu01"]
            assert party.places()[0].why == ""
            assert party.places()[1].why.startswith("lost")
        heard.clear()
        with pytest.raises(LinkError):
            async with open_run(folder):
                pass
        folder.write(happened(2.0, "node_lost", "gpu01", {"why": "rebooted"}))
        with pytest.raises(CockpitError, match="the run has ended"):
            async with open_run(folder):
                pass

    play(scene)


def test_of_a_run_that_is_over_it_is_said_what_evidence_cannot_be_had(heard: dict[str, list[Event]]) -> None:
    async def scene() -> None:
        folder = a_run()
        kept = {"why": "stall", "file": "20261123-031200-stall.evidence", "size": 7}
        folder.write(happened(1.0, "evidence", "gpu01", kept))
        for node in ("gpu01", "gpu02"):
            folder.write(happened(2.0, "node_lost", node, {"why": "rebooted"}))
        with pytest.raises(CockpitError, match="the run has ended") as raised:
            async with open_run(folder):
                pass
        assert raised.value.code == Exit.NODE_UNFIT
        (told,) = str(raised.value).splitlines()[1:]
        assert told.startswith("gpu01: can't fetch its evidence: ")

    play(scene)


def test_all_that_a_verdict_uses_is_kept(tmp_path: Path) -> None:
    taken = Snapshot(
        "20261121-040441", "otter", "otter", {0: Place("gpu01", ended_at=5.0), 1: Place("gpu01")}
    )
    taken.samples.append(Sample(1000.0, {1: dump(1)}, took_s=0.1))
    taken.closer[1] = dump(1, MAIN, way_of_it := Frame("c10d::Work::wait", "libtorch_cpu.so", 0, True))
    taken.progress = Progress(1000.0, 0.5, True, {0: Done(7, 990.0)}, (SlowRank(1, 1.5, 0.5, 0.66),), 6)
    taken.collectives = Collectives(1000.0, 0b11, 0b10, (Wait("group 4", "gloo:4", 9, "a", "a", 1, 2),))
    taken.ras = Ras(1000.0, "gpu01", "2.28.9", 0, 1, 0, silent={"gpu02": "NCCL RAS gave no answer"})
    taken.twice = {1: "rank 1 is there twice"}
    folder = saved.new_folder(tmp_path, taken)
    saved.save(taken, folder)
    assert saved.load(folder) == taken
    assert saved.load(folder).closer[1].frames[-1] == way_of_it
    head = json.loads((folder / "snapshot.json").read_text())
    head["collectives"]["missing"] = "no ranks"
    (folder / "snapshot.json").write_text(json.dumps(head))
    with pytest.raises(CockpitError, match="is damaged"):
        saved.load(folder)


def test_what_waits_for_the_thread_is_done_in_one_visit() -> None:
    visits: list[int] = []
    free = threading.Event()

    def work(number: int) -> int:
        visits.append(number)
        free.wait(PATIENCE_S)
        if number == 2:
            raise CockpitError("bad")
        return number

    async def main() -> list[object]:
        thread = take._InTurn()
        asked = [asyncio.create_task(thread.run(partial(work, number))) for number in range(5)]
        await soon(lambda: visits)
        late = asyncio.create_task(thread.run(partial(work, 5)))
        asked[3].cancel()
        await asyncio.sleep(0)
        free.set()
        return await asyncio.gather(*asked, late, return_exceptions=True)

    found = asyncio.run(main())
    assert visits == [0, 1, 2, 3, 4, 5], "one after the other"
    assert [each for each in found if isinstance(each, int)] == [0, 1, 4, 5]
    assert [type(each) for each in found if not isinstance(each, int)] == [
        CockpitError,
        asyncio.CancelledError,
    ]
