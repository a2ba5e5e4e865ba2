"""A logbook takes in every line once, whether it was here before or comes now."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cockpit.base.record import SIZES
from cockpit.core.logs.excerpt import excerpt
from cockpit.core.logs.levels import Level
from cockpit.core.logs.query import Query
from cockpit.engine import time_slices
from cockpit.engine.logs import book as logbook
from cockpit.engine.logs.book import Logbook, Source
from cockpit.engine.logs.reader import Reader
from cockpit.engine.logs.spooled import OPEN_FILES
from tests.engine.books import CREATED, Writer, all_after, by_source, run_folder
from tests.happened import happened

NODES = {"gpu1": [0, 1], "gpu2": [2, 3]}

sources = st.sampled_from([("gpu1", None), ("gpu1", 0), ("gpu1", 1), ("gpu2", 2), ("gpu2", 3)])
texts = st.sampled_from(
    [
        *(b"a\n", b"b\n", b"\n", b"lo", b"ss\n", b"1%\r", b"2%\r\n", b"x" * 300 + b"\n"),
        *(b"Traceback (most recent call last):\n", b'  File "x.py", line 1\n', b"ValueError: no\n"),
    ]
)
scripts = st.lists(st.one_of(st.tuples(sources, texts), st.just("tick")), max_size=40)


def shown(log: bytes) -> list[bytes]:
    """The complete lines of a log as they are shown."""
    return [excerpt(line)[0] for line in log.split(b"\n")[:-1]]


def said(written: dict[Source, bytes]) -> dict[Source, list[bytes]]:
    return {source: shown(log) for source, log in written.items() if b"\n" in log}


def play(script: list[tuple[Source, bytes] | str], writer: Writer, at: float = CREATED) -> None:
    """Write what a script says, a flush and a line of the time index at each tick."""
    for step in [*script, "tick"]:
        at += 0.2
        if isinstance(step, str):
            writer.tick(at)
            if writer.book is not None:
                writer.book.flush(at)
        else:
            writer.write(*step[0], step[1])


@pytest.mark.slow
@given(scripts)
@settings(max_examples=100, deadline=None)
def test_fed_and_loaded_a_log_has_the_same_lines(script: list[tuple[Source, bytes] | str]) -> None:
    with tempfile.TemporaryDirectory() as path:
        folder = run_folder(Path(path) / "run", NODES)
        live = Logbook(folder)
        writer = Writer(folder, live)
        play(script, writer)
        loaded = Logbook(folder)
        asyncio.run(loaded.load())
        for book in (live, loaded):
            assert by_source(all_after(Reader(book, Query()))) == said(writer.written)
            assert book.lines == sum(log.count(b"\n") for log in writer.written.values())
            assert book.index.size_bytes == sum(log.rfind(b"\n") + 1 for log in writer.written.values())
            book.close()
        writer.close()


@given(scripts, scripts, scripts, st.booleans())
@settings(max_examples=60, deadline=None)
def test_what_is_fed_before_and_while_it_loads_comes_once_and_after(
    old: list[tuple[Source, bytes] | str],
    meanwhile: list[tuple[Source, bytes] | str],
    later: list[tuple[Source, bytes] | str],
    early: bool,
) -> None:
    with tempfile.TemporaryDirectory() as path:
        folder = run_folder(Path(path) / "run", NODES)
        writer = Writer(folder)
        play(old, writer)
        book = writer.book = Logbook(folder)
        if early:
            play(meanwhile, writer)

        async def load() -> None:
            told = 0

            def progress(part: float) -> None:
                nonlocal told
                assert 0.0 <= part <= 1.0
                told += 1
                if told == 2 and not early:
                    play(meanwhile, writer)

            await book.load(progress)

        turn_s, time_slices._TURN_S = time_slices._TURN_S, 0.0
        try:
            asyncio.run(load())
        finally:
            time_slices._TURN_S = turn_s
        play(later, writer)
        assert by_source(all_after(Reader(book, Query()))) == said(writer.written)
        book.close()
        writer.close()


def test_history_is_merged_by_the_clocks_of_the_nodes(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", NODES)
    folder.write(happened(CREATED, "clock", "gpu2", {"offset_s": 5.0, "rtt_s": 0.1}))
    writer = Writer(folder)
    writer.write("gpu1", 0, b"first\n")
    writer.tick(CREATED + 1)
    writer.write("gpu1", 0, b"third\n")
    writer.tick(CREATED + 3)
    writer.write("gpu2", 2, b"second\n")
    writer.tick(CREATED + 7)
    writer.write("gpu2", 3, b"after the index\n")
    with (folder.spool_dir(folder.manifest.nodes[1]) / SIZES).open("a") as index:
        index.write('{"t": "damaged\n')
    book = Logbook(folder)
    asyncio.run(book.load())
    rows = all_after(Reader(book, Query()))
    assert [(row.text, row.at - CREATED) for row in rows] == [
        (b"first", 1.0),
        (b"second", 2.0),
        (b"third", 3.0),
        (b"after the index", 3.0),
    ]
    book.close()
    writer.close()
    folder.close()


def test_an_index_that_promises_too_much_or_other_files_does_no_harm(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", NODES)
    writer = Writer(folder)
    writer.write("gpu1", 0, b"a\nb\n")
    sizes = {"rank-0.log": 10**12, "rank-9999.log": 5, "../../etc/passwd": 100, "supervisor.log": 3}
    (folder.spool_dir(folder.manifest.nodes[0]) / SIZES).write_text(json.dumps({"t": 1.0, "s": sizes}) + "\n")
    book = Logbook(folder)
    asyncio.run(book.load())
    assert by_source(all_after(Reader(book, Query()))) == {("gpu1", 0): [b"a", b"b"]}
    book.close()
    writer.close()


def test_loading_gives_others_their_turn_and_tells_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_slices, "_TURN_S", 0.0)
    monkeypatch.setattr(logbook, "_STEP", 100)
    folder = run_folder(tmp_path / "run", NODES)
    writer = Writer(folder)
    writer.write("gpu1", 0, b"0123456789\n" * 100)
    book = Logbook(folder)
    told: list[float] = []
    rounds = 0

    async def others() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    async def load() -> None:
        task = asyncio.create_task(others())
        await book.load(told.append)
        task.cancel()

    asyncio.run(load())
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert len(told) > 10
    assert rounds > 10
    book.close()
    writer.close()


def test_flush_says_whether_there_is_anything_new(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", NODES)
    book = Logbook(folder)
    writer = Writer(folder, book)
    assert not book.flush(1.0)
    writer.write("gpu1", 0, b"a\n")
    assert book.flush(2.0)
    assert not book.flush(3.0)
    writer.write("gpu1", 0, b"\r 10%")
    assert book.flush(4.0)
    assert not book.flush(5.0)
    book.close()
    writer.close()


def test_progress_bars_and_prompts_are_pending_and_equal_ones_fold(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", NODES)
    book = Logbook(folder)
    writer = Writer(folder, book)
    writer.write("gpu1", None, b"starting\n(yes/no)? ")
    for rank in (0, 1):
        writer.write("gpu1", rank, b"old\r 50%")
    writer.write("gpu2", 2, b"old\r 51%\r")
    writer.write("gpu2", 3, b"Error: x\n")
    book.flush(10.0)
    book.flush(11.0)
    rows = book.pending(Query())
    assert [(row.text, row.sources, row.at) for row in rows] == [
        (b"(yes/no)? ", (("gpu1", None),), 10.0),
        (b" 50%", (("gpu1", 0), ("gpu1", 1)), 10.0),
        (b" 51%", (("gpu2", 2),), 10.0),
    ]
    assert [(row.batch, row.index, row.size, row.level, row.first) for row in rows] == [
        (1, 0, 10, Level.PLAIN, True),
        (1, 1, 4, Level.PLAIN, True),
        (1, 2, 4, Level.PLAIN, True),
    ]
    assert [row.text for row in book.pending(Query(frozenset([1, 3])))] == [b" 50%"]
    for rank in (0, 1):
        writer.write("gpu1", rank, b"\r 51%%|## | 51/99 [00:12<00:11, 1.%dit/s]" % rank)
    book.flush(12.0)
    [bars] = [row for row in book.pending(Query()) if len(row.sources) > 1]
    assert bars.text == b" 51%|## | 51/99 [00:12<00:11, 1.0\xe2\x80\x931.1it/s]"
    assert dict(bars.said)["gpu1", 1] == b" 51%|## | 51/99 [00:12<00:11, 1.1it/s]"
    book.close()
    writer.close()


def test_bytes_that_the_spool_lacks_are_said_and_shown_once_they_are_there(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", NODES)
    book = Logbook(folder)
    log = b"one\ntwo\nthree\n"
    book.feed("gpu1", 0, 0, log)  # by a link of ours; another cockpit writes the spool
    book.flush(1.0)
    reader = Reader(book, Query())
    assert [row.text for row in all_after(reader)] == [b"(not here yet)"] * 3
    writer = Writer(folder)
    writer.write("gpu1", 0, log[:9])
    assert [row.text for row in all_after(reader)] == [b"one", b"two", b"(not here yet)"]
    writer.write("gpu1", 0, log[9:])
    assert [row.text for row in all_after(reader)] == [b"one", b"two", b"three"]
    book.close()
    writer.close()


def test_what_is_fed_while_loading_is_not_lost_if_only_the_node_has_it(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", NODES)
    writer = Writer(folder)
    writer.write("gpu1", 0, b"old\n")
    book = Logbook(folder)
    book.feed("gpu1", 0, 4, b"new\nli")
    book.feed("gpu1", 0, 10, b"nes\n")
    assert not book.flush(1.0)
    asyncio.run(book.load())
    assert book.flush(2.0)
    writer.write("gpu1", 0, b"new\nlines\n")
    assert [row.text for row in all_after(Reader(book, Query()))] == [b"old", b"new", b"lines"]
    book.close()
    writer.close()


def test_more_logs_than_may_be_open(tmp_path: Path) -> None:
    ranks = range(300)
    folder = run_folder(tmp_path / "run", {"gpu1": list(ranks)})
    written: dict[Source, bytes] = defaultdict(bytes)
    spool = folder.spool_dir(folder.manifest.nodes[0])
    spool.mkdir(parents=True)
    for rank in ranks:
        written["gpu1", rank] = b"rank %d\nall\n" % rank
        (spool / f"rank-{rank}.log").write_bytes(written["gpu1", rank])
    before = len(os.listdir("/proc/self/fd"))
    book = Logbook(folder)
    asyncio.run(book.load())
    for _ in range(2):
        assert by_source(all_after(Reader(book, Query()))) == said(written)
    # The index has four.
    assert len(os.listdir("/proc/self/fd")) - before <= OPEN_FILES + 4
    book.close()


def test_what_another_cockpit_does_not_write_is_shown_all_the_same(tmp_path: Path) -> None:
    """As when the one that keeps the spool was suspended."""
    folder = run_folder(tmp_path / "run", NODES)
    book = Logbook(folder)
    logs, number = book.logs, book.logs.number(("gpu1", 0))
    text = b"one\ntwo\nthree\n"
    for at in range(0, len(text), 5):
        logs.keep(number, at, text[at : at + 5])
        book.feed("gpu1", 0, at, text[at : at + 5])
    book.flush(1.0)
    reader = Reader(book, Query())
    assert [row.text for row in all_after(reader)] == [b"one", b"two", b"three"]
    assert (logs.size(number), logs.lacks()) == (len(text), True)
    writer = Writer(folder)
    writer.write("gpu1", 0, text[:9])
    assert [row.text for row in all_after(reader)] == [b"one", b"two", b"three"]
    assert logs.lacks()
    writer.write("gpu1", 0, text[9:])
    assert not logs.lacks()
    assert logs.recent.size == 0
    assert [row.text for row in all_after(reader)] == [b"one", b"two", b"three"]
    book.close()
    writer.close()
