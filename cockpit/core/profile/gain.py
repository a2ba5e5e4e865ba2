"""How fast a run would be if the ranks that a profile names were like the others; estimates, marked ``~``."""

from __future__ import annotations

from dataclasses import dataclass

from cockpit.core.masks import count
from cockpit.core.profile.reading import Reading
from cockpit.core.time_text import span_text

LIKE = 0.75, 1.25
"""A step directly before the profile takes between so many times what one takes in it, as the profiler slows
it. Else the ranks were not slow then, or not as slow."""


@dataclass(frozen=True)
class Ahead:
    """How much of a running run is left, and how fast it is.

    :param left_s: seconds until its last step; None: not known
    :param tokens_s: tokens per second, the newest that it printed; None: it prints none
    """

    left_s: float | None = None
    tokens_s: float | None = None


def gain(reading: Reading, ahead: Ahead) -> str:
    """``without it: ~0.55 steps/s, ~1,200 tokens/s, ETA ~2 h 05 min``; empty: nobody is named, or not known.

    A step would be shorter by the same share as in the profile.
    """
    if not reading.kept_up or reading.parts is None or not 0 < reading.kept_up < reading.parts.took:
        return ""
    share, step = reading.kept_up / reading.parts.took, reading.cost.before or reading.parts.took
    if not LIKE[0] <= step / reading.parts.took <= LIKE[1]:
        return ""
    said = [f"{_about(1 / (share * step))} steps/s"]
    if ahead.tokens_s:
        said.append(f"{_about(ahead.tokens_s / share)} tokens/s")
    if ahead.left_s:
        said.append(f"ETA ~{span_text(ahead.left_s * share)}")
    return f"without {'it' if count(reading.finding.ranks) == 1 else 'them'}: {', '.join(said)}"


def _about(number: float) -> str:
    return f"~{float(f'{number:.2g}'):,.15g}"
