"""Ranks × time: how slow each rank was in each column of a screen."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from cockpit.core.pace.history import Bucket
from cockpit.core.pace.steps import Key, Step, Steps

LEVELS = (0.15, 0.30, 0.50, 1.0)
"""From how much more than the median rank's time on a cell is warmer."""

NO_STEP, USUAL = 0, 1
"""Levels of a cell: no step went on; as long as the median. Those above, up to 5, are longer."""

STALL = 3.0
"""A step that takes so many times the usual began late: something else went on before it, or nothing."""


@dataclass(frozen=True)
class Window:
    """The columns of a screen.

    :param until: unix seconds at the right edge
    :param wide: seconds of a column
    :param columns: how many
    """

    until: float
    wide: float
    columns: int

    @property
    def since(self) -> float:
        """Unix seconds at the left edge."""
        return self.until - self.wide * self.columns

    def cover(self, start: float, end: float) -> range:
        """The columns that a span of time touches."""
        first = max(0, int((start - self.since) // self.wide))
        return range(first, min(self.columns, math.ceil((end - self.since) / self.wide)))


ALIKE = 0.1
"""How much longer or shorter a step may be that is drawn as the last one whose work is known."""

SETTLED_S = 150.0
"""Columns that ended so long before the newest step are not drawn again: how much of a step was work is
learned up to a minute later."""

OLDER = 64
"""Steps before the window that end the search: a node may report some out of order."""


class Heat:
    """Draws a run's steps as levels: one byte for each place, for each column from left to right.

    A column has the worst step of each rank. Steps since recorders were last asked are drawn as the last
    one of which the work is known. A rank that finished a step much later or earlier than the
    median rank is drawn where it did so.
    """

    def __init__(self) -> None:
        self._drawn: dict[Key, _Drawn] = {}
        self._settled: dict[int, bytes] = {}
        self._settled_for: tuple[float, int] = (0.0, 0)

    def draw(
        self, steps: Steps, window: Window, usual: float | None, history: Sequence[Bucket] = ()
    ) -> list[bytes]:
        """The columns of a window.

        :param usual: seconds of a step, :meth:`cockpit.core.pace.pace.Pace.usual`
        :param history: what is left of the steps before those; of several it names the slowest rank alone
        """
        if (window.wide, steps.past) != self._settled_for:
            self._settled, self._settled_for = {}, (window.wide, steps.past)
        first = round(window.since / window.wide)
        kept = [self._settled.get(first + column) for column in range(window.columns)]
        missing = next((column for column, drawn in enumerate(kept) if drawn is None), window.columns)
        since = window.since + missing * window.wide
        columns = self._draw(steps, window, since, usual)
        _draw_history(columns, history, window, since, usual)
        columns[:missing] = [drawn for drawn in kept[:missing] if drawn is not None]
        newest = next(steps.newest(), None)
        settled = -math.inf if newest is None else newest.typical_end - SETTLED_S
        many = sum(window.since + (column + 1) * window.wide <= settled for column in range(window.columns))
        self._settled = {first + column: columns[column] for column in range(many)}
        return columns

    def _draw(self, steps: Steps, window: Window, since: float, usual: float | None) -> list[bytes]:
        """The columns from a moment on; those before it are not complete."""
        columns = [bytes(len(steps.ranks))] * window.columns
        before, self._drawn = self._drawn, {}
        older = 0
        looked = next((step for step in steps.newest() if step.works), None)
        carried = _draw(looked, looked.typical_span).together if looked else b""
        as_carried: dict[bytes, bytes] = {}
        for step in steps.newest():
            end = step.typical_end
            if end < since:
                older += 1
                if older > OLDER:
                    break
                continue
            span = _occupied(step.typical_span, usual) * step.count
            drawn = before.get(step.key)
            if drawn is None or drawn.version != step.version or drawn.span != span:
                drawn = _draw(step, span)
            self._drawn[step.key] = drawn
            together = drawn.together
            if looked is not None and _goes_on(looked, step):
                # A rank that was not with the others then may be so again.
                if together not in as_carried:
                    pairs = zip(together, carried, strict=True)
                    as_carried[together] = bytes(level and (known or level) for level, known in pairs)
                together = as_carried[together]
            for column in window.cover(end - span, end):
                columns[column] = _worst(columns[column], together)
            for place, late, own, level in drawn.apart:
                for column in window.cover(late - _occupied(own, usual), late):
                    cells = bytearray(columns[column])
                    cells[place] = max(cells[place], level)
                    columns[column] = bytes(cells)
        return columns


def _draw_history(
    columns: list[bytes], history: Sequence[Bucket], window: Window, since: float, usual: float | None
) -> None:
    ranks = len(columns[0]) if columns else 0
    for bucket in history:
        if bucket.until < since or bucket.slowest >= ranks:
            continue
        cells = bytearray([USUAL]) * ranks
        cells[bucket.slowest] = bisect_right(LEVELS, bucket.excess) + USUAL
        for column in window.cover(bucket.at - (usual or 0.0), bucket.until):
            columns[column] = _worst(columns[column], bytes(cells))


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A step as it is drawn.

    :param together: the levels of the ranks that finished with the median one
    :param apart: place, end, span and level of each other
    """

    version: int
    span: float
    together: bytes
    apart: Sequence[tuple[int, float, float, int]]


def _draw(step: Step, span: float) -> _Drawn:
    levels = bytearray([USUAL]) * len(step.ends)
    for place, excess in enumerate(step.excesses):
        if excess >= LEVELS[0]:  # what is not known is NaN, which is not
            levels[place] = bisect_right(LEVELS, excess) + USUAL
    middle = step.typical_end - step.base
    apart = []
    for place, end in enumerate(step.ends):
        if end != end:
            levels[place] = NO_STEP
        elif abs(end - middle) > span / 2:
            apart.append((place, step.base + end, step.spans[place], levels[place]))
            levels[place] = NO_STEP
    return _Drawn(step.version, span, bytes(levels), apart)


def _goes_on(looked: Step, step: Step) -> bool:
    """Whether ranks did as in the last step whose work is known: it is newer, and takes as long."""
    alike = abs(step.typical_span - looked.typical_span) <= ALIKE * looked.typical_span
    return not step.works and step.key > looked.key and alike


def _occupied(span: float, usual: float | None) -> float:
    """How long a step went on up to its end; before that was a checkpoint, an evaluation, a stall."""
    if math.isnan(span):
        return 0.0 if usual is None else usual
    return usual if usual is not None and span > STALL * usual else span


def _worst(some: bytes, others: bytes) -> bytes:
    if some == others:
        return some
    return others if not any(some) else bytes(map(max, some, others))
