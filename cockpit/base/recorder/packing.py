"""A trace packed for a link: columns of numbers, each told by how it differs from the one before, compressed.

0.9 MB of a full ring become some 10 KB. What is called is told once; a row only refers to it.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, Dict, Iterable, Iterator, Tuple

from cockpit.base.gate import Malformed
from cockpit.base.recorder.trace import Trace

UNPACKED = 4 << 20
"""Bytes that a packed trace may unpack to."""

ROWS = 20_000
"""Entries of a packed trace."""


def pack(trace: Trace) -> bytes:
    """The trace as bytes; ``unpack`` is the reverse.

    :raises Malformed: it is more than ``unpack`` would take
    """
    if len(trace.entries) > ROWS:
        raise Malformed("more than %d entries" % ROWS)
    groups = list(trace.lows)
    number_of = {group: place for place, group in enumerate(groups)}
    calls = list(dict.fromkeys(entry.call for entry in trace.entries))
    place_of = {call: place for place, call in enumerate(calls)}
    sources = list(dict.fromkeys(entry.source for entry in trace.entries if entry.source))
    texts = {source: place for place, source in enumerate(sources)}
    told: Dict[str, Any] = {
        "source": trace.source,
        "version": trace.version,
        "from_us": trace.from_us,
        "whole": trace.whole,
        "groups": [[*group, trace.lows[group]] for group in groups],
        "calls": [[number_of[call.group], *call[1:7]] for call in calls],
        "pairwise": [place for place, call in enumerate(calls) if call.pairwise],
        "members": {name: list(steps(ranks)) for name, ranks in trace.members.items()},
        "call": [place_of[entry.call] for entry in trace.entries],
        "number": list(_numbers(trace)),
        "at": list(steps(entry.at_us for entry in trace.entries)),
        "state": "".join(str(entry.state) for entry in trace.entries),
        "sources": sources,
        "made_at": [
            [place, texts[entry.source]] for place, entry in enumerate(trace.entries) if entry.source
        ],
    }
    data = json.dumps(told, separators=(",", ":")).encode()
    if len(data) > UNPACKED:
        raise Malformed("names of more than %d bytes" % UNPACKED)
    return zlib.compress(data, 6)


def steps(numbers: Iterable[int]) -> Iterator[int]:
    """Each number's difference from the one before."""
    before = 0
    for number in numbers:
        yield number - before
        before = number


def _numbers(trace: Trace) -> Iterator[int]:
    """The number of each entry, as its difference from the one before in its group."""
    before: Dict[Tuple[Any, ...], int] = {}
    for entry in trace.entries:
        series = (entry.call.group, entry.call.pairwise)
        yield entry.number - before.get(series, 0)
        before[series] = entry.number
