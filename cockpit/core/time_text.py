"""Times and spans of time as a person reads them."""

from __future__ import annotations

import math
import time


def clock(at: float, now: float, shape: str = "%H:%M:%S") -> str:
    """A time of day, ``04:03:41``; with its date if ``now`` is another day: ``2026-11-21 04:03:41``.

    :param at: unix seconds
    :param now: when it is read, unix seconds
    """
    then = time.localtime(at)
    same = then[:3] == time.localtime(now)[:3]
    return time.strftime(shape if same else f"%Y-%m-%d {shape}", then)


def span_text(seconds: float) -> str:
    """``0.4 ms``, ``118 ms``, ``1.2 s``, ``72 s``, ``12 min 41 s``, ``3 h 05 min``, ``2 d 4 h``.

    What is not a time (nodes may say anything) is ``?``.
    """
    if not math.isfinite(seconds):
        return "?"
    if abs(seconds) < 0.9995:
        number = seconds * 1000
        return f"{number:.1f} ms" if abs(number) < 9.95 else f"{number:.0f} ms"
    if abs(seconds) < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def rounded_span(seconds: float) -> str:
    """The same in one unit, for what is not more exact than that: ``40 s``, ``12 min``, ``3 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


def ahead(seconds: float) -> str:
    """``in about 12 min``, ``in less than a minute``."""
    return "in less than a minute" if seconds < 60 else f"in about {rounded_span(seconds)}"
