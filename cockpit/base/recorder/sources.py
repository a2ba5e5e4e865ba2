"""The line of the program that made a call, from the stack that torch's pickled dumps have with it."""

from __future__ import annotations

import posixpath
from typing import Any, Dict, Iterator, List, Sequence, Set, Tuple

from cockpit.base.recorder.trace import GOING, SOURCES, Entry, Group, text
from cockpit.base.stacks.dump import Frame
from cockpit.base.stacks.file_names import normalise
from cockpit.base.stacks.kinds import user_frame

_FRAMES = 200
"""Frames of a stack that are looked at, the innermost."""


def with_sources(entries: Sequence[Entry], told: Sequence[Dict[str, Any]]) -> List[Entry]:
    """The entries, with the sources of those that matter: what is not done, and the last of each group.

    :param told: the entry of the dump that each is of
    """
    found = list(entries)
    for place in _wanted(entries):
        if source := _source(told[place].get("frames")):
            found[place] = entries[place]._replace(source=source)
    return found


def _wanted(entries: Sequence[Entry]) -> Iterator[int]:
    """The places of those that matter, the newest first."""
    seen: Set[Tuple[Group, bool]] = set()
    left = SOURCES
    for place in range(len(entries) - 1, -1, -1):
        entry = entries[place]
        series = (entry.call.group, entry.call.pairwise)
        if entry.state == GOING or series not in seen:
            seen.add(series)
            yield place
            left -= 1
        if not left:
            return


def _source(told: Any) -> str:
    """``train.py:7 step``: the innermost frame of the user's own code, else the innermost of all."""
    frames = []
    for one in told[:_FRAMES] if isinstance(told, list) else ():
        values = [one.get(name) for name in ("name", "filename", "line")] if isinstance(one, dict) else []
        if not (values and isinstance(values[0], str) and isinstance(values[1], str)):
            return ""
        line = values[2] if type(values[2]) is int and 0 <= values[2] < 1 << 31 else 0
        file = normalise(values[1][:4096])
        if file.startswith("/"):
            file = "./" + posixpath.basename(file)  # whose folders these are is nobody's business
        frames.append(Frame(values[0][:200], file, line, not file.endswith(".py")))
    if not frames:
        return ""
    # Torch tells the innermost first.
    frame = user_frame(tuple(reversed(frames))) or frames[0]
    return text("%s %s" % (frame.place, frame.name))
