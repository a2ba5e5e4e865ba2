"""Jobs that others started, watched like runs: by nodes that are made up here, and by the real cockpit."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from cockpit.base import times, verbs
from cockpit.base.answers import Launching, OpenFile, OutputsAnswer, SeekAnswer, WatchItem
from cockpit.base.events import Gap, RankStarted
from cockpit.base.gate import RANKS_A_NODE, read
from cockpit.base.record import TIMES
from cockpit.base.same_file import file_id
from cockpit.config import Quotas
from cockpit.core.logs.sources import Source, Writer
from cockpit.core.run.events import Event
from cockpit.core.run.jobs import Job, group
from cockpit.core.run.model import RankState
from cockpit.engine.files import replace as replace_file
from cockpit.engine.links import pool as pools
from cockpit.engine.links.link import Clock
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Foreign, Manifest, NodeEntry
from cockpit.engine.run import foreign, foreign_jobs, succession
from cockpit.engine.run.foreign import session_of
from cockpit.engine.run.foreign_logs import Outlets
from cockpit.engine.run.session import Session
from cockpit.engine.stacks.targets import find_job
from cockpit.errors import NoRoom
from cockpit.transport.base import LinkError, Reach
from tests.engine.pools import Fakes, MadeUp
from tests.engine.test_session import Heard
from tests.engine.watched import Watched
from tests.waiting import PATIENCE_S, until

KEY = ("at", "here", "1", "2", "ada", "")
Part = tuple[dict[str, Any], bytes] | BaseException


def rank(number: int, pid: int) -> dict[str, Any]:
    """A rank as ``seek`` tells it."""
    told = {"rank": number, "world_size": 2, "local_rank": 0, "pid": pid, "ticks": 5, "state": "S", "run": ""}
    job = {"addr": "here", "port": "1", "id": ""}
    words = {"user": "ada", "launcher": "torchrun", "command": "train.py", "started": 1.0}
    return {**told, **words, "job": job, "above": [900]}


def file(name: str, *ranks: int, **more: Any) -> dict[str, Any]:
    """A file as ``outputs`` tells it."""
    place = {"path": f"/logs/{name}", "device": 1, "inode": 2, "size": 0, "pid": 100, "ticks": 5, "fd": 1}
    return {"id": name, **place, "ranks": list(ranks), **more}


def part(*chunks: tuple[int, int, bytes], ranks: tuple[int, ...] = (0,), **more: Any) -> Part:
    """One answer of a watch request: (file, offset, bytes) each."""
    sizes = {str(number): offset + len(data) for number, offset, data in chunks}
    parts = [[number, offset, len(data)] for number, offset, data in chunks]
    item = {"parts": parts, "sizes": sizes, "ranks": list(ranks), "launchers": [900], **more}
    return item, b"".join(data for _, _, data in chunks)


OVER = part(ranks=(), launchers=[])


class Node(MadeUp):
    """A node that answers each watch request with the next of its scripts."""

    def __init__(
        self, ranks: list[dict[str, Any]], files: list[dict[str, Any]], *scripts: list[Part]
    ) -> None:
        self.ranks = ranks
        self.files = files
        self.why: dict[str, str] = {}
        self.scripts = list(scripts)
        self.asked: list[verbs.Watch] = []
        self.called: list[str] = []
        self.samples: list[Samples] = []
        self.clock = Clock()
        self.transport = SimpleNamespace(kind="local")

    async def call(self, request: object, **how: Any) -> object:
        self.called.append(type(request).__name__)
        if isinstance(request, verbs.Seek):
            return read(SeekAnswer, {"ranks": self.ranks})
        assert isinstance(request, verbs.Outputs)
        launchers = [{"pid": 900, "ticks": 1, "ranks": [0], "command": "torchrun train.py"}]
        return read(OutputsAnswer, {"files": self.files, "why": self.why, "launchers": launchers})

    async def stream(self, request: object) -> Stream:
        if isinstance(request, verbs.Samples):
            self.samples.append(Samples())
            return self.samples[-1]
        assert isinstance(request, verbs.Watch)
        self.asked.append(request)
        return Stream(self.scripts.pop(0) if self.scripts else [OVER])


class Stream:
    """Parts in order, as they pass the gate; an exception among them is raised; then the last one's words."""

    def __init__(self, parts: list[Part]) -> None:
        self._parts = parts

    async def parts(self) -> AsyncIterator[tuple[WatchItem, bytes]]:
        for each in self._parts:
            if isinstance(each, BaseException):
                raise each
            await asyncio.sleep(0)
            yield read(WatchItem, each[0]), each[1]
        while True:  # nothing new
            await asyncio.sleep(0.01)
            assert not isinstance(each, BaseException)
            yield read(WatchItem, {**each[0], "parts": [], "begun": []}), b""

    async def credit(self, size: int) -> None:
        """It sends without."""

    async def close(self) -> None:
        """There is nothing to close."""


class Samples(Stream):
    """Measurements that never come."""

    def __init__(self) -> None:
        super().__init__([])
        self.closed = False

    async def parts(self) -> AsyncIterator[tuple[WatchItem, bytes]]:
        await asyncio.Event().wait()
        yield read(WatchItem, {}), b""

    async def close(self) -> None:
        self.closed = True


class Logs(Heard):
    """What each log has got."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[Source, bytes] = {}

    def log(self, node: str, writer: Writer, offset: int, data: bytes) -> None:
        assert offset == len(self.logs.get((node, writer), b""))
        self.logs[node, writer] = self.logs.get((node, writer), b"") + data


def made(**nodes: Node) -> RunFolder:
    """The folder of a job with a rank on each of these nodes."""
    entries = [NodeEntry(name, "/", [number]) for number, name in enumerate(nodes)]
    launchers = {name: [Launching(900, 1, (number,))] for number, name in enumerate(nodes)}
    foreign = Foreign(KEY, "", launchers)
    folder = RunFolder.create(Manifest("job", 0.0, entries, "torchrun", ["x"], "/", foreign=foreign))
    for number, name in enumerate(nodes):
        folder.write(Event(1.0, name, RankStarted(number, pid=100 + number, ticks=5)))
    return folder


def watch(
    folder: RunFolder,
    until_: str = "",
    quotas: Quotas | None = None,
    writer: bool = True,
    **nodes: Node,
) -> tuple[Session, Logs]:
    """Watch a job until it is over, or an event of that kind came."""

    async def main() -> tuple[Session, Logs]:
        heard = Logs()
        session = session_of(folder, heard, pool=Fakes(nodes), quotas=quotas, writer=writer)
        await session.rejoin()
        session.watch()

        async def wait() -> None:
            while not (session.model.done or any(event.kind == until_ for event in heard.events)):
                await session.wait()

        await asyncio.wait_for(wait(), PATIENCE_S)
        await session.close()
        return session, heard

    return asyncio.run(main())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between tries."""
    monkeypatch.setattr(pools, "RETRY_S", (0.001,))
    monkeypatch.setattr(pools, "SLOW_S", 0.001)


def spooled(folder: RunFolder, name: str, place: int = 0) -> bytes:
    """What is here of a log."""
    return (folder.spool_dir(folder.manifest.nodes[place]) / name).read_bytes()


def test_a_cut_link_goes_on_at_the_next_byte_and_the_end_is_gone_not_failed() -> None:
    first = [part((0, 0, b"one\nha")), LinkError("cut", where="a")]
    node = Node([rank(0, 100)], [file("own", 0)], first, [part((0, 6, b"lf\n")), OVER])
    folder = made(a=node)
    session, heard = watch(folder, a=node)
    assert [[one.offset for one in request.files] for request in node.asked] == [[0], [6]]
    assert spooled(folder, "rank-0.log") == b"one\nhalf\n" == heard.logs["a", 0]
    end = session.model.ranks[0]
    assert (end.state, end.failed, end.text) == (RankState.GONE, False, "gone")
    assert session.model.exit_code() == 0
    assert RunFolder(folder.path).model().done


@pytest.mark.parametrize("same_way", [True, False])
def test_a_job_that_was_just_found_is_watched_over_the_same_links_and_not_looked_for_again(
    same_way: bool,
) -> None:
    nodes = {
        name: Node(
            [rank(number, 100 + number)], [file(name, number)], [part((number, 0, b"x\n"), ranks=(number,))]
        )
        for number, name in enumerate("ab")
    }

    async def main() -> tuple[Fakes, Logs]:
        pool, heard = Fakes(nodes), Logs()
        job, _ = await find_job(["a", "b"], pool, "")
        known = await foreign_jobs.make_known(job, pool, ["cockpit", "attach", "hosts"], "job")
        assert known.pool is pool
        if not same_way:  # with another one, the answers count all the same
            known = replace(known, pool=Fakes(nodes))
        session = session_of(known.folder, heard, known=known)
        await session.rejoin()
        session.watch()
        await asyncio.wait_for(_until_both(session, heard), PATIENCE_S)
        await session.close()
        again = await foreign_jobs.make_known(job, Fakes(nodes), [], "")
        assert (again.folder.name, again.told) == ("job", {})
        pool.reach = Reach("local")
        assert (await foreign_jobs.make_known(job, pool, [], "")).pool is None
        return pool, heard

    async def _until_both(session: Session, heard: Logs) -> None:
        while len(heard.logs) < 2:
            await session.wait(0.1)

    pool, _ = asyncio.run(main())
    assert pool.opened == ["a", "b"]
    assert [node.called for node in nodes.values()] == [["Seek", "Outputs"]] * 2


def test_what_is_asked_for_is_what_was_read_of_the_same_file() -> None:
    """By the mark that its node gave it, and another cockpit that comes later gives it back."""
    own = [file("own", 0)]
    first = [part((0, 0, b"one\nha"), marks={"0": 77}), LinkError("cut", where="a")]
    node = Node([rank(0, 100)], own, first)
    folder = made(a=node)
    watch(folder, "link", a=node)
    new = part((0, 0, b"new\n"), begun=[[0, 50]], marks={"0": 78})
    late = Node([rank(0, 100)], own, [new, LinkError("cut", where="a")], [part((0, 4, b"x\n")), OVER])
    watch(RunFolder(folder.path), a=late)
    asked = [(one.offset, one.mark, one.marked) for each in node.asked + late.asked for one in each.files]
    assert asked == [(0, None, 0), (6, 77, 6), (4, 78, 4)]
    assert spooled(folder, "rank-0.log") == b"one\nhanew\nx\n"
    gaps = [event.fact for event in folder.journal() if event.kind == "gap"]
    assert gaps == [Gap("rank-0.log", 6, 44, "/logs/own")]
    # Its own time index is about the copies.
    assert RunFolder(folder.path).model().nodes["a"].begin("rank-0.log") == 0


def test_a_node_sends_what_it_was_not_asked_for() -> None:
    evil: list[list[Part]] = [
        [part((7, 0, b"x"))],
        [part((0, 5, b"x"))],
        [part(begun=[[9, None]])],
        [part(trouble={"3": "x"})],
        [({"parts": [[0, 0, 4]], "sizes": {}, "ranks": [0]}, b"x")],
    ]
    node = Node([rank(0, 100)], [file("own", 0)], *evil, [part((0, 0, b"good\n")), OVER])
    folder = made(a=node)
    _, heard = watch(folder, a=node)
    assert heard.logs == {("a", 0): b"good\n"}
    whys = [event.fact.why for event in heard.events if event.kind == "link"]  # type: ignore[attr-defined]
    assert sum("invalid answer" in why for why in whys) == len(evil)


def test_two_nodes_and_one_file() -> None:
    shared = file("nfs", 0, 1)
    a = Node([rank(0, 100)], [shared], [part((0, 0, b"[rank1]: hi\n[rank0]: ho\nhm\n")), OVER])
    b = Node([rank(1, 101)], [shared], [part(ranks=(1,)), OVER])
    folder = made(a=a, b=b)
    outlets = Outlets.of(folder)  # as when the job was made known: all nodes have told by then
    for name in ("a", "b"):
        outlets.known(name, read(OpenFile, shared))
    outlets.save()
    outlets.close()
    _, heard = watch(folder, a=a, b=b)
    assert heard.logs == {("b", 1): b"[rank1]: hi\n", ("a", 0): b"[rank0]: ho\n", ("a", None): b"hm\n"}
    assert [len(request.files) for request in b.asked] == [0] * len(b.asked)


@pytest.mark.parametrize("port", [22, 0], ids=["ssh", "srun"])
def test_a_node_claims_to_have_started_what_others_have(port: int) -> None:
    """It is believed of ranks whose node says that their output leaves it, by a connection of their own."""

    class Tells(Node):
        def __init__(self, ranks: list[dict[str, Any]], answer: dict[str, Any]) -> None:
            super().__init__(ranks, [])
            self.answer = answer
            self.outputs: list[verbs.Outputs] = []

        async def call(self, request: object, **how: Any) -> object:
            if isinstance(request, verbs.Outputs):
                self.outputs.append(request)
                return read(OutputsAnswer, self.answer)
            return await super().call(request, **how)

    ends = {"address": "10.0.0.9", "port": 40000, "to": "10.0.0.1", "to_port": port}
    evil = {"pid": 9, "ticks": 9, "ranks": [0, 1], "command": "ssh"}
    nodes = {
        "a": Tells([rank(0, 100)], {"files": [], "passed": [0, 1], "callers": [{"ranks": [0, 1], **ends}]}),
        "b": Tells([rank(1, 101)], {"files": []}),
        "c": Tells([], {"files": [file("evil", 0, 1, shared=True)], "launchers": [evil]}),
        "d": Tells([], {"files": [file("worse", 0, shared=True)], "launchers": [{**evil, "ranks": [0]}]}),
    }
    nodes["d"].hello = SimpleNamespace(host=socket.gethostname())  # it says: I am the cockpit's machine

    async def main() -> RunFolder:
        async with Fakes(nodes) as pool:
            asked = {name: read(SeekAnswer, {"ranks": nodes[name].ranks}) for name in ("a", "b")}
            (job,) = group(asked)
            known = await foreign_jobs.make_known(job, pool, ["cockpit", "attach"], asked=nodes)
            return known.folder

    folder = asyncio.run(main())
    assert [one.ranks for one in nodes["c"].outputs[0].callers] == [(0,)]
    assert folder.manifest.foreign is not None
    launchers = folder.manifest.foreign.launchers
    assert {node: [one.ranks for one in told] for node, told in launchers.items()} == {
        "a": [],
        "b": [],
        "c": [(0,)],
    }
    assert [(node.name, list(node.ranks)) for node in folder.manifest.nodes] == [
        ("a", [0]),
        ("b", [1]),
        ("c", []),
    ]
    nodes["c"].scripts = [[part((0, 0, b"[rank0]: x\n[rank1]: y\nb: z\n"), ranks=()), OVER]]
    _, heard = watch(folder, **cast(dict[str, Any], nodes))
    assert heard.logs == {("a", 0): b"[rank0]: x\n", ("c", None): b"[rank1]: y\nb: z\n"}


def test_a_node_that_tells_of_many_connections_hides_no_other() -> None:
    ends = {"address": "10.0.0.9", "to": "10.0.0.1", "to_port": 0}
    many = [{"ranks": [0, 1], "port": 1 + number, **ends} for number in range(RANKS_A_NODE)]
    none = [{**one, "ranks": [2]} for one in many]
    own = {"ranks": [1], "port": 9, **ends}
    told = {"a": many, "b": [*none[1:], own]}
    answers = {name: ("host", read(OutputsAnswer, {"files": [], "callers": told[name]})) for name in told}
    (job,) = group({name: read(SeekAnswer, {"ranks": [rank(n, 100)]}) for n, name in enumerate(told)})
    callers = foreign_jobs._callers(job, answers)
    assert [one.port for one in callers if one.ranks == (1,)] == [9]
    assert 0 < len(callers) < 10


def test_a_job_with_more_ranks_elsewhere_than_one_answer_may_tell_of(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 5
    monkeypatch.setattr(foreign_jobs, "RANKS_A_NODE", most + 1)

    class Starts(Node):
        """Each rank of two nodes was started over a connection of its own, from the third."""

        async def call(self, request: object, **how: Any) -> object:
            if not isinstance(request, verbs.Outputs):
                return await super().call(request, **how)
            named = [number for one in request.callers for number in one.ranks]
            assert len(named) <= most + 1
            ranks = [one.rank for one in request.targets]
            ends = {"address": "10.0.0.9", "to": "10.0.0.1", "to_port": 22}
            callers = [{"ranks": [number], "port": 1 + number, **ends} for number in ranks]
            told: dict[str, Any] = {"files": [], "callers": callers, "passed": ranks}
            if named and not self.ranks:
                one = {"pid": 9, "ticks": 9, "ranks": named, "command": "mpirun"}
                told |= {"files": [file("out", *named, shared=True)], "launchers": [one]}
            return read(OutputsAnswer, told)

    def many(first: int) -> list[dict[str, Any]]:
        return [{**rank(first + n, 100 + n), "world_size": 2 * most} for n in range(most)]

    nodes = {"a": Starts(many(0), []), "b": Starts(many(most), []), "login": Starts([], [])}

    async def main() -> RunFolder:
        async with Fakes(nodes) as pool:
            asked = {name: read(SeekAnswer, {"ranks": nodes[name].ranks}) for name in ("a", "b")}
            (job,) = group(asked)
            known = await foreign_jobs.make_known(job, pool, ["cockpit", "attach"], asked=nodes)
            return known.folder

    folder = RunFolder(asyncio.run(main()).path)
    assert folder.manifest.foreign is not None
    assert len(folder.manifest.foreign.callers["login"]) == 2 * most
    outlets = Outlets.of(folder)
    outlets.load()
    (out,) = outlets.read_by("login")
    assert out.ranks == set(range(2 * most))


def test_an_unwritten_ledger_takes_bytes_back() -> None:
    node = Node([rank(0, 100)], [file("own", 0)], [part((0, 0, b"one\n")), LinkError("cut", where="a")])
    node.scripts.append([OVER])
    folder = made(a=node)
    watch(folder, "link", a=node)
    log = folder.spool_dir(folder.manifest.nodes[0]) / "rank-0.log"
    log.write_bytes(log.read_bytes() + b"crash")  # written, and the cockpit was killed before it noted that
    node.scripts = [[part((0, 4, b"two\n")), OVER]] if log.stat().st_size > 5 else []
    before = log.read_bytes()[:-5]
    if not before:  # the link was up before the first byte was taken
        node.scripts = [[part((0, 0, b"two\n")), OVER]]
    watch(RunFolder(folder.path), a=node)
    assert log.read_bytes() == before + b"two\n"


def test_a_rank_that_its_launcher_starts_again_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cockpit.engine.run.foreign._AGAIN_S", 0.0)

    class Again(Node):
        async def stream(self, request: object) -> Stream:
            if isinstance(request, verbs.Watch) and len(self.asked) == 0:
                # Another port, but the same launcher.
                self.ranks = [{**rank(0, 200), "job": {"addr": "here", "port": "2", "id": ""}}]
                self.files = [file("own", 0), file("new", 0)]
            return await super().stream(request)

    scripts = [[part((0, 0, b"one\n")), part(ranks=())], [part((1, 0, b"two\n")), part(ranks=())]]
    node = Again([rank(0, 100)], [file("own", 0)], *scripts)
    session, heard = watch(made(a=node), a=node)
    assert [one.pid for request in node.asked[:2] for one in request.targets] == [100, 200]
    assert session.model.ranks[0].attempt == 1
    assert heard.logs["a", 0] == b"one\ntwo\n"


def test_the_next_job_that_looks_the_same_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Same nodes, same port, same command: what is asked of the first one never reaches the second."""
    monkeypatch.setattr("cockpit.engine.run.foreign._AGAIN_S", 0.0)

    class Next(Node):
        async def stream(self, request: object) -> Stream:
            if isinstance(request, verbs.Watch):
                self.ranks = [{**rank(0, 200), "ticks": 9, "above": [901]}]
            return await super().stream(request)

    node = Next([rank(0, 100)], [file("own", 0)], [part((0, 0, b"one\n")), part(ranks=(), launchers=[])])
    session, _ = watch(made(a=node), a=node)
    assert {one.pid for request in node.asked for one in request.targets} <= {100}
    assert session.model.ranks[0].state is RankState.GONE
    assert session.model.ranks[0].pid == 100


def test_what_was_held_of_a_line_is_kept_when_its_file_is_cut() -> None:
    files = [file("out", 0), file("err", 0)]
    cut = part((0, 0, b"new\n"), begun=[[0, 100]])
    node = Node([rank(0, 100)], files, [part((0, 0, b"half a li")), cut, part(ranks=(), launchers=[])])
    _, heard = watch(made(a=node), a=node)
    assert heard.logs["a", 0] == b"half a linew\n"


def test_the_index_of_a_job_that_is_watched_for_months_is_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "LIMIT", 2000)
    monkeypatch.setattr(times, "thinned", partial(times.thinned, limit=2000))
    lines = [part((0, 4 * place, b"abc\n")) for place in range(300)]
    node = Node([rank(0, 100)], [file("own", 0)], [*lines, OVER])
    folder = made(a=node)
    watch(folder, a=node)
    assert spooled(folder, "rank-0.log") == b"abc\n" * 300
    index = spooled(folder, TIMES)
    assert len(index) <= 2100
    assert list(times.ticks(index.split(b"\n")))[-1][1] == {"rank-0.log": 1200}


def test_a_launchers_words_tell_how_a_rank_ended() -> None:
    said = b"[0]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : 3 (pid: 100)\n"
    files = [file("own", 0), file("console")]
    node = Node([rank(0, 100)], files, [part((1, 0, said), ranks=()), OVER])
    folder = made(a=node)
    session, _ = watch(folder, a=node)
    assert session.model.ranks[0].text == "exited 3"
    assert session.model.first_failure() is session.model.ranks[0]


def test_no_measurements_are_left_on_the_link_when_it_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "_AGAIN_S", 0.0)
    lacks = part(ranks=())
    node = Node([rank(0, 100)], [file("own", 0)], [part(), lacks], [lacks], [OVER])
    watch(made(a=node), a=node)
    assert node.samples
    # Their items would fill a queue that holds up every answer of the node, pings too.
    assert all(each.closed for each in node.samples)


def test_why_there_is_no_output_is_said_once() -> None:
    node = Node([rank(0, 100)], [], [part(), LinkError("cut", where="a")], [part(), OVER])
    node.why = {"0": "writes to a terminal (pts/4)"}
    session, _ = watch(made(a=node), a=node)
    step = "next time, send it to a file: … >train.log 2>&1"
    said = f"no output here: each rank writes to a terminal (pts/4); {step}"
    assert session.model.nodes["a"].notes == (said,)


@pytest.mark.parametrize("number", [1, 2])
def test_it_reads_nothing_that_it_prints_itself(tmp_path: Path, number: int) -> None:
    own = tmp_path / "slurm-1.out"
    before = os.dup(number)
    try:
        with own.open("w") as out:
            os.dup2(out.fileno(), number)
        one = file("", 0, 1, id=file_id(os.fstat(number)), path=str(own))
        node = Node([rank(0, 100), rank(1, 101)], [one, file("rank1", 1)], [part(ranks=(0, 1)), OVER])
        session, _ = watch(made(a=node), a=node)
    finally:
        os.dup2(before, number)
        os.close(before)
    assert [each.path for each in node.asked[0].files] == ["/logs/rank1"]
    said = f"rank 0: no output here: it writes to {own}, as this cockpit does; give cockpit a file of its own"
    assert session.model.nodes["a"].notes == (said,)


def test_logs_wait_where_the_spool_is_full() -> None:
    full = Quotas(spool_bytes=10)
    node = Node([rank(0, 100)], [file("own", 0)], [part((0, 0, b"0123456789")), part((0, 10, b"more"))])
    folder = made(a=node)
    watch(folder, "note", full, a=node)
    assert spooled(folder, "rank-0.log") == b"0123456789"
    node.scripts = [[part((0, 10, b"more")), OVER]]
    watch(RunFolder(folder.path), a=node)
    assert node.asked[-1].files[0].offset == 10
    assert spooled(folder, "rank-0.log") == b"0123456789more"


def test_logs_wait_where_there_is_no_room_for_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cockpit.engine.quotas._AGAIN_S", 0.0)
    refused: list[bytes] = []

    def full_once(path: Path, data: bytes) -> None:
        if not refused:
            refused.append(data)
            raise NoRoom("cannot write")
        replace_file(path, data)

    monkeypatch.setattr("cockpit.engine.run.foreign_logs.replace", full_once)
    script = [part((0, 0, b"one\n")), OVER]
    node = Node([rank(0, 100)], [file("own", 0)], [part((0, 0, b"one\n"))], script)
    folder = made(a=node)
    session, _ = watch(folder, a=node)
    assert refused
    assert session.model.over
    assert [request.files[0].offset for request in node.asked] == [0, 0]
    assert spooled(folder, "rank-0.log") == b"one\n"


# The real cockpit


RANK = """
import os, sys, time
number, go = os.environ["RANK"], sys.argv[2]
for step in range(400):
    # In one piece, also where PYTHONUNBUFFERED is set: both ranks write to this file.
    os.write(1, b"[rank%s]: step %d loss %.3f\\n" % (number.encode(), step, 1 / (step + 1)))
    if step == 200:
        while not os.path.exists(go):
            time.sleep(0.05)
while not os.path.exists(go + "-end"):
    time.sleep(0.05)
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[str]:
    """A script that starts two ranks: one file for both, and one for the errors of each; its tag."""
    tag = f"job-{uuid4().hex[:12]}"
    (tmp_path / "rank.py").write_text(RANK)
    rank = f"{sys.executable} rank.py {tag} {tmp_path}/go"
    text = (
        f"for n in 0 1; do RANK=$n LOCAL_RANK=$n {rank} 2>err.$n & done >>all.out; wait; echo bye >>all.out"
    )
    env = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": tag}
    words = ["/bin/bash", "-c", text, tag]
    launcher = subprocess.Popen(words, cwd=tmp_path, env=env, start_new_session=True)

    def begun() -> bool:
        out = tmp_path / "all.out"
        return out.exists() and {b"[rank0]:", b"[rank1]:"} <= set(out.read_bytes().split())

    try:
        until(begun, "output of both ranks")
        yield tag
    finally:
        os.killpg(launcher.pid, signal.SIGKILL)
        launcher.wait()


@pytest.mark.slow
def test_watched_killed_and_watched_again(job: str, tmp_path: Path) -> None:
    words = ["--headless", "--json"]
    (tmp_path / "one").mkdir()
    one = Watched(["attach", "--match", job, "--name", "mine", *words], tmp_path / "one")
    one.event("log", rank=1)
    one.event("sample")
    one.process.send_signal(signal.SIGKILL)
    one.process.wait()
    (tmp_path / "go").touch()
    (tmp_path / "two").mkdir()
    two = Watched(["attach", "--match", job, *words], tmp_path / "two")
    two.event("log", text="[rank0]: step 399 loss 0.003")
    assert "mine" in two.said()
    (tmp_path / "go-end").touch()
    assert two.event("over")["exit"] == 0
    assert two.process.wait(PATIENCE_S) == 0
    assert {event["rank"] for event in two.events("rank_gone")} == {0, 1}

    folder = RunFolder.find("mine")
    all_lines = (tmp_path / "all.out").read_bytes().splitlines(keepends=True)
    for number in (0, 1):
        mine = [line for line in all_lines if line.startswith(b"[rank%d]" % number)]
        assert spooled(folder, f"rank-{number}.log") == b"".join(mine)
        assert len(mine) == 400
    ps = [sys.executable, "-m", "cockpit", "ps", "mine", "--json"]
    told = json.loads(subprocess.run(ps, capture_output=True, check=True, timeout=PATIENCE_S).stdout)
    assert told["state"] == "ended"
    assert [rank["text"] for rank in told["ranks"]] == ["gone", "gone"]


@pytest.mark.parametrize(
    ("name", "number"),
    [("12.3", "12"), ("--user=ada.0", ""), ("12 -u ada.0", ""), ("12345678901.0", ""), ("", "")],
)
def test_no_word_of_a_node_becomes_an_option_of_scancel(name: str, number: str) -> None:
    job = Job(("id", name), "slurm", "", "ada", "python train.py", 2, "", name)
    assert foreign_jobs.slurm_job(job) == number
    assert foreign_jobs.slurm_job(replace(job, launcher="mpi")) == ""


@pytest.mark.parametrize("ahead", [True, False], ids=["it-was-ahead", "it-was-behind"])
def test_who_takes_over_goes_on_where_the_ledger_says(monkeypatch: pytest.MonkeyPatch, ahead: bool) -> None:
    monkeypatch.setattr(succession, "LOOK_S", 0.01)
    short, long = [part((0, 0, b"one\ntwo\n"))], [part((0, 0, b"one\ntwo\nthree\n"))]
    first = Node([rank(0, 100)], [file("own", 0)], short if ahead else long)
    second = Node([rank(0, 100)], [file("own", 0)], long if ahead else short)
    folder = made(a=first)
    folder.close()

    async def main() -> bytes:
        heard = [Logs(), Logs()]
        sessions = []
        for node, logs in zip((first, second), heard, strict=True):
            mine = RunFolder(folder.path)
            sessions.append(session_of(mine, logs, pool=Fakes({"a": node}), writer=mine.lock()))
            await sessions[-1].rejoin()
        second.scripts.append([part((0, 8 if ahead else 14, b"three\nfour\n" if ahead else b"four\n")), OVER])
        for session in sessions:
            session.watch()
        ends = [b"two\n", b"three\n"] if ahead else [b"three\n", b"two\n"]
        for logs, end in zip(heard, ends, strict=True):
            await _until(lambda: logs.logs.get(("a", 0), b"").endswith(end))  # noqa: B023 (asked at once)
        sessions[1].stand_by()
        await sessions[0].close()
        await _until(lambda: heard[1].logs["a", 0].endswith(b"four\n"))
        assert sessions[1].writer
        await sessions[1].close()
        return heard[1].logs["a", 0]

    async def _until(true: Callable[[], bool]) -> None:
        async def wait() -> None:
            while not true():  # noqa: ASYNC110 (asks)
                await asyncio.sleep(0.01)

        await asyncio.wait_for(wait(), PATIENCE_S)

    whole = b"one\ntwo\nthree\nfour\n"
    assert asyncio.run(main()) == whole, "nothing is told twice, and nothing left out"
    (entry,) = folder.manifest.nodes
    assert (folder.spool_dir(entry) / "rank-0.log").read_bytes() == whole
