"""Curves of two runs over each other; which is which can be told without colours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from cockpit.core.compare.comparing import place
from cockpit.core.compare.model import Comparison
from cockpit.core.compare.pace import curves_of
from cockpit.core.report.model import STEP_TIME, Curve
from cockpit.core.report.plots import value_range
from cockpit.core.report.words import number
from cockpit.core.text import one_line
from cockpit.tui.look.spark import curve as dots
from cockpit.tui.panes.text_pane import Line, Piece, TextPane, hanging

SHOWN = ("loss", STEP_TIME)
"""Curves from the top, as far as one of the runs has them."""

LEAST, MOST = 3, 12
"""Lines of a curve."""
BEGINNING = 0.1
"""Part of all steps whose values do not stretch the scale: a loss begins far above where it goes."""
LABEL = 9
"""Columns of the scale."""

BEFORE, AFTER = "label", "spark"
"""Meanings of both."""
HEIGHTS = "˙·."
"""Signs of the first run, by their height in a line, from the top; the other one is of Braille."""
LETTERS = ("b", "a", "#")
"""Signs of ASCII: before, after, both."""

Points = Sequence[tuple[float, float]]


class CurvePane(TextPane):
    """Loss and step time of both, one below the other."""

    made: Comparison | None = None
    why_none = ""
    """What is said as long as there is nothing to draw."""

    def show(self, made: Comparison | None, why_none: str) -> None:
        """Draw these two."""
        if (made, why_none) != (self.made, self.why_none):
            self.made, self.why_none = made, why_none
            self.refresh(layout=True)
            self.rebuild()

    def build(self, width: int) -> Sequence[Line]:
        """See :class:`TextPane`."""
        if self.made is None:
            return list(hanging((), one_line(self.why_none, limit=2000), width, "label"))
        tall = self._tall()
        lines = [legend(ascii_only=self.ascii_only)]
        for name in SHOWN:
            lines += drawn(self.made, name, width, tall, ascii_only=self.ascii_only)
        none = hanging((), "neither run has a loss or times of steps", width, "label")
        return lines if len(lines) > 1 else list(none)

    def _tall(self) -> int:
        """Lines of each curve: its name and its steps have one more each, and there is a legend."""
        room = self.screen.size.height - 6
        if self.screen.has_class("-narrow"):
            room = room // 2
        return max(LEAST, min(MOST, (room - 1) // len(SHOWN) - 2))


def legend(*, ascii_only: bool) -> Line:
    """Which signs are whose."""
    if ascii_only:
        before, after, both = LETTERS
        pieces = (
            Piece(f"{before} before", BEFORE),
            Piece(f"  {after} after", AFTER),
            Piece(f"  {both} both", AFTER),
        )
        return Line(pieces)
    return Line((Piece(f"{HEIGHTS[1] * 3} before", BEFORE), Piece("  ⠒⠒⠒ after, above it", AFTER)))


def drawn(made: Comparison, name: str, width: int, tall: int, *, ascii_only: bool) -> Iterator[Line]:
    """The curves of one name; nothing, if neither run has it."""
    both = [curves_of(one).get(name) for one in (made.before, made.after)]
    points = [_points(one, scale) for one, scale in zip(both, _scales(made, name), strict=True)]
    every = [point for some in points for point in some]
    if not every:
        return
    first, last = min(at for at, _ in every), max(at for at, _ in every)
    begun = first + BEGINNING * (last - first)
    low, high = value_range([value for at, value in every if at >= begun])
    columns = max(1, width - LABEL - 1)
    below, above = (_binned(some, first, last, 2 * columns) for some in points)
    was = _sparse(below, tall, low, high, ascii_only=ascii_only)
    now = _letters(above, tall, low, high) if ascii_only else dots(above, tall, low, high)
    yield _head(name, both)
    unit = "s" if name == STEP_TIME else ""
    for at, (under, over) in enumerate(zip(was, now, strict=True)):
        said = number(high, unit) if at == 0 else number(low, unit) if at == tall - 1 and high > low else ""
        yield Line((Piece(f"{said[:LABEL]:>{LABEL}} ", "label"), *_laid(under, over, columns)))
    by = made.loss.by if made.loss is not None and name == "loss" else "step"
    begin, end = f"{by} {place(first)}", place(last)
    yield Line.of(f"{'':{LABEL}} {begin}{end:>{max(1, columns - len(begin))}}", "label")


def _scales(made: Comparison, name: str) -> tuple[float, float]:
    """What a step of each is of what the losses are compared by."""
    amount = made.amount
    return (amount.before, amount.after) if name == "loss" and amount.same is False else (1.0, 1.0)


def _head(name: str, both: Sequence[Curve | None]) -> Line:
    """The name, and the last value of each."""
    values = ["-" if one is None else number(one.last, one.unit) for one in both]
    last = (
        Piece("  last ", "label"),
        Piece(values[0], BEFORE),
        Piece(" → ", "label"),
        Piece(values[1], AFTER),
    )
    return Line((Piece(name, "title"), *last))


def _points(one: Curve | None, scale: float) -> Points:
    return [] if one is None else sorted((step * scale, value) for step, value in dict(one.points).items())


def _binned(points: Points, first: float, last: float, many: int) -> list[float | None]:
    """The last value in each of so many columns; between two values the line from one to the other."""
    values: list[float | None] = [None] * many
    scale = (many - 1) / (last - first) if last > first else 0.0
    before: tuple[int, float] | None = None
    for at, value in points:
        column = round((at - first) * scale)
        if before is not None and column - before[0] > 1:
            for between in range(before[0] + 1, column):
                part = (between - before[0]) / (column - before[0])
                # Each by itself: their difference may be more than a float holds.
                values[between] = before[1] * (1 - part) + value * part
        values[column] = value
        before = column, value
    return values


def _heights(values: Sequence[float | None], steps: int, low: float, high: float) -> Iterator[int | None]:
    """Of each column, one of so many heights, from the top: the greater one of its two values."""
    for at in range(0, len(values), 2):
        known = [value for value in values[at : at + 2] if value is not None and math.isfinite(value)]
        # Halves: the span between two large numbers may be more than a float holds.
        span = high / 2 - low / 2
        part = (max(known) / 2 - low / 2) / span if known and span > 0 else 0.5
        yield round((1 - min(1.0, max(0.0, part))) * (steps - 1)) if known else None


def _sparse(
    values: Sequence[float | None], rows: int, low: float, high: float, *, ascii_only: bool
) -> list[str]:
    if ascii_only:
        return _letters(values, rows, low, high, LETTERS[0])
    signs = len(HEIGHTS)
    lines = [[" "] * (len(values) // 2) for _ in range(rows)]
    for at, height in enumerate(_heights(values, signs * rows, low, high)):
        if height is not None:
            lines[height // signs][at] = HEIGHTS[height % signs]
    return ["".join(line) for line in lines]


def _letters(
    values: Sequence[float | None], rows: int, low: float, high: float, sign: str = LETTERS[1]
) -> list[str]:
    lines = [[" "] * (len(values) // 2) for _ in range(rows)]
    for at, height in enumerate(_heights(values, rows, low, high)):
        if height is not None:
            lines[height][at] = sign
    return ["".join(line) for line in lines]


def _laid(under: str, over: str, columns: int) -> Iterator[Piece]:
    """Two curves in one line; where both are, the second one, of letters the one that says so."""
    cells = zip(under.ljust(columns), over.ljust(columns), strict=True)
    for role, run in groupby(cells, key=lambda pair: AFTER if pair[1] != " " else BEFORE):
        yield Piece("".join(_merged(*pair) for pair in run), role)


def _merged(under: str, over: str) -> str:
    if over == " ":
        return under
    return LETTERS[2] if over == LETTERS[1] and under == LETTERS[0] else over
