"""Why a rank ended, as far as the end of its log tells it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cockpit.core.levels import Level, level_of
from cockpit.core.text import RemoteText


@dataclass(frozen=True)
class Cause:
    """What a rank's last words come to.

    :param summary: one line: ``RuntimeError: CUDA out of memory. …``
    :param frames: where in the user's code, outermost first, three at most: ``train.py:188 forward``
    :param offset: where the traceback or line begins in what was looked at, in bytes
    """

    summary: RemoteText
    frames: tuple[RemoteText, ...]
    offset: int


FRAMES = 3

# `[rank3]: ` of torch, `[default3]:` of torchrun, `12: ` of srun -l.
_PREFIX = rb"(?:(?:\[[^\]\n]{1,64}\]:? ?|[\w.-]{1,64}: ?){0,3})"
_HEAD = re.compile(rb"^(" + _PREFIX + rb")Traceback \(most recent call last\):[ \r]*$", re.MULTILINE)
_FRAME = re.compile(rb'^ +File "([^"\n]+)", line (\d+)(?:, in (.+?))?\s*$')
_CHAIN = (b"During handling of the above exception", b"The above exception was the direct cause")
# Of launchers and of libraries that only pass on what happened in a rank.
_PASSED_ON = re.compile(rb"ChildFailedError|CalledProcessError|ProcessRaisedException|RemoteError")
_LIBRARY = re.compile(
    rb"/(?:site|dist)-packages/|/lib/python3[^/]*/|^<frozen |^<string>|/torch/|/deepspeed/|/transformers/"
)
_FATAL = (
    re.compile(rb"^.*what\(\): .*$", re.MULTILINE),
    re.compile(rb"^.*(?:Segmentation fault|Bus error|core dumped|Out of memory|oom-kill).*$", re.MULTILINE),
    re.compile(rb"^.*Fatal Python error: .*$", re.MULTILINE),
)


def find_cause(tail: bytes) -> Cause | None:
    """The cause in the end of a failed rank's log; None where nothing in it looks like one.

    :param tail: the last bytes of the log; 64 KiB are plenty
    """
    tracebacks = [found for head in _HEAD.finditer(tail) if (found := _traceback(tail, head))]
    own = [found for found in tracebacks if not _PASSED_ON.search(found.summary.raw)]
    if own:
        return _root(tail, own)
    for pattern in _FATAL:
        hits = list(pattern.finditer(tail))
        if hits:
            return Cause(_words(hits[-1][0]), (), hits[-1].start())
    if tracebacks:
        return tracebacks[-1]
    return _last_error(tail)


def _root(tail: bytes, tracebacks: list[Cause]) -> Cause:
    """Of the last chain of exceptions the first one: the others came of it."""
    at = len(tracebacks) - 1
    while at > 0 and any(
        words in tail[tracebacks[at - 1].offset : tracebacks[at].offset].rpartition(b"Traceback")[0][-600:]
        or words in tail[tracebacks[at - 1].offset : tracebacks[at].offset][-600:]
        for words in _CHAIN
    ):
        at -= 1
    return tracebacks[at]


def _traceback(tail: bytes, head: re.Match[bytes]) -> Cause | None:
    prefix = head[1]
    frames: list[bytes] = []
    at = head.end() + 1
    for line in tail[at:].split(b"\n")[:4000]:
        line = line.rstrip(b"\r")
        body = line[len(prefix) :] if line.startswith(prefix) else line.removeprefix(prefix.rstrip())
        frame = _FRAME.match(body)
        if frame is not None:
            if not _LIBRARY.search(frame[1]):
                name = frame[1].rsplit(b"/", 1)[-1]
                frames.append(b"%s:%s %s" % (name, frame[2], frame[3] or b""))
        elif body.strip() and not body.startswith((b" ", b"\t")):
            shown = tuple(RemoteText.of(each.strip()) for each in frames[-FRAMES:])
            return Cause(_words(body), shown, head.start())
    return None


def _last_error(tail: bytes) -> Cause | None:
    offset = len(tail)
    for line in reversed(tail.split(b"\n")):
        offset -= len(line)
        if level_of(line) is Level.ERROR:
            return Cause(_words(line), (), max(0, offset))
        offset -= 1
    return None


def _words(line: bytes) -> RemoteText:
    return RemoteText.of(line.strip()[:2000])
