"""Long logs: their last lines can be shown while the rest is read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.base.events import Planned
from cockpit.core.logs.query import Query
from cockpit.core.pace.pace import Pace
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.engine.logs.book import Logbook
from cockpit.engine.logs.reader import Reader
from cockpit.engine.run import board as boards
from cockpit.engine.run.board import Board
from tests.engine.books import CREATED, Writer, all_after, run_folder


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    """A run of two ranks that have said 2,000 lines each."""
    made = Writer(run_folder(tmp_path / "run", {"gpu1": [0, 1]}))
    for rank in (0, 1):
        lines = (b"step %d of rank %d\n" % (step, rank) for step in range(2000))
        made.write("gpu1", rank, b"".join(lines))
    yield made
    made.close()


def lines_of(book: Logbook, rank: int) -> list[bytes]:
    return [row.text for row in all_after(Reader(book, Query(ranks=frozenset([rank]))), 100)]


def test_the_last_lines_of_long_logs_are_there_first(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards, "LONG", 50_000)
    monkeypatch.setattr(boards, "LAST", 1_000)
    board = Board(writer.folder)

    async def story() -> None:
        assert board.book.loading
        assert await board.load_last()
        first = lines_of(board.shown, 1)
        assert first[-1] == b"step 1999 of rank 1"
        assert 30 < len(first) < 100
        assert all(line.startswith(b"step 19") for line in first)  # whole lines
        # What comes meanwhile is shown too, and is in the whole once.
        new = b"step 2000 of rank 1\n"
        writer.write("gpu1", 1, new)
        board.log("gpu1", 1, len(writer.written["gpu1", 1]) - len(new), new)
        assert board.flush(1.0)
        assert lines_of(board.shown, 1) == [*first, new.rstrip()]
        await board.load()

    asyncio.run(story())
    board.show_all()
    assert board.shown is board.book
    assert not board.book.loading
    assert lines_of(board.shown, 1) == [b"step %d of rank 1" % step for step in range(2001)]
    board.close()


def test_what_was_printed_while_nobody_watched_has_the_times_of_then(tmp_path: Path) -> None:
    writer = Writer(run_folder(tmp_path / "run", {"gpu1": [0]}))
    writer.write("gpu1", 0, b"step 1 loss 4.0\n")
    writer.tick(CREATED + 1)
    board = Board(writer.folder)
    model, pace = RunModel(), Pace([0])
    model.apply(Event(0.0, "", Planned({"gpu1": (0,)})))
    board.joined(model, pace)

    async def story() -> None:
        board.await_missed()
        assert await board.load_last()
        assert board.metrics.latest.step == 1
        for step in (2, 3):
            line = b"step %d loss 3.5\n" % step
            offset = len(writer.written["gpu1", 0])
            writer.write("gpu1", 0, line)
            board.log("gpu1", 0, offset, line)
            writer.tick(CREATED + step)
            assert board.flush(CREATED + 1000)
        assert len(lines_of(board.shown, 0)) == 3, "they are shown at once"
        assert pace.front is None
        assert board.metrics.latest.step == 3
        await board.load()
        assert board.metrics.series("step_s") == []

    asyncio.run(story())
    rows = all_after(Reader(board.book, Query()), 100)
    assert [row.at - CREATED for row in rows] == [1.0, 2.0, 3.0]
    assert pace.front == (3, CREATED + 3)
    board.close()
    writer.close()


def test_short_logs_are_read_at_once(writer: Writer) -> None:
    board = Board(writer.folder)
    assert not asyncio.run(board.load_last())
    assert board.shown is board.book
    board.close()


def test_an_index_that_takes_long_is_not_waited_for(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards, "LONG", 50_000)
    monkeypatch.setattr(boards, "LAST_S", 0.0)
    board = Board(writer.folder)

    async def story() -> None:
        assert not await board.load_last()
        await board.load()

    asyncio.run(story())
    assert board.shown is board.book
    assert len(lines_of(board.book, 0)) == 2000
    board.close()
