"""When the cockpit that writes goes, another one that is attached goes on exactly where it left, and acts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from cockpit.base import verbs
from cockpit.base.answers import FollowItem, StopAnswer
from cockpit.base.events import Gap, Note, RestKept, StopAsked, Watched
from cockpit.base.gate import read
from cockpit.base.record import EVENTS
from cockpit.core.run.events import Event
from cockpit.engine.links.link import Clock
from cockpit.engine.records import lock
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.engine.run import succession
from cockpit.engine.run.session import Session
from cockpit.errors import CockpitError
from tests.engine.pools import Fakes, MadeUp
from tests.engine.test_session import ENDED, FAILED, Heard
from tests.waiting import PATIENCE_S

LOG = "rank-0.log"


class Files:
    """What is on a node, as far as each cockpit's link to it lets it see."""

    def __init__(self) -> None:
        self.bytes = {LOG: b"", EVENTS: b""}
        self.shortened = 0

    def add(self, file: str, data: bytes) -> None:
        """The node writes."""
        self.bytes[file] += data

    def shorten(self) -> None:
        """Somebody shortens the log, which goes on from its start."""
        self.bytes[LOG] = b""
        self.shortened += 1


class Node(MadeUp):
    """One cockpit's way to a node: sends what is asked for as far as it may.

    :param blind: nothing new is sent
    """

    def __init__(self, files: Files) -> None:
        self.files = files
        self.asked: list[dict[str, int]] = []
        self.stops: list[verbs.Stop] = []
        self.clock = Clock()
        self.blind = False

    async def call(self, request: object, **how: Any) -> StopAnswer:
        assert isinstance(request, verbs.Stop)
        self.stops.append(request)
        return StopAnswer(alive=True)

    async def stream(self, request: object) -> Sending:
        if isinstance(request, verbs.Follow):
            self.asked.append(dict(request.offsets))
            return Sending(self, dict(request.offsets))
        return Sending(self, None)


class Sending:
    """The answer to one request."""

    def __init__(self, node: Node, offsets: dict[str, int] | None) -> None:
        self._node, self._at = node, offsets
        self._shortened = node.files.shortened

    async def parts(self) -> AsyncIterator[tuple[FollowItem, bytes]]:
        while True:
            await asyncio.sleep(0.005)
            if self._at is None or self._node.blind:
                continue
            begun = []
            if self._shortened != self._node.files.shortened:
                self._shortened = self._node.files.shortened
                begun = [[LOG, self._at.pop(LOG, 0)]]
            sent = {file: data[self._at.get(file, 0) :] for file, data in self._node.files.bytes.items()}
            parts = [[file, self._at.get(file, 0), len(data)] for file, data in sent.items()]
            sizes = {file: len(data) for file, data in self._node.files.bytes.items()}
            self._at = dict(sizes)
            item = {"t": 1.0, "parts": parts, "sizes": sizes, "alive": True, "begun": begun}
            yield read(FollowItem, item), b"".join(sent.values())

    async def part(self, within_s: float) -> None:
        """Of its steps it has kept nothing."""

    async def credit(self, size: int) -> None:
        """It sends without."""

    async def close(self) -> None:
        """There is nothing to close."""


class Cockpit:
    """A cockpit that is attached to the run."""

    def __init__(self, folder: RunFolder, files: Files, *, policy: bool = True) -> None:
        self.folder = RunFolder(folder.path)
        self.node = Node(files)
        self.heard = Heard()
        self.policy = policy
        self.session = Session(
            self.folder, self.heard, pool=Fakes({"a": self.node}), writer=self.folder.lock()
        )

    async def attach(self) -> Cockpit:
        """Join the run."""
        await self.session.rejoin()
        self.session.watch(policy=self.policy)
        self.session.stand_by()
        return self

    async def killed(self) -> None:
        """It is gone."""
        await kill(self.session)

    def notes(self) -> list[str]:
        """What it has said."""
        return [event.fact.text for event in self.heard.events if isinstance(event.fact, Note)]

    @property
    def stops(self) -> list[StopAsked]:
        """What it has stopped, and why."""
        return [event.fact for event in self.heard.events if isinstance(event.fact, StopAsked)]


async def kill(session: Session) -> None:
    """A cockpit that writes is gone: what it has not written is lost, and the kernel ends its locks."""
    tasks = [*session._tasks, *session._companions]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    number = session.folder.writer._number
    assert number is not None
    os.close(number)


async def until(true: Callable[[], object]) -> None:
    """Wait until it is so."""

    async def wait() -> None:
        while not true():  # noqa: ASYNC110 (asks)
            await asyncio.sleep(0.005)

    await asyncio.wait_for(wait(), PATIENCE_S)


def has_heard(one: Cockpit, end: bytes) -> bool:
    """Whether a cockpit was told all of a log, if its node sends any."""
    return one.node.blind or one.heard.text.endswith(end)


def run(test: Callable[[RunFolder, Files], Coroutine[Any, Any, None]], **manifest: Any) -> None:
    """A run of one rank on one node."""

    async def main() -> None:
        entries = [NodeEntry("a", "/none/a", [0])]
        folder = RunFolder.create(Manifest("run", 0.0, entries, "command", ["true"], "/", **manifest))
        folder.close()
        await test(folder, Files())

    asyncio.run(main())


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often."""
    monkeypatch.setattr(succession, "LOOK_S", 0.01)
    monkeypatch.setattr(succession, "VACANT_S", 0.03)


def spooled(folder: RunFolder, file: str = LOG) -> bytes:
    """What is kept of a file: nothing before its first byte."""
    path = folder.spool_dir(folder.manifest.nodes[0]) / file
    return path.read_bytes() if path.exists() else b""


@pytest.mark.parametrize("ahead", ["writer", "reader", "nobody"])
def test_the_spool_goes_on_where_it_was_left_and_nothing_is_told_twice(ahead: str) -> None:
    async def test(folder: RunFolder, files: Files) -> None:
        files.add(LOG, b"one\n")
        first = await Cockpit(folder, files).attach()
        await until(lambda: first.heard.text == b"one\n")
        second = await Cockpit(folder, files).attach()
        assert not second.session.writer
        files.add(LOG, b"two\nthr")
        await until(lambda: first.heard.text.endswith(b"thr") and second.heard.text.endswith(b"thr"))
        first.node.blind, second.node.blind = ahead == "reader", ahead == "writer"
        files.add(LOG, b"ee\nfour\n")
        for one in (first, second):
            await until(partial(has_heard, one, b"four\n"))
        await first.killed()
        await until(lambda: second.session.writer and second.heard.text.endswith(b"four\n"))
        second.node.blind = False
        files.add(LOG, b"five\n")
        files.add(EVENTS, ENDED)
        await until(lambda: second.session.model.done)
        assert spooled(folder) == files.bytes[LOG]
        assert spooled(folder, EVENTS) == files.bytes[EVENTS]
        assert second.heard.text == b"two\nthree\nfour\nfive\n", "what was there before it came is not told"
        (said,) = [text for text in second.notes() if "now controls the run" in text]
        assert "has left: this cockpit (pid" in said
        kept = [event.fact.text for event in folder.journal() if isinstance(event.fact, Note)]
        assert said.replace("this cockpit", "another one") in kept, "whoever reads it later is not this one"
        await second.session.close()
        model = RunFolder(folder.path).model()
        assert model.done
        assert model.ranks[0].text == "exited 0"

    run(test)


def test_what_the_former_writer_has_seen_of_a_shortened_log_is_told_where_it_is() -> None:
    async def test(folder: RunFolder, files: Files) -> None:
        first = await Cockpit(folder, files).attach()
        second = await Cockpit(folder, files).attach()
        files.add(LOG, b"one\ntw")
        await until(lambda: first.heard.text == second.heard.text == b"one\ntw")
        second.node.blind = True
        files.add(LOG, b"o\nthr")
        await until(lambda: first.heard.text.endswith(b"thr"))
        files.shorten()
        await until(lambda: first.session.model.nodes["a"].gaps)
        files.add(LOG, b"ten\n")
        await until(lambda: first.heard.text.endswith(b"ten\n"))
        await first.killed()
        await until(lambda: second.session.writer)
        second.node.blind = False
        files.add(LOG, b"eleven\n")
        await until(lambda: second.heard.text.endswith(b"eleven\n"))
        assert second.heard.text == b"one\ntwo\nthrten\neleven\n"
        (gap,) = [at for at, event in enumerate(second.heard.events) if isinstance(event.fact, Gap)]
        assert second.heard.had[gap] == len(b"one\ntwo\nthr")
        await second.session.close()

    run(test)


def test_what_was_told_of_a_log_that_was_shortened_since_is_not_taken_for_what_comes() -> None:
    async def test(folder: RunFolder, files: Files) -> None:
        first = await Cockpit(folder, files).attach()
        second = await Cockpit(folder, files).attach()
        files.add(LOG, b"one\n")
        await until(lambda: first.heard.text == second.heard.text == b"one\n")
        first.node.blind = True
        files.add(LOG, b"two\n")
        await until(lambda: second.heard.text == b"one\ntwo\n")
        second.node.blind = True
        asked = len(second.node.asked)
        await first.killed()
        await until(lambda: second.session.writer and len(second.node.asked) > asked)
        files.shorten()
        files.add(LOG, b"ten\neleven\n")
        second.node.blind = False
        await until(lambda: second.heard.text.endswith(b"eleven\n"))
        assert second.heard.text == b"one\ntwo\nten\neleven\n"
        await second.session.close()

    run(test)


def test_whoever_cannot_take_over_goes_on_to_read_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable() -> Any:
        raise CockpitError("cannot be read: input/output error")

    async def test(folder: RunFolder, files: Files) -> None:
        first = await Cockpit(folder, files).attach()
        second = await Cockpit(folder, files).attach()
        monkeypatch.setattr(second.folder, "journal", unreadable)
        await first.killed()
        await until(lambda: any("input/output error" in text for text in second.notes()))
        files.add(LOG, b"one\n")
        await until(lambda: second.heard.text == b"one\n")
        assert not second.session.writer
        monkeypatch.undo()
        await until(lambda: second.session.writer)
        files.add(LOG, b"two\n")
        await until(lambda: second.heard.text == b"one\ntwo\n")
        await until(lambda: spooled(folder) == b"one\ntwo\n")
        await second.session.close()

    run(test)


def test_whoever_fails_to_take_over_by_a_mistake_of_ours_leaves_it_to_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(folder: RunFolder, files: Files) -> None:
        first = await Cockpit(folder, files).attach()
        second = await Cockpit(folder, files).attach()
        monkeypatch.setattr(second.session.source, "recall", lambda: 1 // 0)
        await first.killed()
        await until(lambda: any("ZeroDivisionError" in text for text in second.notes()))
        assert not second.session.writer
        third = await Cockpit(folder, files).attach()
        assert third.session.writer, "nobody holds the lock"
        files.add(LOG, b"one\n")
        await until(lambda: second.heard.text == b"one\n")
        await until(lambda: spooled(folder) == b"one\n")
        for one in (second, third):
            await one.session.close()

    run(test)


def test_the_stop_of_the_one_that_is_gone_reaches_nodes_that_come_back() -> None:
    async def test(folder: RunFolder, files: Files) -> None:
        first = await Cockpit(folder, files).attach()
        second = await Cockpit(folder, files).attach()
        first.session.pool = Fakes({})  # no link now
        assert await first.session.stop("enough", hard=True)
        assert not first.node.stops
        await first.killed()
        await until(lambda: second.node.stops)
        assert second.session.writer
        assert [(each.reason, each.by, each.hard) for each in second.node.stops] == [
            ("enough", "a person", True)
        ]
        await second.session.close()

    run(test)


def test_what_has_failed_is_stopped_by_the_one_that_takes_over_with_all_the_time_to_decide() -> None:
    async def test(folder: RunFolder, files: Files) -> None:
        first = await Cockpit(folder, files).attach()
        second = await Cockpit(folder, files).attach()
        third = await Cockpit(folder, files).attach()
        files.add(EVENTS, FAILED)
        await until(lambda: first.session.stops_at is not None)
        await until(lambda: second.session.model.failures())
        assert second.session.stops_at is None, "the other one does it"
        await first.killed()
        await until(lambda: second.session.writer or third.session.writer)
        heir, other = (second, third) if second.session.writer else (third, second)
        await until(lambda: heir.session.stops_at is not None)
        first_at, heir_at = first.session.stops_at, heir.session.stops_at
        assert first_at is not None
        assert heir_at is not None
        assert heir_at > first_at
        assert not other.session.writer
        heir.session._failures._wait_s = 0.0
        await until(lambda: heir.stops and heir.node.stops)
        assert heir.stops[0].reason == "rank 0 on a exited 1"
        assert len(heir.node.stops) == 1
        assert not first.node.stops
        for one in (heir, other):
            await one.session.close()

    run(test, failure_wait_s=3600.0)


def test_what_a_person_kept_running_is_kept_by_whoever_takes_over() -> None:
    async def test(folder: RunFolder, files: Files) -> None:
        first = await Cockpit(folder, files).attach()
        files.add(EVENTS, FAILED)
        await until(lambda: first.session.stops_at is not None)
        first.session.keep()
        assert first.session.stops_at is None
        second = await Cockpit(folder, files).attach()
        await first.killed()
        await until(lambda: second.session.writer)
        await until(lambda: second.session._tasks[-1].done())
        assert second.session.stops_at is None
        assert second.session.model.rest_kept
        assert not second.stops
        await second.session.close()

    run(test, failure_wait_s=0.3)


def test_what_the_former_writer_has_decided_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(folder: RunFolder, files: Files) -> None:
        first = await Cockpit(folder, files).attach()
        second = await Cockpit(folder, files).attach()
        second.folder.writer.take = lambda: False  # type: ignore[method-assign]
        at = second.session.model.watch.at
        first.session.record(Event(at + 1, "", Watched("going", still_s=77.0)))
        first.session.record(Event(at + 2, "", RestKept()))
        with (folder.path / "journal.jsonl").open("ab") as journal:
            journal.write(b'{"e": "note", "text": "cut o')
        await first.killed()
        del second.folder.writer.take
        await until(lambda: second.session.writer)
        assert second.session.model.longest.seconds == 77.0
        assert second.session.model.rest_kept
        second.session.record(Event(at + 3, "", Watched("going", still_s=99.0)))
        known = list(second.folder.journal())
        assert second.folder.damaged == 1, "the line that was cut off harms no other"
        assert isinstance(known[-1].fact, Watched)
        await second.session.close()

    run(test)


def test_whoever_acts_begins_once_the_session_writes_and_only_then() -> None:
    async def test(folder: RunFolder, files: Files) -> None:
        acted: list[str] = []

        async def act(who: str) -> None:
            acted.append(who)

        first = await Cockpit(folder, files).attach()
        second = await Cockpit(folder, files).attach()
        for name, one in (("first", first), ("second", second)):
            one.session.act(partial(act, name), "acting")
        await until(lambda: acted)
        assert acted == ["first"]
        await first.session.close()
        await until(lambda: len(acted) == 2)
        assert second.session.writer
        await second.session.close()

    run(test)


@pytest.mark.parametrize("gone", ["killed", "left"])
@pytest.mark.parametrize("why", ["another user", "read only"])
def test_that_nobody_acts_is_said_where_nobody_may(
    monkeypatch: pytest.MonkeyPatch, why: str, gone: str
) -> None:
    async def test(folder: RunFolder, files: Files) -> None:
        first = await Cockpit(folder, files).attach()
        if why == "another user":
            monkeypatch.setattr(lock, "other_owner", lambda folder: "ada")
        second = await Cockpit(folder, files, policy=why != "read only").attach()
        await until(lambda: second.heard.events)
        assert second.session.alone == ""
        if gone == "left":
            await first.session.close()
        else:
            monkeypatch.setattr(lock.Holder, "dead", lambda holder: True)
            await first.killed()
        await until(lambda: second.session.alone)
        assert "no cockpit controls this run" in second.session.alone
        assert ("only ada can" if why == "another user" else "without --read-only") in second.session.alone
        assert second.notes().count(second.session.alone) == 1
        assert not second.session.writer
        monkeypatch.undo()
        monkeypatch.setattr(succession, "LOOK_S", 0.01)
        third = await Cockpit(folder, files).attach()
        assert third.session.writer
        await until(lambda: not second.session.alone)
        await until(lambda: any("now controls this run" in text for text in second.notes()))
        for one in (second, third):
            await one.session.close()

    run(test)


def test_whoever_writes_but_does_not_act_gives_way_to_one_that_does() -> None:
    async def test(folder: RunFolder, files: Files) -> None:
        acted: list[str] = []

        async def act(who: str) -> None:
            acted.append(who)
            try:
                await asyncio.Event().wait()
            finally:
                acted.append(f"{who} ended")

        reads = await Cockpit(folder, files, policy=False).attach()
        assert reads.session.writer
        reads.session.act(partial(act, "reads"), "acting")
        files.add(LOG, b"one\n")
        await until(lambda: reads.heard.text == b"one\n" and acted)
        await until(lambda: "without --read-only" in reads.session.alone)
        acts = await Cockpit(folder, files).attach()
        await until(lambda: acts.session.writer)
        assert not reads.session.writer
        await until(lambda: "reads ended" in acted and not reads.session.alone)
        files.add(LOG, b"two\n")
        await until(lambda: reads.heard.text == b"one\ntwo\n" and acts.heard.text == b"two\n")
        assert spooled(folder) == files.bytes[LOG]
        await acts.session.close()
        await until(lambda: reads.session.alone)
        await reads.session.close()

    run(test)


@pytest.mark.parametrize("policy", [True, False])
def test_of_a_run_that_is_over_nobody_keeps_anything_and_nothing_is_said(policy: bool) -> None:
    async def test(folder: RunFolder, files: Files) -> None:
        first = await Cockpit(folder, files).attach()
        second = await Cockpit(folder, files, policy=policy).attach()
        files.add(EVENTS, ENDED)
        await until(lambda: first.session.model.done and second.session.model.done)
        before = len(second.heard.events)
        await first.session.close()
        (minds,) = second.session._companions
        await until(lambda: minds.done() or len(second.heard.events) > before)
        assert second.notes() == []
        assert not second.session.writer
        assert second.session.alone == ""
        await second.session.close()

    run(test)


def test_whoever_leaves_knows_whether_another_one_takes_over() -> None:
    async def test(folder: RunFolder, files: Files) -> None:
        first = await Cockpit(folder, files).attach()
        assert not first.folder.writer.succeeded()
        second = await Cockpit(folder, files).attach()
        await until(lambda: first.folder.writer.succeeded())
        await first.session.close()
        await until(lambda: second.session.writer)
        assert first.folder.writer.succeeded(), "it has taken over"
        assert not second.folder.writer.succeeded(), "nobody else is there"
        await second.session.close()
        assert not second.folder.writer.succeeded()

    run(test)
