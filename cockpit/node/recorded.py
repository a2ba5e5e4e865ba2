"""What a node's run folders say: facts, events, whether the supervisor lives, what it missed."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Dict, List, Optional

from cockpit.base import record, verbs
from cockpit.node import procfs
from cockpit.node.calls import Call, NodeError

_EVENTS_READ = 1 << 20
"""Bytes of a run record looked at for a status: more than 8 ranks can fill."""


def status(call: Call) -> Dict[str, Any]:
    """The run as recorded (``record``, ``events``) and whether its supervisor lives (``alive``).

    :raises NodeError: there is no such run here, or it belongs to somebody else
    """
    return _status(call.asked(verbs.Status).dir)


def runs(call: Call) -> Dict[str, Any]:
    """The runs under ``base`` that are ours: ``runs`` [{dir, record, events, alive}]."""
    base = call.asked(verbs.Runs).base
    found = []
    for run in sorted(_names(base)):
        for node in sorted(_names(os.path.join(base, run))):
            folder = os.path.join(base, run, node)
            try:
                found.append(dict(_status(folder), dir=folder))
            except NodeError:
                continue  # not a run folder, or one that is just being made
    return {"runs": found}


def _status(folder: str) -> Dict[str, Any]:
    facts = read_record(folder)
    events = []
    with open(os.path.join(folder, record.EVENTS), "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _EVENTS_READ))
        for line in file:
            try:
                events.append(json.loads(line.decode()))
            except ValueError:
                continue  # cut at the start of what we read, or just being written at its end
    return {"record": facts, "events": events, "alive": supervisor_alive(folder)}


def _names(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def read_record(folder: str) -> Dict[str, Any]:
    """The facts of a run folder.

    :raises NodeError: none there, not ours, or written by a newer cockpit
    """
    try:
        owner = os.lstat(folder).st_uid
        if owner != os.geteuid():
            raise NodeError("folder", "run folder %s belongs to uid %d" % (folder, owner))
        with open(os.path.join(folder, record.RECORD)) as file:
            facts: Dict[str, Any] = json.load(file)
    except (OSError, ValueError) as error:
        raise NodeError("gone", "no run record in %s: %s" % (folder, error)) from None
    if facts.get("format", 0) > record.FORMAT:
        raise NodeError("format", "run was started by a newer cockpit", "upgrade cockpit here")
    return facts


_known: Dict[str, Dict[str, Any]] = {}


def supervisor_alive(folder: str) -> Optional[bool]:
    """Whether the run's supervisor lives; None while there is no record yet."""
    facts = _known.get(folder)
    if facts is None:
        try:
            facts = _known[folder] = read_record(folder)
        except NodeError:
            return None
    supervisor_facts = facts["supervisor"]
    return facts["boot_id"] == procfs.boot_id() and procfs.alive(
        supervisor_facts["pid"], supervisor_facts["ticks"]
    )


def unrecorded(folder: str) -> List[Dict[str, Any]]:
    """Events of ranks that a dead supervisor did not record, from the wrappers' files and /proc.

    A rank that still runs gives no event; one that is gone without an exit record is lost.
    """
    facts = read_record(folder)
    recorded = {
        (event.get("e"), event.get("rank"), event.get("attempt")) for event in _status(folder)["events"]
    }
    events = []
    for rank in facts["ranks"]:
        start = _load(os.path.join(folder, record.rank_start(rank)))
        end = _load(os.path.join(folder, record.rank_exit(rank)))
        if start is None:
            continue
        attempt = start.get("attempt")
        if ("rank_started", rank, attempt) not in recorded:
            events.append(dict(start, e="rank_started"))
        if {("rank_exited", rank, attempt), ("rank_lost", rank, attempt)} & recorded:
            continue
        if end is not None:
            events.append(dict(end, e="rank_exited", by="wrapper"))
        elif facts["boot_id"] != procfs.boot_id() or not procfs.alive(start["pid"], start["ticks"]):
            why = "it ended while neither its wrapper nor the supervisor lived"
            events.append({"t": time.time(), "e": "rank_lost", "rank": rank, "attempt": attempt, "why": why})
    return events


def _load(path: str) -> Optional[Dict[str, Any]]:
    try:
        with open(path) as file:
            data: Dict[str, Any] = json.load(file)
            return data
    except (OSError, ValueError):
        return None
