"""Small plots made of characters."""

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
