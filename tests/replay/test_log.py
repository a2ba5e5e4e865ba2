"""A log as it was at a moment: it ends there, and how exact that is is known."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.core.logs.query import Query
from cockpit.engine.logs.book import Logbook
from cockpit.engine.logs.reader import Reader
from tests.engine.books import CREATED, Writer, all_after, all_before, run_folder

LINES = 600


def line(number: int, rank: int) -> bytes:
    return b"line %d of rank %d\n" % (number, rank)


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Logbook]:
    """Two ranks print a line a second, of which the first half has a moment each 10 s in the index."""
    writer = Writer(run_folder(tmp_path / "run", {"a": [0], "b": [1]}))
    for number in range(LINES):
        for rank, node in enumerate("ab"):
            writer.write(node, rank, line(number, rank))
        if number >= LINES // 2 or number % 10 == 9:
            writer.tick(CREATED + number)
    writer.write("a", 0, b"after the last moment\nhalf a line")
    made = Logbook(writer.folder)
    asyncio.run(made.load())
    yield made
    made.close()
    writer.close()


def texts(book: Logbook, rank: int, reads: object = all_after) -> list[bytes]:
    assert callable(reads)
    return [row.text for row in reads(Reader(book, Query(ranks=frozenset([rank]))), 50)]


@pytest.mark.parametrize("number", [0, 9, 10, 44, 299, 300, 311, 598, 599])
def test_it_has_what_was_printed_by_then(book: Logbook, number: int) -> None:
    distance = book.show_until(CREATED + number)
    for rank in (0, 1):
        found = texts(book, rank)
        assert found == [line(each, rank).rstrip() for each in range(len(found))]
        assert number + 1 - len(found) <= distance
        assert found == texts(book, rank, all_before)
    assert book.lines == 2 * len(found)
    assert not book.rests()
    assert book.pending(Query()) == []


def test_where_the_index_is_coarse_it_says_so(book: Logbook) -> None:
    assert 5 < book.show_until(CREATED + 100) <= 10
    assert 0 < book.show_until(CREATED + 500) <= 1


def test_all_of_it_is_there_again(book: Logbook) -> None:
    before = texts(book, 0), book.lines, book.batches
    assert before[0][-1] == b"after the last moment"
    book.show_until(CREATED + 100)
    assert book.batches < before[2]
    assert book.show_until(None) == 0.0
    assert (texts(book, 0), book.lines, book.batches) == before


def test_what_has_no_time_is_there_at_the_end_alone(book: Logbook) -> None:
    book.show_until(CREATED + 10_000)
    assert texts(book, 0)[-1] == line(LINES - 1, 0).rstrip()


def test_before_the_first_line_there_is_none(book: Logbook) -> None:
    book.show_until(CREATED - 1)
    assert texts(book, 0) == []
    assert book.ends() == {}


def test_where_logs_end_is_where_their_last_lines_do(book: Logbook) -> None:
    book.show_until(CREATED + 400)
    for rank, node in enumerate("ab"):
        number = book.logs.number((node, rank))
        assert book.ends()[number] == sum(len(line(each, rank)) for each in range(401))


def test_a_search_stays_within_it(book: Logbook) -> None:
    book.show_until(CREATED + 400)
    reader = Reader(book, Query())
    found, more = reader.find((0, -1), "line 399 of", 1, 60.0)
    assert found is not None
    assert more is None
    assert reader.find((0, -1), "line 402 of", 1, 60.0) == (None, None)
    assert reader.fraction(reader.end) == 1.0
    assert reader.position(1.0) == reader.end
