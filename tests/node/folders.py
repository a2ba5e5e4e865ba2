"""Run folders as a supervisor and wrappers write them, without a run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cockpit.base import record
from cockpit.node import procfs


def ticks(pid: int) -> int:
    """The start time of a process that is there."""
    found = procfs.stat(pid)
    assert found is not None
    return found.ticks


def make(folder: Path, ranks: Iterable[int], *, boot_id: str = "", supervisor: int = 0) -> None:
    """A record and an empty run record; the supervisor is this process where no other is given."""
    pid = supervisor or os.getpid()
    facts = {
        "format": record.FORMAT,
        "t": 1.0,
        "run": "made-up",
        "node": "node1",
        "ranks": list(ranks),
        "boot_id": boot_id or procfs.boot_id(),
        "supervisor": {"pid": pid, "ticks": ticks(pid)},
    }
    (folder / record.RECORD).write_text(json.dumps(facts))
    (folder / record.EVENTS).touch()


def start(rank: int, pid: int, **facts: Any) -> str:
    """A wrapper's record of the start of a rank whose process is there, or of what ``facts`` say."""
    found = {
        "t": 1.0,
        "rank": rank,
        "attempt": 0,
        "local_rank": rank,
        "world_size": rank + 1,
        "pid": pid,
        "ticks": ticks(pid) if "ticks" not in facts else 0,
        "wrapper": pid,
        "wrapper_ticks": 0,
        "parent": pid,
        "parent_ticks": 0,
        "max_restarts": 0,
        **facts,
    }
    return json.dumps(found)
