r"""Which lines of a log are errors and warnings, as far as their words tell.

A level that a logger gives a line counts first: names as Python's logging has them, glog's letters (``[E626``
is torch's, whose month has no leading zero), fields of logfmt and JSON. Without one its words do: last lines
of exceptions, and what the C library, the kernel, NCCL, compilers and launchers say of a failure. A number
after "error:" is a measure, no news.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

from cockpit.core.patterns import needed_texts


class Level(IntEnum):
    """How much a line matters."""

    PLAIN = 0
    WARNING = 1
    ERROR = 2


def _not_after(*words: str) -> str:
    return "".join(f"(?<!{word})" for word in words)


# "0 ERROR", "no ERROR", "log_level=ERROR", "set the level to ERROR".
_NAME = _not_after(
    *(r"[\w-]", r"\b0 ", r"\b[nN]o ", "level ", "level to "),
    *(
        f"{name}{sign}"
        for name in ("log_level", "loglevel", "LEVEL")
        for sign in ("=", "='", '="', ": ", "': '")
    ),
)
# "error: 0.013", "Error: 12.4% …", "error: None" are measures; "error: 404 Not Found" is news.
_VALUE = (
    r"[ \t]*(?:[-+]?\d{0,20}(?:\.\d|\d%|\d[eE][-+]\d)"
    r"|(?:[-+]?\d{1,20}|[nN]one|null|[fF]alse|nan|inf|0x0)[ \t\r]*(?:$|[,;|)\]}]))"
)
# What is measured, where no number follows at once: "Test Error: \n Accuracy: …".
_MEASURED = _not_after(
    *(f"[{word[0].upper()}{word[0]}]{word[1:]} [Ee]rror" for word in (
        *("test", "train", "training", "val", "valid", "validation", "eval", "evaluation", "dev", "mean"),
        *("absolute", "abs", "squared", "square", "relative", "rel", "max", "maximum", "average", "avg"),
        *("rms", "prediction", "reconstruction", "quantization", "approximation", "rounding", "standard"),
        *("rate", "l1", "l2", "top-1", "top-5", "top1", "top5", "word", "character", "residual"),
    ))
)  # fmt: skip
# Fields of logfmt and JSON. Lookbehinds have one width each, and leave the values to be looked for.
_FIELD = "(?:{})".format(
    "|".join(
        f"(?<={name}{sign})"
        for name in ("lvl", "level", "levelname", "severity")
        for sign in ("=", '="', '":"', '": "')
    )
)
_TIME = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?:? "


def _glog(letters: str) -> tuple[str, ...]:
    # "E1120 03:14:05.123456 140 a.cc:12]", "[E626 03:14:…", "[E a.cpp:12]"; "03:14:05.123: E tensorflow/…".
    return (
        rf"(?<![\w.])[{letters}]\d{{3,4}} \d\d:\d\d:[\d.]{{2,20}} [^\]\n]{{1,160}}?:\d{{1,6}}\]",
        rf"\[[{letters}] [\w./-]{{1,80}}\.\w{{1,4}}:\d",
        rf"(?:{_TIME}|^)[{letters}] (?=[\w./-]{{2,200}})(?!\d{{1,9}}\.)",
    )


_ERROR_ROWS = (
    r"Traceback \(most recent call last\)",
    rf"{_NAME}ERROR(?![=\w])",
    rf"{_NAME}CRITICAL(?![=\w])",
    rf"{_NAME}FATAL(?![=\w])",
    rf"{_FIELD}(?:error|fatal)\b",
    r"\"critical\"",
    r"\[(?:error|fatal)\]",
    # "RuntimeError: …", "fatal error: …"; "KeyError" alone; "CUDA error 700"; "Error executing job with …".
    rf"rror(?:(?<=[Ee]rror)(?<![\w-]error){_MEASURED}:(?=[ \t]*\S)(?!{_VALUE})|(?<=\wError):?[ \t\r]*$)",
    r"\bBus error\b",
    r"\bC(?:uda|UDA) (?:error|failure)(?![\w.-])",
    r"\bError executing\b",
    r"\berror while loading\b",
    r"\bAn error occurred in MPI_",
    r"(?<!except )Exception(?::|[ \t\r]*$| in thread | in task )",
    r"\b[Uu]nhandled exception\b",
    r"\bKeyboardInterrupt[ \t\r]*$",
    r"\w\.?TimeoutExpired: ",
    r"\bFatal:|(?<![-\w])fatal:",
    r"\bSegmentation fault\b",
    r"\bsegfault at\b",
    r"\bIllegal instruction\b",
    r"\bFloating point exception\b",
    r"\(core dumped\)",
    r"\bterminate called (?:after throwing|without an active)\b",
    r"\blibc\+\+abi: ",
    r"\bpanicked at\b",
    r"\bfree or corruption\b",
    r"\bcorrupted size vs\.",
    r"\*\*\*: terminated\b",
    r"\(\): (?=invalid |corrupted |unaligned |mismatching |unsorted |double free|memory corruption)",
    r"(?<!\bavoid )(?<!\brun )(?<!\brunning )\b[Oo]ut of memory\b",
    r"\boom[-_]kill(?:er\b|:|(?:\(s\))? event)",
    r"\bkilled due to memory pressure\b",
    r"\bSIG(?:SEGV|ABRT|BUS|KILL|FPE|ILL)\b",
    r"\bexited on signal \d",
    r"\bProcess received signal\b",
    r"\bMPI_ABORT was invoked\b",
    r"\bFatal error in (?=P?MPI|internal)",
    r"\bBAD TERMINATION\b",
    r"\bjob killed: ",
    r"\bNVRM: Xid\b",
    r"\bNCCL WARN\b",
    r"\bAssertion [^\n]{1,300}? failed\b",
    r"(?<![-\w])Check failed: ",
    r"\bAborted(?: \(|[ \t\r]*$)",
    r"\bKilled(?: process \d|[ \t\r]*$)|: +\d{1,10} Killed ",
    r"\bnvcc fatal\b",
    r"\bld: cannot find\b",
    r"\bundefined reference to\b",
    r"\bninja: build stopped\b",
    r"^FAILED: ",
    r"\bCMake Error\b",
    r"\bmake(?:\[\d{1,3}\])?: \*\*\* ",
    r"\bCould not resolve host",
    r": command not found\b",
    r": No such file or directory[ \t\r]*$",
    r"\bPermission denied(?: \(|[ \t\r]*$)",
    r"\bNo space left on device\b",
    r"\bcannot open shared object file\b",
)
_WARNING_ROWS = (
    rf"{_NAME}WARN(?:ING)?(?![=\w])",
    *(rf"{word}(?: #\d|: ?(?!{_VALUE})| : )" for word in ("Warning", "warning")),
    r"\bCMake Warning\b",
    r"\bdeprecated\b",
    rf"{_FIELD}warn(?:ing)?\b",
    r"\[warn(?:ing)?\]",
)


class _Row(NamedTuple):
    """An expression, and a text that is in all its matches that it is to find; empty: nobody can tell."""

    level: Level
    needed: bytes
    pattern: re.Pattern[bytes]


def _rows(level: Level, regexes: Iterable[str]) -> Iterator[_Row]:
    for regex in regexes:
        pattern = re.compile(regex.encode())
        for text in needed_texts(regex) or [""]:
            yield _Row(level, text.encode(), pattern)


_ROWS = (
    *_rows(Level.ERROR, (*_ERROR_ROWS, *_glog("EF"))),
    *_rows(Level.WARNING, (*_WARNING_ROWS, *_glog("W"))),
)

# A logger's own level, before what would make the line an error.
_QUIET = re.compile(
    rf"(?<![\w-])(?:INFO|DEBUG|TRACE|NOTICE|SUCCESS)(?![\w=])|{_FIELD}(?:info|debug|trace|notice)\b"
    r"|\[(?:info|debug|trace)\]|(?<![\w.])I\d{4} \d\d:".encode()
)
_STYLE = re.compile(rb"\x1b\[[\d;:]*m")


# From the frequent to the rare in logs.
_FREQUENT = " 0se12:ot.rilan3m5p46-,98[]|g7dc'ukf=_bh/%INFyOE()RB"


def _rarest_on(text: str) -> str:
    """The end of a text from its rarest character on: there are fewer places to look at."""
    starts = range(max(1, len(text) - (3 if len(text) < 7 else 5)))
    return text[max(starts, key=lambda at: (_FREQUENT + text[at]).index(text[at])) :]


def _quick(rows: Iterable[str], letters: str) -> str:
    """An expression that is in each match of the rows, made so that `re` passes quickly over other text.

    Each alternative begins with a character that stands for itself: only then `re` looks for these first.
    """
    ends: dict[str, set[str]] = {}
    for text in {text for row in rows for text in needed_texts(row) or [""]}:
        end = _rarest_on(text)
        ends.setdefault(end[0], set()).add(re.escape(end[1:]))
    for letter in letters:
        heads = (r"\d{3,4} \d\d:", *(rf"(?<={before}{letter}) " for before in (r"\[", r"\d ", r"\d: ", "^")))
        ends.setdefault(letter, set()).update(heads)
    return "|".join(f"{re.escape(first)}(?:{'|'.join(sorted(rest))})" for first, rest in sorted(ends.items()))


_QUICK = {
    Level.ERROR: re.compile(_quick(_ERROR_ROWS, "EF").encode(), re.MULTILINE),
    Level.WARNING: re.compile(_quick(_WARNING_ROWS, "W").encode(), re.MULTILINE),
}
_ANY = re.compile(_quick(_ERROR_ROWS + _WARNING_ROWS, "EFW").encode(), re.MULTILINE)


def may_be(level: Level, block: bytes) -> bool:
    """Whether one of many lines without colours could have the level; False is certain, and quick."""
    quick = _QUICK.get(level)
    return quick is None or quick.search(block) is not None


def level_of(line: bytes) -> Level:
    """The level of one line, with or without colours.

    Where it has words of several, the first counts: "WARNING: retrying after ConnectionError: …" is one.
    """
    # Nearly every line has none of the words, and looking for them is many times quicker than the patterns.
    if _ANY.search(line) is None:
        return Level.PLAIN
    if b"\x1b" in line:
        line = _STYLE.sub(b"", line)
    found: list[tuple[int, int]] = []
    for level, needed, pattern in _ROWS:
        if needed in line and (match := pattern.search(line)):
            found.append((match.start(), -level))
    if not found:
        return Level.PLAIN
    start, worst = min(found)  # of an error and a warning at one place, the error
    return Level.PLAIN if _QUIET.search(line, 0, start) else Level(-worst)
