"""Python's tracebacks in the lines of a log, amid lines of launchers, loggers and other threads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from cockpit.core.logs.lines import last_state
from cockpit.core.logs.prefixes import STYLE, TRACEBACK, body, head, speaker, split
from cockpit.core.text import one_line

FRAMES = 3
"""Frames that are shown of one traceback."""
WORDS = 2000
"""Bytes kept of a summary."""
JUNK = 20
"""Consecutive lines of others that may interrupt a traceback."""
_REASON = 8
"""Lines after a summary that may continue it."""
MARKS = 6
"""Lines after a summary that are searched for a frame."""


class TracebackFrame(NamedTuple):
    """A place in the code: path, line number, name of the function."""

    path: bytes
    line: bytes
    name: bytes


class Traceback(NamedTuple):
    """A traceback, from the index of its first line to that of its summary.

    :param summary: name and message of the exception
    :param frames: outermost first
    """

    start: int
    end: int
    summary: bytes
    frames: tuple[TracebackFrame, ...]


# Of exception groups: "  | ", "  +-+---------------- 1 ----------------".
_GUTTER = re.compile(rb" {0,40}(?:\| |\|\Z|\+[-+]{2,80} \d{1,4} -{2,80})")
# loguru points at the frame that logged: "> File".
_FRAME = re.compile(
    rb'(?<![ \t])([ \t]{1,80})(?:> )?File "([^"]{1,4096})", line (\d{1,9})(?:,? in ([^\n]+))?'
)
_BOX_FRAME = re.compile(
    r"│ (?:(?P<path>\S[^│:]{0,300}):(?P<line>\d{1,9})(?: in (?P<name>[^│]{1,200}?))?) *│".encode()
)
_SUMMARY = re.compile(
    rb"(?!(?:DEBUG|INFO|NOTE|WARN|WARNING|ERROR|CRITICAL)\b)(?:[\w<>]{1,80}\.){0,20}"
    rb"(?:[A-Z_]\w*|\w*[Ee]rror|timeout)(?:\([\w.]+\))?(?::(?: .*)?)?[ \t]*\Z"
)
# A label at the end of a line or in the next lines, whose value is the reason: NCCL's, and C++ messages.
_LABEL = re.compile(rb"Last error:\s*\Z")
_LIBRARY = re.compile(
    rb"/(?:site|dist)-packages/|/lib(?:64)?/python3|^<(?!stdin)|/bin/(?:torchrun|deepspeed|accelerate)$"
    rb"|\.pyx$|/(?:torch|deepspeed|transformers|accelerate|lightning|pytorch_lightning|megatron)/[^/]+/"
)


def read_lines(tail: bytes, starts: list[int] | None = None) -> list[bytes]:
    """Lines as shown, without colours; blank ones are left out.

    :param starts: gets where each begins
    """
    lines: list[bytes] = []
    end = 0
    for line in tail.split(b"\n"):
        start, end = end, end + len(line) + 1
        text = last_state(line) if b"\r" in line else line
        if b"\x1b" in text:
            text = STYLE.sub(b"", text)
        if TRACEBACK in text and b"\\n" in text:
            lines += _unescaped(text)
        elif text and not text.isspace():
            lines.append(text)
        if starts is not None:
            starts += [start] * (len(lines) - len(starts))
    return lines


def _unescaped(text: bytes) -> list[bytes]:
    """The lines of a traceback in a JSON string, or as ``repr`` shows it."""
    words = text[text.index(TRACEBACK) :].replace(b'\\"', b"\0")
    words = words.partition(b'"')[0].replace(b"\0", b'"').replace(b"\\'", b"'")
    return [line for line in words.split(b"\\n") if line.strip()]


def read_tracebacks(lines: Sequence[bytes]) -> list[Traceback]:
    """All that have an end. The first of each speaker may lack its head: the log may be cut there."""
    found: list[Traceback] = []
    speakers: set[bytes] = set()
    for at, line in enumerate(lines):
        prefix = head(line)
        if prefix is not None:
            each = _read(lines, at + 1, prefix)
        elif b'  File "' in line and b", in " in line:
            prefix = split(line)[0]
            each = None if speaker(prefix) in speakers else _read(lines, at, prefix)
        else:
            continue
        speakers.add(speaker(split(prefix)[0]))
        if each is not None:
            found.append(each._replace(start=at))
    return found


def _read(lines: Sequence[bytes], at: int, prefix: bytes) -> Traceback | None:
    """The traceback with its first frame at ``at``; None if its summary does not come."""
    frames: list[TracebackFrame] = []
    indent = junk = 0
    passed: Traceback | None = None
    for index in range(at, len(lines)):
        text = body(lines[index], prefix)
        if text is not None and TRACEBACK in text:
            break
        text = None if text is None else _GUTTER.sub(b"", text, 1)
        frame = text and _FRAME.match(text)
        if frame:
            indent = indent or len(frame[1])
            frames.append(TracebackFrame(frame[2], frame[3], frame[4] or b""))
        elif text and (box := _BOX_FRAME.match(text)):
            frames.append(TracebackFrame(box["path"], box["line"], box["name"] or b""))
        elif text is not None and (not text.strip() or _leading(text) > max(0, indent - 2)):
            continue  # source, markers, boxes
        elif text and _SUMMARY.match(text.lstrip()):
            whole = Traceback(at, index, reason(lines, index, text.strip(), prefix), tuple(frames))
            rest = (body(line, prefix) or b"" for line in lines[index + 1 : index + 1 + MARKS])
            if not _FRAME.match(next((each for each in rest if each.strip(b" ^~")), b"")):
                return whole
            # As Ray prints it: the exception of another process follows, where frames were left out the marks
            # below them first.
            passed = passed or whole
        else:
            junk += 1
            if junk > JUNK:
                break
            continue
        junk = 0
    return passed


def _leading(text: bytes) -> int:
    # Lines of boxes begin with characters that draw: all of them are E2 xx xx.
    return len(text) - len(text.lstrip()) if text[:1] != b"\xe2" else len(text)


def reason(lines: Sequence[bytes], at: int, words: bytes, prefix: bytes = b"") -> bytes:
    """The words of line ``at``, and of the next one if these end with a colon or dots: that is the reason."""
    if words.endswith((b":", b"...")) and not _LABEL.search(words):
        return words + b" " + _next(lines, at + 1, prefix)
    for index in range(at, min(at + _REASON, len(lines))):
        text = body(lines[index], prefix) or b""
        if index > at and (text[:1] in b" \t" or TRACEBACK in text):
            break
        label = _LABEL.search(text)
        if label is not None:
            return (
                words.removesuffix(label[0])
                + b" " * (index > at)
                + b"Last error: "
                + _next(lines, index + 1, prefix)
            )
    return words


def _next(lines: Sequence[bytes], at: int, prefix: bytes) -> bytes:
    return (body(lines[at], prefix) or b"").strip() if at < len(lines) else b""


def shown(*tried: Sequence[TracebackFrame]) -> tuple[str, ...]:
    """The last frames of the user's code, of the first of these with some; if none has, the last frames."""
    own = ([frame for frame in frames if not _LIBRARY.search(frame.path)] for frames in tried)
    wanted = next(filter(None, own), next(filter(None, tried), ()))
    return tuple(
        one_line((b"%s:%s %s" % (path.rsplit(b"/", 1)[-1], line, name)).strip(), limit=120)
        for path, line, name in wanted[-FRAMES:]
    )


def dumped(lines: Sequence[bytes], at: int) -> list[TracebackFrame]:
    """The frames, outermost first, that the faulthandler printed after ``at`` of the thread that crashed."""
    frames: list[TracebackFrame] = []
    of_it = False
    for line in lines[at + 1 : at + 500]:
        frame = _FRAME.search(line) if of_it else None
        if frame is not None:
            frames.insert(0, TracebackFrame(frame[2], frame[3], frame[4] or b""))
        elif of_it:
            break
        of_it = of_it or b"Current thread " in line
    return frames
