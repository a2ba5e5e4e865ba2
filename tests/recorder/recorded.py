"""What real ranks left in their recorders: four of :mod:`tests.recorder.toy`, torch 2.13, gloo."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from cockpit.base.recorder.reading import read_json
from cockpit.core.recorder.members import Memberships
from cockpit.core.recorder.merge import Look, Recorded, look
from cockpit.core.recorder.work import Step

LATER_US = 3_000_000
"""How long after the last of all calls the recorders are looked at."""


def told(fault: str) -> dict[str, Any]:
    """Dumps as JSON values, and the ends of steps in nanoseconds, each by rank."""
    path = Path(__file__).with_name("recorded") / f"{fault}.json.gz"
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def dumps(fault: str) -> dict[int, bytes]:
    """What the handler of each rank answered."""
    return {rank: json.dumps(dump).encode() for rank, dump in enumerate(told(fault)["dumps"])}


def recorded(dumps: dict[int, bytes]) -> dict[int, Recorded]:
    """The same, read."""
    traces = {rank: read_json(data, "fr_trace_json") for rank, data in dumps.items()}
    last = max(entry.at_us for trace in traces.values() for entry in trace.entries)
    return {rank: Recorded(last + LATER_US, (trace,)) for rank, trace in traces.items()}


def seen(fault: str, world: int = 4) -> Look:
    """One look at all of them."""
    return look(recorded(dumps(fault)), Memberships(world))


def steps(fault: str) -> dict[int, list[Step]]:
    """The steps of each rank; the first, which has no beginning, is left out."""
    ends = {rank: [ns // 1000 for ns in ends] for rank, ends in enumerate(told(fault)["ends"])}
    return {
        rank: [Step(number, *span) for number, span in enumerate(pairwise(own))] for rank, own in ends.items()
    }
