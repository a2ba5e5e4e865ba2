"""The last calls of ranks, as each notes them in memory: also of one that is dead, or answers nobody."""

from __future__ import annotations

import os
import re
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

from cockpit.base import record, verbs
from cockpit.base.gate import PID
from cockpit.base.progress import calls as noted
from cockpit.base.stacks.file_names import normalise
from cockpit.node import safefiles
from cockpit.node.calls import Call
from cockpit.node.run.status import ring_folder

_NAME = re.compile(r"(0|[1-9][0-9]{0,6})\.([1-9][0-9]{0,9})" + re.escape(record.CALLS))


def calls(call: Call) -> Dict[str, Any]:
    """Of each rank those of its newest process that has noted any: ``ranks`` [{rank, pid, why, calls}]."""
    asked = call.asked(verbs.Calls)
    wanted, found = set(asked.ranks), {}  # type: ignore[var-annotated]
    for folder in _folders(asked.dir):
        for rank, pid, path in _files(folder):
            if rank not in wanted:
                continue
            one = _read(path, rank, pid)
            newest = one.last[0].mono_ns if one and one.last else 0
            if one is not None and newest >= found.get(rank, (0, None))[0]:
                found[rank] = newest, one
    now = time.monotonic_ns()
    return {"ranks": [_told(one, now) for _, one in found.values()]}


def _folders(run: str) -> Iterator[str]:
    """Where the files are: in memory while the run lives, then in its folder."""
    rings = ring_folder(run)
    if rings:
        yield rings
    yield os.path.join(run, record.PROBE)


def _files(folder: str) -> List[Tuple[int, int, str]]:
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    fits = filter(None, map(_NAME.fullmatch, names))
    return [(int(each.group(1)), int(each.group(2)), os.path.join(folder, each.group())) for each in fits]


def _read(path: str, rank: int, pid: int) -> Optional[noted.Calls]:
    try:
        found = noted.read(safefiles.read(path, noted.SIZE))
    except (OSError, ValueError):
        return None
    return found if (found.rank, found.pid) == (rank, pid) and pid <= PID.most else None


def _told(one: noted.Calls, now_ns: int) -> Dict[str, Any]:
    home = os.path.expanduser("~")
    rows = [
        [
            max(0.0, (now_ns - each.mono_ns) / 1e9),
            each.main,
            each.name,
            normalise(each.file, "", home),
            each.line,
        ]
        for each in one.last
    ]
    return {"rank": one.rank, "pid": one.pid, "why": one.why, "calls": rows}
