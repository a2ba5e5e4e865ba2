"""Dumps written as JSON: in full for files, and those of many ranks packed for a link.

A packed answer is zlib-compressed text, one JSON object per line, each of one of these kinds:

=======================================  ==================================================================
``{"frames": [[name, file, line, …]]}``  more frames; they are numbered from 0 as they arrive
``{"nodes": [parent, frame, …]}``        more places in the tree of all stacks, each by two numbers: the
                                         place of the caller (-1 for none) and the frame that is called
``{"dump": {…}}``                        one rank; the ``stack`` of a thread is the place where it ends
=======================================  ==================================================================

A line refers only to earlier lines: see :mod:`cockpit.base.stacks.unpacking`.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, Callable, Dict, Iterable, Iterator, List, Tuple

from cockpit.base.frames import MAX_PAYLOAD
from cockpit.base.stacks.dump import Dump, Frame, Process, Thread

LINE = 1 << 19
"""Bytes of a line of a packed answer; while one is parsed, nothing else runs."""

TEXT = 64 << 20
"""Bytes that all answers of a node to one request may unpack to."""

PLACES = 400_000
"""Places in the tree of a packed answer."""

_FRAMES_A_LINE = 200
_PLACES_A_LINE = 10_000


class TooLarge(ValueError):
    """It is more than one answer may hold."""


class _Table:
    """Every distinct frame and stack once: ranks of one job are mostly at the same few places."""

    def __init__(self) -> None:
        self.frames: List[Any] = []
        self.places: List[int] = []
        self._frame_of: Dict[Frame, int] = {}
        self._place_of: Dict[Tuple[int, int], int] = {}

    def stack(self, frames: Iterable[Frame]) -> int:
        """The number of the place in which this stack ends; -1 for an empty one."""
        place = -1
        for frame in frames:
            number = self._frame_of.get(frame)
            if number is None:
                number = self._frame_of[frame] = len(self._frame_of)
                self.frames.append([frame.name, frame.file, frame.line, int(frame.native)])
            key = (place, number)
            found = self._place_of.get(key)
            if found is None:
                found = self._place_of[key] = len(self._place_of)
                self.places += key
            place = found
        if len(self._place_of) > PLACES:
            raise TooLarge("more than %d places" % PLACES)
        return place

    def news(self) -> Iterator[Dict[str, Any]]:
        """What has been added since the last call, as lines."""
        for start in range(0, len(self.frames), _FRAMES_A_LINE):
            yield {"frames": self.frames[start : start + _FRAMES_A_LINE]}
        for start in range(0, len(self.places), _PLACES_A_LINE):
            yield {"nodes": self.places[start : start + _PLACES_A_LINE]}
        self.frames, self.places = [], []


def pack(dumps: Iterable[Dump]) -> bytes:
    """Dumps as one packed answer; ``unpack`` is the reverse.

    :raises TooLarge: there are too many, or one of them is too large
    """
    table, deflater = _Table(), zlib.compressobj(1)
    parts, text = [], 0
    for dump in dumps:
        told = _dump_out(dump, lambda thread: table.stack(thread.frames))
        for line in (*table.news(), {"dump": told}):
            data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
            text += len(data)
            if len(data) > LINE or text > TEXT:
                raise TooLarge("%d bytes" % max(len(data), text))
            parts.append(deflater.compress(data))
    packed = b"".join((*parts, deflater.flush()))
    if len(packed) > MAX_PAYLOAD:
        raise TooLarge("%d bytes packed" % len(packed))
    return packed


def dump_json(dump: Dump) -> Dict[str, Any]:
    """One dump as a JSON object that people and programs can read: frames in full."""
    return _dump_out(dump, lambda thread: [[*frame[:3], int(frame.native)] for frame in thread.frames])


def _dump_out(dump: Dump, stack: Callable[[Thread], Any]) -> Dict[str, Any]:
    deputy = dump.deputy
    return {
        **vars(dump),
        "took_s": round(dump.took_s, 4),
        "process": None if dump.process is None else _process_out(dump.process, stack),
        "threads": [_thread_out(thread, stack) for thread in dump.threads],
        "deputy": deputy
        and {
            "kind": deputy.kind,
            "thread": _thread_out(deputy.thread, stack),
            "process": _process_out(deputy.process, stack),
        },
        "lock": None if dump.lock is None else dump.lock._asdict(),
    }


def _process_out(process: Process, stack: Callable[[Thread], Any]) -> Dict[str, Any]:
    children = [
        dict(child._asdict(), threads=[_thread_out(thread, stack) for thread in child.threads])
        for child in process.children
    ]
    return dict(process._asdict(), children=children)


def _thread_out(thread: Thread, stack: Callable[[Thread], Any]) -> Dict[str, Any]:
    told: Dict[str, Any] = {
        "name": thread.name,
        "tid": thread.tid,
        "active": thread.active,
        "gil": thread.gil,
        "stack": stack(thread),
    }
    if thread.locals:
        told["locals"] = list(thread.locals)
    return told
