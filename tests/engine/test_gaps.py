"""Logs that began anew on their node: no line is made of two, and what is missing is told in its place."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.base.events import Gap
from cockpit.base.record import SIZES, rank_log
from cockpit.cli.live import Live
from cockpit.cli.merged import Show
from cockpit.core.logs.query import Query
from cockpit.core.run.event_table import missing
from cockpit.core.run.events import Event
from cockpit.engine.logs.book import Logbook
from cockpit.engine.logs.reader import Reader
from cockpit.engine.logs.spooled import Placed
from cockpit.engine.logs.step_log import written
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.engine.run.board import Board
from cockpit.engine.run.session import Session
from tests.engine.books import CREATED, Writer, all_after, all_before, by_source, run_folder
from tests.engine.pools import Fakes
from tests.engine.test_session import ENDED, Node, part
from tests.waiting import PATIENCE_S

RANK = ("gpu1", 0)
LOG = rank_log(0)


class Log:
    """Rank 0's log as it arrives: lines, gaps, and the node's time index of it."""

    def __init__(self, path: Path) -> None:
        self.folder = run_folder(path, {"gpu1": [0, 1]})
        self.folder.lock()
        self.live = Logbook(self.folder)
        self.writer = Writer(self.folder, self.live)
        self.at, self.there = CREATED, 0
        self.gaps: list[Gap] = []

    def tick(self, data: bytes, cut: int | None = None) -> None:
        """A second later, with these bytes; before them so many were lost."""
        self.at += 1
        if cut is not None:
            gap = Gap(LOG, len(self.writer.written[RANK]), cut)
            self.gaps.append(gap)
            self.folder.write(Event(self.at, "gpu1", gap))
            self.live.gap("gpu1", gap)
            self.there = 0
        self.writer.write(*RANK, data)
        self.there += len(data)
        path = self.folder.spool_dir(self.folder.manifest.nodes[0]) / SIZES
        with path.open("a") as file:
            file.write(json.dumps({"t": self.at, "s": {LOG: self.there}}) + "\n")
        self.live.flush(self.at)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """One that was cut in a line, and again."""
    made = Log(tmp_path / "run")
    made.tick(b"one\ntw")
    made.tick(b"new\n", cut=100)
    made.tick(b"more\n")
    made.tick(b"", cut=0)
    made.tick(b"last\nhalf")
    yield made
    made.live.close()
    made.writer.close()


def loaded(folder: RunFolder) -> Logbook:
    book = Logbook(folder)
    asyncio.run(book.load())
    return book


def test_fed_and_loaded_it_is_told_where_it_is(log: Log) -> None:
    again = loaded(log.folder)
    first, second = (missing(gap).encode() for gap in log.gaps)
    want = [b"one", b"tw", first, b"new", b"more", second, b"last"]
    for book in (log.live, again):
        reader = Reader(book, Query(frozenset([0])))
        assert by_source(all_after(reader)) == {RANK: want}
        assert by_source(all_before(Reader(book, Query()))) == {RANK: want}
        texts = [row.text for row in all_after(Reader(book, Query(pattern="new|tw|half")))]
        assert texts == [b"tw", b"new"]
        pieces = [(piece.offset, piece.data, piece.gap) for piece in reader.pieces(0)]
        assert b"".join(data for _, data, _ in pieces) == b"one\ntwnew\nmore\nlast\n"
        assert [(offset, gap) for offset, _, gap in pieces if gap] == [(gap.at, gap) for gap in log.gaps]
    again.close()


def test_lines_have_the_times_that_they_were_there(log: Log) -> None:
    book = loaded(log.folder)
    rows = {row.text: row.at for row in all_after(Reader(book, Query()))}
    assert [rows[text] - CREATED for text in (b"one", b"tw", b"new", b"more", b"last")] == [1, 1, 2, 3, 5]
    book.close()


@pytest.mark.parametrize(("tail", "begin"), [(1, 20), (2, 15), (3, 15), (4, 10), (100, None)])
def test_what_is_missing_is_one_of_the_last_lines(log: Log, tail: int, begin: int | None) -> None:
    assert Reader(log.live, Query()).tail(tail)[1].get(RANK) == begin


@pytest.mark.parametrize("json_lines", [False, True])
def test_it_is_printed_with_its_place(log: Log, capsys: pytest.CaptureFixture[str], json_lines: bool) -> None:
    live = Live(log.folder.manifest, json=json_lines, fold=False)
    show = Show(log.live, Query(), live)

    async def main() -> None:
        await show.batches()
        await show.unfinished()

    asyncio.run(main())
    live.close()
    out = capsys.readouterr().out
    if not json_lines:
        first, second = map(missing, log.gaps)
        want = ["one", "tw", first, "new", "more", second, "last", "half"]
        assert [line.partition(" | ")[2] for line in out.splitlines()] == want
        return
    told = [json.loads(line) for line in out.splitlines()]
    assert [(one["event"], one.get("text"), one.get("offset", one.get("at"))) for one in told] == [
        ("log", "one", 0),
        ("log", "tw", 4),
        ("gap", None, 6),
        ("log", "new", 6),
        ("log", "more", 10),
        ("gap", None, 15),
        ("log", "last", 15),
        ("log", "half", 20),
    ]


def test_a_gap_that_comes_while_it_loads_is_told_once(log: Log) -> None:
    book = Logbook(log.folder)

    async def main() -> None:
        load = asyncio.create_task(book.load())
        await asyncio.sleep(0)
        before = len(log.writer.written[RANK])
        gap = Gap(LOG, before, 5)
        book.gap("gpu1", log.gaps[-1])  # it is in the journal too
        book.gap("gpu1", gap)
        log.writer.write(*RANK, b"end\n")
        book.feed(*RANK, before, b"end\n")
        await load
        book.flush(CREATED + 9)

    asyncio.run(main())
    texts = [row.text for row in all_after(Reader(book, Query()))]
    assert texts[-3:] == [b"half", missing(Gap(LOG, 24, 5)).encode(), b"end"]
    assert len(texts) == 10
    book.close()


def test_of_what_nobody_saw_in_between_the_last_counts() -> None:
    """Cut twice while nobody watched; then cut, and grown again, between two looks of its supervisor."""
    placed = Placed({LOG: [(50.0, 100), (90.0, 130)]})
    steps = [(10, 80, 80), (11, 100, 100), (20, 7, 107), (30, 3, 103), (60, 20, 120), (95, 60, 190)]
    assert [placed.end(at, LOG, size) for at, size, _ in steps] == [end for _, _, end in steps]
    assert placed.end(1.0, "rank-1.log", 5) == 5


def test_the_end_of_an_index_knows_when_its_last_part_was_there() -> None:
    index = [(t, {LOG: size}) for t, size in ((1.0, 10), (2.0, 90), (3.0, 5), (4.0, 12), (5.0, 30))]
    assert written(index, LOG, 12) == 4.0
    assert written(index, LOG, 50) is None
    assert written(index[3:], LOG, 12) is None
    assert written(index, LOG, -3) is None
    assert math.isclose(written(index[:2], LOG, 50) or 0.0, 2.0)


def test_no_number_is_read_from_two_halves_of_lines() -> None:
    log = "rank-0.log"
    first = part((log, 0, b"step 11 loss 2.0 | lr 0.1\nstep 12"))
    again = part((log, 0, b"34 loss 1.5 | lr 0.1\n"), begun=[[log, 100]])
    node = Node([first, again, part(("events.jsonl", 0, ENDED))])

    async def main() -> tuple[Session, Board]:
        entries = [NodeEntry("a", "/none/a", [0])]
        folder = RunFolder.create(Manifest("run", 0.0, entries, "command", ["true"], "/"))
        board = Board(folder)
        session = Session(folder, board, pool=Fakes({"a": node}))
        await session.rejoin()
        session.watch()
        while not session.model.done:
            await asyncio.wait_for(session.wait(), PATIENCE_S)
        await session.close()
        board.close()
        return session, board

    session, board = asyncio.run(main())
    step = board.metrics.latest_of(0).step
    assert step is not None
    assert step < 1234
    assert session.said_step is None or session.said_step[0] < 1234
