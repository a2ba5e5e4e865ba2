"""Signs of progress for people: how old they are, and what that means. Estimates wear ``~``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cockpit.core.pace.signs import CPU, RECORDER, RESOLUTION_S, Sign
from cockpit.core.ranks import ranks_named
from cockpit.core.time_text import span_text
from cockpit.tui.look.units import clock_text


def age_text(sign: Sign, now: float) -> str:
    """``~12 s``; ``~<2 s``: no closer is known; ``>40 s``: there was none in so long a look.

    :param now: unix seconds
    """
    age = sign.age_s(now)
    if sign.source == CPU and not sign.least and age < RESOLUTION_S:
        return f"~<{RESOLUTION_S:.0f} s"
    return f"{'>' if sign.least else '~'}{span_text(age)}"


def behind_text(sign: Sign) -> str:
    """``~3 collectives``; empty: it is not behind, or that is not known."""
    return f"~{sign.behind:,} collective{'s' if sign.behind > 1 else ''}" if sign.behind else ""


def about(sign: Sign, now: float) -> str:
    """When the last sign of one rank was: ``main thread last ran ~<2 s ago``."""
    if sign.source == RECORDER:
        had = f"as of {clock_text(sign.seen_at, 8)} (flight recorder)"
        return f"last collective {age_text(sign, now)} ago, {had}"
    if sign.least:
        return f"main thread has not run for {age_text(sign, now)}"
    return f"main thread last ran {age_text(sign, now)} ago"


def sentences(signs: Mapping[int, Sign], age: str) -> Iterator[str]:
    """What the ages of ranks without steps are, a sentence for each source.

    :param age: what the column is called
    """
    entered = {rank: sign for rank, sign in signs.items() if sign.source == RECORDER}
    if entered:
        whose, recorders = ("its", "recorder") if len(entered) == 1 else ("their", "recorders")
        at = clock_text(max(sign.seen_at for sign in entered.values()), 8)
        told = f"as of {at} (flight {recorders})"
        yield f"{_unknown(entered)}: {age} is since {whose} last collective, {told}"
    ran = {rank: sign for rank, sign in signs.items() if sign.source == CPU}
    if ran:
        whose = "its main thread" if len(ran) == 1 else "their main threads"
        more = "; > means: at least this long" if any(one.least for one in ran.values()) else ""
        yield f"{_unknown(ran)}: {age} is since {whose} last ran{more}"


def _unknown(signs: Mapping[int, Sign]) -> str:
    return f"no step is known for {ranks_named(signs)}"
