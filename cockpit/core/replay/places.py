"""Where to go in a replay, as people type it: a time, a step, so much further, the end."""

from __future__ import annotations

import re
import time
from typing import NamedTuple

from cockpit.errors import CockpitError

HINT = "14:30, 14:30:05, 2026-11-21 14:30, step 1200, +10m, -30s, 2h (after the start), start, end"
"""What can be typed."""

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

_SPAN = re.compile(r"([+-]?)(\d{1,9}(?:\.\d{1,6})?)\s?([smhd])")
_STEP = re.compile(r"step\s*(\d{1,15})", re.IGNORECASE)
_CLOCK = re.compile(r"(?:(\d{4})-(\d\d?)-(\d\d?)[ T])?(\d\d?):(\d\d)(?::(\d\d))?")


class Place(NamedTuple):
    """Where to go; one of both is known.

    :param at: unix seconds
    :param step: when the run finished this one
    """

    at: float | None = None
    step: int | None = None


def place_of(text: str, begin: float, now: float, end: float) -> Place:
    """What a text means.

    A time of day without a date is the first such time in the run.

    :param begin: the first moment of the run, unix seconds
    :param now: the moment that is shown
    :param end: the last moment that is known
    :raises CockpitError: it means nothing
    """
    text = text.strip()
    if text.lower() in ("start", "begin", "beginning"):
        return Place(begin)
    if text.lower() == "end":
        return Place(end)
    if found := _STEP.fullmatch(text):
        return Place(step=int(found[1]))
    if found := _SPAN.fullmatch(text):
        span = float(found[2]) * UNITS[found[3]]
        return Place({"+": now + span, "-": now - span}.get(found[1], begin + span))
    if found := _CLOCK.fullmatch(text):
        return Place(_time(found, begin, end))
    raise _senseless(text)


def _senseless(text: str) -> CockpitError:
    return CockpitError(f"not a moment: {text[:100]!r}", hint=f"like {HINT}")


def _time(found: re.Match[str], begin: float, end: float) -> float:
    """The moment of a time of day, with a date, or on one of the days of the run.

    :raises CockpitError: there is no such time, or the run did not go on then
    """
    hour, minute, second = int(found[4]), int(found[5]), int(found[6] or 0)
    dated = found[1] is not None
    year, month, day = map(int, found.group(1, 2, 3)) if dated else time.localtime(begin)[:3]
    if not (1970 <= year <= 3000 and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60):
        raise _senseless(found[0])
    # Without seconds the whole minute is meant.
    wide = 1 if found[6] else 60
    for later in (0,) if dated else (0, 1):
        at = time.mktime((year, month, day + later, hour, minute, min(second, 59), 0, 0, -1))
        if begin < at + wide and at <= end:
            return at
    lasted = " to ".join(time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(each)) for each in (begin, end))
    raise CockpitError(f"the run was not there at {found[0]}", hint=f"it lasted from {lasted}")
