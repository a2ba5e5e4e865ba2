"""The map: a row for each node or rank, a column for each span of time, and how far each is at the right.

While no step of any rank is known, when each went on last, as far as can be seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter

from rich.cells import cell_len, set_cell_size

from cockpit.core.pace.heat import NO_STEP, Window
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.rows import Pair, Row, rows
from cockpit.core.pace.signs import RECORDER, STILL_S, Sign, differing
from cockpit.core.text import one_line
from cockpit.tui.look.glyphs import ASCII, UNICODE
from cockpit.tui.look.progress import age_text, behind_text, sentences
from cockpit.tui.pace.marks import before, wall
from cockpit.tui.pace.phase_strip import STRIP, row_phases, strip
from cockpit.tui.pace.table import table, told
from cockpit.tui.pace.view_model import Frame
from cockpit.tui.panes.text_pane import Line, Piece, fold

CELL = "▇"
HALF = "▀"
"""A cell of one row, and one of two rows that share a line."""

SHADES, ASCII_SHADES = " ·░▒▓█", " .:+#@"
"""A cell of each level, where there are no colours."""

LONGEST = len(SHADES) - 1
"""The level of what takes longest."""
LABELS = 26
"""Columns that names and ranks may take."""


def labelled(
    row: Row, chosen: int | None, width: int, frame: Frame, *, hot: bool = False, failed: bool = False
) -> list[Piece]:
    """Name and ranks of a row, with a mark in front of the one that is chosen, that others wait for, or that
    failed.
    """
    mark = (">" if frame.ascii_only else "▌") if chosen in row.ranks else " "
    if hot:
        mark = "!" if frame.shades else "▌"
    if failed:
        mark = (ASCII if frame.ascii_only else UNICODE).failed
    ranks = row.ranks_text.replace("…", "..") if frame.ascii_only else row.ranks_text
    if len(ranks) > width - 2:
        ranks = f"{ranks[: width - 3]}{_more(frame)}"
    name, room = one_line(row.name), width - 2 - len(ranks)
    if cell_len(name) > room:
        name = set_cell_size(name, max(0, room - 1)) + _more(frame) * (room > 0)
    gap = width - 1 - cell_len(name) - len(ranks)
    odd = "failed" if failed else "pace-slow" if hot else ""
    about = odd or "label"
    return [Piece(mark, odd or "spark"), Piece(name), Piece(f"{' ' * gap}{ranks}", about)]


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
    :param dead: ranks that have ended
    :param failed: the one of those that failed first
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
    dead: frozenset[int] = frozenset()
    failed: int | None = None

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
        about = told(row, paces, self._excess, None if self.ended else self.now, self.dead)
        hot = self.stalled and self.missing.issuperset(row.ranks)
        failed = row.ranks == (self.failed,)
        old = about.age is not None and self._usual is not None and about.age > max(5.0, 6 * self._usual)
        waits = "failed" if failed else _role(row, self.missing) if self.stalled else ""
        frame = self.frame
        return Line(
            (
                *labelled(row, self.chosen, frame.label, frame, hot=hot, failed=failed),
                Piece(" "),
                *self._cells(pair, hot=hot),
                *table(about, frame.columns, stalled=old and hot, waits=waits),
                *self._phases(row),
            )
        )

    def _phases(self, row: Row) -> Iterator[Piece]:
        """Where the time of its ranks goes, if there is room for that."""
        if "phases" in self.frame.columns:
            letters = bool(self.frame.shades)
            yield Piece(" ")
            yield from strip(row_phases(self.pace, row.ranks), STRIP, letters=letters, sign=CELL)

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


COLUMNS = {"age": 15, "behind": 20, "by": 14}
"""The columns of the table, and how wide they are."""

NARROW = 10
"""The width of ``behind`` where there is no room for more than the number."""


def sign_lines(
    pace: Pace,
    nodes: Mapping[str, Sequence[int]],
    chosen: int | None,
    every: bool,
    now: float,
    width: int,
    height: int,
    *,
    ascii_only: bool,
) -> list[Line]:
    """The lines for a pane of this size; none if there is no sign of any rank.

    :param nodes: the ranks of each node
    :param chosen: the rank under the cursor
    :param every: a row for each rank
    :param now: unix seconds
    """
    found = {rank: pace.of(rank).sign for ranks in nodes.values() for rank in ranks}
    signs = {rank: sign for rank, sign in sorted(found.items()) if sign is not None}
    if not signs:
        return []
    said = [part for text in sentences(signs, "age") for part in fold(text, max(1, width - 2))]
    apart = dict.fromkeys(differing(signs, now), 0)
    # At least half of a low pane is for ranks: what their ages are is in the help too.
    room = max(height - 2 - len(said), height // 2, 1)
    shown = rows(nodes, apart, room, every=every)
    wanted = min(LABELS, max(8, 3 + max(cell_len(row.name) + len(row.ranks_text) for row in shown)))
    columns = _columns(width - wanted - 1)
    label = min(wanted, max(8, width - 1 - sum(columns.values())))
    frame = Frame(label, Window(now, 1.0, 1), {}, "", ascii_only=ascii_only)
    lines = [Line((Piece(" " * (frame.label + 1)), _heading(columns)))]
    for row in shown:
        name = labelled(row, chosen, label, frame)
        lines.append(Line((*name, Piece(" "), *_row(row, signs, columns, now))))
    below = [Line(), *(Line.of(f" {text}", "label") for text in said)]
    return [*lines, *below] if len(lines) + len(below) <= height else lines


def _columns(room: int) -> dict[str, int]:
    """What there is room for."""
    columns = dict(COLUMNS)
    for narrower in ({**COLUMNS, "behind": NARROW}, {"age": COLUMNS["age"], "behind": NARROW}):
        if sum(columns.values()) > room:
            columns = narrower
    return columns if sum(columns.values()) <= room else {"age": COLUMNS["age"]}


def _heading(columns: Mapping[str, int]) -> Piece:
    return Piece("".join(name.rjust(wide) for name, wide in columns.items()), "label")


def _row(row: Row, signs: Mapping[int, Sign], columns: Mapping[str, int], now: float) -> list[Piece]:
    """Of the ranks of a row, the worst in each respect."""
    own = [signs[rank] for rank in row.ranks if rank in signs]
    if not own:
        return []
    oldest, last = max(own, key=lambda one: one.age_s(now)), max(own, key=lambda one: one.behind)
    behind = behind_text(last)
    if columns.get("behind") == NARROW:
        behind = behind.partition(" ")[0]
    still = oldest.age_s(now) >= STILL_S
    texts = {
        "age": (age_text(oldest, now), "warning" if still else "label"),
        "behind": (behind, "pace-slow" if last.behind > 1 else "label"),
        "by": ("recorder" if oldest.source == RECORDER else "main thread", "label"),
    }
    return [Piece(texts[name][0].rjust(wide), texts[name][1]) for name, wide in columns.items()]
