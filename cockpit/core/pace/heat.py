"""Ranks × time: how slow each rank was in each column of a screen."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat

from cockpit.core.pace.history import Bucket
from cockpit.core.pace.step import Key, Step
from cockpit.core.pace.steps import Steps

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
        layers = self._draw(steps, window, since, usual)
        _draw_history(layers, len(steps.ranks), history, window, since, usual)
        columns = [drawn for drawn in kept[:missing] if drawn is not None]
        columns += [_levels(layer, len(steps.ranks)) for layer in layers[missing:]]
        newest = next(steps.newest(), None)
        settled = -math.inf if newest is None else newest.typical_end - SETTLED_S
        many = sum(window.since + (column + 1) * window.wide <= settled for column in range(window.columns))
        self._settled = {first + column: columns[column] for column in range(many)}
        return columns

    def _draw(self, steps: Steps, window: Window, since: float, usual: float | None) -> list[int]:
        """The columns from a moment on, as layers; those before it are not complete."""
        layers = [0] * window.columns
        before, self._drawn = self._drawn, {}
        older = 0
        looked = next((step for step in steps.newest() if step.works), None)
        carried = _draw(looked, looked.typical_span).together if looked else 0
        first_bits = int.from_bytes(b"\1" * len(steps.ranks), "little")
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
            if looked is not None and goes_on(looked, step):
                # A rank that was not with the others then may be so again.
                known = (carried & first_bits) * _ALL_BITS
                there = (together & first_bits) * _ALL_BITS
                together = (together & ~known) | (carried & there)
            for column in window.cover(end - span, end):
                layers[column] |= together
            if drawn.apart:
                first = round(window.since / window.wide)
                for (begin, until), layer in drawn.alone(window, usual).items():
                    for column in range(max(0, begin - first), min(window.columns, until - first)):
                        layers[column] |= layer
        return layers


def _draw_history(
    layers: list[int],
    ranks: int,
    history: Sequence[Bucket],
    window: Window,
    since: float,
    usual: float | None,
) -> None:
    everybody = _layer(bytes([USUAL]) * ranks)
    for bucket in history:
        if bucket.until < since or bucket.slowest >= ranks:
            continue
        level = bisect_right(LEVELS, bucket.excess) + USUAL
        layer = everybody | _BITS[level] << 8 * bucket.slowest
        for column in window.cover(bucket.at - (usual or 0.0), bucket.until):
            layers[column] |= layer


# Layers: the levels of all places as one number, a byte each, the first place lowest. A level has that many
# bits, the lowest ones: what is worse of two layers, place by place, are the bits of both.

_HIGHEST = len(LEVELS) + USUAL
_ALL_BITS = (1 << _HIGHEST) - 1
_BITS = bytes((1 << level) - 1 for level in range(_HIGHEST + 1)).ljust(256, b"\0")
"""The bits of each level, as a table for :meth:`bytes.translate`."""
_LEVEL_OF = bytes(bits.bit_length() for bits in range(256))
"""The level that so many bits are."""


def _layer(levels: bytes | bytearray) -> int:
    return int.from_bytes(levels.translate(_BITS), "little")


def _levels(layer: int, ranks: int) -> bytes:
    return layer.to_bytes(ranks, "little").translate(_LEVEL_OF)


@dataclass(slots=True)
class _Drawn:
    """A step as it is drawn.

    :param ranks: how many places there are
    :param together: the layer of the ranks that finished with the median one
    :param apart: place, end, span and level of each other
    """

    version: int
    span: float
    ranks: int
    together: int
    apart: Sequence[tuple[int, float, float, int]]
    _longest: float = 0.0
    _alone: Mapping[tuple[int, int], int] = field(default_factory=dict)
    _alone_for: tuple[float, float | None] = (0.0, 0.0)

    def __post_init__(self) -> None:
        # What is not known counts as the longest: how it is drawn depends on what is usual, too.
        self._longest = max((math.inf if own != own else own for _, _, own, _ in self.apart), default=0.0)

    def alone(self, window: Window, usual: float | None) -> Mapping[tuple[int, int], int]:
        """The layers of those apart, by the first column of each and the one after its last.

        Columns are counted from the beginning of time, so that they are the same in the next window.
        """
        depends = usual is None or not self._longest <= STALL * usual
        about = window.wide, usual if depends else 0.0
        if about != self._alone_for:
            self._alone, self._alone_for = self._find_alone(window, usual), about
        return self._alone

    def _find_alone(self, window: Window, usual: float | None) -> Mapping[tuple[int, int], int]:
        since, wide = window.since, window.wide
        first = round(since / wide)
        most = math.inf if usual is None else STALL * usual
        found: dict[tuple[int, int], bytearray] = {}
        for place, end, own, level in self.apart:
            span = own if own <= most else _occupied(own, usual)
            columns = first + int((end - span - since) // wide), first + math.ceil((end - since) / wide)
            cells = found.get(columns)
            if cells is None:
                cells = found[columns] = bytearray(self.ranks)
            cells[place] = level
        return {columns: _layer(levels) for columns, levels in found.items()}


def _draw(step: Step, span: float) -> _Drawn:
    levels = _levels_of(step)
    middle = step.typical_end - step.base
    apart = []
    if not _surely_together(step, middle, span):
        for place, end in enumerate(step.ends):
            if end != end:
                levels[place] = NO_STEP
            elif abs(end - middle) > span / 2:
                apart.append((place, step.base + end, step.spans[place], levels[place]))
                levels[place] = NO_STEP
    return _Drawn(step.version, span, len(step.ends), _layer(levels), apart)


def _levels_of(step: Step) -> bytearray:
    if _surely_usual(step):
        return bytearray([USUAL]) * len(step.ends)
    values, bounds = _bounded(step)
    total = sum(values)
    if total != total:  # what is not known is NaN, and drawn as the median rank
        values = [-math.inf if value != value else value for value in values]
    return bytearray(map(bisect_right, repeat(bounds), values))


def _bounded(step: Step) -> tuple[Sequence[float], Sequence[float]]:
    """What is compared, and from which value on a level is one higher.

    Of one stage, what was measured: to divide thousands of values by one median takes longer than the rest.
    """
    values, typical = step.compared
    if step.stages or not typical > 0:
        return step.excesses, _FROM
    return values, (-math.inf, *(typical * (1 + level) for level in LEVELS))


_FROM = (-math.inf, *LEVELS)
"""The excess from which on a level is one higher."""


def _surely_usual(step: Step) -> bool:
    """Whether no rank's cell is warm, as one look at the slowest tells; mostly that is so."""
    typical = step.compared[1]
    # Excesses are of single precision; stages are compared each by itself.
    return not step.stages and typical > 0 and step.slowest[0] / typical - 1 < LEVELS[0] - 1e-6


def _surely_together(step: Step, middle: float, span: float) -> bool:
    """Whether all ranks finished a step with the median one, as first and last tell; mostly they did."""
    total = sum(step.ends)
    if total != total:  # what is not known is NaN
        return False
    return not (max(step.ends) - middle > span / 2 or middle - min(step.ends) > span / 2)


def goes_on(looked: Step, step: Step) -> bool:
    """Whether ranks did as in the last step whose work is known: it is newer, and takes as long."""
    alike = abs(step.typical_span - looked.typical_span) <= ALIKE * looked.typical_span
    return not step.works and step.key > looked.key and alike


def _occupied(span: float, usual: float | None) -> float:
    """How long a step went on up to its end; before that was a checkpoint, an evaluation, a stall."""
    if math.isnan(span):
        return 0.0 if usual is None else usual
    return usual if usual is not None and span > STALL * usual else span
