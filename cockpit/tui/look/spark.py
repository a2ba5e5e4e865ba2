"""Small plots made of characters: bars, sparklines, curves of Braille."""

from __future__ import annotations

import math
from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
STEPS = "_.-=+*%#"


def sparkline(
    values: Sequence[float],
    width: int,
    low: float | None = None,
    high: float | None = None,
    ascii_only: bool = False,
) -> str:
    """The last ``width`` values as columns of eight heights; exactly ``width`` characters.

    Values that are not finite are left out. Values outside ``low`` and ``high`` are clipped to them.

    :param low: the value of the lowest column; None: the least of those shown
    :param high: the value of the highest column; None: the greatest of those shown
    """
    shown = [value for value in values[-width:] if math.isfinite(value)] if width > 0 else []
    if not shown:
        return " " * max(0, width)
    bottom = min(shown) if low is None else low
    top = max(shown) if high is None else high
    # Halves: the span between two large numbers may be more than a float holds.
    span = top / 2 - bottom / 2
    text = "".join(bar((value / 2 - bottom / 2) / span if span > 0 else 0.0, ascii_only) for value in shown)
    return text.rjust(width)


def bar(fraction: float, ascii_only: bool = False) -> str:
    """One character for a part of a whole, 0 to 1; what is not a number is drawn as 0."""
    signs = STEPS if ascii_only else BLOCKS
    return signs[round(min(1.0, max(0.0, fraction)) * 7)]


# Bits of the dots in a character, from top to bottom, of its left and its right column (Unicode 2800).
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))


def curve(
    values: Sequence[float | None], rows: int, low: float, high: float, *, ascii_only: bool = False
) -> list[str]:
    """A curve in so many lines of text, the top one first.

    :param values: two for each character, None or not finite: no dot there; ASCII shows the greater of two
    :param low: the value of the bottom
    :param high: the value of the top
    """
    if ascii_only:
        return _ascii(values, rows, low, high)
    dots = [[0] * ((len(values) + 1) // 2) for _ in range(rows)]
    for at, value in enumerate(values):
        if value is not None and math.isfinite(value):
            y = round((1 - _part(value, low, high)) * (4 * rows - 1))
            dots[y // 4][at // 2] |= _DOTS[at % 2][y % 4]
    return ["".join(chr(0x2800 + bits) if bits else " " for bits in line) for line in dots]


def _ascii(values: Sequence[float | None], rows: int, low: float, high: float) -> list[str]:
    lines = [[" "] * ((len(values) + 1) // 2) for _ in range(rows)]
    for at in range(0, len(values), 2):
        known = [value for value in values[at : at + 2] if value is not None and math.isfinite(value)]
        if known:
            y = round((1 - _part(max(known), low, high)) * (8 * rows - 1))
            lines[y // 8][at // 2] = STEPS[7 - y % 8]
    return ["".join(line) for line in lines]


def _part(value: float, low: float, high: float) -> float:
    # Halves: the span between two large numbers may be more than a float holds.
    span = high / 2 - low / 2
    return min(1.0, max(0.0, (value / 2 - low / 2) / span)) if span > 0 else 0.5
