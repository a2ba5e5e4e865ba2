"""Rows read in any way are the rows of the document."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cockpit.core.logs.excerpt import LONG, TEXT_MAX, excerpt
from cockpit.core.logs.levels import Level, level_of
from cockpit.core.logs.query import Query
from cockpit.core.text import sanitise
from cockpit.engine.logs import index as indexes
from cockpit.engine.logs.book import Logbook, Row, Source
from cockpit.engine.logs.reader import Page, Position, Reader
from cockpit.errors import CockpitError
from tests.engine.books import Writer, all_after, all_before, by_source, run_folder

NODES = {"gpu1": [0, 1], "gpu2": [2, 3]}
SOURCES: list[Source] = [("gpu1", None), ("gpu1", 0), ("gpu1", 1), ("gpu2", 2), ("gpu2", 3)]

texts = st.sampled_from(
    [
        *(
            b"step 1\n",
            b"step 1\nstep 2\n",
            b"\n",
            b"lo",
            b"ss 0.5\n",
            b"1%\r",
            b"2%\r\n",
            b"\x1b[31mlo\x1b[0mss\n",
        ),
        *(b"Traceback (most recent call last):\n", b'  File "x.py", line 1\n', b"ValueError: no\n"),
        *(b"WARNING: loss\tis high\n", "é\n".encode(), b"\xff\n", b"a 0\r\nLOSS\n"),
    ]
)
scripts = st.lists(st.one_of(st.tuples(st.sampled_from(SOURCES), texts), st.just("flush")), max_size=50)
narrowings = st.tuples(
    st.frozensets(st.integers(0, 3), max_size=2), st.frozensets(st.sampled_from(["gpu1", "gpu2"]))
)
Narrowing = tuple[frozenset[int], frozenset[str]]
patterns = st.sampled_from(
    ["loss", "LOSS", "!loss", "!", "step 2|0", r"^\d", "^$", "Value.*no", r"\S", "x", "loss  ", "é", r"\\xff"]
)


@contextmanager
def written(script: list[tuple[Source, bytes] | str]) -> Iterator[Logbook]:
    """A book of what a script says, in small blocks."""
    batches, indexes.BLOCK_BATCHES = indexes.BLOCK_BATCHES, 3
    try:
        with tempfile.TemporaryDirectory() as path:
            folder = run_folder(Path(path) / "run", NODES)
            book = Logbook(folder)
            writer = Writer(folder, book)
            for at, step in enumerate([*script, "flush"]):
                if isinstance(step, str):
                    book.flush(1000.0 + at)
                else:
                    writer.write(*step[0], step[1])
            yield book
            writer.close()
            book.close()
    finally:
        indexes.BLOCK_BATCHES = batches


def places(rows: list[Row]) -> list[Position]:
    return [(row.batch, row.index) for row in rows]


def content(rows: list[Row]) -> list[tuple[int, float, tuple[Source, ...], bytes, int, Level]]:
    return [(row.batch, row.at, row.sources, row.text, row.size, row.level) for row in rows]


def all_found(
    reader: Reader, start: Position, test: object, step: int, budget_s: float = 0.0
) -> list[Position]:
    """Every hit from a place on."""
    found: list[Position] = []
    at: Position | None = start
    while at is not None:
        hit, at = reader.find(at, test, step, budget_s)  # type: ignore[arg-type]
        if hit is not None:
            assert at is None
            found.append(hit)
            at = hit
    return found


@given(
    scripts,
    narrowings,
    st.sampled_from(["", "loss", "!loss"]),
    st.integers(1, 9),
    st.sampled_from([0.0, 9.0]),
)
@settings(max_examples=100, deadline=None)
def test_forwards_and_backwards_are_the_same_rows(
    script: list[tuple[Source, bytes] | str],
    narrowing: Narrowing,
    pattern: str,
    count: int,
    budget_s: float,
) -> None:
    with written(script) as book:
        query = Query(*narrowing, pattern)
        rows = all_after(Reader(book, query), count, budget_s)
        assert all_before(Reader(book, query), count, budget_s) == rows
        assert places(rows) == sorted(set(places(rows)))
        assert all(row.index == 0 or rows[at - 1].index == row.index - 1 for at, row in enumerate(rows))
        # From any place on, too.
        reader = Reader(book, query)
        for at, place in enumerate(places(rows)):
            assert reader.after(place, 1, 0.0).rows == [rows[at]]
            assert reader.before(place, len(rows) + 1, 9.0) == Page(rows[:at], False, (0, 0))


@pytest.mark.slow
@given(scripts, narrowings, patterns)
@example([(("gpu1", 0), b"a\tb\n")], (frozenset(), frozenset()), "a  ")
@settings(max_examples=200, deadline=None)
def test_filtered_rows_are_those_of_all_rows_that_match(
    script: list[tuple[Source, bytes] | str], narrowing: Narrowing, pattern: str
) -> None:
    regex = pattern.removeprefix("!")
    small = not any(map(str.isupper, regex.replace(r"\S", "")))
    compiled = re.compile(regex, re.IGNORECASE if small else 0)

    def wanted(row: Row) -> bool:
        hit = compiled.search(sanitise(row.text, colour=False)) is not None
        return hit != pattern.startswith("!") or pattern == "!"

    with written(script) as book:
        every = all_after(Reader(book, Query(*narrowing)))
        matching = [row for row in every if wanted(row)]
        assert content(all_after(Reader(book, Query(*narrowing, pattern)))) == content(matching)
        reader = Reader(book, Query(*narrowing))
        if pattern != "!":
            assert all_found(reader, (0, -1), pattern, 1) == places(matching)
            assert all_found(reader, reader.end, pattern, -1) == places(matching)[::-1]


@given(scripts, narrowings, st.sampled_from(Level), st.sampled_from(["", "loss", "!o"]))
@settings(max_examples=100, deadline=None)
def test_finding_stops_at_each_row_of_a_level(
    script: list[tuple[Source, bytes] | str], narrowing: Narrowing, level: Level, pattern: str
) -> None:
    with written(script) as book:
        reader = Reader(book, Query(*narrowing, pattern))
        rows = all_after(reader)
        wanted = [(row.batch, row.index) for row in rows if level_of(row.text) == level]
        for budget_s in (0.0, 9.0):
            assert all_found(reader, (0, -1), level, 1, budget_s) == wanted
            assert all_found(reader, reader.end, level, -1, budget_s) == wanted[::-1]
        for start in places(rows):
            after = [place for place in wanted if place > start]
            before = [place for place in wanted if place < start]
            assert all_found(reader, start, level, 1) == after
            assert all_found(reader, start, lambda text: level_of(text) == level, -1) == before[::-1]


@given(scripts, narrowings)
@settings(max_examples=60, deadline=None)
def test_narrowed_rows_are_the_lines_of_those_sources(
    script: list[tuple[Source, bytes] | str], narrowing: Narrowing
) -> None:
    ranks, nodes = narrowing
    sources = {who for who in SOURCES if not (ranks and who[1] not in ranks)}
    sources = {who for who in sources if not (nodes and who[0] not in nodes)}
    with written(script) as book:
        every = by_source(all_after(Reader(book, Query())))
        rows = all_after(Reader(book, Query(*narrowing)))
        assert by_source(rows) == {who: lines for who, lines in every.items() if who in sources}
        if len(sources) == 1:
            assert all(row.first and row.sources == tuple(sources) for row in rows)


def selected(reader: Reader, batch: int = 0) -> dict[Source, list[tuple[int, bytes]]]:
    """The lines that a reader gives byte for byte, with their offsets."""
    found: dict[Source, list[tuple[int, bytes]]] = {}
    for piece in [*reader.pieces(batch), *reader.unfinished()]:
        logs = reader.book.logs
        assert logs.read(logs.number(piece.source), piece.offset, len(piece.data)) == piece.data
        at = piece.offset
        for line in re.findall(rb"[^\n]*\n|[^\n]+", piece.data):
            found.setdefault(piece.source, []).append((at, line))
            at += len(line)
    return found


@pytest.mark.slow
@given(scripts, narrowings, patterns, st.integers(0, 4))
@settings(max_examples=200, deadline=None)
def test_byte_for_byte_it_gives_the_lines_of_the_rows(
    script: list[tuple[Source, bytes] | str], narrowing: Narrowing, pattern: str, count: int
) -> None:
    with written(script) as book:
        reader = Reader(book, Query(*narrowing, pattern))
        lines = selected(reader)
        whole = {
            who: [excerpt(line[:-1])[0] for _, line in own if line.endswith(b"\n")]
            for who, own in lines.items()
        }
        assert {who: own for who, own in whole.items() if own} == by_source(all_after(reader))
        first, begins = reader.tail(count)
        last = {who: own[max(0, len(own) - count) :] for who, own in lines.items()}
        tails = {
            who: [line for line in own if line[0] >= begins.get(who, 0)]
            for who, own in selected(reader, first).items()
        }
        assert {who: own for who, own in tails.items() if own} == {
            who: own for who, own in last.items() if own
        }


@given(scripts, st.sampled_from(["", "loss"]))
@settings(max_examples=60, deadline=None)
def test_the_scrollbar_goes_from_0_to_1_and_back_to_the_place(
    script: list[tuple[Source, bytes] | str], pattern: str
) -> None:
    with written(script) as book:
        reader = Reader(book, Query(pattern=pattern))
        rows = all_after(reader)
        parts = [reader.fraction(place) for place in [(0, 0), *places(rows), reader.end]]
        assert parts == sorted(parts)
        assert parts[-1] == 1.0
        assert reader.position(1.0) == reader.end
        assert reader.position(0.0) == (0, 0)
        assert book.batches == 0 or parts[0] == 0.0
        for row in rows:
            place = reader.position(reader.fraction((row.batch, row.index)) + 1e-9)
            assert place[0] == row.batch
            assert abs(place[1] - row.index) <= 1
        for row in rows:
            assert reader.position_at(row.at) == (row.batch, 0)


def test_what_several_ranks_say_is_one_row_in_rank_order() -> None:
    trace = b"Traceback (most recent call last):\n  File x\nValueError: no\n"
    script: list[tuple[Source, bytes] | str] = [
        (("gpu2", 3), b"hello\n" + trace),
        (("gpu1", 1), b"hello\n"),
        (("gpu1", None), b"launching\n"),
        (("gpu1", 0), b"hello\n" + trace),
        "flush",
        (("gpu1", 1), b"hello\n"),
    ]
    with written(script) as book:
        rows = all_after(Reader(book, Query()))
        ends = (("gpu1", 0), ("gpu2", 3))
        assert [(row.batch, row.sources, row.text, row.first) for row in rows] == [
            (0, (("gpu1", None),), b"launching", True),
            (0, (("gpu1", 0), ("gpu1", 1), ("gpu2", 3)), b"hello", True),
            (0, ends, b"Traceback (most recent call last):", True),
            (0, ends, b"  File x", False),
            (0, ends, b"ValueError: no", False),
            (1, (("gpu1", 1),), b"hello", True),
        ]
        assert [row.level for row in rows][3:5] == [Level.PLAIN, Level.ERROR]
        # Whose it is must be seen where only a later line is left.
        left = all_after(Reader(book, Query(pattern="File|no")))
        assert [(row.text, row.first) for row in left] == [(b"  File x", True), (b"ValueError: no", False)]


def test_long_lines_are_cut_and_very_long_ones_not_even_read() -> None:
    half = b"x" * (LONG // 2 + 1)
    bar = b"\r".join([b"%6d%%" % number for number in range(LONG // 8)])
    script: list[tuple[Source, bytes] | str] = [
        (("gpu1", 0), b"a\n" + b"y" * 9000 + b"\n" + half),
        (("gpu1", 0), half),
        (("gpu1", 0), half + b"\nb\n"),
        (("gpu1", 1), bar),
        (("gpu1", 1), bar),
        (("gpu1", 1), b"\rdone\n"),
    ]
    with written(script) as book:
        for query in (Query(), Query(pattern="!nothing")):
            rows = all_after(Reader(book, query))
            assert {(row.sources[0][1], row.text, row.size) for row in rows} == {
                (0, b"a", 1),
                (0, b"y" * TEXT_MAX, 9000),
                (0, b"x" * TEXT_MAX, 3 * len(half)),
                (0, b"b", 1),
                (1, b"done", 4),
            }


def test_a_filter_without_hits_goes_on_where_its_time_was_up() -> None:
    script: list[tuple[Source, bytes] | str] = []
    for _ in range(20):
        script += [(("gpu1", 0), b"line\n"), "flush"]
    with written(script) as book:
        reader = Reader(book, Query(pattern="loss"))
        # The newest are in no block yet.
        assert reader.before(None, 5, 0.0) == Page([], True, (19, 0))
        assert reader.before((18, 0), 5, 0.0) == Page([], True, (15, 0))
        assert reader.before((3, 0), 5, 0.0) == Page([], False, (0, 0))
        assert reader.after((0, 0), 5, 0.0) == Page([], True, (3, 0))
        assert reader.after((18, 0), 5, 9.0) == Page([], False, (20, 0))
        assert reader.find((0, -1), Level.ERROR, 1, 0.0) == (None, (3, -1))
        assert reader.find((0, 0), "x", -1, 0.0) == (None, None)


def test_at_the_end_reading_goes_on_with_what_comes(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", NODES)
    book = Logbook(folder)
    writer = Writer(folder, book)
    reader = Reader(book, Query())
    assert reader.before(None, 5, 9.0) == Page([], False, (0, 0))
    assert reader.fraction((0, 0)) == 1.0
    end = reader.after((0, 0), 5, 9.0)
    assert end == Page([], False, (0, 0))
    writer.write("gpu1", 0, b"a\n")
    book.flush(1.0)
    first = reader.after(end.resume, 5, 9.0)
    assert [row.text for row in first.rows] == [b"a"]
    # The place of an unfinished line is no row of the batch that comes there.
    assert reader.after((1, 3), 5, 9.0) == Page([], False, (1, 0))
    writer.write("gpu1", 1, b"b\n")
    book.flush(2.0)
    assert [row.text for row in reader.after(first.resume, 5, 9.0).rows] == [b"b"]
    assert reader.find((2, 0), lambda text: True, -1, 9.0) == ((1, 0), None)
    book.close()
    writer.close()


def test_sources_that_are_not_in_the_run_have_no_rows() -> None:
    with written([(("gpu1", 0), b"a\n")]) as book:
        reader = Reader(book, Query(nodes=frozenset(["gpu9"])))
        assert reader.before(None, 5, 9.0) == Page([], False, (0, 0))
        assert all_after(Reader(book, Query(frozenset([2]), frozenset(["gpu1"])))) == []


def test_a_bad_pattern_is_refused_with_its_place() -> None:
    with written([]) as book, pytest.raises(CockpitError, match=r"/a\(/: missing \).* at character 2"):
        Reader(book, Query(pattern="a("))


def test_what_is_told_as_one_can_be_had_line_by_line(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", {"gpu1": [0, 1, 2, 3]})
    book = Logbook(folder)
    writer = Writer(folder, book)
    for rank in range(4):
        writer.write("gpu1", rank, b"all\nstep 7 loss 2.4%d\nend\n" % rank)
    book.flush(1.0)
    reader = Reader(book, Query())
    rows = all_after(reader)
    assert [row.text.decode() for row in rows] == ["all", "step 7 loss 2.40–2.43", "end"]
    assert [row.fold is not None for row in rows] == [False, True, False]
    assert dict(rows[1].said)["gpu1", 2] == b"step 7 loss 2.42"
    assert reader.find((0, -1), "2[.]42", 1, 1.0)[0] == (0, 1), "a search looks at what was printed"
    reader.unfold(rows[1])
    assert reader.unfolded
    one_by_one = all_after(reader)
    assert [row.text for row in one_by_one[1:-1]] == [b"step 7 loss 2.4%d" % rank for rank in range(4)]
    assert by_source(one_by_one) == by_source(rows)
    assert all_before(reader) == one_by_one
    reader.fold()
    assert all_after(reader) == rows
    meant = all_after(Reader(book, Query(pattern="2.4[12]")))
    assert [(row.text, row.sources) for row in meant] == [
        (b"step 7 loss 2.41", (("gpu1", 1),)),
        (b"step 7 loss 2.42", (("gpu1", 2),)),
    ]
    book.close()
    writer.close()
