"""Curves above the map, on its columns: loss, work or step time, and throughput."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice, pairwise
from statistics import median

from rich.cells import cell_len

from cockpit.core.pace.heat import STALL, goes_on
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.slow import EXCESS, LOOKED_AT
from cockpit.core.pace.step import Step
from cockpit.core.time_text import span_text
from cockpit.tui.look.spark import curve
from cockpit.tui.look.units import number_text, short_text
from cockpit.tui.pace.table import seconds
from cockpit.tui.pace.view_model import Frame, Sight
from cockpit.tui.panes.text_pane import Line, Piece

POINTS = 4
"""Steps for each column that a curve is drawn from; of more, some are left out."""

BEFORE = 20
"""Values of which the median says how it was before."""

LATELY_S = 600.0
"""Seconds over which it is said how much a loss has changed."""

STEP_TIME = "step time"
THROUGHPUT = {"tokens_s": "tokens/s", "samples_s": "samples/s"}
LEAST, HIGHEST = 2, 4
"""Lines of a curve, and on a high screen."""
SCALED = 3
"""From so many lines on, a curve has a scale."""
LOW, HIGH = 8, 24
"""A pane with fewer lines has no curve: the map has them all; from how many on it has all curves."""


@dataclass(frozen=True)
class Curve:
    name: str
    values: Sequence[float | None]
    over: Sequence[float | None]
    """Drawn above, in the colour of what is slow; empty: nothing."""
    said: Sequence[tuple[Piece, ...]]


def known(sight: Sight) -> list[str]:
    """The curves that there are, from the top."""
    throughput = [name for name in THROUGHPUT if sight.metrics.series(name)][:1]
    return [*(["loss"] if sight.metrics.series("loss") else []), STEP_TIME, *throughput]


def blank(sight: Sight, frame: Frame, names: Iterable[str]) -> list[str]:
    """The curves that have nothing to draw: all is older than what is shown."""
    return [
        name for name in names if not any(value is not None for value in _curve(sight, frame, name).values)
    ]


def curves(sight: Sight, frame: Frame, tall: Mapping[str, int]) -> Iterator[Line]:
    """The lines of some curves.

    :param tall: how many lines each has, from the top
    """
    for name, lines in tall.items():
        yield from _drawn(_curve(sight, frame, name), frame, lines)


def _curve(sight: Sight, frame: Frame, name: str) -> Curve:
    return step_time(sight, frame) if name == STEP_TIME else _series(sight, frame, name)


def _series(sight: Sight, frame: Frame, name: str) -> Curve:
    points = sight.metrics.series(name)
    values = _binned(points, frame)
    newest = next((value for value in reversed(values) if value is not None), None)
    said: list[tuple[Piece, ...]] = []
    if newest is not None:
        text = short_text if name in THROUGHPUT else number_text
        said.append((Piece(f" {text(newest)}", "title"),))
        said += _before(sight.pace, points, newest) if name in THROUGHPUT else _lately(sight, points)
    return Curve(THROUGHPUT.get(name, name), values, (), said)


def _lately(sight: Sight, points: Sequence[tuple[float, float]]) -> Iterator[tuple[Piece, ...]]:
    """How much a loss has changed, and at which rate it learns."""
    at, newest = points[-1]
    before = [value for when, value in points if when <= at - LATELY_S][-1:]
    if before:
        yield (Piece(f" {newest - before[0]:+.2g} in {LATELY_S / 60:.0f} min", "label"),)
    if (lr := sight.metrics.latest.lr) is not None:
        yield (Piece(f" lr {number_text(lr)}", "label"),)


def _before(pace: Pace, points: Sequence[tuple[float, float]], newest: float) -> Iterator[tuple[Piece, ...]]:
    """How much it was until a rank became slow, if that was more."""
    for one in pace.slow()[:1]:
        first = pace.apart_since(one.rank)
        step = pace.step(first)
        until = -math.inf if step is None else step.typical_end - step.typical_span
        some = [value for at, value in points if at <= until][-BEFORE:]
        if some and median(some) >= newest * (1 + EXCESS):
            yield (Piece(f" {short_text(median(some))} until step {first - 1:,}", "label"),)


def _without(sight: Sight) -> Iterator[tuple[Piece, ...]]:
    """How long it would last if the slow ranks worked like the slowest of the others."""
    pace, slow = sight.pace, {one.rank for one in sight.pace.slow()}
    usual = pace.judged()
    if not slow or not usual or not pace.works or sight.left is None or sight.stalled:
        return
    works = {rank: work for rank in pace.steps.ranks if (work := pace.of(rank).work) is not None}
    rest = [work for rank, work in works.items() if rank not in slow]
    if not rest or not slow & works.keys():
        return
    saved = max(works[rank] for rank in slow & works.keys()) - max(rest)
    if EXCESS * usual <= saved < usual:
        whom = f"rank {min(slow)}" if len(slow) == 1 else f"the {len(slow)} slow ranks"
        yield (Piece(f" ETA {span_text(sight.left * (1 - saved / usual))} without {whom}", "label"),)


def step_time(sight: Sight, frame: Frame) -> Curve:
    """The median rank's steps, and above them those of the slowest rank where it stands out.

    Of work, where that is known: whole steps are as long as the slowest rank makes them, on all ranks. Steps
    since recorders were last asked are drawn as the last one whose work is known, as in the map.
    """
    middle, worst = [], []
    works, pace = sight.pace.works, sight.pace
    newest: tuple[float, int] | None = None
    for step, shown in _shown(sight, frame):
        typical = shown.compared[1]
        typical = shown.typical_span if math.isnan(typical) else typical
        middle.append((step.typical_end, typical))
        slowest = shown.slowest if shown.slowest[0] > 0 else (typical, 0)
        newest = newest or slowest
        if slowest[0] >= typical * (1 + EXCESS):
            worst.append((step.typical_end, slowest[0]))
    for bucket in reversed(pace.history.buckets):
        if bucket.until < frame.window.since:
            break
        middle.append((bucket.until, bucket.middle))
        if bucket.excess >= EXCESS:
            worst.append((bucket.until, bucket.middle * (1 + bucket.excess)))
    said: list[tuple[Piece, ...]] = []
    if newest is not None and newest[0] >= middle[0][1] * (1 + EXCESS):
        which = "latest" if pace.lags else "slowest"
        who = f" {which}, rank {pace.steps.ranks[newest[1]]}"
        said.append((Piece(f" {seconds(newest[0])}", "pace-slow"), Piece(who, "label")))
    if (usual := _usual(sight.pace)) is not None:
        said.append(_said_usual(sight, usual))
    said += _without(sight)
    name = "enqueueing" if pace.lags else "work" if works else STEP_TIME
    return Curve(name, _binned(middle[::-1], frame), _binned(worst[::-1], frame), said)


def _shown(sight: Sight, frame: Frame) -> Iterator[tuple[Step, Step]]:
    """The steps in the window, newest first, and whose times each is drawn with."""
    steps = sight.pace.steps
    every = max(1, len(steps) // (POINTS * frame.window.columns)) if sight.stretch else 1
    works = sight.pace.works
    looked = next((step for step in steps.newest() if step.works), None) if works else None
    for step in islice(steps.newest(), 0, None, every):
        if step.typical_end < frame.window.since:
            return
        if not works or step.works:
            yield step, step
        elif looked is not None and goes_on(looked, step):
            yield step, looked


def _usual(pace: Pace) -> float | None:
    """Seconds that a step, or its work, takes the median rank: the median of some; None: not known.

    Noise must not make work longer than a step.
    """
    if not pace.works:
        return pace.usual()
    usual = pace.judged()
    judged = islice((step.typical_work for step in pace.steps.newest() if step.by_work), LOOKED_AT)
    works = [work for work in judged if math.isfinite(work)]
    return usual if usual is None or not works else min(usual, median(works))


def _said_usual(sight: Sight, usual: float) -> tuple[Piece, ...]:
    """The median rank's time; beside its work, how long a whole step takes."""
    about = "" if sight.pace.exact else "~"
    whole = sight.pace.judged() if sight.pace.works else None
    more = "" if whole is None else f", {seconds(whole)} a step"
    return Piece(f" {about}{seconds(usual)}", "title"), Piece(f" median{more or ' rank'}", "label")


def _binned(points: Sequence[tuple[float, float]], frame: Frame) -> list[float | None]:
    """Two values for each column: of the last point in it, and back to the one before unless that is far."""
    window = frame.window
    half = window.wide / 2
    values: list[float | None] = [None] * (2 * window.columns)
    gaps = [later - at for (at, _), (later, _) in pairwise(points) if later > at >= window.since]
    usual = median(gaps) if gaps else 0.0
    since = before = -math.inf
    for at, value in points:
        if not 0 <= at - before <= STALL * usual:
            since = at - usual
        before = at
        if not math.isfinite(value):
            continue  # the next one covers its time: of steps that came together only one has a length
        place = int((at - window.since) // half)
        if place >= 0:
            for each in range(max(0, int((since - window.since) // half) + 1), min(place, len(values))):
                values[each] = value if values[each] is None else values[each]
            if place < len(values):
                values[place] = value
        since = at
    return values


def _drawn(each: Curve, frame: Frame, tall: int) -> Iterator[Line]:
    found = [value for value in (*each.values, *each.over) if value is not None] or [0.0]
    # Times and speeds begin at 0, so that noise looks like noise; a loss has no natural zero.
    low, high = min(found) if each.name == "loss" else _low(each), max(found)
    below = curve(each.values, tall, low, high, ascii_only=frame.ascii_only)
    above = curve(each.over, tall, low, high, ascii_only=frame.ascii_only) if each.over else [""] * tall
    for at, (under, over) in enumerate(zip(below, above, strict=True)):
        pieces = [labelled(each.name, at, tall, low, high, frame)]
        pieces += _laid(under, over, frame.window.columns)
        yield Line((*pieces, *beside(each.said, at, frame)))


def labelled(name: str, line: int, tall: int, low: float, high: float, frame: Frame) -> Piece:
    """What stands before a line of a curve: its name, and in a tall one its greatest and its least value."""
    ends = {1: high, tall - 1: low} if tall >= SCALED and high > low else {}
    said = number_text if name == "loss" else short_text if name in THROUGHPUT.values() else seconds
    text = name if line == 0 else (said(ends[line]) if ends[line] else "0") if line in ends else ""
    return Piece(f" {text}".ljust(frame.label + 1)[: frame.label + 1], "label")


def beside(said: Sequence[tuple[Piece, ...]], line: int, frame: Frame) -> Iterator[Piece]:
    """What is said beside a line of a curve, as far as there is room."""
    room = sum(frame.columns.values())
    for text, role in said[line] if line < len(said) else ():
        text = text if cell_len(text) <= room else text.partition(", ")[0]
        room -= cell_len(text)
        if room >= 0:
            yield Piece(text, role)


def _low(each: Curve) -> float:
    """The value of the bottom: 0, or so much that the curve above has lines, and its colour, to itself."""
    over = [value for value in each.over if value is not None]
    usual = [value for value in each.values if value is not None]
    if not over or not usual:
        return 0.0
    middle = median(usual)
    return max(0.0, middle - (max(over) - middle) / 2)


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
