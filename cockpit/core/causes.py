"""Why a rank ended, as far as the end of its log tells it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from cockpit.core.levels import Level, level_of
from cockpit.core.lines import last_state
from cockpit.core.text import RemoteText

FRAMES = 3
WORDS = 2000
"""Bytes of a summary, and of a name, that are kept."""
JUNK = 20
"""Lines of others in a row that may be amid a traceback."""


@dataclass(frozen=True)
class Cause:
    """What a rank's last words come to.

    :param summary: one line: ``RuntimeError: CUDA out of memory. …``
    :param frames: where in the user's code, outermost first, three at most: ``train.py:188 forward``; where
        nothing of the traceback is the user's, the last ones there are
    :param offset: where the traceback or line begins in what was looked at, in bytes
    """

    summary: RemoteText
    frames: tuple[RemoteText, ...]
    offset: int


class _Line(NamedTuple):
    offset: int
    text: bytes


class _Found(NamedTuple):
    """A traceback, from its head to its summary."""

    head: int
    end: int
    cause: Cause


_STYLE = re.compile(rb"\x1b\[[\d;:]*m")
_TRACEBACK = b"Traceback (most recent call last)"
# A time; `[rank3]: ` of torch, `[default3]:` of torchrun, `[1,3]<stderr>: ` of mpirun; `12: ` of srun -l and
# `node: ` of pdsh; `    | ` of an exception group.
_PREFIX = re.compile(
    rb"(?:\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[\d.,]{0,10}Z?[ :]{0,2}"
    rb"|\[[^\]]{1,64}\](?:<\w{1,16}>)?:? ?|[\w.-]{1,64}: ?){0,4}(?: {0,40}\| )?"
)
# A bar ends without a newline: what is printed next goes on in its line.
_BAR_END = re.compile(rb"(?:it/s|s/it)[^\]]{0,300}\]")
_FRAME = re.compile(rb'[ \t]{1,80}File "([^"]+)", line (\d+)(?:,? in (.+))?')
_BOX_FRAME = re.compile(r"│ (\S[^│]{0,300}?):(\d+) in ([^│]{1,200}?) *│".encode())
_SUMMARY = re.compile(
    rb"(?!(?:DEBUG|INFO|NOTE|WARN|WARNING)\b)(?:[\w<>]{1,80}\.){0,20}(?:[A-Z_]\w*|\w*[Ee]rror|timeout)"
    rb"(?:\([\w.]+\))?(?::(?: .*)?)?[ \t]*\Z"
)
_CHAIN = (b"During handling of the above exception", b"The above exception was the direct cause")
# Of launchers, which only pass on what happened in a rank.
_PASSED_ON = re.compile(
    rb"[\w.]*(?:ChildFailedError|CalledProcessError|ProcessRaisedException|SignalException)\b"
)
_LIBRARY = re.compile(
    rb"/(?:site|dist)-packages/|/lib(?:64)?/python3|^<(?!stdin)|/bin/(?:torchrun|deepspeed|accelerate)$"
    rb"|/(?:torch|deepspeed|transformers|accelerate|lightning|pytorch_lightning|megatron)/[^/]+/"
)
_THROWN = re.compile(rb"terminate called after throwing an instance of '([^']+)'")
_CRASHED = re.compile(
    rb"\bSegmentation fault\b|\bBus error\b|\bIllegal instruction\b|\bcore dumped\b|\boom[-_]kill"
    rb"|\b[Oo]ut of memory: Killed\b|\bDetected \d+ oom|\bline \d+: +\d+ (?:Killed|Aborted)\b"
)
_NOT_STARTED = re.compile(
    rb"can't open file|: command not found\Z|: No module named \S|: Permission denied\Z"
)


def find_cause(tail: bytes) -> Cause | None:
    """The cause in the end of a failed rank's log; None where nothing in it looks like one.

    The last traceback counts, and of a chain of exceptions the first one; without a traceback the last words
    of the C library, the kernel or the interpreter, else the last line that is an error.

    :param tail: the last bytes of the log; 64 KiB are plenty
    """
    lines = _lines(tail)
    tracebacks = _tracebacks(lines)
    own = [found for found in tracebacks if not _PASSED_ON.match(found.cause.summary.raw)]
    if own:
        return _root(lines, own)
    return (
        _fatal(lines)
        or (tracebacks[-1].cause if tracebacks else None)
        or _last(lines, lambda text: _is_error(text) or _NOT_STARTED.search(text) is not None)
    )


def _is_error(text: bytes) -> bool:
    # The head of a traceback without its end tells nothing.
    return level_of(text) is Level.ERROR and _TRACEBACK not in text


def _lines(tail: bytes) -> list[_Line]:
    """Lines as they are seen, without colours, each with where it begins; blank ones are left out."""
    lines: list[_Line] = []
    offset = 0
    for line in tail.split(b"\n"):
        text = last_state(line) if b"\r" in line else line
        if b"\x1b" in text:
            text = _STYLE.sub(b"", text)
        if text and not text.isspace():
            lines.append(_Line(offset, text))
        offset += len(line) + 1
    return lines


def _tracebacks(lines: Sequence[_Line]) -> list[_Found]:
    edges = [at for at, line in enumerate(lines) if _TRACEBACK in line.text] + [len(lines)]
    found: list[_Found] = []
    for head, following in pairwise(edges):
        if head and b"Exception ignored " in lines[head - 1].text:
            continue  # of a destructor: it ended nothing
        each = _traceback(lines, head, following)
        if each is not None:
            found.append(each)
    return found


def _traceback(lines: Sequence[_Line], head: int, stop: int) -> _Found | None:
    """The traceback with this head; None if its summary does not come before ``stop``."""
    before = lines[head].text.partition(_TRACEBACK)[0]
    bars = list(_BAR_END.finditer(before))
    match = _PREFIX.match(before, bars[-1].end() if bars else 0)
    prefix = match[0] if match else b""
    frames: list[tuple[bytes, bytes, bytes]] = []
    junk = 0
    for at in range(head + 1, stop):
        body = _body(lines[at].text, prefix)
        frame = _FRAME.match(body) or _BOX_FRAME.match(body)
        if frame is not None:
            frames.append((frame[1], frame[2], frame[3] or b""))
        elif body[:1] in (b" ", b"\t", b"\xe2", b""):
            continue  # source, markers, boxes
        elif _SUMMARY.match(body):
            if body.rstrip().endswith(b":") and at + 1 < stop:
                body = body.rstrip() + b" " + _body(lines[at + 1].text, prefix).strip()
            return _Found(head, at, Cause(_words(body), _shown(frames), lines[head].offset))
        else:
            junk += 1
            if junk > JUNK:
                return None
            continue
        junk = 0
    return None


def _body(text: bytes, prefix: bytes) -> bytes:
    """A line without what the lines of its traceback begin with; the digits of a time may differ."""
    if not prefix:
        return text
    start = text[: len(prefix)]
    if start == prefix or _shape(start) == _shape(prefix):
        return text[len(prefix) :]
    return text.removeprefix(prefix.rstrip())


def _shape(text: bytes) -> bytes:
    return re.sub(rb"\d", b"0", text)


def _root(lines: Sequence[_Line], own: Sequence[_Found]) -> Cause:
    """Of the last chain the first exception that says something; the others came of it."""
    at = len(own) - 1
    chain = [own[at].cause]
    while at > 0 and any(
        words in line.text for line in lines[own[at - 1].end : own[at].head] for words in _CHAIN
    ):
        at -= 1
        chain.insert(0, own[at].cause)
    # "_queue.Empty" alone is no cause.
    return next((cause for cause in chain if b":" in cause.summary.raw), chain[0])


def _shown(frames: Sequence[tuple[bytes, bytes, bytes]]) -> tuple[RemoteText, ...]:
    """The last frames of the user's code."""
    wanted = [frame for frame in frames if not _LIBRARY.search(frame[0])] or frames
    return tuple(
        RemoteText.of((b"%s:%s %s" % (path.rsplit(b"/", 1)[-1], line, name))[:WORDS].strip())
        for path, line, name in wanted[-FRAMES:]
    )


def _fatal(lines: Sequence[_Line]) -> Cause | None:
    """What the interpreter, a C++ exception or the system said last."""
    for at in reversed(range(len(lines))):
        text = lines[at].text
        if b"Fatal Python error: " in text:
            words = text[text.index(b"Fatal Python error: ") :]
            return Cause(_words(words), _dumped(lines, at), lines[at].offset)
        if b"what(): " in text:
            words = text.partition(b"what(): ")[2].strip()
            thrown = _THROWN.search(lines[at - 1].text) if at else None
            if thrown is not None:
                return Cause(_words(thrown[1] + b": " + words), (), lines[at - 1].offset)
            if words:
                return Cause(_words(words), (), lines[at].offset)
    return _last(lines, lambda text: _CRASHED.search(text) is not None)


def _dumped(lines: Sequence[_Line], at: int) -> tuple[RemoteText, ...]:
    """The frames that the faulthandler printed of the thread that crashed."""
    frames: list[tuple[bytes, bytes, bytes]] = []
    of_it = False
    for line in lines[at + 1 : at + 500]:
        frame = _FRAME.search(line.text) if of_it else None
        if frame is not None:
            frames.insert(0, (frame[1], frame[2], frame[3] or b""))
        elif of_it:
            break
        of_it = of_it or b"Current thread " in line.text
    return _shown(frames)


def _last(lines: Sequence[_Line], test: Callable[[bytes], bool]) -> Cause | None:
    for line in reversed(lines):
        if test(line.text):
            return Cause(_words(line.text), (), line.offset)
    return None


def _words(line: bytes) -> RemoteText:
    return RemoteText.of(line.strip()[:WORDS])
