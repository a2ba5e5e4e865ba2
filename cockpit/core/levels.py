r"""Which lines of a log are errors and warnings, as far as their words tell.

Known are the level names of Python's logging, of glog (``[E…``, which torch prints) and of logfmt, the last
lines of Python's exceptions and warnings, and what the C library, the kernel, NCCL and torch say of a crash.
"""

from __future__ import annotations

import re
from enum import IntEnum

from cockpit.core.patterns import needed_texts


class Level(IntEnum):
    """How much a line matters."""

    PLAIN = 0
    WARNING = 1
    ERROR = 2


# Not "0 ERROR", "no ERROR", "log_level=ERROR", "set the level to ERROR".
_NAME = r"(?<![\w-])(?<!\b0 )(?<!\b[nN]o )(?<!log_level=)(?<!loglevel=)(?<!LEVEL=)(?<!level )(?<!level to )"
# "error: 0.013" and "error: None" are values, not news.
_VALUE = r"[ \t]*(?:[-+]?\.?\d[\d.,eE+-]*%?|[nN]one|null|[fF]alse|nan|inf|0x0)[ \t\r]*(?:$|[,;|)\]}])"
_GLOG = r"(?:\d{4} \d\d:[^\n]{1,100}?| \w{1,80})\.cpp:\d"

# Each alternative holds one text that is in no other: quick searches look for these first.
ERROR = re.compile(
    "|".join(
        (
            r"Traceback \(most recent call last\)",
            rf"{_NAME}ERROR(?![=\w])",
            rf"{_NAME}CRITICAL(?![=\w])",
            rf"{_NAME}FATAL(?![=\w])",
            # "RuntimeError: …", "fatal error: …"; "KeyError" alone; "Bus error"; "[error]"; "level=error".
            rf"rror(?:(?<=[Ee]rror):(?!{_VALUE})|(?<=\wError)[ \t\r]*$|(?<=\bBus error)\b|(?<=\[error)\]"
            r"|(?<=\blevel=error)\b|(?<=\"level\":\"error)\"|(?<=\"level\": \"error)\")",
            r"(?<!except )Exception(?::|[ \t\r]*$| in thread )",
            r"(?<![-\w])[Ff]atal:",
            r"\bSegmentation fault\b",
            r"\bcore dumped\b",
            r"\bterminate called\b",
            r"(?<!\bavoid )(?<!\brun )(?<!\brunning )\b[Oo]ut of memory\b",
            r"\bSIG(?:SEGV|ABRT|BUS|KILL|FPE|ILL)\b",
            r"\bNCCL WARN\b",
            r"\b[Aa]ssertion [^\n]{1,300}? failed\b",
            r"\bAborted(?: \(|[ \t\r]*$)",
            r"\bKilled(?: process \d|[ \t\r]*$)",
            rf"\[E{_GLOG}",
            r"(?:^|[\s\]:])E\d{4} \d\d:[^\n]{1,100}?torch/distributed/",
        )
    ).encode(),
    re.MULTILINE,
)
"""What makes a line an error. It never looks past the end of a line, so it finds candidates in many lines."""

WARNING = re.compile(
    "|".join(
        (
            rf"{_NAME}WARN(?:ING)?(?![=\w])",
            rf"[Ww]arning:(?!{_VALUE})",
            r"\bdeprecated\b",
            r"(?:\blevel=|\[|\"level\": ?\")warn(?:ing)?\b",
            rf"\[W{_GLOG}",
            r"(?:^|[\s\]:])W\d{4} \d\d:[^\n]{1,100}?torch/distributed/",
        )
    ).encode(),
    re.MULTILINE,
)
"""As :data:`ERROR`."""

_STYLE = re.compile(rb"\x1b\[[\d;:]*m")
_WORDS = re.compile(
    "|".join(
        re.escape(text)
        for pattern in (ERROR, WARNING)
        for text in needed_texts(pattern.pattern.decode()) or [""]
    ).encode()
)


def level_of(line: bytes) -> Level:
    """The level of one line, with or without colours.

    Where it has words of both, the first counts: "WARNING: retrying after ConnectionError: …" is a warning.
    """
    # Nearly every line has none of the words, and looking for them is many times quicker than the patterns.
    if _WORDS.search(line) is None:
        return Level.PLAIN
    if b"\x1b" in line:
        line = _STYLE.sub(b"", line)
    error, warning = ERROR.search(line), WARNING.search(line)
    if error is not None and (warning is None or error.start() <= warning.start()):
        return Level.ERROR
    return Level.PLAIN if warning is None else Level.WARNING
