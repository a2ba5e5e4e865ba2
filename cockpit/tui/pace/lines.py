"""The pane of ranks × time as lines: curves, map, and times of day, all on the same columns."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby, islice, pairwise
from statistics import median

from rich.cells import cell_len

from cockpit.core.logs.metrics import Metrics
from cockpit.core.pace.heat import STALL, Heat, Window
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.rows import Pair, Row, pairs, rows
from cockpit.core.pace.said import resumed
from cockpit.core.pace.slow import EXCESS
from cockpit.tui.look.curve import curve
from cockpit.tui.look.units import number_text, span_text
from cockpit.tui.pace import map_lines as parts
from cockpit.tui.pace.map_lines import Frame
from cockpit.tui.pace.sign_lines import sign_lines
from cockpit.tui.pace.table import COLUMNS, columns_for, heading, seconds
from cockpit.tui.panes.text_pane import Line, LinesLater, Piece

WIDTHS = (
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
    20.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
    1800.0,
    3600.0,
    7200.0,
    14400.0,
    28800.0,
    86400.0,
)
"""Seconds that a column may stand for."""

WHOLE = math.inf
STRETCHES: Mapping[float | None, str] = {
    None: "",
    600.0: "last 10 min",
    3600.0: "last hour",
    WHOLE: "whole run",
}
"""How much of the past the pane shows, in seconds, shortest first, and its name; None: a step a column."""

POINTS = 4
"""Steps for each column that a curve is drawn from; of more, some are left out."""

BEFORE = 20
"""Values of which the median says how it was before."""

STEP_TIME = "step time"
THROUGHPUT = {"tokens_s": "tokens/s", "samples_s": "samples/s"}
HIGHEST = 4
"""Lines of a curve on a high screen."""
LOW = 8
"""A screen with fewer lines than this has no curve: the map has them all."""
UNKNOWN_S = 1.0
"""Seconds of a column while nobody knows how long a step takes."""


@dataclass(frozen=True)
class Sight:
    """What the pane shows.

    :param nodes: the ranks of each node
    :param chosen: the rank under the cursor
    :param now: unix seconds; of a recorded run, when it ended
    :param every: a row for each rank, or as near to that as there is room for
    :param stretch: how much of the past, one of :data:`STRETCHES`
    :param plain: shades instead of colours
    :param missing: ranks for which the others wait, while the run stands still
    :param stalled: whether it does
    :param saves: when logs named a checkpoint, unix seconds
    :param left: seconds until the last step, as the log says; None: not known, or the run is over
    """

    pace: Pace
    metrics: Metrics
    nodes: Mapping[str, Sequence[int]]
    now: float
    chosen: int | None = None
    every: bool = False
    stretch: float | None = None
    plain: bool = False
    ascii_only: bool = False
    missing: frozenset[int] = frozenset()
    stalled: bool = False
    saves: Sequence[float] = ()
    left: float | None = None


EMPTY = (
    "no step of any rank is known yet",
    "",
    "In runs of cockpit the probe notes each step (--probe auto, the default).",
    "Without it they are read from the log, if that says which step it is.",
)


LAG = (
    "enqueue lag: NCCL's recorder knows when CPUs enqueue, not when GPUs compute. Next: a profile",
    "enqueue lag is the CPU's: for GPUs, profile",
)
"""What is said of it below the map, where there is room for it."""


SINCE_START = (
    "steps since the program started: the log counts further, as after a resume",
    "steps since the program started",
)


def pace_lines(sight: Sight, heat: Heat, width: int, height: int) -> Sequence[Line]:
    """The lines for a pane of this size."""
    if sight.pace.front is None:
        whose = sight.nodes, sight.chosen, sight.every
        signs = sign_lines(sight.pace, *whose, sight.now, width, height, ascii_only=sight.ascii_only)
        return signs or [Line.of(text, "label") for text in EMPTY]
    tall = _tall(sight, height)
    late = (*sight.pace.slow(), *sight.pace.late())
    apart = [*sorted(sight.missing), *(one.rank for one in late), *sight.pace.lagging()]
    about_lag = [text for text in _about(sight) if height >= LOW and len(text) < width][:1]
    room = height - sum(tall.values()) - 2 - len(about_lag)
    found = _found(sight, frozenset(apart), max(3, room))
    if sight.every and len(tall) > 1 and any(len(pair) > 1 for _, pair in found):
        # Lines for ranks are worth more here than curves.
        tall = {STEP_TIME: 2}
        room = height - 4 - len(about_lag)
        found = _found(sight, frozenset(apart), max(3, room))
    spare = max(0, room - len(found)) // max(1, len(tall))
    tall = {name: min(HIGHEST, lines + spare) for name, lines in tall.items()}
    frame = _frame(sight, width, found)
    curves = list(_curves(sight, frame, tall))
    pace = sight.pace
    columns = heat.draw(pace.steps, frame.window, pace.usual(), pace.history.buckets)
    drawn = parts.Map(pace, columns, frame, sight.chosen, sight.now, sight.missing, stalled=sight.stalled)
    # Of a thousand ranks, one or two in twenty have a line on the screen.
    return LinesLater(
        [
            *curves,
            _heading(sight, frame),
            *(partial(drawn.line, row, pair) for row, pair in found),
            Line((Piece(" " * (frame.label + 1)), Piece(parts.axis(frame, sight.now), "time"))),
            *(Line.of(f" {text}", "label") for text in about_lag),
        ]
    )


def _about(sight: Sight) -> Sequence[str]:
    """What is said below the map, in many words and in few."""
    if sight.pace.lags:
        return LAG
    return SINCE_START if resumed(sight.pace, sight.metrics.latest.step) else ()


def _found(sight: Sight, apart: Collection[int], room: int) -> Sequence[tuple[Row, Pair]]:
    # Only colours can tell two rows of one line apart.
    shared = sight.every and not sight.plain and not sight.ascii_only
    nodes = tuple((node, tuple(ranks)) for node, ranks in sight.nodes.items())
    return _rows_of(nodes, frozenset(apart), room, sight.every, shared)


# Which ranks share a line changes seldom, and is drawn twice a second.
@lru_cache(maxsize=8)
def _rows_of(
    nodes: tuple[tuple[str, tuple[int, ...]], ...],
    apart: frozenset[int],
    room: int,
    every: bool,
    shared: bool,
) -> Sequence[tuple[Row, Pair]]:
    """The lines of the map: all that is in each, and the one or two rows that it shows."""
    if shared:
        found = pairs(dict(nodes), apart, room)
    else:
        found = [(row,) for row in rows(dict(nodes), apart, room, every=every)]
    return [(pair[0].with_next(pair[1]) if len(pair) > 1 else pair[0], pair) for pair in found]


def _frame(sight: Sight, width: int, found: Sequence[tuple[Row, Pair]]) -> Frame:
    widest = max((cell_len(row.name) + len(row.ranks_text) for row, _ in found), default=0)
    label = min(parts.LABELS, width // 3, max(len(STEP_TIME) + 2, widest + 3))
    shown = columns_for(width, lag=sight.pace.lags)
    room = width - label - 1 - sum(COLUMNS[name] for name in shown)
    room = max(1, room)
    wide = _wide(sight, room)
    window = Window(math.ceil(sight.now / wide) * wide, wide, room)
    shades = parts.ASCII_SHADES if sight.ascii_only else parts.SHADES if sight.plain else ""
    return Frame(label, window, shown, shades, sight.ascii_only)


def _wide(sight: Sight, columns: int) -> float:
    """Seconds of a column."""
    least = sight.pace.usual() or UNKNOWN_S
    if sight.stretch is not None and sight.stretch < WHOLE:
        return sight.stretch / columns
    if sight.stretch is not None:
        least = max(WIDTHS[0], (sight.now - (sight.pace.began_at or sight.now) + least) / columns)
    return next((each for each in WIDTHS if each >= least), least)


def _heading(sight: Sight, frame: Frame) -> Line:
    notes = [*parts.slowing(sight.pace, frame), *parts.pauses(sight.pace, frame, sight.saves)]
    if sight.stalled:
        notes = [*parts.stopping(sight.pace, frame), *notes]
    warns = sight.stalled or bool(sight.pace.slow() or sight.pace.late())
    return Line(
        (
            Piece(f" {STRETCHES[sight.stretch]}".ljust(frame.label + 1)[: frame.label + 1], "label"),
            Piece(parts.placed(notes, frame.window.columns), "pace-slow" if warns else "label"),
            heading(frame.columns, work=sight.pace.works),
        )
    )


# Curves


@dataclass(frozen=True)
class _Curve:
    name: str
    values: Sequence[float | None]
    over: Sequence[float | None]
    """Drawn above, in the colour of what is slow; empty: nothing."""
    said: Sequence[tuple[Piece, ...]]


def _tall(sight: Sight, height: int) -> dict[str, int]:
    """The curves that a pane of this height has, from the top, and how many lines each needs."""
    names = [STEP_TIME] if height >= LOW else []
    if height >= 24:
        names = ["loss", STEP_TIME, *[name for name in THROUGHPUT if sight.metrics.series(name)][:1]]
    has = {name for name in names if name == STEP_TIME or sight.metrics.series(name)}
    return {name: 3 if height >= 36 else 2 for name in names if name in has}


def _curves(sight: Sight, frame: Frame, tall: Mapping[str, int]) -> Iterator[Line]:
    for name, lines in tall.items():
        each = _step_time(sight, frame) if name == STEP_TIME else _series(sight, frame, name)
        if any(value is not None for value in each.values):
            yield from _drawn(each, frame, lines)


def _series(sight: Sight, frame: Frame, name: str) -> _Curve:
    points = sight.metrics.series(name)
    values = _binned(points, frame)
    newest = next((value for value in reversed(values) if value is not None), None)
    said: list[tuple[Piece, ...]] = []
    if newest is not None:
        said.append((Piece(f" {number_text(newest)}", "title"),))
        said += _before(sight.pace, points, newest) if name in THROUGHPUT else ()
    return _Curve(THROUGHPUT.get(name, name), values, (), said)


def _before(pace: Pace, points: Sequence[tuple[float, float]], newest: float) -> Iterator[tuple[Piece, ...]]:
    """How much it was until a rank became slow, if that was more."""
    for one in pace.slow()[:1]:
        first = pace.apart_since(one.rank)
        step = pace.step(first)
        until = -math.inf if step is None else step.typical_end - step.typical_span
        some = [value for at, value in points if at <= until][-BEFORE:]
        if some and median(some) >= newest * (1 + EXCESS):
            yield (Piece(f" {number_text(median(some))} until {first:,}", "label"),)


def _without(sight: Sight) -> Iterator[tuple[Piece, ...]]:
    """How long it would last if the slow ranks worked like the slowest of the others."""
    pace, slow = sight.pace, {one.rank for one in sight.pace.slow()}
    usual = pace.usual()
    if not slow or not usual or not pace.works or sight.left is None or sight.stalled:
        return
    works = {rank: work for rank in pace.steps.ranks if (work := pace.of(rank).work) is not None}
    rest = [work for rank, work in works.items() if rank not in slow]
    if not rest or not slow & works.keys():
        return
    saved = max(works[rank] for rank in slow & works.keys()) - max(rest)
    if EXCESS * usual <= saved < usual:
        whom = f"rank {min(slow)}" if len(slow) == 1 else f"{len(slow)} slow ranks"
        yield (Piece(f" {span_text(sight.left * (1 - saved / usual))} left without {whom}", "label"),)


def _step_time(sight: Sight, frame: Frame) -> _Curve:
    """The median rank's steps, and above them those of the slowest rank where it stands out.

    Of work, where that is known: whole steps are as long as the slowest rank makes them, on all ranks.
    """
    middle, worst = [], []
    works = sight.pace.works
    newest: tuple[float, int] | None = None
    about = "" if sight.pace.exact else "~"
    every = max(1, len(sight.pace.steps) // (POINTS * frame.window.columns)) if sight.stretch else 1
    for step in islice(sight.pace.steps.newest(), 0, None, every):
        if step.typical_end < frame.window.since:
            break
        if works and not step.works:
            continue
        typical = step.compared[1]
        typical = step.typical_span if math.isnan(typical) else typical
        middle.append((step.typical_end, typical))
        slowest = step.slowest if step.slowest[0] > 0 else (typical, 0)
        newest = newest or slowest
        if slowest[0] >= typical * (1 + EXCESS):
            worst.append((step.typical_end, slowest[0]))
    for bucket in reversed(sight.pace.history.buckets):
        if bucket.until < frame.window.since:
            break
        middle.append((bucket.until, bucket.middle))
        if bucket.excess >= EXCESS:
            worst.append((bucket.until, bucket.middle * (1 + bucket.excess)))
    usual = next((value for _, value in middle if not math.isnan(value)), None)
    said: list[tuple[Piece, ...]] = []
    if newest is not None and newest[0] >= middle[0][1] * (1 + EXCESS):
        rank = sight.pace.steps.ranks[newest[1]]
        which = "latest" if sight.pace.lags else "slowest"
        said.append((Piece(f" {seconds(newest[0])}", "pace-slow"), Piece(f" {which}, rank {rank}", "label")))
    if usual is not None:
        said.append((Piece(f" {about}{seconds(usual)}", "title"), Piece(" median rank", "label")))
    said += _without(sight)
    name = "enqueueing" if sight.pace.lags else "work" if works else STEP_TIME
    return _Curve(name, _binned(middle[::-1], frame), _binned(worst[::-1], frame), said)


def _binned(points: Sequence[tuple[float, float]], frame: Frame) -> list[float | None]:
    """Two values for each column: of the last point in it, and back to the one before unless that is far."""
    window = frame.window
    half = window.wide / 2
    values: list[float | None] = [None] * (2 * window.columns)
    gaps = [later - at for (at, _), (later, _) in pairwise(points) if later > at >= window.since]
    usual = median(gaps) if gaps else 0.0
    before = -math.inf
    for at, value in points:
        since = before if 0 < at - before <= STALL * usual else at - usual
        before = at
        place = int((at - window.since) // half)
        if place < 0 or not math.isfinite(value):
            continue
        for each in range(max(0, int((since - window.since) // half) + 1), min(place, len(values))):
            values[each] = value if values[each] is None else values[each]
        if place < len(values):
            values[place] = value
    return values


def _drawn(each: _Curve, frame: Frame, tall: int) -> Iterator[Line]:
    known = [value for value in (*each.values, *each.over) if value is not None]
    # Times and speeds begin at 0, so that noise looks like noise; a loss has no natural zero.
    low, high = min(known) if each.name == "loss" else 0.0, max(known)
    below = curve(each.values, tall, low, high, ascii_only=frame.ascii_only)
    above = curve(each.over, tall, low, high, ascii_only=frame.ascii_only) if each.over else [""] * tall
    for at, (under, over) in enumerate(zip(below, above, strict=True)):
        name = each.name if at == 0 else ""
        pieces = [Piece(f" {name}".ljust(frame.label + 1)[: frame.label + 1], "label")]
        pieces += _laid(under, over, frame.window.columns)
        room = sum(COLUMNS[name] for name in frame.columns)
        for piece in each.said[at] if at < len(each.said) else ():
            room -= cell_len(piece.text)
            if room >= 0:
                pieces.append(piece)
        yield Line(tuple(pieces))


def _laid(under: str, over: str, columns: int) -> Iterator[Piece]:
    """Two curves in one line: where both have something, in the colour of the one above."""
    both = zip(under.ljust(columns), over.ljust(columns), strict=True)
    for above, run in groupby(both, key=lambda pair: pair[1] != " "):
        yield Piece("".join(_merged(*pair) for pair in run), "pace-slow" if above else "spark")


def _merged(under: str, over: str) -> str:
    """A cell with the dots of two; of other signs the one above."""
    if over == " ":
        return under
    return chr(ord(under) | ord(over)) if "⠀" <= under <= "⣿" and "⠀" <= over <= "⣿" else over
