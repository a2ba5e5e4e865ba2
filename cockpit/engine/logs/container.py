"""What a container writes to its output, as ``kubectl logs`` prints it, from where it was last read.

There are no offsets in it: a place is the time of a line, in nanoseconds, and a checksum of what it says.
"""

from __future__ import annotations

import asyncio
import calendar
import re
import time
import zlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from cockpit.base import openfiles
from cockpit.transport.base import Tail

AGAIN_S = 10.0
"""Seconds until it is asked again, after the API server, a rotation or the container's end has ended it."""

_READ = 1 << 16
_LONG = 1 << 20
"""Bytes of a line that are held until it ends."""

_LINE = re.compile(
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):(\d\d)) ?(.*)", re.DOTALL
)


@dataclass(frozen=True)
class Place:
    """A line: when the container wrote it, and what its bytes come to."""

    ns: int
    mark: int


@dataclass(frozen=True)
class Lines:
    """Some whole lines.

    :param end: the place of the last one
    :param missing: whether lines before these are not to be had any more: they were rotated away, or the
        container was started again
    """

    data: bytes
    end: Place
    missing: bool = False


class _Reader:
    """Takes the times from lines, and finds the first that was not read before."""

    def __init__(self, after: Place | None) -> None:
        self._after = after
        self._rest = b""

    def feed(self, data: bytes) -> Lines | None:
        """The new lines in the next bytes; None: there are none."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONG:  # the rest counts as another line
            whole, self._rest = [*whole, self._rest], b""
        found: list[bytes] = []
        missing, end = False, self._after
        for line in whole:
            match = _LINE.match(line)
            ns, text = (0, line) if match is None else (_ns(match), match[6])
            if self._after is not None and ns <= self._after.ns:
                if ns == self._after.ns and zlib.crc32(text) == self._after.mark:
                    self._after = None
                continue
            missing = missing or self._after is not None
            self._after = None
            end = Place(ns or (end.ns if end else 0), zlib.crc32(text))
            found.append(text + b"\n")
        return Lines(b"".join(found), end, missing) if found and end else None


def _ns(match: re.Match[bytes]) -> int:
    try:
        seconds = calendar.timegm(time.strptime(match[1].decode(), "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return 0
    if match[3]:
        away = int(match[4]) * 3600 + int(match[5]) * 60
        seconds += -away if match[3] == b"+" else away
    return max(0, seconds) * 10**9 + int((match[2] or b"0").ljust(9, b"0"))


async def follow(words: Sequence[str], after: Place | None, said: Tail) -> AsyncGenerator[Lines, None]:
    """The lines after a place, and those to come, until kubectl ends.

    :param words: ``kubectl logs`` with all it needs, but for where to begin
    :param said: is given what it writes to stderr
    """
    if after is not None:
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(after.ns // 10**9))
        words = (*words, f"--since-time={since}")
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    openfiles.give_back(process.pid)
    assert process.stdout
    assert process.stderr
    reader = _Reader(after)
    draining = asyncio.create_task(_drain(process.stderr, said))
    try:
        while data := await process.stdout.read(_READ):
            found = reader.feed(data)
            if found is not None:
                yield found
        await asyncio.wait({draining}, timeout=1.0)
    finally:
        draining.cancel()
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _drain(stream: asyncio.StreamReader, said: Tail) -> None:
    while data := await stream.read(4096):
        said.add(data)
