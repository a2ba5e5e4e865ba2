"""What a node's run folders say: facts, events, whether the supervisor lives, what it missed."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Type

from cockpit.base import record, verbs
from cockpit.base.frames import MAX_HEADER
from cockpit.base.gate import COUNT, fields, read
from cockpit.base.shared_fields import RUNS_TOLD, RunFacts, RunIdentity
from cockpit.node import procfs, safefiles
from cockpit.node.calls import Call, NodeError
from cockpit.node.run import helpers, leftovers
from cockpit.node.run.ranks import End, Start, T, recorded

_EVENTS_READ = 1 << 20
"""Bytes of a run record that are read for a status: more than 8 ranks can fill."""
_RECORD_LIMIT = 1 << 20
RUNS_BYTES = MAX_HEADER // 2
"""Of the list of runs: an answer with more than a frame may have would be none."""


def status(call: Call) -> Dict[str, Any]:
    """The run as recorded (``record``, ``events``) and whether its supervisor lives (``alive``).

    If it does not, ``found`` is what it could no longer record (see :func:`unrecorded`).

    Request: ``dir``; ``run`` and ``node``, by which processes are found if the run folder is gone. Then
    ``record`` is null, and ``gone`` says what runs (see :meth:`Remains.told`).

    :raises NodeError: there is no such run here, or it belongs to somebody else
    """
    asked = call.asked(verbs.Status)
    try:
        answer = _status(asked.dir)
        return answer if answer["alive"] else dict(answer, found=unrecorded(asked.dir))
    except NodeError as error:
        found = remaining(error, asked.dir, asked.run, asked.node)
        alive = found.supervisor is not None
        return {"record": None, "events": [], "alive": alive, "gone": found.told(error.what)}


def remaining(error: NodeError, folder: str, run: str, node: str) -> leftovers.Leftovers:
    """What lives of a run whose folder cannot be read, for the reason given.

    :raises NodeError: ``error`` itself, if it has another reason or nothing is left
    """
    found = leftovers.find(folder, run, node) if run and node and error.kind == "gone" else None
    if not found:
        raise error
    return found


def runs(call: Call) -> Dict[str, Any]:
    """The runs under ``base`` that are ours, the newest first: ``runs`` [{dir, record, alive}], ``more``."""
    base = call.asked(verbs.Runs).base
    folders = [
        os.path.join(base, run, node) for run in names(base) for node in names(os.path.join(base, run))
    ]
    found: List[Dict[str, Any]] = []
    room, more = RUNS_BYTES, 0
    for folder in sorted(folders, key=begun, reverse=True):
        try:
            facts = read_record(folder)
        except NodeError:
            continue
        if safefiles.size(os.path.join(folder, record.EVENTS)) is None:
            continue  # not a run folder, or one that is just being made
        told = {name: facts[name] for name, *_ in fields(RunFacts) if name in facts}
        one = {"dir": folder, "record": told, "alive": supervisor_alive(folder)}
        room -= len(json.dumps(one))
        if room < 0 or len(found) >= RUNS_TOLD:
            more += 1
        else:
            found.append(one)
    return {"runs": found, "more": more}


def begun(folder: str) -> float:
    """When the record of a run folder was written, unix seconds; what has none comes last."""
    try:
        return os.lstat(os.path.join(folder, record.RECORD)).st_mtime
    except OSError:
        return 0.0


def _status(folder: str) -> Dict[str, Any]:
    facts = read_record(folder)
    alive = supervisor_alive(folder)  # first: what one records before it ends belongs to the events
    path = os.path.join(folder, record.EVENTS)
    start = max(0, (safefiles.size(path) or 0) - _EVENTS_READ)
    try:
        data = safefiles.part(path, start, _EVENTS_READ)
    except FileNotFoundError:
        data = b""  # somebody removed it, and its facts are still there
    except OSError as error:
        raise NodeError("unreadable", "%s: %s" % (path, error.strerror)) from None
    while alive and len(data) < 2 * _EVENTS_READ:
        told = unwritten(folder, start + len(data))
        if told is None or told.place > start + len(data) or not told.data:
            break
        data += told.data
    events = []
    for line in data.split(b"\n"):
        try:
            events.append(safefiles.parse(line))
        except ValueError:
            continue  # cut at the start of what we read, still being written at its end, or not ours
    return {"record": facts, "events": events, "alive": alive}


class Unwritten(NamedTuple):
    """What the supervisor has no room to write.

    :param place: where in the run record it comes, or the part of it that is here
    :param end: where all of it would end
    """

    place: int
    end: int
    data: bytes


def unwritten(folder: str, start: int) -> Optional[Unwritten]:
    """What the supervisor has no room to write, from this place of the run record on, or from a later one.

    None: the supervisor is busy. Of one that nobody can ask, such as an older one, it ends before it begins.
    """
    try:
        said = helpers.ask(folder, helpers.UNWRITTEN, start)
        head, _, data = said.partition(b"\n")
        place, end = map(int, head.split())
        return Unwritten(max(start, place), end, data)
    except TimeoutError:
        return None
    except (OSError, ValueError):
        return Unwritten(start, 0, b"")


def names(folder: str) -> List[str]:
    """What is in a folder; nothing if it cannot be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def ring_folder(folder: str) -> str:
    """Where the rings of a run are; empty: it has none, or its record cannot be read."""
    try:
        return str(read_record(folder).get("rings") or "")
    except NodeError:
        return ""


def read_record(folder: str) -> Dict[str, Any]:
    """The facts of a run folder.

    :raises NodeError: ``gone``: none there; ``unreadable``: for now, or damaged; not ours; of a newer cockpit
    """
    try:
        owner = os.lstat(folder).st_uid
        if owner != os.geteuid():
            raise NodeError("folder", "run folder %s belongs to uid %d" % (folder, owner))
        facts = safefiles.load(os.path.join(folder, record.RECORD), _RECORD_LIMIT)
        if COUNT.read(facts.get("format")) <= record.FORMAT:
            read(RunIdentity, facts)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NodeError("gone", "no run record in %s: %s" % (folder, error.strerror)) from None
    except OSError as error:
        raise NodeError("unreadable", "no run record in %s: %s" % (folder, error.strerror)) from None
    except ValueError as error:
        raise NodeError("unreadable", "no run record in %s: %s" % (folder, error)) from None
    if facts["format"] > record.FORMAT:
        raise NodeError(
            "format", "the run was started by a newer cockpit", "use that version, or upgrade this one"
        )
    return facts


_FOLDERS = 256
"""Whose facts are remembered: an agent that looks at more asks again."""
_known: Dict[str, Dict[str, Any]] = {}


def supervisor_alive(folder: str) -> Optional[bool]:
    """Whether the run's supervisor lives; None while there is no record yet."""
    facts = _known.get(folder)
    if facts is None:
        try:
            if len(_known) > _FOLDERS:
                _known.clear()
            facts = _known[folder] = read_record(folder)
        except NodeError:
            return None
    supervisor_facts = facts["supervisor"]
    return facts["boot_id"] == procfs.boot_id() and procfs.alive(
        supervisor_facts["pid"], supervisor_facts["ticks"]
    )


def unrecorded(folder: str, *, alive: bool = False) -> List[Dict[str, Any]]:
    """Events of ranks that the run record does not have, from the wrappers' files and /proc.

    A rank that still runs gives no event; one that is gone with its wrapper, without an exit record, is lost.

    :param alive: the supervisor lives, and says itself what is lost
    """
    facts = read_record(folder)
    rebooted = facts["boot_id"] != procfs.boot_id()
    recorded = set(_of_ranks(_status(folder)["events"]))
    events: List[Dict[str, Any]] = []
    unseen: List[int] = []
    for rank in facts["ranks"]:
        start = _recorded(Start, os.path.join(folder, record.rank_start(rank)), rank)
        # First: a wrapper records the end of its rank, and only then ends itself.
        runs = start is not None and not rebooted and _runs(start)
        end = _recorded(End, os.path.join(folder, record.rank_exit(rank)), rank)
        if start is None:
            if end is not None and ("rank_exited", rank, end.attempt) not in recorded:
                events.append(dict(end.told(), e="rank_exited"))
            elif end is None and not any(kind in _ENDS and one == rank for kind, one, _ in recorded):
                unseen.append(rank)
            continue
        attempt = start.attempt
        if ("rank_started", rank, attempt) not in recorded:
            events.append(dict(start.told(), e="rank_started"))
        if {("rank_exited", rank, attempt), ("rank_lost", rank, attempt)} & recorded:
            continue
        if end is not None:
            events.append(dict(end.told(), e="rank_exited"))
        elif not runs:
            why = "it ended while neither its wrapper nor the supervisor lived"
            if rebooted:
                why = "its node was rebooted, and nobody saw how it ended"
            events.append(_lost(rank, attempt, why, rebooted))
    if unseen:
        events += _unseen(folder, facts, unseen)
    return [event for event in events if not (alive and event["e"] == "rank_lost")]


def _runs(start: Start) -> bool:
    """Whether a rank has not ended, or its wrapper may still say how it did."""
    return procfs.alive(start.pid, start.ticks) or procfs.alive(start.wrapper, start.wrapper_ticks)


def _of_ranks(events: Iterable[Dict[str, Any]]) -> Iterator[Tuple[str, int, int]]:
    """Kind, rank and attempt of each event of a rank; a training program may have written others."""
    for event in events:
        kind, rank, attempt = (event.get(name) for name in ("e", "rank", "attempt"))
        if type(kind) is str and type(rank) is int and type(attempt) is int:
            yield kind, rank, attempt


_ENDS = ("rank_exited", "rank_lost")


def _unseen(folder: str, facts: Dict[str, Any], ranks: List[int]) -> List[Dict[str, Any]]:
    """What to say about ranks that have neither a start nor an end on record: nothing while anything of
    the run lives here, for one of them may be about to start."""
    if facts["boot_id"] == procfs.boot_id() and leftovers.find(folder, facts["run"], facts["node"]):
        return []
    why = "nothing of the run is left here, and there is no record that it started or how it ended"
    rebooted = facts["boot_id"] != procfs.boot_id()
    return [_lost(rank, 0, why, rebooted) for rank in ranks]


def _lost(rank: int, attempt: int, why: str, rebooted: bool) -> Dict[str, Any]:
    by = "boot" if rebooted else "agent"
    return {"t": time.time(), "e": "rank_lost", "rank": rank, "attempt": attempt, "why": why, "by": by}


def _recorded(definition: Type[T], path: str, rank: int) -> Optional[T]:
    try:
        return recorded(definition, path, rank)
    except (OSError, ValueError):
        return None
