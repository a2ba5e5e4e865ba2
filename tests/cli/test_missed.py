"""What ``attach`` prints: first what nobody has seen, merged by time, then what comes; each byte once."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest

from cockpit.base.answers import FollowItem
from cockpit.base.events import Ended, RankExited
from cockpit.cli.live import Live
from cockpit.cli.main import main
from cockpit.cli.merged import Missed
from cockpit.cli.plain import Output, watch
from cockpit.core.run.events import Event
from cockpit.core.run.failure import failure
from cockpit.core.run.model import RunModel
from cockpit.engine import time_slices
from cockpit.engine.logs.spool import Spool
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry, planned
from cockpit.engine.run import arrival
from cockpit.engine.run.foreign import session_of
from cockpit.engine.run.session import Session
from cockpit.errors import CockpitError, Exit
from cockpit.transport.base import LinkError
from tests.engine import test_foreign as foreign
from tests.engine.pools import Fakes
from tests.engine.test_session import Node, Part, Stream, lines, part
from tests.waiting import PATIENCE_S, soon


def folder_of(nodes: Mapping[str, object]) -> RunFolder:
    """The folder of a run of one rank a node."""
    entries = [NodeEntry(name, f"/none/{name}", [rank]) for rank, name in enumerate(nodes)]
    return RunFolder.create(Manifest("run", 0.0, entries, "command", ["true"], "/"))


def attach(folder: RunFolder, nodes: Mapping[str, Any], *, json: bool = False) -> Exit:
    """What ``cockpit attach --plain`` does, on links that are made up."""

    async def attached() -> Exit:
        output = Output(json=json)
        live = Live(folder.manifest, json=output.json, fold=output.fold)
        missed = Missed(folder, live)
        session = session_of(folder, missed, pool=Fakes(nodes))
        await session.rejoin()
        code = await watch(session, live, output, session.pool.roll, missed)
        await session.close()
        return code

    return asyncio.run(asyncio.wait_for(attached(), PATIENCE_S))


def index(rank: int, *ticks: tuple[float, int]) -> bytes:
    """A time index: when a rank's log was how long."""
    file = f"rank-{rank}.log"
    return b"".join(json.dumps({"t": at, "s": {file: size}}).encode() + b"\n" for at, size in ticks)


def ended(rank: int) -> Part:
    """The last words of a node."""
    exited = {"e": "rank_exited", "rank": rank, "code": 0, "signal": None}
    return part(("events.jsonl", 0, lines(exited, {"e": "ended"})))


def logs_of(out: str) -> dict[tuple[str, int | None], list[tuple[int, str]]]:
    """Offset and text of each line, by who wrote it."""
    found: dict[tuple[str, int | None], list[tuple[int, str]]] = defaultdict(list)
    for line in map(json.loads, out.splitlines()):
        if line["event"] == "log":
            found[line["node"], line["rank"]].append((line["offset"], line["text"]))
    return found


def joined(said: list[tuple[int, str]]) -> bytes:
    """The bytes that lines come from, which must follow each other."""
    data = b""
    for offset, text in said:
        assert offset == said[0][0] + len(data)
        data += text.encode() + b"\n"
    return data


def test_what_was_missed_is_merged_by_time_as_logs_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = {}
    for rank, name in enumerate("ab"):
        text = b"".join(b"rank %d step %d\n" % (rank, step) for step in range(3))
        ticks = index(rank, *((10.0 + step + rank / 2, 14 * (step + 1)) for step in range(3)))
        file = f"rank-{rank}.log"
        # It says that it has more: else who reads it may begin to print before that comes.
        first = part((file, 0, text[:30]), sizes={file: len(text), "sizes.jsonl": len(ticks)})
        nodes[name] = Node([first, part((file, 30, text[30:]), ("sizes.jsonl", 0, ticks)), ended(rank)])
    assert attach(folder_of(nodes), nodes) == Exit.OK
    out = capsys.readouterr().out
    told = [line.partition(" | ")[2] for line in out.splitlines()]
    assert told == [f"rank {rank} step {step}" for step in range(3) for rank in range(2)]
    assert main(["logs", "run"]) == 0
    assert capsys.readouterr().out == out


def test_what_was_seen_is_not_printed_again(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = {"a": Node([part(("rank-0.log", 7, b"f\nnew\nen")), ended(0)]), "b": Node([ended(1)])}
    folder = folder_of(nodes)
    for number, file in enumerate(["rank-0.log", "rank-1.log"]):
        spool = Spool(folder.spool_dir(folder.manifest.nodes[number]))
        spool.append(file, 0, b"old\nhal")
        spool.close()
    assert attach(folder, nodes, json=True) == Exit.OK
    assert logs_of(capsys.readouterr().out) == {("a", 0): [(7, "f"), (9, "new"), (13, "en")]}


def test_the_last_event_of_a_run_that_failed_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    folder, model = folder_of({"a": None}), RunModel()
    model.apply(planned(folder.manifest))
    for fact in (RankExited(0, code=1), Ended()):
        model.apply(Event(1.0, "a", fact))
    live = Live(folder.manifest, json=True)
    live.over(model, folder.name, Exit.RANK_FAILED, failure(model, folder.name))
    over = json.loads(capsys.readouterr().out)
    assert (over["event"], over["failed"]["what"]) == ("over", "rank 0 exited 1")


class Slow(Node):
    """It sends one part after the other, while others have their turn."""

    async def stream(self, request: object) -> Stream:
        stream = await super().stream(request)
        stream.parts = self.slowed(stream)  # type: ignore[method-assign]
        return stream

    def slowed(self, stream: Stream) -> Any:
        whole = stream.parts

        async def parts() -> AsyncIterator[tuple[FollowItem, bytes]]:
            async for each in whole():
                await asyncio.sleep(0.001)
                yield each

        return parts


def test_no_byte_is_lost_or_doubled_where_live_lines_begin(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_slices, "_TURN_S", 0.0)
    nodes, written = {}, {}
    for rank, name in enumerate("ab"):
        text = b"".join(b"%d says %d\n" % (rank, number) * (number % 3) for number in range(300))
        cuts = [0, 700, *range(705, len(text), 7 + rank), len(text)]
        chunks = [part((f"rank-{rank}.log", at, text[at:to])) for at, to in pairwise(cuts)]
        nodes[name], written[name, rank] = Slow([*chunks, ended(rank)]), text
    assert attach(folder_of(nodes), nodes, json=True) == Exit.OK
    out = capsys.readouterr().out
    assert {source: joined(said) for source, said in logs_of(out).items()} == written
    assert json.loads(out.splitlines()[-1])["event"] == "over"


class Leaver(Slow):
    """It has more than it sends, and somebody leaves."""

    async def credit(self, size: int) -> None:
        """It sends without."""

    def slowed(self, stream: Stream) -> Any:
        whole = super().slowed(stream)

        async def parts() -> AsyncIterator[tuple[FollowItem, bytes]]:
            async for each in whole():
                yield each
                os.kill(os.getpid(), signal.SIGTERM)

        return parts


def test_who_leaves_before_is_told_where_the_rest_is(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = {"a": Leaver([part(("rank-0.log", 0, b"one\n"), sizes={"rank-0.log": 1000})])}
    assert attach(folder_of(nodes), nodes) == Exit.LEFT
    out, err = capsys.readouterr()
    assert out == ""
    assert "some missed output was not printed; to see all of it: cockpit logs run\n" in err


def test_an_output_that_goes_to_a_full_disk_leaves_the_run_and_names_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = {"a": Node([part(("rank-0.log", 0, b"one\n")), ended(0)])}
    with suppress(OSError), open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(CockpitError, match="stdout: cannot write: No space left on device"):
            attach(folder_of(nodes), nodes)
    err = capsys.readouterr().err
    assert "cockpit attach run" in err
    assert "cockpit: left; " in err


def test_no_node_holds_up_the_others_for_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrival, "SILENT_S", math.inf)
    nodes = {
        "a": Node([part(("rank-0.log", 0, b"one\n")), ended(0)]),
        "refuses": LinkError("refused", where="refuses"),
        "lies": Node([part(("rank-2.log", 0, b"two\n"), sizes={"rank-2.log": 1 << 30})]),
    }
    folder = folder_of(nodes)

    async def attached() -> None:
        live = Live(folder.manifest)
        missed = Missed(folder, live)
        session = Session(folder, missed, pool=Fakes(nodes))
        await session.rejoin()
        watching = asyncio.create_task(watch(session, live, Output(), session.pool.roll, missed))
        await soon(lambda: session.here("a") and session.here("lies"), "what they have sent")
        assert not missed.through()
        monkeypatch.setattr(arrival, "SILENT_S", 0.0)
        await soon(missed.through, "what was missed is printed")
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await session.close()

    asyncio.run(asyncio.wait_for(attached(), PATIENCE_S))
    said = [line.split(" | ")[1] for line in capsys.readouterr().out.splitlines()]
    assert sorted(said) == ["one", "two"]


def test_a_job_that_others_started_is_printed_in_the_same_way(capsys: pytest.CaptureFixture[str]) -> None:
    script = [foreign.part((0, 0, b"one\ntwo\nha")), foreign.part((0, 10, b"lf\n")), foreign.OVER]
    nodes = {"a": foreign.Node([foreign.rank(0, 100)], [foreign.file("own", 0)], script)}
    assert attach(foreign.made(**nodes), nodes) == Exit.OK
    out = capsys.readouterr().out
    assert [line.split()[-1] for line in out.splitlines()] == ["one", "two", "half"]
    assert main(["logs", "job"]) == 0
    assert capsys.readouterr().out == out
