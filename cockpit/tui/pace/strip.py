"""The run's whole past above its log: loss and step time on one axis, and one sentence at the end.

Of a low screen a line each; before the first step, what each rank does.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice, takewhile
from statistics import median

from cockpit.core.pace.heat import STALL, Window
from cockpit.core.pace.medians import middle
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.pauses import Pause, pauses
from cockpit.core.pace.slow import EXCESS, LOOKED_AT, NEEDED
from cockpit.core.pace.step import Step
from cockpit.core.time_text import span_text
from cockpit.tui.look.spark import BLOCKS
from cockpit.tui.pace.curves import POINTS, STEP_TIME, beside, curves, labelled, step_time
from cockpit.tui.pace.lines import column_width
from cockpit.tui.pace.marks import PAUSES, Mark, Note, axis, column_of, pause_note, placed, slowing
from cockpit.tui.pace.phase_strip import (
    column_phases,
    legend,
    shared_out,
    stacked,
)
from cockpit.tui.pace.table import seconds
from cockpit.tui.pace.view_model import Frame, Sight
from cockpit.tui.panes.text_pane import Line, Piece

LABEL, SAID, SAID_SHORT = 10, 18, 8
"""Columns of the names at the left, and of numbers at the right; where both curves share a line."""
NONE, LOW, ROW = 30, 36, 4
"""Rows of a screen below which there is no strip, and below which it has a line for each curve; beyond that a
curve has one more line for so many."""
STACKED = 22
"""Rows of a screen with stacked panes below which there is none; from there on it is one line."""
FEWEST = 3
"""Steps below which there is no past to draw."""
MANY = 4
"""A column in so many may be a checkpoint; of more, none is drawn, since no step would be seen."""
CHANGED, LOOKED_BACK = 0.25, 1000
"""By how much steps must be longer or shorter than before to be said so, where no work is known, and how many
are looked at."""
BLUR_S = 0.2
"""By how much two steps that only logs tell of may seem to differ: lines are read up to 0.1 s late."""
SAMPLES = 3
"""Of the steps looked at, so many in a row in which one rank was slow are worth a mark."""


def strip_height(sight: Sight, rows: int, *, narrow: bool = False) -> int:
    """How many lines it has on a screen of so many rows; 0: it is not there.

    :param narrow: panes are stacked
    """
    if rows < NONE and not narrow:
        return 0
    if sight.doing and not narrow:
        return min(len(sight.doing), rows - NONE + 3)
    if len(sight.pace.steps) < FEWEST or _alike(sight.pace) is None:
        return 0
    if narrow:
        return int(rows >= STACKED)
    if rows < LOW:
        return 3
    return 3 + 2 * _curve_height(rows)


def _curve_height(rows: int) -> int:
    return min(5, 2 + (rows - LOW) // ROW)


def strip_lines(sight: Sight, width: int, height: int) -> Sequence[Line]:
    """The lines for a pane of this size."""
    if sight.doing:
        return [Line.of(f" {text}", "" if at else "title") for at, text in enumerate(sight.doing)]
    loss = ["loss"] if sight.metrics.series("loss") else []
    if height == 1:
        frame = _frame(sight, width // (1 + len(loss)), SAID_SHORT)
        bars = _bars(sight, frame, 1)
        both = [*curves(sight, frame, dict.fromkeys(loss, 1)), *_bar_lines(sight, frame, bars, ())]
        return [Line(tuple(piece for line in both for piece in line.pieces))]
    frame = _frame(sight, width, SAID)
    window, room = frame.window, frame.window.columns
    each = max(1, (height - 3) // 2)
    lines = [*curves(sight, frame, dict.fromkeys(loss, each))]
    steps = height - len(lines) - (3 if height > 3 else 1)
    paused = list(islice(pauses(sight.pace, sight.saves, window.since), PAUSES))
    bars = _bars(sight, frame, steps, around=height > 3)
    hatched = _hatched(sight, frame, paused)
    if height == 3:
        return [*lines, *_bar_lines(sight, frame, bars, hatched), _last(sight, paused, width, bars)]
    saved = [pause for pause in paused if pause.saved][:1]  # of the others it is seen what they are
    marked = [pause_note(pause, frame) for pause in paused if not pause.saved or pause in saved]
    notes = [*slowing(sight.pace, frame), *_slow_before(sight, frame), *marked]
    start = Piece(" " * (LABEL + 1))
    times = axis(frame, sight.now, ended=sight.ended)
    return [
        *lines,
        Line((start, *placed(notes, room), *beside(bars.above, 0, frame))),
        *_bar_lines(sight, frame, bars, hatched),
        Line((start, times, *beside(bars.below, 0, frame))),
        _last(sight, paused, width, bars),
    ]


def _frame(sight: Sight, width: int, said: int) -> Frame:
    room = max(1, width - LABEL - 1 - said)
    wide = column_width(sight, room)
    window = Window(math.ceil(sight.now / wide) * wide, wide, room)
    return Frame(LABEL, window, {"said": said}, "", sight.ascii_only)


@dataclass(frozen=True)
class _Bars:
    """The steps of each column as one bar.

    :param usual: what one took the median rank
    :param over: what one took the slowest rank, where that is much longer
    :param stacks: the phase of each eighth of a line of the bar, from the bottom up; empty: not known
    :param above, below: what is said at the right of the lines around the bars
    """

    name: str
    tall: int
    high: float
    usual: Sequence[float | None]
    over: Sequence[float | None]
    stacks: Sequence[Sequence[str]]
    said: Sequence[tuple[Piece, ...]]
    above: Sequence[tuple[Piece, ...]] = ()
    below: Sequence[tuple[Piece, ...]] = ()


def _bars(sight: Sight, frame: Frame, tall: int, *, around: bool = False) -> _Bars:
    """What there is to draw in so many lines; a single one is too little for phases.

    :param around: there is a line above and one below
    """
    curve, columns = step_time(sight, frame), frame.window.columns
    usual = [_most(curve.values[2 * at : 2 * at + 2]) for at in range(columns)]
    over = [_most(curve.over[2 * at : 2 * at + 2]) for at in range(columns)]
    phases = column_phases(sight, frame) if tall > 1 else []
    lately = sight.pace.phases() if any(phases) else None
    if lately is None:
        high = max([each for each in (*usual, *over) if each is not None], default=0.0)
        return _Bars(curve.name, tall, high, usual, over, [()] * columns, curve.said)
    for at, of in enumerate(phases):
        if of is not None:
            usual[at], over[at] = of.total, None
    high = max([each for each in (*usual, *over) if each is not None], default=0.0)
    heights = [_eighths(each, high, tall) for each in usual]
    pairs = zip(phases, heights, strict=True)
    stacks = [() if of is None else shared_out(of, height) for of, height in pairs]
    said = [*_whole(sight), *(one for one in curve.said if one[0].role == "pace-slow")]
    lines = tall + 2 * around - len(said)
    said += legend(lately, lines, sight.pace.about, letters=sight.plain or sight.ascii_only)
    if not around:
        return _Bars("step", tall, high, usual, over, stacks, said)
    return _Bars("step", tall, high, usual, over, stacks, said[1 : tall + 1], said[:1], said[tall + 1 :])


def _whole(sight: Sight) -> Iterator[tuple[Piece, ...]]:
    """How long a step takes."""
    if (usual := sight.pace.usual()) is not None:
        yield Piece(f" {seconds(usual)}", "title"), Piece(" median", "label")


def _bar_lines(sight: Sight, frame: Frame, bars: _Bars, hatched: Collection[int]) -> Iterator[Line]:
    """The bars; in another colour what the slowest rank took longer.

    :param hatched: columns in which checkpoints were written
    """
    letters = sight.plain or sight.ascii_only
    columns = list(zip(bars.usual, bars.over, bars.stacks, strict=True))
    for row in range(bars.tall):
        line, cells = bars.tall - 1 - row, list[tuple[str, str]]()
        for at, (usual, over, stack) in enumerate(columns):
            if at in hatched:
                cells.append((":" if sight.ascii_only else "░", "label"))
            elif stack:
                cells.append(stacked(stack, line, letters=letters))
            else:
                low, top = (_eighths(each, bars.high, bars.tall) for each in (usual, over))
                cells.append(_drawn(_cell(low, top, line), sight))
        pieces = [labelled(bars.name, row, bars.tall, 0.0, bars.high, frame)]
        pieces += [Piece(sign * len(list(run)), role) for (sign, role), run in groupby(cells)]
        yield Line((*pieces, *beside(bars.said, row, frame)))


def _most(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None and math.isfinite(value)), default=None)


def _eighths(value: float | None, high: float, tall: int) -> int:
    """The height of a bar in eighths of a line."""
    if value is None or not high > 0:
        return 0
    return max(1, round(min(1.0, value / high) * 8 * tall))


def _cell(usual: int, over: int, line: int) -> tuple[str, int]:
    """What a bar fills of a line, counted from the bottom."""
    low, top = (min(8, max(0, each - 8 * line)) for each in (usual, over))
    if low == 8 or top <= low:
        return "usual", low
    return ("over", top) if low == 0 or top < 8 else ("both", low)


def _drawn(cell: tuple[str, int], sight: Sight) -> tuple[str, str]:
    """The sign and the role of a cell."""
    kind, eighths = cell
    if eighths == 0:
        return " ", ""
    if sight.ascii_only:
        return ("." if eighths < 4 else "#") if kind == "usual" else "+", ""
    if kind == "both" and sight.plain:
        kind = "over"
    block = BLOCKS[eighths - 1]
    if kind == "usual":
        return block, "pace-1"
    if kind == "both":
        return block, "pace-1/pace-slow"
    return "▒" if sight.plain else block, "pace-slow"


def _hatched(sight: Sight, frame: Frame, paused: Sequence[Pause]) -> frozenset[int]:
    """The columns in which checkpoints were written: of one that took less than a column, that alone."""
    columns: set[int] = set()
    for pause in paused:
        if pause.saved and pause.seconds < frame.window.wide:
            columns.add(column_of((pause.until + pause.ended) / 2, frame))
        elif pause.saved:
            columns |= {*frame.window.cover(pause.until, pause.ended)}
    oldest = paused[-1].until if paused else math.inf
    columns |= {column_of(at, frame) for at in sight.saves if frame.window.since <= at < oldest}
    return frozenset(columns) if len(columns) * MANY <= frame.window.columns else frozenset()


def _slow_before(sight: Sight, frame: Frame) -> list[Note]:
    """Where one rank was slow for a while, and is no more."""
    pace, notes = sight.pace, list[Note]()
    every = max(1, len(pace.steps) // (POINTS * frame.window.columns))
    known = [step for step in islice(pace.steps, 0, None, every) if step.by_work]
    odd = [(step.slowest[1] if _stands_out(step) else None, step.typical_end) for step in known]
    slow = {one.rank for one in pace.slow()}
    for place, run in groupby(odd, key=lambda one: one[0]):
        ends = [end for _, end in run]
        lasted = len(ends) >= SAMPLES and len(ends) * every >= NEEDED
        if place is None or not lasted or (rank := pace.steps.ranks[place]) in slow:
            continue
        text, column = f"{'!' if frame.ascii_only else '▲'} rank {rank}", max(0, column_of(ends[0], frame))
        notes.append(Note([Mark(column + len(text), text, "pace-slow")]))
    return notes


def _stands_out(step: Step) -> bool:
    return step.slowest[0] >= step.typical_work * (1 + EXCESS)


def _last(sight: Sight, paused: Sequence[Pause], width: int, bars: _Bars) -> Line:
    """The sentence at the end; of one that is too long the first parts."""
    said = sentence(sight, paused, timed=bool(bars.above) or bars.name == STEP_TIME)
    while len(said) > 1 and len("; ".join(said)) >= width:
        said.pop()
    return Line.of(f" {'; '.join(said)}")


def sentence(sight: Sight, paused: Sequence[Pause], *, timed: bool = False) -> list[str]:
    """What there is to say of its steps, as far as it is known, in parts.

    :param paused: steps that began late
    :param timed: how long a step takes is said elsewhere
    """
    pace = sight.pace
    said = []
    changed = None if pace.works else _changed(pace)
    if changed is not None:
        said.append(changed)
    if not timed and (usual := pace.usual()) is not None:
        said.append(f"{'' if pace.exact else '~'}{seconds(usual)} a step")
    slow = pace.slow()
    if slow:
        more = f", {len(slow) - 1:,} more ranks are slow" if len(slow) > 1 else ""
        since = f"since step {pace.apart_since(slow[0].rank):,}"
        why = pace.why(slow[0])
        because = "" if why is None else f": {why.text}"
        said.append(f"rank {slow[0].rank} works {100 * slow[0].excess:.0f} % longer {since}{because}{more}")
    if (by := pace.bound()) is not None:
        said.append(by.text)
    if not slow and (apart := _apart(pace)) is not None and apart < EXCESS:
        said.append(f"ranks alike within {max(1, math.ceil(100 * apart))} %")
    if not said and (alike := _alike(pace)) is not None:
        said.append(alike)
    saved = [pause.seconds for pause in paused if pause.saved]
    if saved:
        said.append(f"a checkpoint takes {span_text(median(saved))}")
    return said


def _changed(pace: Pace) -> str | None:
    """By how much steps are longer or shorter than before, and since which one; None: they are not.

    Whole steps are alike on all ranks: that says nothing of who makes them so.
    """
    late = STALL * (pace.usual() or math.inf)
    newest = [one for one in _spans(pace, LOOKED_BACK) if one[1] <= late]
    usual = median([span for _, span in newest[:LOOKED_AT]]) if len(newest) >= LOOKED_AT else 0.0
    many = sum(1 for _ in takewhile(lambda one: abs(one[1] / usual - 1) <= CHANGED, newest)) if usual else 0
    earlier = [span for _, span in newest[many : many + LOOKED_AT]]
    if many < NEEDED or len(earlier) < LOOKED_AT // 2:
        return None
    before = median(earlier)
    if max(usual, before) < (1 + CHANGED) * min(usual, before):
        return None
    # Times of lines in a log are blurred: the first ones are on their way to what is usual now.
    many += sum(1 for _ in takewhile(lambda one: abs(one[1] / before - 1) > EXCESS, newest[many:]))
    how = "longer" if usual > before else "shorter"
    return f"steps {100 * abs(usual / before - 1):.0f} % {how} since step {newest[many - 1][0]:,}"


def _alike(pace: Pace) -> str | None:
    """How far the last steps are apart, without those that began late; None: not known."""
    spans = [span for _, span in _spans(pace, LOOKED_AT)]
    if len(spans) < FEWEST - 1:
        return None
    usual = median(spans)
    known = [span for span in spans if span <= STALL * usual]
    least, most = min(known), max(known)
    if not pace.exact and most - least < max(BLUR_S, EXCESS * usual):
        return "steps alike, as far as the times of log lines tell"
    if most - least < EXCESS * usual:
        return f"steps alike within {max(1, math.ceil(100 * (most - least) / usual))} %"
    return f"the last {len(known)} steps took {'' if pace.exact else '~'}{seconds(least)} to {seconds(most)}"


def _spans(pace: Pace, count: int) -> list[tuple[int, float]]:
    """Of so many last steps those whose length is known, newest first, and how long each took."""
    newest = ((step.step, step.typical_span) for step in islice(pace.steps.newest(), count))
    return [(step, span) for step, span in newest if span > 0]


def _apart(pace: Pace) -> float | None:
    """How far ranks are apart in their work, as a part of the median one's; None: nobody knows their work.

    Whole steps are alike on all ranks, whoever is slow.
    """
    if not pace.works or pace.lags or len(pace.steps.ranks) < 2:
        return None
    # Work is learned up to a minute later.
    judged = list(islice((step for step in pace.steps.newest() if step.by_work), LOOKED_AT))
    works = [middle([step.works[place] for step in judged]) for place in range(len(pace.steps.ranks))]
    known = [work for work in works if not math.isnan(work)]
    return (max(known) - min(known)) / median(known) if known and median(known) > 0 else None
