"""The map: a row for each node or rank, a column for each span of time, and how far each is at the right."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter

from rich.cells import cell_len, set_cell_size

from cockpit.core.pace.heat import NO_STEP
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.rows import Pair, Row
from cockpit.core.text import one_line
from cockpit.tui.pace.frame import Frame
from cockpit.tui.pace.marks import before, wall
from cockpit.tui.pace.table import table, told
from cockpit.tui.panes.text_pane import Line, Piece

CELL = "▇"
HALF = "▀"
"""A cell of one row, and one of two rows that share a line."""

SHADES, ASCII_SHADES = " ·░▒▓█", " .:+#@"
"""A cell of each level, where there are no colours."""

LONGEST = len(SHADES) - 1
"""The level of what takes longest."""
LABELS = 26
"""Columns that names and ranks may take."""


def labelled(row: Row, chosen: int | None, width: int, frame: Frame, *, hot: bool = False) -> list[Piece]:
    """Name and ranks of a row, with a mark in front of the one that is chosen, or that others wait for."""
    mark = (">" if frame.ascii_only else "▌") if chosen in row.ranks else " "
    if hot:
        mark = "!" if frame.shades else "▌"
    ranks = row.ranks_text.replace("…", "..") if frame.ascii_only else row.ranks_text
    if len(ranks) > width - 2:
        ranks = f"{ranks[: width - 3]}{_more(frame)}"
    name, room = one_line(row.name), width - 2 - len(ranks)
    if cell_len(name) > room:
        name = set_cell_size(name, max(0, room - 1)) + _more(frame) * (room > 0)
    gap = width - 1 - cell_len(name) - len(ranks)
    about = "pace-slow" if hot else "label"
    return [Piece(mark, "pace-slow" if hot else "spark"), Piece(name), Piece(f"{' ' * gap}{ranks}", about)]


def _more(frame: Frame) -> str:
    return "~" if frame.ascii_only else "…"


def cells(levels: bytes, frame: Frame) -> list[Piece]:
    """The cells of a row."""
    return [_cell(run, frame.shades) for run in _RUN.findall(levels)]


_RUN = re.compile(b"|".join(b"\\x%02x+" % level for level in range(LONGEST + 1)))
"""Cells of the same level."""


@lru_cache(maxsize=4096)
def _cell(run: bytes, shades: str) -> Piece:
    return Piece(shades[run[0]] * len(run)) if shades else Piece(CELL * len(run), f"pace-{run[0]}")


def _halves(upper: Sequence[int], lower: Sequence[int]) -> Iterator[Piece]:
    """The cells of two rows in one line."""
    for (above, below), run in groupby(zip(upper, lower, strict=True)):
        yield Piece(HALF * sum(1 for _ in run), f"pace-{above}/pace-{below}")


def _through(levels: bytes, start: int, frame: Frame) -> Iterator[Piece]:
    """The cells of a rank for which the others wait: bright where theirs are dark."""
    yield from cells(levels[:start], frame)
    left = len(levels) - start
    if left > 0:
        yield Piece("!" * left) if frame.shades else Piece(CELL * left, f"pace-{LONGEST}")


@dataclass(eq=False)
class Map:
    """The lines of the map.

    :param columns: the levels of all places, for each column
    :param missing: ranks for which the others wait, while the run stands still
    :param stalled: whether it does
    :param ended: the run is over: nothing gets older
    """

    pace: Pace
    columns: InitVar[Sequence[bytes]]
    frame: Frame
    chosen: int | None
    now: float
    missing: frozenset[int] = frozenset()
    _: KW_ONLY
    stalled: bool = False
    ended: bool = False

    def __post_init__(self, columns: Sequence[bytes]) -> None:
        self._excess = {one.rank: one.excess for one in (*self.pace.slow(), *self.pace.late())}
        self._usual = self.pace.usual()
        self._wall = wall(self.pace, self.frame)
        self._blank = before(self.pace, self.frame)
        self._levels = Levels(columns)

    def line(self, row: Row, pair: Pair) -> Line:
        """The line for a row, or for two.

        :param row: all that is in it
        :param pair: the one or two rows that it shows
        """
        paces = {rank: self.pace.of(rank) for rank in row.ranks}
        about = told(row, paces, self._excess, None if self.ended else self.now)
        hot = self.stalled and self.missing.issuperset(row.ranks)
        old = about.age is not None and self._usual is not None and about.age > max(5.0, 6 * self._usual)
        waits = _role(row, self.missing) if self.stalled else ""
        frame = self.frame
        return Line(
            (
                *labelled(row, self.chosen, frame.label, frame, hot=hot),
                Piece(" "),
                *self._cells(pair, hot=hot),
                *table(about, frame.columns, stalled=old and hot, waits=waits),
            )
        )

    def _cells(self, pair: Pair, *, hot: bool) -> Iterator[Piece]:
        place, blank = self.pace.steps.place, self._blank
        levels = [self._levels([place[rank] for rank in row.ranks if rank in place])[blank:] for row in pair]
        start = max(0, self._wall - blank)
        if blank:
            yield Piece(" " * blank)
        if len(pair) == 1:
            yield from _through(levels[0], start, self.frame) if hot else cells(levels[0], self.frame)
            return
        for at, row in enumerate(pair):
            if self.stalled and self.missing.issuperset(row.ranks):
                levels[at] = levels[at][:start].ljust(len(levels[at]), bytes([LONGEST]))
        yield from _halves(*levels)


class Levels:
    """The highest level of ranks in each column.

    :param columns: the levels of all places
    """

    def __init__(self, columns: Sequence[bytes]) -> None:
        self._columns = columns
        self._distinct = set(columns)  # most are alike
        self._together = b"".join(columns)
        self._places = len(columns[0]) if columns else 1

    def __call__(self, places: Sequence[int]) -> bytes:
        """One byte for each column."""
        if len(places) == 1:
            return self._together[places[0] :: self._places]
        if not places:
            return bytes([NO_STEP]) * len(self._columns)
        of_these = itemgetter(*places)
        highest = {column: max(of_these(column)) for column in self._distinct}
        return bytes([highest[column] for column in self._columns])


def _role(row: Row, missing: frozenset[int]) -> str:
    """What the ranks of a row do while the run stands still; empty if nobody knows who is missing."""
    if not missing:
        return ""
    return "missing" if missing.issuperset(row.ranks) else "waiting"
