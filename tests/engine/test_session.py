"""A session with nodes that are made up here: cut links, repeated bytes, nonsense, the failure policy."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from cockpit.base import verbs
from cockpit.base.answers import FollowItem, StopAnswer
from cockpit.base.events import Gap, LinkChanged, Note, StopAsked
from cockpit.base.gate import read
from cockpit.base.trail import Trail
from cockpit.cli.unattended_stop import Ending
from cockpit.core.logs.sources import Writer
from cockpit.core.pace.pace import Pace
from cockpit.core.run.event_table import NOTES
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.engine import time_slices
from cockpit.engine.launch.prepare import Times
from cockpit.engine.links import pool as pools
from cockpit.engine.links.link import Clock, RemoteError
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.engine.run import session as sessions
from cockpit.engine.run.board import Board
from cockpit.engine.run.node_steps import OVERLAP_S, kept_steps
from cockpit.engine.run.own_run import OurRun
from cockpit.engine.run.session import Session
from cockpit.errors import CockpitError
from cockpit.transport.base import LinkError
from tests.engine.pools import Fakes, MadeUp
from tests.waiting import PATIENCE_S, soon

Part = tuple[dict[str, Any], bytes] | BaseException


def lines(*events: dict[str, Any]) -> bytes:
    """A run record."""
    return b"".join(json.dumps({"t": 1.0, **event}).encode() + b"\n" for event in events)


ENDED = lines({"e": "rank_exited", "rank": 0, "code": 0, "signal": None}, {"e": "ended"})
FAILED = lines({"e": "rank_exited", "rank": 0, "code": 1, "signal": None})


def part(*chunks: tuple[str, int, bytes], sizes: dict[str, int] | None = None, **more: Any) -> Part:
    """One answer of a follow request: (file, offset, bytes) each; sizes default to what was sent."""
    sent = {file: offset + len(data) for file, offset, data in chunks}
    parts = [[file, offset, len(data)] for file, offset, data in chunks]
    item = {"parts": parts, "sizes": sent if sizes is None else sizes, "alive": True, **more}
    return item, b"".join(data for _, _, data in chunks)


class Node(MadeUp):
    """A node that answers each follow request with the next of its scripts."""

    def __init__(self, *scripts: list[Part]) -> None:
        self.scripts = list(scripts)
        self.asked: list[dict[str, int]] = []
        """Offsets of each follow request."""
        self.marks: list[dict[str, int]] = []
        self.since: list[float] = []
        """From when on the steps were asked for that it kept."""
        self.stops: list[verbs.Stop] = []
        self.clock = Clock()

    async def call(self, request: object, **how: Any) -> StopAnswer:
        assert isinstance(request, verbs.Stop)
        self.stops.append(request)
        return StopAnswer(alive=True)

    async def stream(self, request: object) -> Stream:
        if isinstance(request, verbs.Samples):
            return Stream([asyncio.CancelledError()])
        if isinstance(request, verbs.Past):
            self.since.append(request.since)
            return Stream([])
        assert isinstance(request, verbs.Follow)
        self.asked.append(dict(request.offsets))
        self.marks.append(dict(request.marks))
        return Stream(self.scripts.pop(0) if self.scripts else [])


class Stream:
    """Parts in order, as they pass the gate; an exception among them is raised; then nothing more comes."""

    def __init__(self, parts: list[Part]) -> None:
        self._parts = parts

    async def parts(self) -> AsyncIterator[tuple[FollowItem, bytes]]:
        for each in self._parts:
            if isinstance(each, BaseException):
                raise each
            yield read(FollowItem, {"t": 1.0, **each[0]}), each[1]
        await asyncio.Event().wait()

    async def part(self, within_s: float) -> None:
        """Of its steps it has kept nothing."""

    async def credit(self, size: int) -> None:
        """It sends without."""

    async def close(self) -> None:
        """There is nothing to close."""


class Heard:
    """A listener that keeps what it is told."""

    def __init__(self) -> None:
        self.text = b""
        self.events: list[Event] = []
        self.had: list[int] = []
        """How many bytes of logs it had been told before each event."""

    def joined(self, model: RunModel, pace: Pace) -> None:
        """It asks the session itself."""

    def log(self, node: str, writer: Writer, offset: int, data: bytes) -> None:
        self.text += data

    def event(self, event: Event, changed: set[str | int]) -> None:
        self.events.append(event)
        self.had.append(len(self.text))


def watch(
    nodes: dict[str, list[list[Part]]], until: str = "", **manifest: Any
) -> tuple[Session, Heard, dict[str, Node]]:
    """Watch a run of one rank a node until it is done, or an event of that kind came."""

    async def main() -> tuple[Session, Heard, dict[str, Node]]:
        made = {name: Node(*scripts) for name, scripts in nodes.items()}
        entries = [NodeEntry(name, f"/none/{name}", [rank]) for rank, name in enumerate(made)]
        folder = RunFolder.create(Manifest("run", 0.0, entries, "command", ["true"], "/", **manifest))
        heard = Heard()
        session = Session(folder, heard, pool=Fakes(made))
        await session.rejoin()
        session.watch()

        async def wait() -> None:
            while not (session.model.done or any(event.kind == until for event in heard.events)):
                await session.wait()

        await asyncio.wait_for(wait(), PATIENCE_S)
        if until == "stop_asked":  # that is said first
            await soon(lambda: all(node.stops for node in made.values()), "all nodes are asked")
        await session.close()
        return session, heard, made

    return asyncio.run(main())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between tries."""
    monkeypatch.setattr(pools, "RETRY_S", (0.001,))
    monkeypatch.setattr(pools, "SLOW_S", 0.001)


def test_a_cut_link_goes_on_at_the_next_byte() -> None:
    cut = LinkError("cut", where="a")
    first = [part(("rank-0.log", 0, b"one\n")), cut]
    # It sends some bytes again: they are not doubled.
    second = [part(("rank-0.log", 2, b"e\ntwo\n"), ("events.jsonl", 0, ENDED))]
    session, heard, nodes = watch({"a": [first, second]})
    assert nodes["a"].asked == [{}, {"rank-0.log": 4}]
    assert heard.text == b"one\ntwo\n"
    spool = session.folder.spool_dir(session.manifest.nodes[0])
    assert (spool / "rank-0.log").read_bytes() == b"one\ntwo\n"
    assert [event.fact.state for event in heard.events if isinstance(event.fact, LinkChanged)] == [
        "ok",
        "stale",
        "ok",
    ]
    assert session.model.exit_code() == 0


def test_ended_is_not_done_before_all_bytes_are_here() -> None:
    behind = part(("events.jsonl", 0, ENDED), sizes={"events.jsonl": len(ENDED), "rank-0.log": 4})
    _, heard, _ = watch({"a": [[behind, part(("rank-0.log", 0, b"one\n"))]]})
    kinds = [event.kind for event in heard.events]
    assert kinds.index("ended") < kinds.index("complete")
    assert heard.text == b"one\n"


def test_a_rank_s_end_does_not_hide_the_steps_before_its_last_ones() -> None:
    step = {"step": 900, "t": 5000.0, "seconds": 1.0}
    last = lines({"e": "rank_steps", "rank": 0, "pid": 7, "source": "optimizer", "steps": [step]})
    session, _, nodes = watch({"a": [[part(("events.jsonl", 0, last + ENDED))]]})
    assert session.pace.of(0).step == 900
    assert nodes["a"].since == [0.0]


@pytest.mark.parametrize(("known", "since"), [(0.0, 0.0), (1000.0, 1000.0 - OVERLAP_S + 5.0)])
def test_steps_are_asked_for_from_shortly_before_the_newest_known_one_on_the_clock_of_the_node(
    known: float, since: float
) -> None:
    node: Any = Node()
    assert asyncio.run(kept_steps(node, NodeEntry("a", "/none/a", [0]), known, 5.0, 100)) == []
    assert node.since == [since]


def test_a_node_that_does_not_say_what_it_kept_ends_none_the_less(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(stream: Stream, within_s: float) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Stream, "part", silent)
    monkeypatch.setattr(OurRun, "caught_up_s", 0.05)
    session, _, _ = watch({"a": [[part(("events.jsonl", 0, ENDED))]]})
    assert session.model.done


@pytest.mark.parametrize(
    "nonsense",
    [
        part(("../../x", 0, b"x")),
        part(("rank-0.log\n", 0, b"x")),
        ({"parts": 5, "sizes": {}, "alive": True}, b""),
        ({"alive": True}, b""),
        part(("rank-0.log", 1 << 30, b"x")),
        part(("rank-1" + 300 * "1" + ".log", 0, b"x")),
        ({"parts": [["rank-0.log", 0, 5]], "sizes": {}, "alive": True}, b"x"),
        ({"parts": [["rank-0.log", "zero", 1]], "sizes": {}, "alive": True}, b"x"),
    ],
)
def test_nonsense_from_one_node_ends_nothing_else(nonsense: Part) -> None:
    good = [
        part(("rank-1.log", 0, b"fine\n"), ("events.jsonl", 0, ENDED.replace(b'"rank": 0', b'"rank": 1')))
    ]
    bad = [
        [nonsense],
        [part(("events.jsonl", 0, b""), found=[json.loads(line) for line in ENDED.splitlines()])],
    ]
    session, heard, _ = watch({"a": bad, "b": [good]})
    assert heard.text == b"fine\n"
    assert any(isinstance(event.fact, LinkChanged) and event.fact.state == "gone" for event in heard.events)
    assert session.model.ranks[1].text == "exited 0"
    here = {path.name for path in session.folder.path.rglob("*")}
    assert "x" not in here


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 200_000,
        b'{"t": 1, "e": "rank_exited", "rank": 0, "code": 1e400}',
        b'{"t": 1, "e": "rank_exited", "rank": 0, "code": ' + b"9" * 400 + b"}",
        b'{"t": ' + b"9" * 400 + b', "e": "ended"}',
        b'{"t": 1, "e": "rank_started"}',
        b'{"t": 1, "e": "rank_exited", "rank": "many", "code": 0}',
        b'{"t": 1, "e": "rank_exited", "rank": 1, "code": 1}',
        b'{"t": 1, "e": "report", "name": {}}',
        b"\xff\xfe",
    ],
)
def test_a_line_that_makes_no_sense_is_counted_and_ignored(line: bytes) -> None:
    session, heard, _ = watch({"a": [[part(("events.jsonl", 0, line + b"\n" + ENDED))]]})
    assert session.model.ranks[0].text == "exited 0"
    assert session.model.nodes["a"].damaged == 1
    assert not any(
        isinstance(event.fact, LinkChanged) and event.fact.state == "gone" for event in heard.events
    )
    # It is spooled, so every later look at the run reads it again.
    again = session.folder.model()
    assert (again.ranks[0].text, again.done) == ("exited 0", True)


def test_a_record_of_many_notes_leaves_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is received, on attach, and while the event list is rebuilt."""
    monkeypatch.setattr(time_slices, "_TURN_S", 0.0)
    notes = lines(*({"e": "note", "text": f"note {number}"} for number in range(2000)))
    turns_had = 0

    async def others() -> None:
        nonlocal turns_had
        while True:
            turns_had += 1
            await asyncio.sleep(0)

    async def main() -> list[int]:
        had = []
        other = asyncio.create_task(others())
        node = Node([part(("events.jsonl", 0, notes + ENDED))])
        entries = [NodeEntry("a", "/none/a", [0])]
        folder = RunFolder.create(Manifest("run", 0.0, entries, "command", ["true"], "/"))
        session = Session(folder, Heard(), pool=Fakes({"a": node}))
        await session.rejoin()
        session.watch()
        while not session.model.done:
            await asyncio.wait_for(session.wait(), PATIENCE_S)
        had.append(turns_had)
        await session.close()
        board = Board(folder)
        again = Session(folder, board, pool=Fakes({}))
        for work in (again.rejoin, board.recall):
            before = turns_had
            await work()
            had.append(turns_had - before)
        assert again.model.done
        await again.close()
        other.cancel()
        return had

    assert min(asyncio.run(main())) >= 2000


def test_an_agent_that_greets_and_says_nothing_more_is_no_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it greets, its link is lost since the first time: who waits for it can give up."""
    monkeypatch.setattr(pools, "RETRY_S", (0.001, 0.002))
    silent: Part = LinkError("no answer to ping within 15 s", where="a")
    good = part(("events.jsonl", 0, ENDED))
    _, heard, _ = watch({"a": [[silent], [silent], [silent], [good]]})
    links = [event.fact.state for event in heard.events if isinstance(event.fact, LinkChanged)]
    assert links == ["stale", "ok"]


def test_a_node_cannot_plan_the_run_anew_or_speak_of_links() -> None:
    told = lines(
        {"e": "planned", "nodes": {"evil": [7]}},
        {"e": "link", "state": "gone"},
        {"e": "node_lost", "why": "x"},
        {"e": "stop_asked", "reason": "x"},
    )
    session, _, _ = watch({"a": [[part(("events.jsonl", 0, told + ENDED))]]})
    assert list(session.model.nodes) == ["a"]
    assert list(session.model.ranks) == [0]
    assert not session.model.stop_reason
    assert not session.model.nodes["a"].lost


def test_a_line_without_end_is_given_up_and_the_next_one_read() -> None:
    flood = b"x" * (1 << 20) + b"y" * 100
    chunks = [part(("events.jsonl", 0, flood)), part(("events.jsonl", len(flood), b"z\n" + ENDED))]
    session, _, _ = watch({"a": [chunks]})
    assert session.model.ranks[0].text == "exited 0"
    assert session.model.nodes["a"].damaged == 1


def test_notes_without_end_are_counted() -> None:
    many = lines(*({"e": "note", "text": f"note {number}"} for number in range(NOTES + 50)))
    session, _, _ = watch({"a": [[part(("events.jsonl", 0, many + ENDED))]]})
    node = session.model.nodes["a"]
    assert (len(node.notes), node.notes_dropped) == (NOTES, 50)


def test_logs_of_ranks_of_other_nodes_are_ignored() -> None:
    mixed = part(("rank-7.log", 0, b"not mine\n"), ("rank-0.log", 0, b"mine\n"), ("events.jsonl", 0, ENDED))
    session, heard, _ = watch({"a": [[mixed]]})
    assert heard.text == b"mine\n"
    spool = session.folder.spool_dir(session.manifest.nodes[0])
    assert not (spool / "rank-7.log").exists()
    assert any("not its own" in note for note in session.model.nodes["a"].notes)


def test_a_failure_stops_the_rest_once() -> None:
    failed = [part(("events.jsonl", 0, FAILED))]
    _, heard, nodes = watch({"a": [failed], "b": [[]]}, until="stop_asked", failure_wait_s=0.0)
    reasons = [event.fact.reason for event in heard.events if isinstance(event.fact, StopAsked)]
    assert reasons == ["rank 0 on a exited 1"]
    assert len(nodes["a"].stops) == len(nodes["b"].stops) == 1


def test_a_lost_link_stops_nothing() -> None:
    cuts: list[list[Part]] = [[LinkError("cut", where="a")] for _ in range(5)]
    ended = [part(("events.jsonl", 0, ENDED))]
    _, heard, nodes = watch({"a": [*cuts, ended]}, failure_wait_s=0.0)
    assert not nodes["a"].stops
    assert not any(event.kind == "stop_asked" for event in heard.events)


def test_a_log_that_begins_anew_on_its_node_is_a_gap_and_no_end_of_anything() -> None:
    """A cockpit that comes back goes on in the file that is there by then."""

    async def main() -> None:
        log, cut = "rank-0.log", LinkError("cut", where="a")
        first = [part((log, 0, b"one\ntw")), part((log, 0, b"new\n"), begun=[[log, 100]]), cut]
        second = [part((log, 4, b"more\n")), part(begun=[[log, None]], sizes={}), part((log, 0, b"last\n"))]
        node, other = Node(first, second), Node([])
        entries = [NodeEntry(name, f"/none/{name}", [rank]) for rank, name in enumerate("ab")]
        manifest = Manifest("run", 0.0, entries, "command", ["true"], "/", failure_wait_s=0.0)
        folder, heard = RunFolder.create(manifest), Heard()
        session = Session(folder, heard, pool=Fakes({"a": node, "b": other}))
        await session.rejoin()
        session.watch()
        while not heard.text.endswith(b"last\n"):
            await asyncio.wait_for(session.wait(), PATIENCE_S)
        await session.close()
        assert heard.text == b"one\ntwnew\nmore\nlast\n"
        gaps = [event.fact for event in heard.events if isinstance(event.fact, Gap)]
        assert gaps == [Gap(log, 6, 94), Gap(log, 15, None)]
        assert not any(event.kind in ("node_lost", "rank_lost", "stop_asked") for event in heard.events)
        assert (node.stops, other.stops) == ([], [])
        assert (folder.spool_dir(entries[0]) / log).read_bytes() == heard.text

        folder, late = RunFolder(folder.path), Node([part((log, 5, b"late\n"), ("events.jsonl", 0, ENDED))])
        again = Session(folder, heard, pool=Fakes({"a": late, "b": Node([])}))
        await again.rejoin()
        again.watch()
        while not again.model.nodes["a"].done:
            await asyncio.wait_for(again.wait(), PATIENCE_S)
        await again.close()
        assert node.asked + late.asked == [{}, {log: 4}, {log: 5}]
        marks = [Trail(len(data), data, data).mark for data in (b"new\n", b"last\n")]
        assert [each.get(log) for each in node.marks + late.marks] == [None, *marks]
        assert heard.text.endswith(b"last\nlate\n")

    asyncio.run(main())


def test_a_time_index_that_was_thinned_stands_for_what_is_here() -> None:
    """For whoever writes here, and when the cockpit comes back; it is no gap in anything."""
    index = "times.jsonl"
    old, new, more = (b'{"t": %d.0, "s": {"rank-0.log": 1}}\n' % at for at in (1, 22, 333))
    items = [part((index, 0, old * 3)), part((index, 0, new), begun=[[index, 500]], sizes={})]
    items.append(part((index, len(new), more), ("events.jsonl", 0, ENDED)))
    session, heard, _ = watch({"a": [items]})
    assert session.model.ranks[0].text == "exited 0"
    assert (session.folder.spool_dir(session.manifest.nodes[0]) / index).read_bytes() == new + more
    assert not any(isinstance(event.fact, Gap) for event in heard.events)
    assert not session.behind["a"]


def test_a_run_record_that_begins_anew_costs_the_line_that_was_cut_off() -> None:
    cut = ENDED[: ENDED.index(b"\n") // 2]
    items = [part(("events.jsonl", 0, cut)), part(("events.jsonl", 0, ENDED), begun=[["events.jsonl", None]])]
    session, _, _ = watch({"a": [items]})
    assert (session.model.ranks[0].text, session.model.nodes["a"].damaged) == ("exited 0", 1)
    again = session.folder.model()
    assert (again.ranks[0].text, again.nodes["a"].damaged) == ("exited 0", 1)


def test_a_file_that_begins_anew_all_the_time_fills_no_journal() -> None:
    flood = [part(("rank-0.log", 0, b"x\n"), begun=[["rank-0.log", 5]]) for _ in range(1000)]
    session, heard, _ = watch({"a": [flood, [part(("events.jsonl", 0, ENDED))]]})
    assert session.model.ranks[0].text == "exited 0"
    assert sum(isinstance(event.fact, Gap) for event in heard.events) == 64


@pytest.mark.parametrize("kind", ["folder", "shrunk", "unreadable", "os", "bug", "protocol", "format", "x"])
def test_a_node_that_refuses_is_asked_again(kind: str) -> None:
    refusal = RemoteError(kind, "no", where="a")
    session, _, _ = watch({"a": [[refusal], [refusal], [part(("events.jsonl", 0, ENDED))]]})
    assert session.model.exit_code() == 0


def test_after_a_disk_that_failed_it_goes_on_where_the_spool_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        """A disk that fails at the second chunk of output, once."""

        def __init__(self, write: Callable[..., int]) -> None:
            self.write, self.refused = write, 0

        def __call__(self, number: int, data: bytes) -> int:
            if bytes(data) == b"two\n" and not self.refused:
                self.refused += 1
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return self.write(number, data)

    async def main() -> None:
        monkeypatch.setattr(os, "write", failing := Failing(os.write))
        first = [part(("rank-0.log", 0, b"one\n")), part(("rank-0.log", 4, b"two\n"))]
        second = [part(("rank-0.log", 4, b"two\n"), ("events.jsonl", 0, ENDED))]
        node = Node(first, second)
        entries = [NodeEntry("a", "/none/a", [0])]
        folder = RunFolder.create(Manifest("run", 0.0, entries, "command", ["true"], "/"))
        session = Session(folder, Heard(), pool=Fakes({"a": node}))
        await session.rejoin()
        session.watch()

        async def wait() -> None:
            while not session.model.done:
                await session.wait()

        beside = asyncio.Event()

        async def companion() -> None:
            await beside.wait()
            heard.set()

        heard = asyncio.Event()
        session.accompany(companion(), "companion")
        with pytest.raises(CockpitError, match="Input/output error"):
            await asyncio.wait_for(wait(), PATIENCE_S)
        await session.resume()
        beside.set()
        await asyncio.wait_for(heard.wait(), PATIENCE_S)
        await asyncio.wait_for(wait(), PATIENCE_S)
        assert failing.refused == 1
        assert [asked.get("rank-0.log") for asked in node.asked] == [None, 4]
        assert (folder.spool_dir(entries[0]) / "rank-0.log").read_bytes() == b"one\ntwo\n"
        await session.close()

    asyncio.run(main())


class FullDisk:
    """Takes nothing below a folder while it is full, and does not say so before."""

    def __init__(self, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number, self.folder, self.full = number, "", False
        for name in ("write", "fsync"):
            monkeypatch.setattr(os, name, self._refusing(getattr(os, name)))

    def _refusing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def called(number: int, *data: bytes) -> Any:
            if self.full and os.readlink(f"/proc/self/fd/{number}").startswith(self.folder):
                raise OSError(self.number, os.strerror(self.number))
            return real(number, *data)

        return called


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_waited_for(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cockpit.engine.quotas._AGAIN_S", 0.0)
    monkeypatch.setattr(pools, "SLOW_S", 0.01)
    monkeypatch.setattr(sessions, "PAUSED_S", 0.01)
    disk = FullDisk(number, monkeypatch)
    why = os.strerror(number)

    async def main() -> None:
        log, record = "rank-0.log", "events.jsonl"
        all_of_it = part((log, 4, b"two\n"), (record, 0, ENDED))
        node = Node([part((log, 0, b"one\n"))], *[[all_of_it]] * 2)
        entries = [NodeEntry("a", "/none/a", [0])]
        folder = RunFolder.create(Manifest("run", 0.0, entries, "command", ["true"], "/"))
        disk.folder = str(folder.path)
        heard = Heard()
        session = Session(folder, heard, pool=Fakes({"a": node}))
        await session.rejoin()
        session.watch()

        async def until(true: Callable[[], object]) -> None:
            while not true():
                await asyncio.wait_for(session.wait(0.05), PATIENCE_S)

        def said(text: str) -> bool:
            return any(text in event.fact.text for event in heard.events if isinstance(event.fact, Note))

        await until(lambda: heard.text)
        disk.full = True
        session.note("a", Note("while it was full"))
        assert said(f"cannot write the journal: {why}")
        await session.resume()
        await until(lambda: session.model.nodes["a"].link == "gone")
        assert why in session.model.nodes["a"].link_why
        assert not session.model.done
        assert why in str(session.paused["a"])
        (left,) = Ending(session, "a test", Times(), 1.0, hard=False).left()
        assert left.startswith("a: not followed (")
        assert why in left
        disk.full = False
        await until(lambda: session.model.done)
        assert session.model.exit_code() == 0
        assert said("what this cockpit saw meanwhile is saved")
        assert (folder.spool_dir(entries[0]) / log).read_bytes() == b"one\ntwo\n"
        await session.close()
        kept = [event.fact for event in RunFolder(folder.path).journal()]
        assert Note("while it was full") in kept
        assert any(isinstance(fact, LinkChanged) and why in fact.why and fact.here for fact in kept)

    asyncio.run(main())


def test_what_is_kept_running_is_not_stopped() -> None:
    async def main() -> None:
        nodes = {"a": Node([part(("events.jsonl", 0, FAILED))]), "b": Node([])}
        entries = [NodeEntry(name, f"/none/{name}", [rank]) for rank, name in enumerate(nodes)]
        manifest = Manifest("run", 0.0, entries, "command", ["true"], "/", failure_wait_s=60)
        session = Session(RunFolder.create(manifest), Heard(), pool=Fakes(nodes))
        await session.rejoin()
        session.watch()
        while session.stops_at is None:
            await asyncio.wait_for(session.wait(0.05), PATIENCE_S)
        session.keep()
        policy = session._tasks[-1]
        await asyncio.wait_for(policy, PATIENCE_S)
        assert session.stops_at is None
        assert nodes["a"].stops == nodes["b"].stops == []
        await session.close()

    asyncio.run(main())


def test_what_a_dead_supervisor_left_is_told_once() -> None:
    found = [{"t": 1.0, "e": "rank_started", "rank": 0, "pid": 9}]
    dead = [part(alive=False, found=found, sizes={}) for _ in range(5)]
    session, heard, _ = watch({"a": [[*dead, part(("events.jsonl", 0, ENDED))]]})
    kinds = [event.kind for event in heard.events]
    assert (kinds.count("rank_started"), kinds.count("supervisor_gone")) == (1, 1)
    assert session.model.done


def test_a_listener_that_raises_keeps_nothing_from_the_others_and_is_told_once() -> None:
    class Broken(Heard):
        """A listener with a bug."""

        def log(self, node: str, writer: Writer, offset: int, data: bytes) -> None:
            raise ValueError(f"log at {offset}")

        def event(self, event: Event, changed: set[str | int]) -> None:
            raise CockpitError(f"cannot take {event.kind}")

    async def main() -> None:
        chunks = [part(("rank-0.log", at, b"one\n")) for at in range(0, 40, 4)]
        node = Node([*chunks, part(("events.jsonl", 0, ENDED))])
        entries = [NodeEntry("a", "/none/a", [0])]
        folder = RunFolder.create(Manifest("run", 0.0, entries, "command", ["true"], "/"))
        before, after = Heard(), Heard()
        session = Session(folder, before, Broken(), after, pool=Fakes({"a": node}))
        await session.rejoin()
        session.watch()
        while not session.model.done:
            await asyncio.wait_for(session.wait(), PATIENCE_S)
        await session.close()
        for heard in (before, after):
            assert heard.text == b"one\n" * 10
            assert [event.kind for event in heard.events].count("rank_exited") == 1
            links = [event.fact.state for event in heard.events if isinstance(event.fact, LinkChanged)]
            assert links == ["ok"]
        said = [
            note for note in session.model.nodes["a"].notes if note.startswith("Broken: internal error: ")
        ]
        assert len(said) == 2
        assert "CockpitError: cannot take planned (test_session.py:" in said[0]
        assert "ValueError: log at 0 (test_session.py:" in said[1]
        assert said[1].endswith("please report it")

    asyncio.run(main())


def test_a_bug_while_connecting_to_one_node_ends_the_watch_over_no_other() -> None:
    async def main() -> None:
        good = Node([part(("events.jsonl", 0, ENDED.replace(b'"rank": 0', b'"rank": 1')))])
        entries = [NodeEntry(name, f"/none/{name}", [rank]) for rank, name in enumerate("ab")]
        folder = RunFolder.create(Manifest("run", 0.0, entries, "command", ["true"], "/"))
        session = Session(folder, pool=Fakes({"a": RecursionError("too deep"), "b": good}))
        await session.rejoin()
        session.watch()
        while not (session.model.nodes["b"].done and session.model.nodes["a"].link == "gone"):
            await asyncio.wait_for(session.wait(), PATIENCE_S)
        assert session.model.nodes["a"].link_why.startswith("internal error: RecursionError: too deep")
        await session.close()

    asyncio.run(main())
