"""The environment that a rank was started with, without its secrets: those never leave the node."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, Optional

from cockpit.base import record, verbs
from cockpit.base.gate import COUNT, PID, TICKS, VARIABLES, Definition, bound, read
from cockpit.node import procfs, safefiles
from cockpit.node.calls import Call, NodeError
from cockpit.node.run import redact
from cockpit.node.run.ranks import Start, recorded
from cockpit.node.run.status import read_record

_LIMIT = 2 << 20
"""Bytes of a recorded environment: more than :data:`redact.TOTAL_LIMIT` takes in JSON."""

_LOOK_S = 0.05
"""Seconds between two looks for a record that is just being written."""


_YOUNG_S = 10.0
"""Seconds after its start in which the environment of a rank may not be there yet."""


def environ(call: Call) -> Dict[str, Any]:
    """The environment of a rank's process: ``environ`` {name: value}, by name; ``left_out``: how many more.

    Request: ``rank``; ``target`` if a job of others is asked about. If the process lives, it is read
    directly: a script that became the training process by exec may have set more than its wrapper knew. If
    it is gone, this is what its wrapper recorded. Either way it is what the process was started with: later
    changes cannot be seen from outside.

    :raises NodeError: the rank has not started, or its process is gone and its environment was not recorded
    """
    asked = call.asked(verbs.Environ)
    folder, rank = asked.dir, asked.rank
    if asked.target is not None:
        found = _of_process(asked.target.pid, asked.target.ticks)
        if found is None:
            raise NodeError("gone", "rank %d is gone, or may not be inspected" % rank)
        return found
    same_boot = read_record(folder)["boot_id"] == procfs.boot_id()
    start = _start(folder, rank)
    found = None
    while found is None:
        # First: a wrapper ends once the record is there, or never will be.
        writing = same_boot and (_is_ending(start) or _is_young(start))
        found = _of_process(start.pid, start.ticks) if same_boot else None
        found = found or _of_record(folder, start)
        if found is None and not (writing and call.pause(_LOOK_S)):
            why = "the disk was full, or an older cockpit started the run"
            raise NodeError("gone", "the environment of rank %d was not recorded: %s" % (rank, why))
    return found


def _start(folder: str, rank: int) -> Start:
    path = os.path.join(folder, record.rank_start(rank))
    try:
        return recorded(Start, path, rank)
    except FileNotFoundError:
        raise NodeError("early", "rank %d has not started here" % rank) from None
    except (OSError, ValueError) as error:
        raise NodeError("gone", "no start record of rank %d: %s" % (rank, error)) from None


def _of_process(pid: int, ticks: int) -> Optional[Dict[str, Any]]:
    """What the kernel says; None: the process is gone, or may not be inspected."""
    if not procfs.alive(pid, ticks):
        return None
    found = redact.told(procfs.environment(pid))
    # Check again: only now is it certain that no other process with this pid was read.
    return found if found["environ"] and procfs.alive(pid, ticks) else None


def _is_ending(start: Start) -> bool:
    """Whether a rank has ended but its wrapper has not."""
    return procfs.alive(start.wrapper, start.wrapper_ticks) and not procfs.alive(start.pid, start.ticks)


def _is_young(start: Start) -> bool:
    """Whether a rank has started just now: while it becomes its program it shows no environment."""
    return procfs.alive(start.pid, start.ticks) and 0 <= time.time() - start.t < _YOUNG_S


class _Recorded(Definition):
    """What a wrapper wrote: which process it is about, and what :func:`redact.told` said about it."""

    pid: int = bound(PID)
    ticks: int = bound(TICKS)
    environ: Dict[str, str] = bound(VARIABLES)
    left_out: int = bound(COUNT)


def _of_record(folder: str, start: Start) -> Optional[Dict[str, Any]]:
    """What the wrapper recorded of this very process; None: nothing, or not yet.

    :raises NodeError: what is there is not such a record
    """
    try:
        found = read(_Recorded, safefiles.load(os.path.join(folder, record.rank_environ(start.rank)), _LIMIT))
        if sum(redact.weight(*pair) for pair in found.environ.items()) > redact.TOTAL_LIMIT:
            raise ValueError("more than is ever recorded")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        what = "the recorded environment of rank %d cannot be read: %s" % (start.rank, error)
        raise NodeError("gone", what) from None
    if (found.pid, found.ticks) != (start.pid, start.ticks):
        return None  # of an earlier attempt
    return {"environ": found.environ, "left_out": found.left_out}
