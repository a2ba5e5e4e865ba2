"""What is bounded here: descriptors, bytes and files of a node, free space, a line without an end."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from cockpit.base.events import Note
from cockpit.base.record import EVENTS, INDEX, TIMES
from cockpit.config import Quotas
from cockpit.core.run.events import Event
from cockpit.engine.files import lines
from cockpit.engine.links import pool as pools
from cockpit.engine.logs import spool as spools
from cockpit.engine.logs.spool import OPEN_FILES, Shelf, Spool, SpoolUnusable
from cockpit.engine.quotas import QuotaReached
from cockpit.engine.records.folder import RunFolder, list_runs
from cockpit.engine.records.journal import READ
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.engine.run.session import Session
from tests.engine.books import run_folder
from tests.engine.pools import Fakes
from tests.engine.test_session import ENDED, Heard, Node, Part, part
from tests.waiting import PATIENCE_S

MANY_LOGS = """
import asyncio, os, resource, sys
from pathlib import Path
from cockpit.config import Quotas
from cockpit.engine.logs.book import Logbook
from cockpit.core.logs.query import Query
from cockpit.engine.logs.reader import Reader
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.logs.spool import Shelf, Spool

assert resource.getrlimit(resource.RLIMIT_NOFILE) == (256, 256)
folder = RunFolder(Path(sys.argv[1]))
shelf = Shelf(folder.path, Quotas())
spools = [Spool(folder.spool_dir(node), shelf) for node in folder.manifest.nodes]
sent = {}
for turn in range(3):
    for node, spool in zip(folder.manifest.nodes, spools):
        for rank in node.ranks:
            data = b"turn %d of rank %d\\n" % (turn, rank)
            spool.append("rank-%d.log" % rank, len(sent.get(rank, b"")), data)
            sent[rank] = sent.get(rank, b"") + data
most = len(os.listdir("/proc/self/fd"))
for node in folder.manifest.nodes:
    for rank in node.ranks:
        assert (folder.spool_dir(node) / ("rank-%d.log" % rank)).read_bytes() == sent[rank]
book = Logbook(folder)
asyncio.run(book.load())
assert book.lines == 3 * len(sent)
page = Reader(book, Query()).before(None, 3 * len(sent), 60)
said = {}
for row in page.rows:
    for (_, rank), text in row.said:
        said[rank] = said.get(rank, b"") + text + b"\\n"
assert said == sent
most = max(most, len(os.listdir("/proc/self/fd")))
told = {}
for piece in Reader(book, Query()).pieces(0):
    rank = piece.source[1]
    told[rank] = told.get(rank, b"") + piece.data
assert told == sent
print(len(sent), most)
"""


def limit(files: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))


@pytest.mark.slow
def test_2048_logs_under_256_files(tmp_path: Path) -> None:
    nodes = {f"gpu{node:03d}": list(range(8 * node, 8 * node + 8)) for node in range(256)}
    run_folder(tmp_path / "run", nodes)
    done = subprocess.run(
        [sys.executable, "-c", MANY_LOGS, str(tmp_path / "run")],
        preexec_fn=lambda: limit(256),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    logs, most = map(int, done.stdout.split())
    assert logs == 2048
    assert most < 150


def test_a_file_that_grew_otherwise_is_not_written_to(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, Quotas())
    spool = Spool(tmp_path / "spool" / "node", shelf)
    for rank in range(OPEN_FILES + 1):
        spool.append(f"rank-{rank}.log", 0, b"abc")
    assert len(shelf.files) == OPEN_FILES
    with (tmp_path / "spool" / "node" / "rank-0.log").open("ab") as file:
        file.write(b"x")
    with pytest.raises(SpoolUnusable, match="changed by another program: it has 4 bytes, not 3"):
        spool.append("rank-0.log", 3, b"def")
    assert spool.append("rank-1.log", 3, b"def") == b"def"


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink(path, path)])
def test_what_is_no_file_is_that_logs_trouble(tmp_path: Path, make: object) -> None:
    spool = Spool(tmp_path / "spool" / "node")
    (tmp_path / "spool" / "node").mkdir(parents=True)
    make(tmp_path / "spool" / "node" / "rank-0.log")  # type: ignore[operator]
    with pytest.raises(SpoolUnusable, match=r"cannot write the spool: .*; move it away"):
        spool.append("rank-0.log", 0, b"abc")
    assert spool.append("rank-1.log", 0, b"abc") == b"abc"


def test_a_quota_takes_nothing_half_and_spares_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quotas = Quotas(spool_bytes=10, spool_files=3, record_bytes=20)
    spool = Spool(tmp_path / "run" / "spool" / "node", Shelf(tmp_path, quotas))
    spool.append("rank-0.log", 0, b"12345678")
    with pytest.raises(
        QuotaReached, match=r"quota of 10 B per node reached; raise spool_bytes in \[quotas\]"
    ):
        spool.append("rank-0.log", 8, b"123")
    assert (tmp_path / "run" / "spool" / "node" / "rank-0.log").read_bytes() == b"12345678"
    spool.append("rank-0.log", 8, b"12")
    spool.append(EVENTS, 0, b"0123456789")
    monkeypatch.setitem(spools._INDEX_BYTES, TIMES, 20)
    spool.append(TIMES, 0, b"0123456789" * 2)
    with pytest.raises(QuotaReached, match="time index"):
        spool.append(TIMES, 20, b"x")
    spool.append(EVENTS, 10, b"0123456789")
    with pytest.raises(QuotaReached, match="record_bytes"):
        spool.append(EVENTS, 20, b"x")
    with pytest.raises(QuotaReached, match=r"quota of 3 per node .* spool_files .* cockpit attach run"):
        spool.append("rank-1.log", 0, b"1")


def test_the_default_holds_a_day_of_a_chatty_node() -> None:
    a_second = 64 // 8 * 1000 * 100
    assert Quotas().spool_bytes > 8 * 3600 * a_second


def follow(scripts: list[list[Part]], quotas: Quotas) -> tuple[Session, Heard, Node]:
    """Follow a run on one node until it is over; called again, the same run."""

    async def main() -> tuple[Session, Heard, Node]:
        node = Node(*scripts)
        entries = [NodeEntry("a", "/none/a", [0])]
        known = list_runs()
        manifest = Manifest("run", 0.0, entries, "command", ["true"], "/")
        folder = known[0] if known else RunFolder.create(manifest)
        heard = Heard()
        session = Session(folder, heard, pool=Fakes({"a": node}), quotas=quotas)
        await session.rejoin()
        session.watch()

        async def wait() -> None:
            while not (session.model.over and node.asked):
                await session.wait(0.1)

        await asyncio.wait_for(wait(), PATIENCE_S)
        await session.close()
        return session, heard, node

    return asyncio.run(main())


def test_logs_pause_at_the_quota_and_go_on_there_with_a_higher_one() -> None:
    log = b"0123456789\n" * 10
    first = [
        part(("rank-0.log", 0, log[:66]), sizes={"rank-0.log": len(log)}),
        part(("rank-0.log", 66, log[66:]), ("events.jsonl", 0, ENDED)),
    ]
    session, heard, _ = follow([first], Quotas(spool_bytes=100))
    assert heard.text == log[:66]
    assert "raise spool_bytes" in str(session.paused["a"])
    assert [str(note) for note in session.model.nodes["a"].notes if "log transfer paused" in note]
    assert session.model.over
    assert not session.model.done
    rest = [part(("rank-0.log", 66, log[66:]), sizes={"rank-0.log": len(log), "events.jsonl": len(ENDED)})]
    again, heard, node = follow([rest], Quotas())
    assert node.asked[0]["rank-0.log"] == 66
    assert not again.paused


def test_a_record_without_end_is_its_nodes_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "SLOW_S", 0.001)
    bomb = [part(("events.jsonl", 0, b"x" * 1000))]
    good = [part(("events.jsonl", 0, ENDED))]
    session, heard, _ = follow([bomb, good], Quotas(record_bytes=900))
    assert any("record_bytes" in str(event.fact) for event in heard.events)
    assert session.model.ranks[0].text == "exited 0"


@pytest.mark.parametrize("name", INDEX)
def test_a_time_index_without_end_keeps_no_event_back(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor the end of the run: what does not fit of the index stays there, and is waited for by nobody."""
    log, index = b"0123456789\n", b'{"t": 1.0, "s": {}}\n' * 100
    sizes = {"rank-0.log": len(log), name: len(index) + 1000, "events.jsonl": len(ENDED)}
    monkeypatch.setitem(spools._INDEX_BYTES, name, 900)
    script = [
        part((name, 0, index), ("rank-0.log", 0, log)),
        part((name, len(index), b"x" * 1000), ("events.jsonl", 0, ENDED), sizes=sizes),
    ]
    session, heard, _ = follow([script], Quotas())
    assert heard.text == log
    assert session.model.over
    assert not session.behind["a"]
    assert not session.paused


@pytest.mark.parametrize("holes", [0, 3 << 30])
def test_of_a_large_journal_the_beginning_and_the_end_are_read(holes: int) -> None:
    entries = [NodeEntry("a", "/none/a", [0])]
    folder = RunFolder.create(Manifest("run", 0.0, entries, "command", ["true"], "/"))
    journal = folder.path / "journal.jsonl"
    folder.write(Event(1.0, "", Note("the first")))
    filler = json.dumps(Event(2.0, "", Note("x" * 200)).as_json()).encode() + b"\n"
    with journal.open("ab") as file:
        if holes:
            file.seek(holes)
        else:
            file.write(filler * (2 * READ // len(filler)))
        file.write(b"\n" + json.dumps(Event(3.0, "", Note("the last")).as_json()).encode() + b"\n")
    said = [event.fact.text for event in folder.journal() if isinstance(event.fact, Note)]
    assert (said[0], said[-1]) == ("the first", "the last")
    assert folder.damaged
    assert sum(map(len, said)) < READ


def test_all_lines_that_fit_are_read(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b"%06d\n" % number for number in range(100_000)))
    assert len(list(lines(path))) == 100_000
    found = list(lines(path, 256 << 10))
    first = next(place for place, line in enumerate(found) if not line)
    assert found[:first] == [b"%06d" % number for number in range(first)]
    rest = found[first + 1 :]
    assert rest == [b"%06d" % number for number in range(100_000 - len(rest), 100_000)]
    assert 255 << 10 <= 7 * len(found) <= 257 << 10


BOMB = """
import resource, sys, time
resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))
import io
from cockpit.cli.printer import JsonPrinter, Printer
from cockpit.core.logs.causes import cause
from cockpit.core.run.events import RecordReader
from cockpit.core.logs.metrics import Metrics
from cockpit.core.logs.batches import Collector

class Null(io.TextIOBase):
    def write(self, text):
        return len(text)

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
size, chunk = 256 << 20, bytes([int(sys.argv[1])]) * (256 << 10)
people, programs = Printer(Null(), colour=False, terminal=True), JsonPrinter(Null())
metrics, collector, record = Metrics(), Collector(), RecordReader("node", [0])
for at in range(0, size, len(chunk)):
    people.feed("node", 0, chunk)
    if at % (1 << 21) == 0:  # slow: an eighth of it
        programs.feed("node", 0, chunk, at)
    metrics.feed(0, chunk, 0.0)
    collector.feed(0, at, chunk)
    if at % (1 << 24) == 0:
        people.tick(at / 1e6)
        programs.tick(0)
        collector.seal(at)
    record.feed(chunk)
list(collector.unfinished())
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) >> 10)
"""


@pytest.mark.slow
@pytest.mark.parametrize("byte", [b"x", b"\r"])
def test_a_line_without_end(byte: bytes) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BOMB, str(byte[0])], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) <= 64, f"{done.stdout} MiB"
