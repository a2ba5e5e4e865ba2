"""The map: a row for each node or rank, a column for each span of time, and how far each is at the right."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter

from rich.cells import cell_len, set_cell_size

from cockpit.core.pace.heat import NO_STEP, STALL, Window
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.rows import Pair, Row
from cockpit.core.text import one_line
from cockpit.tui.look.units import clock_text, span_text
from cockpit.tui.pace.table import table, told
from cockpit.tui.panes.text_pane import Line, Piece

DAY_S = 86400.0
CELL = "▇"
HALF = "▀"
"""A cell of one row, and one of two rows that share a line."""

SHADES, ASCII_SHADES = " ·░▒▓█", " .:+#@"
"""A cell of each level, where there are no colours."""

LONGEST = len(SHADES) - 1
"""The level of what takes longest."""
PAUSES = 100
"""Labels of steps that began late, of the newest ones, two or three of each: as many as one can read."""

LATE_S = 2.0
"""Seconds that a line of a log may take until it is here."""

LABELS = 26
"""Columns that names and ranks may take."""


@dataclass(frozen=True)
class Frame:
    """How the columns of the pane are shared out.

    :param label: columns of names and ranks
    :param window: of the map
    :param columns: of the table at the right, by their names
    :param shades: the sign of a cell of each level; empty: colours tell
    :param ascii_only: nothing but ASCII is drawn
    """

    label: int
    window: Window
    columns: Sequence[str]
    shades: str
    ascii_only: bool


def labelled(row: Row, chosen: int | None, width: int, frame: Frame, *, hot: bool = False) -> list[Piece]:
    """Name and ranks of a row, with a mark in front of the one that is chosen, or that others wait for."""
    mark = (">" if frame.ascii_only else "▌") if chosen in row.ranks else " "
    if hot:
        mark = "!" if frame.shades else "▌"
    ranks = row.ranks_text
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


def stopping(pace: Pace, frame: Frame) -> list[tuple[int, str]]:
    """Where the last step of all ended, if that is on the screen."""
    last = next(iter(pace.steps.newest()), None)
    if last is None or last.typical_end < frame.window.since:
        return []
    return [(min(_wall(pace, frame) + 1, frame.window.columns), f"no step {_here(frame)}")]


def _wall(pace: Pace, frame: Frame) -> int:
    """The first column in which no step can have gone on."""
    last = next(iter(pace.steps.newest()), None)
    return 0 if last is None else max(0, _column(last.typical_end, frame) + 1)


def _through(levels: bytes, start: int, frame: Frame) -> Iterator[Piece]:
    """The cells of a rank for which the others wait: bright where theirs are dark."""
    yield from cells(levels[:start], frame)
    wall = len(levels) - start
    if wall > 0:
        yield Piece("!" * wall) if frame.shades else Piece(CELL * wall, f"pace-{LONGEST}")


def placed(texts: Sequence[tuple[int, str]], columns: int) -> str:
    """Texts that end at columns, in one line; one that does not fit beside those before it is left out.

    The first ones matter most.
    """
    line = [" "] * columns
    for end, text in texts:
        start = end - len(text)
        if start >= 0 and end <= columns and not "".join(line[max(0, start - 1) : end + 1]).strip():
            line[start:end] = text
    return "".join(line)


def pauses(pace: Pace, frame: Frame, saves: Sequence[float] = ()) -> list[tuple[int, str]]:
    """Steps that began late, as after a checkpoint or an evaluation: in which column, and by how much.

    :param saves: when logs named a checkpoint: nothing is called one without that
    """
    found, usual = [], pace.usual()
    for step in pace.steps.newest():
        start = step.typical_end - (usual or 0.0)
        if usual is None or start < frame.window.since:
            break
        if step.typical_span > STALL * usual and start < frame.window.until:
            began = step.typical_end - step.typical_span
            saved = any(began - usual <= at <= step.typical_end + LATE_S for at in saves)
            long = span_text(step.typical_span - usual)
            # The shorter ones are for where there is no room for the first.
            texts = (f"checkpoint {long}", "checkpoint", long) if saved else (f"no step {long}", long)
            found += [(_column(start, frame), f"{text} {_here(frame)}") for text in texts]
            if len(found) >= PAUSES:
                break
    return found


def slowing(pace: Pace, frame: Frame) -> list[tuple[int, str]]:
    """Where ranks that are slow began to be, in which column; at the left edge if it was before that."""
    found, does = (pace.late(), "late") if pace.lags else (pace.slow(), "slows")
    window, notes = frame.window, []
    for one in found[:3]:
        step = pace.step(pace.apart_since(one.rank))
        if step is None or step.typical_end > window.until:
            continue
        column, text = _column(step.typical_end, frame), f"{one.rank} {does}"
        if column < 0:
            mark = f"{'<' if frame.ascii_only else '◂'} {text} since {step.step:,}"
            notes.append((len(mark), mark))
        elif column > len(text):
            notes.append((column + 1, f"{text} {_here(frame)}"))
        else:
            notes.append((column + len(text) + 2, f"{_here(frame)} {text}"))
    return notes


def _column(at: float, frame: Frame) -> int:
    return int((at - frame.window.since) // frame.window.wide)


def _here(frame: Frame) -> str:
    return "v" if frame.ascii_only else "▾"


def axis(frame: Frame, now: float) -> str:
    """Times of day below the map."""
    window = frame.window
    every = 12
    live = abs(window.until - now) < 2 * window.wide
    texts = [(window.columns, "now" if live else _time(now, window, every))]
    marks = range(window.columns - every, 0, -every)
    texts += [(column, _time(window.since + column * window.wide, window, every)) for column in marks]
    return placed(texts, window.columns)


def _time(at: float, window: Window, every: int) -> str:
    """The time of day as exactly as columns are wide; of more than a day, the day as well."""
    day = ""
    if window.wide * window.columns > DAY_S:
        with suppress(OverflowError, ValueError, OSError):
            day = time.strftime("%m-%d ", time.localtime(at))
    return day + clock_text(at, 8 if window.wide * every < 60 else 5)


class Map:
    """The lines of the map.

    :param columns: the levels of all places, for each column
    :param missing: ranks for which the others wait, while the run stands still
    :param stalled: whether it does
    """

    def __init__(
        self,
        pace: Pace,
        columns: Sequence[bytes],
        frame: Frame,
        chosen: int | None,
        now: float,
        missing: frozenset[int] = frozenset(),
        *,
        stalled: bool = False,
    ) -> None:
        self._pace, self._frame = pace, frame
        self._chosen, self._now = chosen, now
        self._missing, self._stalled = missing, stalled
        self._excess = {one.rank: one.excess for one in (*pace.slow(), *pace.late())}
        self._usual = pace.usual()
        self._wall = _wall(pace, frame)
        self._levels = Levels(columns)

    def line(self, row: Row, pair: Pair) -> Line:
        """The line for a row, or for two.

        :param row: all that is in it
        :param pair: the one or two rows that it shows
        """
        about = told(row, {rank: self._pace.of(rank) for rank in row.ranks}, self._excess, self._now)
        hot = self._stalled and self._missing.issuperset(row.ranks)
        old = about.age is not None and self._usual is not None and about.age > max(5.0, 6 * self._usual)
        waits = _role(row, self._missing) if self._stalled else ""
        frame = self._frame
        return Line(
            (
                *labelled(row, self._chosen, frame.label, frame, hot=hot),
                Piece(" "),
                *self._cells(pair, hot=hot),
                *table(about, frame.columns, stalled=old and hot, waits=waits),
            )
        )

    def _cells(self, pair: Pair, *, hot: bool) -> Iterable[Piece]:
        place = self._pace.steps.place
        levels = [self._levels([place[rank] for rank in row.ranks if rank in place]) for row in pair]
        if len(pair) == 1:
            return _through(levels[0], self._wall, self._frame) if hot else cells(levels[0], self._frame)
        for at, row in enumerate(pair):
            if self._stalled and self._missing.issuperset(row.ranks):
                levels[at] = levels[at][: self._wall].ljust(len(levels[at]), bytes([LONGEST]))
        return _halves(*levels)


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
