"""What it costs to read a profile here: the summaries of all ranks, joined."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable
from typing import Any

from benchmarks.table import Level, Result
from cockpit.base.gate import Definition, fields, parsed, read
from cockpit.base.profile.summary import RankProfile
from cockpit.core.profile.reader import read as reading_of
from cockpit.core.profile.words import as_lines
from tests.core.profiled import Work, collection

RANKS, NODES, STEPS, COLLECTIVES = 64, 8, 5, 200
ROUNDS = 9


def run() -> Result:
    """Measure; needs nothing."""
    made = collection(RANKS, _does, nodes=NODES, steps=range(STEPS), collectives=COLLECTIVES)
    sent = [zlib.compress(json.dumps(_plain(one.summary)).encode()) for one in made.results.values()]
    reading = reading_of(made)
    checked = _timed(lambda: [read(RankProfile, parsed(zlib.decompress(one))) for one in sent])
    joined = _timed(lambda: reading_of(made))
    both = [one + other for one, other in zip(checked, joined, strict=True)]
    return Result(
        "joined",
        f"{RANKS} ranks of {NODES} nodes, {STEPS} steps of {COLLECTIVES} collectives each, read here",
        {"cockpit": "read(RankProfile, …) of each, read(Collection)"},
        levels=[
            Level("from what nodes sent to what it says", both, "s", 2),
            Level("of it, unpacked and checked", checked, "s"),
            Level("of it, joined and judged", joined, "s"),
            Level("as text", _timed(lambda: as_lines(made, reading)), "s"),
        ],
        notes=["Times are of the process, on one core."],
    )


def _does(rank: int, step: int) -> Work:
    return Work(data=300) if rank == 13 else Work(forward=80 + rank % 7)


def _timed(what: Callable[[], object]) -> list[float]:
    found = []
    for _ in range(ROUNDS):
        began = time.process_time()
        what()
        found.append(time.process_time() - began)
    return found


def _plain(value: Any, *, row: bool = False) -> Any:
    """As nodes send it: the fields of what is in lists by their order alone."""
    if isinstance(value, Definition):
        plain = {name: _plain(getattr(value, name)) for name, _, _ in fields(type(value))}
        return list(plain.values()) if row else plain
    return [_plain(one, row=True) for one in value] if isinstance(value, tuple) else value
