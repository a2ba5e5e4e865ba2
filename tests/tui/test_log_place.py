"""A place in a log that is read in small steps: the screen shows the log, whatever is interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cockpit.core.logs.levels import Level
from cockpit.core.logs.query import Query
from cockpit.engine.logs.book import Logbook, Row
from cockpit.engine.logs.reader import Reader
from cockpit.tui.logs import place as log_place
from cockpit.tui.logs.place import LogPlace, Task
from tests.engine.books import CREATED, Writer, run_folder

HEIGHT = 5


class Told:
    """A book that grows: two ranks say what they count, some of it folded."""

    def __init__(self, path: Path) -> None:
        self._writer = Writer(run_folder(path, {"gpu1": [0, 1]}))
        self._writer.book = self.book = Logbook(self._writer.folder)
        self._count = 0
        self._at = CREATED
        self.grow(30, 3)

    def grow(self, batches: int, lines: int) -> None:
        for _ in range(batches):
            for _ in range(lines):
                self._count += 1
                for rank in range(1 + self._count % 2):
                    text = f"error {self._count}" if self._count % 31 == 0 else f"line {self._count}"
                    self._writer.write("gpu1", rank, f"{text} of rank {rank}\n".encode())
            self._at += 1
            self.book.flush(self._at)

    def close(self) -> None:
        self.book.close()
        self._writer.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the books of all examples are written."""
    return tmp_path_factory.mktemp("books")


def parts(row: Row) -> int:
    return 2 if row.index == 1 else 1


moves = st.one_of(
    st.tuples(st.just("grow"), st.sampled_from([1, 2, 60])),
    st.tuples(st.sampled_from(["moved", "scrolled"]), st.sampled_from([-40, -4, -1, 1, 4, 40])),
    st.tuples(st.just("at"), st.floats(0, 1)),
    st.tuples(st.just("found"), st.sampled_from([-1, 1])),
    st.tuples(st.sampled_from(["newest", "filled", "beginning", "unfolded", "folded"]), st.just(0)),
)


def task(told: Told, place: LogPlace, what: str, how: float) -> Task:
    """What the log view does for a key, or for new lines."""
    if what == "grow":
        told.grow(int(how), 4)
        return place.newest if place.following else place.filled
    if what == "newest":
        place.follow()
        return place.newest
    if what == "filled":
        return place.newest if place.following else place.filled
    if what == "found":
        return place.found(Level.ERROR, int(how), lambda: None)
    place.stay()
    if what == "at":
        return place.at(place.window.reader.position(how), 0)
    if what in ("unfolded", "folded", "beginning"):
        row = place.row
        if what == "unfolded":
            return place.filled if row is None or row.fold is None else place.unfolded(row)
        return place.folded() if what == "folded" else place.beginning()
    return (place.moved if what == "moved" else place.scrolled)(int(how))


@pytest.mark.slow
@given(steps=st.lists(st.tuples(moves, st.sampled_from([0, 1, 2, 100])), min_size=1, max_size=12))
@example(steps=[(("grow", 1), 1), (("at", 0.0), 0), (("scrolled", 4), 1)])
@example(steps=[(("grow", 2), 1), (("moved", 1), 1), (("unfolded", 0), 0)])
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_lines_on_the_screen_follow_each_other_whatever_is_interrupted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, steps: list[tuple[tuple[str, float], int]]
) -> None:
    monkeypatch.setattr(log_place, "BUDGET_S", 0.0)
    told = Told(folder / f"run{len(list(folder.iterdir()))}")
    place = LogPlace(Reader(told.book, Query()), parts)
    place.height = HEIGHT
    try:
        for (what, how), count in steps:
            going = task(told, place, what, how)
            arrived = False
            for _ in range(count):
                arrived = going()
                follow_each_other(place)
                if arrived:
                    break
            place.lay_out(with_cursor=arrived)
            follow_each_other(place)
        going = task(told, place, "newest", 0)
        while not going():
            follow_each_other(place)
        place.lay_out()
        follow_each_other(place)
        document = place.window.reader.before(None, HEIGHT, 9).rows  # what was unfolded stays so
        shown = list(dict.fromkeys((line.row.batch, line.row.text) for line in place.lines))
        assert shown == [(row.batch, row.text) for row in document][-len(shown) :]
        assert len(place.lines) == HEIGHT
    finally:
        told.close()


def follow_each_other(place: LogPlace) -> None:
    """Each line comes after the one above it, and none is there twice."""
    at = [(line.row.batch, line.row.index, line.part) for line in place.lines]
    assert at == sorted(set(at))
    assert len(at) <= HEIGHT
