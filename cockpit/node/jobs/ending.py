"""End a job that others started, because a person asked for it: its launchers, then what is below them."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Dict, List, Tuple

from cockpit.base import users, verbs
from cockpit.node import procfs
from cockpit.node.calls import Call, NodeError
from cockpit.node.jobs.outputs import is_ours
from cockpit.node.run.leftovers import named
from cockpit.node.stacks import launchers

_LAST_S = 10.0
"""After the last signal, for processes to end: on a busy node, those that were killed take seconds."""


def end(call: Call) -> Dict[str, Any]:
    """SIGTERM to these processes; after ``grace_s`` seconds to all that were below them and live.

    Request: ``processes``; ``grace_s``; ``hard``: SIGKILL then. Answers with how many there were, and
    ``survivors``.

    :raises NodeError: one is not this user's, or is above this agent
    """
    asked = call.asked(verbs.End)
    mine = {one.pid for one in launchers.above(os.getpid())} | {os.getpid()}
    tops = [(one.pid, one.ticks) for one in asked.processes if procfs.alive(one.pid, one.ticks)]
    for pid, ticks in tops:
        if pid in mine:
            raise NodeError("refused", "process %d also started this agent: end it there by hand" % pid)
        if not is_ours(pid, ticks):
            raise NodeError("refused", "process %d belongs to %s" % (pid, _owner(pid)))
    below = [one for pid, _ in tops for one in procfs.descendants(pid, lambda each: each in mine)]
    everything = list(dict.fromkeys([*tops, *((one.pid, one.ticks) for one in below)]))
    _send(tops, signal.SIGTERM)
    left = _wait(call, everything, max(0.0, asked.grace_s))
    if left:
        _send(left, signal.SIGKILL if asked.hard else signal.SIGTERM)
        left = _wait(call, left, _LAST_S)
    seen = [procfs.stat(pid) for pid, _ in left]
    return {"count": len(everything), "survivors": [named(one) for one in seen if one is not None]}


def _owner(pid: int) -> str:
    uid = procfs.owner(pid)
    if uid is None:
        return "somebody else"
    user = users.name(uid)
    return "%s: only %s or root may end it" % (user, user)


def _send(processes: List[Tuple[int, int]], number: int) -> None:
    for pid, ticks in processes:
        procfs.send(pid, ticks, number)


def _wait(call: Call, processes: List[Tuple[int, int]], seconds: float) -> List[Tuple[int, int]]:
    """Those that live after at most this long."""
    until = time.monotonic() + seconds
    while True:
        processes = [one for one in processes if procfs.alive(*one)]
        if not processes or time.monotonic() >= until or not call.pause(0.1):
            return processes
