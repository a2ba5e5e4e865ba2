"""Which lines of a log are errors and warnings, as far as their words tell."""

from __future__ import annotations

import re
from enum import IntEnum


class Level(IntEnum):
    """How much a line matters."""

    PLAIN = 0
    WARNING = 1
    ERROR = 2


# In front of these words a count or a negation ("0 errors", "no error"), behind them a value ("error=0.01").
_NOT = rb"(?<!\bno )(?<!\b0 )(?<!\bzero )(?<!\bwithout )(?<!_)"
ERROR = re.compile(
    rb"\bTraceback \(most recent call last\)"
    rb"|" + _NOT + rb"\b(?:ERROR|CRITICAL|FATAL|Fatal|fatal error|error:|Error:)(?![=\w])"
    rb"|\b[A-Z]\w*(?:Error|Exception)\b(?=:|$|\()"
    rb"|\bSegmentation fault\b|\bcore dumped\b|\bout of memory\b|\bterminate called\b"
    rb"|\bSIG(?:SEGV|ABRT|BUS|KILL)\b"
    rb"|\bNCCL WARN\b|\bassertion failed\b|\bAborted\b",
    re.MULTILINE,
)
"""Of bytes: finds candidates in a chunk of many lines too."""

WARNING = re.compile(
    rb"\b(?:WARNING|WARN)\b(?!=)|\b[A-Z]?\w*Warning:|\bwarning:|\bdeprecated\b", re.MULTILINE
)
"""As :data:`ERROR`."""


def level_of(line: bytes) -> Level:
    """The level of one line."""
    if ERROR.search(line):
        return Level.ERROR
    return Level.WARNING if WARNING.search(line) else Level.PLAIN
