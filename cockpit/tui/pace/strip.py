"""The run's whole past above its log: loss and step time on one axis, and one sentence at the end.

Of a low screen a line each; before the first step, what each rank does.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby, islice
from statistics import median

from cockpit.core.pace.heat import Window
from cockpit.core.pace.medians import middle
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.pauses import Pause, pauses
from cockpit.core.pace.slow import EXCESS, LOOKED_AT, NEEDED
from cockpit.core.pace.steps import Step
from cockpit.tui.look.spark import BLOCKS
from cockpit.tui.look.units import span_text
from cockpit.tui.pace.curves import POINTS, beside, curves, labelled, step_time
from cockpit.tui.pace.lines import column_width
from cockpit.tui.pace.marks import PAUSES, Mark, Note, axis, column_of, pause_note, placed, slowing
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
FEWEST_S = 5.0
"""Seconds of steps below which there is no past to draw."""
MANY = 4
"""A column in so many may be a checkpoint; of more, none is drawn, since no step would be seen."""
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
    began, front = sight.pace.began_at, sight.pace.front
    if began is None or front is None or front[1] - began < FEWEST_S:
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
        both = [*curves(sight, frame, dict.fromkeys(loss, 1)), *_bars(sight, frame, 1, ())]
        return [Line(tuple(piece for line in both for piece in line.pieces))]
    frame = _frame(sight, width, SAID)
    window, room = frame.window, frame.window.columns
    each = max(1, (height - 3) // 2)
    lines = [*curves(sight, frame, dict.fromkeys(loss, each))]
    steps = height - len(lines) - (3 if height > 3 else 1)
    paused = list(islice(pauses(sight.pace, sight.saves, window.since), PAUSES))
    if height > 3:
        saved = [pause for pause in paused if pause.saved][:1]  # of the others it is seen what they are
        marked = [pause_note(pause, frame) for pause in paused if not pause.saved or pause in saved]
        notes = [*slowing(sight.pace, frame), *_slow_before(sight, frame), *marked]
        lines.append(Line((Piece(" " * (LABEL + 1)), *placed(notes, room))))
    lines += _bars(sight, frame, steps, _hatched(sight, frame, paused))
    if height > 3:
        lines.append(Line((Piece(" " * (LABEL + 1)), axis(frame, sight.now, ended=sight.ended))))
    return [*lines, Line.of(f" {sentence(sight, paused)}")]


def _frame(sight: Sight, width: int, said: int) -> Frame:
    room = max(1, width - LABEL - 1 - said)
    wide = column_width(sight, room)
    window = Window(math.ceil(sight.now / wide) * wide, wide, room)
    return Frame(LABEL, window, {"said": said}, "", sight.ascii_only)


def _bars(sight: Sight, frame: Frame, tall: int, hatched: Collection[int]) -> Iterator[Line]:
    """The steps of each column as one bar, in another colour what the slowest rank took longer.

    :param hatched: columns in which checkpoints were written
    """
    curve = step_time(sight, frame)
    pairs = [tuple(curve.values[at : at + 2]) for at in range(0, len(curve.values), 2)]
    overs = [tuple(curve.over[at : at + 2]) for at in range(0, len(curve.over), 2)] or [()] * len(pairs)
    usual, over = [_most(pair) for pair in pairs], [_most(pair) for pair in overs]
    high = max([each for each in (*usual, *over) if each is not None], default=0.0)
    for row in range(tall):
        cells = [
            ("hatch", frame.ascii_only)
            if at in hatched
            else _cell(_eighths(usual[at], high, tall), _eighths(over[at], high, tall), tall - 1 - row)
            for at in range(len(usual))
        ]
        pieces = [labelled(curve.name, row, tall, 0.0, high, frame)]
        for (sign, role), run in groupby(_drawn(cell, sight) for cell in cells):
            pieces.append(Piece(sign * len(list(run)), role))
        yield Line((*pieces, *beside(curve.said, row, frame)))


def _most(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None and math.isfinite(value)), default=None)


def _eighths(value: float | None, high: float, tall: int) -> int:
    """The height of a bar in eighths of a line."""
    if value is None or not high > 0:
        return 0
    return max(1, round(min(1.0, value / high) * 8 * tall))


def _cell(usual: int, over: int, line: int) -> tuple[str, object]:
    """What a bar fills of a line, counted from the bottom."""
    low, top = (min(8, max(0, each - 8 * line)) for each in (usual, over))
    if low == 8 or top <= low:
        return "usual", low
    return ("over", top) if low == 0 or top < 8 else ("both", low)


def _drawn(cell: tuple[str, object], sight: Sight) -> tuple[str, str]:
    """The sign and the role of a cell."""
    kind, eighths = cell
    if kind == "hatch":
        return ":" if sight.ascii_only else "░", "label"
    assert isinstance(eighths, int)
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


def sentence(sight: Sight, paused: Sequence[Pause]) -> str:
    """What there is to say of its steps, as far as it is known.

    :param paused: steps that began late
    """
    pace = sight.pace
    said = []
    if (usual := pace.usual()) is not None:
        said.append(f"{'' if pace.exact else '~'}{seconds(usual)} a step")
    slow = pace.slow()
    if slow:
        more = f", {len(slow) - 1:,} more ranks are slow" if len(slow) > 1 else ""
        since = f"since step {pace.apart_since(slow[0].rank):,}"
        said.append(f"rank {slow[0].rank} works {100 * slow[0].excess:.0f} % longer {since}{more}")
    elif (apart := _apart(pace)) is not None and apart < EXCESS:
        said.append(f"ranks alike within {max(1, math.ceil(100 * apart))} %")
    if (by := pace.bound()) is not None:
        said.append(by.text)
    saved = [pause.seconds for pause in paused if pause.saved]
    if saved:
        said.append(f"a checkpoint takes {span_text(median(saved))}")
    return "; ".join(said)


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
