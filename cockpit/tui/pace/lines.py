"""The pane of ranks × time as lines: curves, map, and times of day, all on the same columns."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import lru_cache, partial
from operator import itemgetter

from rich.cells import cell_len

from cockpit.core.pace.heat import Heat, Window
from cockpit.core.pace.log_steps import resumed
from cockpit.core.pace.rows import Pair, Row, alike, pairs, rows
from cockpit.tui.pace.curves import HIGH, HIGHEST, LEAST, LOW, STEP_TIME, blank, curves, known
from cockpit.tui.pace.map_lines import ASCII_SHADES, LABELS, SHADES, Map, sign_lines
from cockpit.tui.pace.marks import axis, pauses, placed, slowing, stopping
from cockpit.tui.pace.table import COLUMNS, columns_for, heading
from cockpit.tui.pace.view_model import STRETCHES, WHOLE, Frame, Sight
from cockpit.tui.panes.text_pane import Line, LinesLater, Piece

WIDTHS = (0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 28800, 86400)
"""Seconds that a column may stand for."""

GROWTH = 1.02
"""Columns of the whole run are the next power of this wide: at most one in fifty is before its first step."""
LEAST_S = 0.1
"""Seconds of a column of the whole run at least: two times of day below the columns are not the same."""
FRAME = ("notes and the names of columns", "times of day")
"""The lines around the rows of the map."""
ROOM = 1000
"""Rows that are more than any screen has."""
FEWEST = 24
"""Columns that the map keeps where phases are beside it."""
UNKNOWN_S = 1.0
"""Seconds of a column while nobody knows how long a step takes."""
STANDING = 2 / 3
"""The part of the columns that the time since the last step takes at most, unless it is chosen how much is
shown."""


EMPTY = (
    "no steps known yet",
    "",
    "In cockpit runs the probe records each step (--probe auto, the default).",
    "Without it, steps are read from the log, if the log has them.",
)


LAG = (
    "enqueue lag: NCCL's recorder knows when CPUs enqueue, not when GPUs compute. Next: a profile",
    "enqueue lag is the CPU's: for GPUs, profile",
)
"""What is said of it below the map, where there is room for it."""


SINCE_START = (
    "steps since the program started: the log counts higher, as after a resume",
    "steps since the program started",
)


def pace_lines(sight: Sight, heat: Heat, width: int, height: int) -> Sequence[Line]:
    """The lines for a pane of this size."""
    if sight.pace.front is None:
        return _without_steps(sight, width, height)
    about = [text for text in _about(sight) if height >= LOW and len(text) < width][:1]
    room = height - len(FRAME) - len(about)
    found, tall = _shared_out(sight, room, height)
    frame = _frame(sight, width, found)
    empty = blank(sight, frame, known(sight))
    if empty:
        found, tall = _shared_out(sight, room, height, empty)
        frame = _frame(sight, width, found)
    pace = sight.pace
    columns = heat.draw(pace.steps, frame.window, pace.usual(), pace.history.buckets)
    drawn = Map(
        pace,
        columns,
        frame,
        sight.chosen,
        sight.now,
        sight.missing,
        stalled=sight.stalled,
        ended=sight.ended,
        dead=sight.dead,
        failed=sight.failed,
    )
    # Of a thousand ranks, one or two in twenty have a line on the screen.
    return LinesLater(
        [
            *curves(sight, frame, tall),
            _heading(sight, frame),
            *(partial(drawn.line, row, pair) for row, pair in found),
            Line((Piece(" " * (frame.label + 1)), axis(frame, sight.now, ended=sight.ended))),
            *(Line.of(f" {text}", "label") for text in about),
        ]
    )


def _without_steps(sight: Sight, width: int, height: int) -> Sequence[Line]:
    whose = sight.nodes, sight.chosen, sight.every
    signs = sign_lines(sight.pace, *whose, sight.now, width, height, ascii_only=sight.ascii_only)
    return signs or [Line.of(text, "label") for text in EMPTY]


def lines_at_most(sight: Sight, width: int) -> int:
    """How many lines there are where there is room for all of them."""
    if sight.pace.front is None:
        return len(_without_steps(sight, width, ROOM))
    found = _found(sight, _apart(sight), ROOM)
    names = known(sight)
    drawn = len(names) - len(blank(sight, _frame(sight, width, found), names))
    return HIGHEST * drawn + len(FRAME) + len(_about(sight)[:1]) + len(found)


Shown = Sequence[tuple[Row, Pair]]
"""The lines of the map: all that is in each, and the one or two rows that it shows."""


def _shared_out(
    sight: Sight, room: int, height: int, empty: Collection[str] = ()
) -> tuple[Shown, dict[str, int]]:
    """The rows of the map, and how many lines each curve has, for so many lines of both.

    :param height: of the whole pane
    :param empty: curves of which nothing would be seen
    """
    names = [name for name in known(sight) if name not in empty] if height >= LOW else []
    some = {name: LEAST for name in names if height >= HIGH or name == STEP_TIME}
    tries = [some, {name: LEAST for name in some if name == STEP_TIME}, {}] if sight.every else [some]
    if len(sight.pace.steps.ranks) > 2 * height:
        tries = tries[:2][-1:]  # not all of them fit, two a line, whatever curves leave them
    apart = _apart(sight)
    drawn = [(_found(sight, apart, max(3, room - sum(tall.values()))), tall) for tall in tries]
    # A row for every rank is worth more than curves, and so is a line of its own for one that differs; what
    # folds anyway leaves room for one curve.
    everybody = len(sight.pace.steps.ranks)
    whole = [each for each in drawn if sum(len(pair) for _, pair in each[0]) == everybody]
    alone = (each for each in whole if not any(_shared(row, pair, apart) for row, pair in each[0]))
    found, tall = next(alone, next(iter(whole), drawn[min(1, len(drawn) - 1)]))
    if (
        height < HIGH
        and STEP_TIME in tall
        and not sight.every
        and any(len(row.nodes) > 1 for row, _ in found)
    ):
        # A line of the curve is worth less than rows of whole nodes.
        closer = _found(sight, apart, max(3, room - 1))
        if all(len(row.nodes) <= 1 for row, _ in closer):
            return closer, {STEP_TIME: 1}
    spare = room - len(found) - sum(tall.values())
    more = [name for name in names if name not in tall][: max(0, spare) // LEAST]
    tall = {name: LEAST for name in names if name in tall or name in more}
    each = max(0, room - len(found) - sum(tall.values())) // max(1, len(tall))
    return found, {name: min(HIGHEST, lines + each) for name, lines in tall.items()}


def _shared(row: Row, pair: Pair, apart: Mapping[int, Hashable]) -> bool:
    """Whether a rank that differs shares its line."""
    return len(pair) > 1 and not apart.keys().isdisjoint(row.ranks)


def _apart(sight: Sight) -> Mapping[int, Hashable]:
    """The ranks that differ, and in what: those that do so alike may share a row."""
    pace = sight.pace
    kinds: dict[int, Hashable] = dict.fromkeys(pace.lagging(), "behind")
    kinds |= alike({one.rank: one.excess for one in (*pace.slow(), *pace.late())})
    kinds |= dict.fromkeys(sorted(sight.missing), "missing")
    return kinds if sight.failed is None else kinds | {sight.failed: "failed"}


def _about(sight: Sight) -> Sequence[str]:
    """What is said below the map, in many words and in few."""
    if sight.pace.lags:
        return LAG
    return SINCE_START if resumed(sight.pace, sight.metrics.latest.step) else ()


def _found(sight: Sight, apart: Mapping[int, Hashable], room: int) -> Shown:
    # Only colours can tell two rows of one line apart.
    shared = sight.every and not sight.plain and not sight.ascii_only
    nodes = tuple((node, tuple(ranks)) for node, ranks in sight.nodes.items())
    return _rows_of(nodes, tuple(sorted(apart.items(), key=itemgetter(0))), room, sight.every, shared)


# Which ranks share a line changes seldom, and is drawn twice a second.
@lru_cache(maxsize=8)
def _rows_of(
    nodes: tuple[tuple[str, tuple[int, ...]], ...],
    apart: tuple[tuple[int, Hashable], ...],
    room: int,
    every: bool,
    shared: bool,
) -> Shown:
    if shared:
        found = pairs(dict(nodes), dict(apart), room)
    else:
        found = [(row,) for row in rows(dict(nodes), dict(apart), room, every=every)]
    return [(pair[0].with_next(pair[1]) if len(pair) > 1 else pair[0], pair) for pair in found]


def _frame(sight: Sight, width: int, found: Shown) -> Frame:
    widest = max((cell_len(row.name) + len(row.ranks_text) for row, _ in found), default=0)
    label = min(LABELS, width // 3, max(len(STEP_TIME) + 2, widest + 2))
    shown = columns_for(width, sight.pace, stalled=sight.stalled)
    room = max(1, width - label - 1 - sum(shown.values()))
    if room - COLUMNS["phases"] >= FEWEST and sight.pace.phases() is not None:
        shown["phases"] = COLUMNS["phases"]
        room -= COLUMNS["phases"]
    wide = column_width(sight, room)
    window = Window(math.ceil(sight.now / wide) * wide, wide, room)
    shades = ASCII_SHADES if sight.ascii_only else SHADES if sight.plain else ""
    return Frame(label, window, shown, shades, sight.ascii_only)


def column_width(sight: Sight, columns: int) -> float:
    """Seconds of a column; of a run that is younger than what is to be shown, those of the whole run."""
    least = sight.pace.usual() or UNKNOWN_S
    exact = max(LEAST_S, (sight.now - (sight.pace.began_at or sight.now) + least) / columns)
    # What was drawn is of use again only while columns are as wide.
    whole = float(WIDTHS[0] * GROWTH ** math.ceil(math.log(exact / WIDTHS[0], GROWTH)))
    if sight.stretch is not None:
        return min(whole, sight.stretch / columns)
    last = sight.pace.last_at
    if last is not None:
        least = max(least, (sight.now - last) / (STANDING * columns))
    return min(whole, next((each for each in WIDTHS if each >= least), least))


def _stretch_name(sight: Sight, frame: Frame) -> str:
    """How much of the past is shown, where that was chosen."""
    chosen = sight.stretch
    if chosen is not None and frame.window.wide < chosen / frame.window.columns:
        chosen = WHOLE
    return STRETCHES[chosen]


def _heading(sight: Sight, frame: Frame) -> Line:
    notes = [*slowing(sight.pace, frame), *pauses(sight.pace, frame, sight.saves)]
    if sight.stalled:
        # Who was slow before that matters least then.
        notes = [*stopping(sight.pace, frame), *pauses(sight.pace, frame, sight.saves)]
        notes += slowing(sight.pace, frame)
    return Line(
        (
            Piece(f" {_stretch_name(sight, frame)}".ljust(frame.label + 1)[: frame.label + 1], "label"),
            *placed(notes, frame.window.columns),
            heading(frame.columns, work=sight.pace.works),
        )
    )
