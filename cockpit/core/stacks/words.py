"""Words for sets of ranks, for durations, and for places."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import TypeVar

from cockpit.base.stacks.dump import Frame
from cockpit.core.masks import count, ranks_of
from cockpit.core.ranks import mask_text
from cockpit.core.stacks.fate import End

T = TypeVar("T")

MANY = {
    **{f"{verb}s": verb for verb in ("build", "connect", "look", "open", "poll", "read", "receive", "run")},
    **{f"{verb}s": verb for verb in ("send", "sleep", "wait", "write")},
    **{"flushes": "flush", "is": "are", "its": "their"},
}
"""Words for what one rank does, and the same for more."""

_OF_ONE = re.compile(
    rf"^({'|'.join(MANY)})\b|(?<=^reads or )writes$|(?<= end, and )waits\b"
    r"|\bits\b(?= (device|data loader|event loop|end,|own code))"
)

STATES = {
    "D": "cannot be interrupted (D)",
    "T": "stopped (T)",
    "t": "stopped by a debugger (t)",
    "Z": "dead, not reaped (Z)",
    "X": "dead",
}
"""States of a process that are worth mentioning."""

USUAL = {"R": "runs", "S": "sleeps"}
"""The other ones."""

WORDS = 40
"""Characters a set of ranks may take in a sentence; longer ones are counted."""


def state_text(state: str) -> str:
    """What the kernel says about a process: ``sleeps (S)``."""
    return STATES.get(state) or (f"{USUAL[state]} ({state})" if state in USUAL else f"state {state}")


def place_text(frame: Frame | None) -> str:
    """``data.py:118 read_shard``; empty for none."""
    return f"{frame.place} {frame.name}" if frame is not None else ""


def by_reason(reasons: Mapping[int, T], ranks: int) -> list[tuple[T, int]]:
    """Reasons with the ranks that have them, those of the fewest ranks first."""
    found: dict[T, int] = defaultdict(int)
    for rank in ranks_of(ranks):
        found[reasons[rank]] |= 1 << rank
    return sorted(found.items(), key=lambda item: (count(item[1]), item[1] & -item[1]))


def ranks_words(ranks: int, one: str = "", more: str = "") -> str:
    """``rank 13``, ``ranks 3,7``, ``300 ranks``; with a verb for one rank and for more: ``rank 13 is``."""
    text = mask_text(ranks)
    if len(text) > WORDS:
        return number_text(ranks, one, more)
    single = count(ranks) == 1
    return f"rank{'' if single else 's'} {text} {one if single else more}".rstrip()


def number_text(ranks: int, one: str = "", more: str = "") -> str:
    """``1 rank``, ``1,023 ranks``; with a verb for one rank and for more: ``1 rank is``."""
    number = count(ranks)
    return f"{number:,} rank {one}".rstrip() if number == 1 else f"{number:,} ranks {more}".rstrip()


def does_words(text: str, ranks: int) -> str:
    """What ranks do, with a verb for one rank or for more: ``sleeps``, ``sleep``.

    :param text: that of :class:`cockpit.base.stacks.kinds.Doing`, or why there is no stack
    """
    return text if count(ranks) == 1 else _OF_ONE.sub(lambda word: MANY[word[0]], text)


def being_words(detail: str) -> str:
    """``sleeping`` of ``It sleeps.``; empty of a sentence that tells no such thing."""
    verb, _, rest = detail.removeprefix("It ").removesuffix(".").partition(" ")
    if not detail.startswith("It ") or verb not in MANY or rest.startswith("or "):
        return ""
    if verb == "is":
        return rest
    being = f"{MANY[verb].removesuffix('e')}{'n' if verb == 'runs' else ''}ing"
    return f"{being} {rest}".rstrip()


def every_text(ranks: int, one: str, more: str) -> str:
    """``all 64 ranks are``, ``rank 0 is``."""
    return f"all {number_text(ranks, one, more)}" if count(ranks) > 1 else ranks_words(ranks, one, more)


def ended_words(end: End, ranks: int) -> str:
    """``rank 13 was killed by SIGKILL``, ``ranks 1,2 have no process``."""
    return f"{ranks_words(ranks)} {end.words(many=count(ranks) > 1)}"
