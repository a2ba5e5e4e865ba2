"""Running a py-spy, whoever starts it: bounded in time and output."""

from __future__ import annotations

import os
import re
import select
import subprocess
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from cockpit.base.stacks import spy_words
from cockpit.node.run.helpers import Running, Starter, quiet

NAME = "py-spy"

OUTPUT_LIMIT = 32 << 20
"""Bytes of output that are read."""

_SLICE_S = 0.1
"""How soon we notice that nobody wants the answer any more."""


class Result(NamedTuple):
    """How a py-spy ended.

    :param code: its exit status; None if it had to be killed, for the reason in ``why``
    :param why: ``timeout``, ``cancelled`` or ``large``
    """

    code: Optional[int]
    out: bytes
    said: str
    why: str = ""


def directly(path: str, arguments: List[str], out: int, said: int) -> Running:
    """Start it as our own child."""
    return child([NAME, *arguments], path, out, said)


def child(argv: List[str], path: str, out: int, said: int, passed: Sequence[int] = ()) -> Running:
    """Start any program as our own child.

    :param passed: open files that it inherits
    :raises OSError: it cannot be started
    """
    process = subprocess.Popen(
        argv,
        executable=path,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=said,
        cwd="/",
        env=quiet(),
        pass_fds=passed,
    )

    def wait(timeout_s: float) -> Optional[int]:
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    return Running(wait, process.kill)


def run(
    start: Starter, path: str, arguments: List[str], timeout_s: float, cancelled: Callable[[], bool]
) -> Result:
    """Run a py-spy to its end, or until its time is over.

    :raises OSError: it cannot be started
    """
    out, out_end = os.pipe()
    said, said_end = os.pipe()
    try:
        try:
            running = start(path, arguments, out_end, said_end)
        finally:
            os.close(out_end)
            os.close(said_end)
        deadline = time.monotonic() + timeout_s
        texts, why = _read({out: b"", said: b""}, deadline, cancelled)
    finally:
        os.close(out)
        os.close(said)
    code: Optional[int] = None
    while code is None and not why:
        # It has closed its output; on a busy node its end may be told much later.
        code = running.wait(_SLICE_S)
        if code is None:
            why = "cancelled" if cancelled() else "timeout" if time.monotonic() > deadline else ""
    if why:
        running.kill()
        # In an uninterruptible wait it cannot even die.
        running.wait(1.0)
    return Result(None if why else code, texts[out], texts[said].decode("utf-8", "replace"), why)


def _read(
    texts: Dict[int, bytes], deadline: float, cancelled: Callable[[], bool]
) -> Tuple[Dict[int, bytes], str]:
    """Read all of these until each has ended; return what was read, and why not to the end."""
    parts: Dict[int, List[bytes]] = {number: [] for number in texts}
    poll = select.poll()
    for number in texts:
        poll.register(number, select.POLLIN)
    left, room, why = set(texts), OUTPUT_LIMIT, ""
    while left and not why:
        for number, _ in poll.poll(_SLICE_S * 1000):
            data = os.read(number, 1 << 16)
            parts[number].append(data)
            room -= len(data)
            if not data:
                poll.unregister(number)
                left.discard(number)
        if cancelled():
            why = "cancelled"
        elif time.monotonic() > deadline:
            why = "timeout"
        elif room < 0:
            why = "large"
    return {number: b"".join(part) for number, part in parts.items()}, why


def complaint(said: str, pid: int) -> Tuple[str, str]:
    """What py-spy complains about, as a sentence, and what would help."""
    if "Failed to find python version" in said:
        return "process %d %s" % (pid, spy_words.NO_PYTHON), ""
    unsupported = re.search(r"Unsupported version of Python: (\S+)", said)
    if unsupported:
        what = "this py-spy does not know Python %s" % unsupported.group(1)
        return what, "a newer py-spy: %s" % spy_words.NEWER
    told = said.partition("Stack backtrace:")[0]
    reasons = re.findall(r"^\s*(?:Error: |Reason: |\d+: )(.+?)\s*$", told, re.MULTILINE)
    lines = list(dict.fromkeys(reasons)) or told.strip().splitlines()[:1] or ["no reason given"]
    return "py-spy failed: %s" % ": ".join(lines)[:300], ""
