"""The map: a row for each node or rank, a column for each span of time, and how far each is at the right."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby

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


def cells(levels: Iterable[int], frame: Frame) -> Iterator[Piece]:
    """The cells of a row."""
    for level, run in groupby(levels):
        many = sum(1 for _ in run)
        if frame.shades:
            yield Piece(frame.shades[level] * many)
        else:
            yield Piece(CELL * many, f"pace-{level}")


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


def _through(levels: Sequence[int], start: int, frame: Frame) -> Iterator[Piece]:
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


def map_lines(
    pace: Pace,
    rows: Sequence[tuple[Row, Pair]],
    columns: Sequence[bytes],
    frame: Frame,
    chosen: int | None,
    now: float,
    missing: frozenset[int] = frozenset(),
    *,
    stalled: bool = False,
) -> Iterator[Line]:
    """A line for each row, or for two.

    :param rows: of each line, all that is in it, and the one or two rows that it shows
    :param missing: ranks for which the others wait, while the run stands still
    :param stalled: whether it does
    """
    place = pace.steps.place
    excess = {one.rank: one.excess for one in (*pace.slow(), *pace.late())}
    usual = pace.usual()
    wall = _wall(pace, frame)
    for row, pair in rows:
        paces = {rank: pace.of(rank) for rank in row.ranks}
        about = told(row, paces, excess, now)
        hot = stalled and missing.issuperset(row.ranks)
        levels = [_levels(each.ranks, place, columns) for each in pair]
        if len(pair) > 1:
            for each, own in zip(pair, levels, strict=True):
                if stalled and missing.issuperset(each.ranks):
                    own[wall:] = [LONGEST] * (len(own) - wall)
            drawn = _halves(*levels)
        else:
            drawn = _through(levels[0], wall, frame) if hot else cells(levels[0], frame)
        old = about.age is not None and usual is not None and about.age > max(5.0, 6 * usual)
        yield Line(
            (
                *labelled(row, chosen, frame.label, frame, hot=hot),
                Piece(" "),
                *drawn,
                *table(
                    about, frame.columns, stalled=old and hot, waits=_role(row, missing) if stalled else ""
                ),
            )
        )


def _levels(ranks: Sequence[int], place: Mapping[int, int], columns: Sequence[bytes]) -> list[int]:
    """In each column the highest level of these ranks."""
    places = [place[rank] for rank in ranks if rank in place]
    if not places:
        return [NO_STEP] * len(columns)
    # Most columns are alike.
    highest = {column: max(map(column.__getitem__, places)) for column in set(columns)}
    return [highest[column] for column in columns]


def _role(row: Row, missing: frozenset[int]) -> str:
    """What the ranks of a row do while the run stands still; empty if nobody knows who is missing."""
    if not missing:
        return ""
    return "missing" if missing.issuperset(row.ranks) else "waiting"
