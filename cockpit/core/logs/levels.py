"""Which lines of a log are errors and warnings, judged by their words."""

from __future__ import annotations

import re
from enum import IntEnum

from cockpit.core.logs import level_words
from cockpit.core.logs.excerpt import TEXT_MAX
from cockpit.core.logs.prefixes import STYLE
from cockpit.core.logs.search import Expression, Rows


class Level(IntEnum):
    """How much a line matters."""

    PLAIN = 0
    WARNING = 1
    ERROR = 2


_ERRORS = [Expression(Level.ERROR, regex) for regex in level_words.ERROR]
_WARNINGS = [Expression(Level.WARNING, regex) for regex in level_words.WARNING]
_ROWS = Rows([*_ERRORS, *_WARNINGS])
_OF = {Level.ERROR: Rows(_ERRORS), Level.WARNING: Rows(_WARNINGS)}
_QUIET = re.compile(level_words.QUIET.encode())
_ENDS = (b"\n", b"\r")


def may_be(level: Level, block: bytes) -> bool:
    """Whether one of many lines, or one of their overwritten states, has the level.

    Only False is certain: a line too long to be shown whole could have it.
    """
    rows = _OF.get(level)
    if rows is None:
        return True
    at = 0
    while (hint := rows.hint(block, at)) is not None:
        start, at = _state(block, hint.start())
        if at - start > TEXT_MAX or level_of(block[start:at]) is level:
            return True
    return False


def _state(block: bytes, at: int) -> tuple[int, int]:
    """Start and end of the line, or overwritten state, around a byte; the search does not go far."""
    low, high = max(0, at - TEXT_MAX), at + TEXT_MAX + 1
    start = max(block.rfind(end, low, at) for end in _ENDS) + 1
    stops = [stop for end in _ENDS if (stop := block.find(end, at, high)) >= 0]
    return start or low, min([*stops, len(block), high])


def level_of(line: bytes) -> Level:
    """The level of one line, with or without colours.

    If it has words of several levels, the first counts: "WARNING: retrying after ConnectionError: …" is one.
    """
    # Nearly every line has none of the words.
    if _ROWS.hint(line) is None:
        return Level.PLAIN
    if b"\x1b" in line:
        line = STYLE.sub(b"", line)
    # If an error and a warning are at the same place, the error counts.
    places = [(match.start(), -level) for level, match in _ROWS.found_in(line)]
    if not places:
        return Level.PLAIN
    start, worst = min(places)
    return Level.PLAIN if _QUIET.search(line, 0, start) else Level(-worst)
