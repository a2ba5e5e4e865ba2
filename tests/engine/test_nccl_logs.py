"""NCCL's own files in the document of a run: its warnings beside what ranks print, all of it if asked for."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cockpit.base.events import Gap
from cockpit.cli.printer import JsonPrinter, Printer
from cockpit.core.logs.levels import Level, level_of
from cockpit.core.logs.query import Query
from cockpit.core.logs.sources import Nccl, Source, file_of, writer_of
from cockpit.engine.links import pool as pools
from cockpit.engine.logs.book import Logbook
from cockpit.engine.logs.reader import Reader
from cockpit.engine.logs.spooled import SpooledLogs
from cockpit.engine.logs.step_log import pages, speaker
from cockpit.engine.records.folder import RunFolder
from cockpit.transport.base import LinkError
from tests.engine.books import CREATED, Writer, all_after, all_before, by_source, run_folder
from tests.engine.test_session import ENDED, part, watch
from tests.happened import happened

NODES = {"gpu1": [0, 1], "gpu2": [2]}
INFO = b"n:41:77 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB\n"
WARN = b"\nn:41:77 [0] misc/socket.cc:484 NCCL WARN Connect to 10.0.0.2<40813> failed\n"
WARNS = WARN[1:-1]

sources = st.sampled_from(
    [("gpu1", None), ("gpu1", 0), ("gpu1", Nccl(0)), ("gpu1", Nccl(1)), ("gpu2", Nccl(2))]
)
texts = st.sampled_from(
    [INFO, WARN, b"loss 1\n", b"loss: RuntimeError: no\n", b"lo", b"NCCL WARN x\r\n", b"\n"]
)
scripts = st.lists(st.one_of(st.tuples(sources, texts), st.just("tick")), max_size=40)


def write(script: list[tuple[Source, bytes] | str], writer: Writer) -> None:
    """Write what a script says, a flush and a line of the time index at each tick."""
    at = CREATED
    for step in [*script, "tick"]:
        at += 0.2
        if isinstance(step, str):
            writer.tick(at)
            assert writer.book is not None
            writer.book.flush(at)
        else:
            writer.write(*step[0], step[1])


def lines(log: bytes) -> list[bytes]:
    """The complete lines of a log."""
    return [line.removesuffix(b"\r") for line in log.split(b"\n")[:-1]]


def selected(reader: Reader) -> dict[Source, bytes]:
    """The bytes that a query selects, as they came."""
    found: dict[Source, bytes] = {}
    for piece in reader.pieces(0):
        found[piece.source] = found.get(piece.source, b"") + piece.data
    return found


@given(scripts, st.booleans())
@settings(max_examples=150, deadline=None)
def test_what_is_shown_of_it(
    tmp_path_factory: pytest.TempPathFactory, script: list[tuple[Source, bytes] | str], loaded: bool
) -> None:
    folder = run_folder(tmp_path_factory.mktemp("run"), NODES, nccl=True)
    book = Logbook(folder)
    writer = Writer(folder, book)
    write(script, writer)
    if loaded:
        book.close()
        book = Logbook(folder)
        asyncio.run(book.load())
    usual, own = Query(fold=False), Query(nccl=True, fold=False)
    said = {source: lines(log) for source, log in writer.written.items()}
    told = {source: [line for line in log if level_of(line)] for source, log in said.items()}
    meant = {source: told[source] if isinstance(source[1], Nccl) else log for source, log in said.items()}
    rows = all_after(Reader(book, usual))
    assert by_source(rows) == {source: log for source, log in meant.items() if log}
    assert all_before(Reader(book, usual)) == rows
    owned = {source: log for source, log in said.items() if isinstance(source[1], Nccl) and log}
    assert by_source(all_after(Reader(book, own))) == owned
    # The same byte for byte, and of each log its last line.
    assert {source: lines(data) for source, data in selected(Reader(book, usual)).items()} == {
        source: log for source, log in meant.items() if log
    }
    first, begins = Reader(book, usual).tail(1)
    for source, log in meant.items():
        if log and writer.written[source].endswith(b"\n"):
            rest = lines(writer.written[source][begins[source] :])
            assert [line for line in rest if level_of(line) or log is said[source]] == log[-1:]
    assert first <= book.batches
    # What is said is found, and nothing else.
    hit, _ = Reader(book, usual).find((0, -1), Level.ERROR, 1, 9.0)
    assert (hit is not None) is any(level_of(line) is Level.ERROR for log in meant.values() for line in log)
    writer.close()
    book.close()


def test_ranks_and_a_pattern_narrow_it_too(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, NODES, nccl=True)
    book = Logbook(folder)
    writer = Writer(folder, book)
    script: list[tuple[Source, bytes] | str] = [(("gpu1", Nccl(rank)), INFO + WARN) for rank in (0, 1)]
    write([*script, (("gpu1", 0), b"loss 1\n")], writer)

    def shown(query: Query) -> dict[Source, list[bytes]]:
        return by_source(all_after(Reader(book, query)))

    assert shown(Query(frozenset({0}))) == {("gpu1", 0): [b"loss 1"], ("gpu1", Nccl(0)): [WARNS]}
    assert shown(Query(pattern="!WARN")) == {("gpu1", 0): [b"loss 1"]}
    assert shown(Query(frozenset({1}), pattern="net/ib", nccl=True)) == {("gpu1", Nccl(1)): [INFO[:-1]]}
    assert shown(Query(nodes=frozenset({"gpu2"}), nccl=True)) == {}
    (row,) = all_after(Reader(book, Query(pattern="WARN")))
    assert row.sources == (("gpu1", Nccl(0)), ("gpu1", Nccl(1)))
    writer.close()
    book.close()


def test_an_unfinished_line_and_a_gap_are_nothing_to_show_unless_asked_for(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, NODES, nccl=True)
    book = Logbook(folder)
    source: Source = ("gpu1", Nccl(1))
    book.feed(*source, 0, INFO + b"1%\r2%\r")
    book.flush(CREATED)
    assert [row.text for row in book.pending(Query(nccl=True))] == [b"2%"]
    assert book.pending(Query()) == []
    assert list(Reader(book, Query()).unfinished()) == []
    # A rank that is restarted empties it.
    event = happened(CREATED, "gap", "gpu1", {"file": "rank-1.nccl", "at": len(INFO) + 6, "size": None})
    assert isinstance(event.fact, Gap)
    book.gap("gpu1", event.fact)
    book.flush(CREATED + 1)
    assert all_after(Reader(book, Query())) == []
    assert list(Reader(book, Query()).pieces(0)) == []
    assert len(by_source(all_after(Reader(book, Query(nccl=True))))[source]) == 3
    book.close()


def as_symlink(path: Path) -> None:
    path.symlink_to("/etc/passwd")


@pytest.mark.parametrize("put", [os.mkfifo, as_symlink, os.mkdir], ids=["fifo", "symlink", "folder"])
def test_what_is_no_file_says_nothing_and_the_others_do(tmp_path: Path, put: Callable[[Path], None]) -> None:
    folder = run_folder(tmp_path, NODES, nccl=True)
    writer = Writer(folder)
    writer.write("gpu1", 0, b"loss 1\n")
    put(folder.spool_dir(folder.manifest.nodes[0]) / "rank-0.nccl")
    book = Logbook(folder)
    asyncio.run(book.load())
    assert by_source(all_after(Reader(book, Query()))) == {("gpu1", 0): [b"loss 1"]}
    assert list(book.logs.unreadable) == [("gpu1", Nccl(0))]
    writer.close()
    book.close()


def test_it_tells_no_steps_and_names_no_pages(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, NODES, nccl=True)
    writer = Writer(folder)
    writer.write("gpu1", Nccl(0), b"step 1 loss 2.0\nwandb: View run at https://wandb.ai/a/b/runs/c\n")
    logs = SpooledLogs(folder)
    assert (speaker(logs), pages(logs)) == (None, [])
    writer.write("gpu1", 1, b"step 1 loss 2.0\n")
    assert speaker(logs) == ("gpu1", 1)
    writer.close()
    logs.close()


def test_a_session_tells_of_it_as_of_any_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "RETRY_S", (0.001,))
    file = "rank-0.nccl"
    first = [part((file, 0, INFO), ("rank-9.nccl", 0, WARN)), LinkError("cut", where="a")]
    second = [
        part((file, len(INFO), WARN)),
        part((file, 0, WARN), begun=[[file, len(INFO + WARN)]]),
        part(("events.jsonl", 0, ENDED)),
    ]
    session, heard, nodes = watch({"a": [first, second]}, nccl_debug=True)
    assert heard.text == INFO + WARN + WARN
    assert nodes["a"].asked == [{}, {file: len(INFO)}]
    assert [event.fact for event in heard.events if event.kind == "gap"] == [Gap(file, len(INFO + WARN), 0)]
    assert not any("warns" in str(event.fact) for event in heard.events)
    # From the journal and the copies it is the same document.
    book = Logbook(RunFolder(session.folder.path))
    asyncio.run(book.load())
    source = ("a", Nccl(0))
    assert by_source(all_after(Reader(book, Query(fold=False)))) == {source: [WARNS, WARNS]}
    assert len(by_source(all_after(Reader(book, Query(nccl=True))))[source]) == 6
    book.close()


@pytest.mark.parametrize("wanted", [False, True])
def test_what_is_printed_of_it(wanted: bool) -> None:
    """Chunks are cut anywhere, and what they have is harmless."""
    hostile = b"n [0] x.cc:1 NCCL WARN \x1b]0;title\x07\x1b[2J" + b"x" * 20_000 + b"\n"
    log = INFO + WARN + hostile + b"n [0] NCCL WARN cut off"
    printed, objects = io.StringIO(), io.StringIO()
    people = Printer(printed, colour=False, terminal=True, names={0: "gpu1", 1: "gpu1"}, nccl=wanted)
    programs = JsonPrinter(objects, nccl=wanted)
    for each in (people, programs):
        for at in range(0, len(log), 7):
            each.feed("gpu1", Nccl(0), log[at : at + 7], at)
        each.gap(("gpu1", Nccl(0)), Gap("rank-0.nccl", len(log), None), 0.0)
        each.feed("gpu1", Nccl(1), INFO, 0)
        each.feed("gpu1", 1, b"loss 1\n", 0)
        each.close()
    text = printed.getvalue()
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    assert "gpu1:0:nccl   | n:41:77 [0] misc/socket.cc:484 NCCL WARN Connect" in text
    assert text.count("NCCL WARN") == 3
    assert ("NCCL INFO" in text) is wanted
    assert max(map(len, text.splitlines())) < 5000
    told = [json.loads(line) for line in objects.getvalue().splitlines()]
    of = [one for one in told if one["event"] == "log" and one["rank"] == 0]
    assert {one["file"] for one in of} == {"rank-0.nccl"}
    at = len(INFO) + 1
    assert [(one["offset"], one["text"]) for one in of if "Connect" in one["text"]] == [(at, WARNS.decode())]
    assert any("NCCL INFO" in one["text"] for one in of) is wanted
    assert [one["rank"] for one in told if one.get("text") == "loss 1" and "file" not in one] == [1]


def test_several_files_with_the_same_words_are_one_line() -> None:
    printed = io.StringIO()
    out = Printer(printed, colour=False, terminal=False, names={0: "a", 1: "a"})
    for rank in (0, 1):
        out.feed("a", Nccl(rank), WARN)
    out.close()
    assert printed.getvalue() == f"[0-1]:nccl ×2 | {WARNS.decode()}\n"


@pytest.mark.parametrize("file", ["launcher.log", "rank-3.log", "rank-3.nccl"])
def test_names_of_files_and_writers(file: str) -> None:
    assert file_of(writer_of(file)) == file
