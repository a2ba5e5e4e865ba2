"""Old run folders: which there are and what they take, and removing one that nobody needs any more."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from typing import Any, Callable, Dict, Iterator, List, Optional

from cockpit.base import record, trees, users, verbs
from cockpit.base.gate import fields
from cockpit.base.same_file import file_id
from cockpit.base.shared_fields import RUNS_TOLD, RunFacts
from cockpit.node import procfs, safefiles
from cockpit.node.calls import Call, NodeError
from cockpit.node.run import leftovers
from cockpit.node.run.status import RUNS_BYTES, begun, names, read_record, supervisor_alive

_END_READ = 64 << 10
"""Bytes at the end of a run record among which the last event is."""
_DISCARD_S = 20.0
"""Seconds that the deletion of an undone launch may take: there is little in its folder."""
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def folders(call: Call) -> Dict[str, Any]:
    """Run folders below ``bases``, also those of others, as far as they can be seen: see ``KeptFolder``."""
    asked = call.asked(verbs.Folders)
    until = time.monotonic() + asked.limit_s
    paths = [
        os.path.join(base, run, node)
        for base in dict.fromkeys(asked.bases)
        for run in names(base)
        if not run.startswith(".")
        for node in names(os.path.join(base, run))
    ]
    living = _living()
    found: List[Dict[str, Any]] = []
    room, more = RUNS_BYTES, 0
    for path in sorted(paths, key=begun, reverse=True):
        # A look at a tree on a slow disk may take as long as all others: none is left out for that.
        one = None if call.cancelled else _told(path, living.get(path, 0), until)
        if one is None:
            continue
        room -= len(json.dumps(one))
        if room < 0 or len(found) >= RUNS_TOLD:
            more += 1
        else:
            found.append(one)
    return {"folders": found, "more": more}


def _living() -> Dict[str, int]:
    """How many processes carry the tags of each run folder, or supervise it."""
    found: Dict[str, int] = {}
    begins = os.fsencode("%s=" % record.ENV_DIR)
    for pid in procfs.pids():
        tags = [each[len(begins) :] for each in procfs.environment(pid) if each.startswith(begins)]
        for folder in {*map(os.fsdecode, tags), leftovers.supervised(pid)} - {""}:
            found[folder] = found.get(folder, 0) + 1
    return found


def _told(path: str, living: int, until: float) -> Optional[Dict[str, Any]]:
    """What is told of a folder; None: it is no run folder."""
    try:
        info = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISDIR(info.st_mode):
        return None
    facts: Optional[Dict[str, Any]] = None
    with contextlib.suppress(NodeError):
        facts = read_record(path)
    ours = info.st_uid == os.geteuid()
    if facts is None and ours and safefiles.size(os.path.join(path, record.NODE_PYZ)) is None:
        return None
    taken = trees.measured(path, until)
    return {
        "dir": path,
        "id": file_id(info),
        "owner": users.name(info.st_uid),
        "ours": ours,
        "record": None
        if facts is None
        else {name: facts[name] for name, *_ in fields(RunFacts) if name in facts},
        "alive": supervisor_alive(path) if facts else None,
        "living": living,
        "ended": _ended(path),
        "bytes": taken.bytes,
        "whole": taken.whole,
        "idle_s": max(0.0, time.time() - (taken.written or info.st_mtime)),
    }


def _ended(folder: str) -> bool:
    """Whether the supervisor wrote its last line."""
    path = os.path.join(folder, record.EVENTS)
    try:
        data = safefiles.part(path, max(0, (safefiles.size(path) or 0) - _END_READ), _END_READ)
    except OSError:
        return False
    for line in data.split(b"\n"):
        with contextlib.suppress(ValueError):
            if safefiles.parse(line).get("e") == "ended":
                return True
    return False


def remove(call: Call) -> Dict[str, Any]:
    """Delete a run folder that nobody needs any more; the answer is a ``RemoveAnswer``.

    If the folder is gone, that is all.

    :raises NodeError: it is not what was meant, not ours, or something of it may live; nothing was touched
    """
    asked = call.asked(verbs.Remove)

    def lives() -> bool:
        return bool(leftovers.find(asked.dir, asked.run, asked.node))

    with contextlib.suppress(FileNotFoundError):  # somebody else has removed it
        return dict(_taken_away(asked.dir, asked.run, asked.limit_s, lambda: _check(asked), lives), gone=True)
    return dict(_emptied(_parts(asked.dir, asked.run)[0], time.monotonic() + asked.limit_s), gone=True)


def discard(call: Call) -> Dict[str, Any]:
    """Delete the run folder of a launch that was undone; nothing runs in it any more.

    What cannot be deleted goes with a later deletion.

    :raises NodeError: it is no run folder of ours, or its supervisor lives; nothing was touched
    """
    folder = call.asked(verbs.Discard).dir
    facts = read_record(folder)

    def check() -> None:
        if supervisor_alive(folder):
            raise NodeError("alive", "run folder %s is in use" % folder)

    with contextlib.suppress(FileNotFoundError):
        # A launch may be told a place by another path to it than that which a removal takes.
        _taken_away(os.path.realpath(folder), facts["run"], _DISCARD_S, check, lambda: False)
    return {}


def _taken_away(
    path: str, run: str, limit_s: float, check: Callable[[], None], lives: Callable[[], bool]
) -> Dict[str, Any]:
    """Delete a run folder, and what is left of earlier deletions.

    It first gets another name, so that whatever then happens, nothing is left that looks like a run.

    :param run: whose folder it must be, by its path
    :param check: raises :class:`NodeError` if it must stay
    :param lives: whether a process came meanwhile: the folder then gets its name back
    :raises NodeError: it stays
    :raises FileNotFoundError: it is gone
    """
    until = time.monotonic() + limit_s
    base, run, node = _parts(path, run)
    try:
        with contextlib.ExitStack() as opened:
            above = _opened(base, None, base, opened)
            inside = _opened(run, above, os.path.join(base, run), opened)
            place = os.stat(node, dir_fd=inside, follow_symlinks=False)
            _check_owned(place, path)
            if place.st_dev != os.fstat(above).st_dev:
                raise NodeError("folder", "another file system is mounted at %s" % path)
            check()
            taken = trees.measured(path, until)
            if taken.mounted:
                raise NodeError("folder", "another file system is mounted at %s" % taken.mounted)
            trash = trees.trash_name()
            os.rename(node, trash, src_dir_fd=inside, dst_dir_fd=above)
            if lives():
                os.rename(trash, node, src_dir_fd=above, dst_dir_fd=inside)
                raise NodeError("alive", "processes of the run are still running")
            with contextlib.suppress(OSError):  # other nodes' folders are in it
                os.rmdir(run, dir_fd=above)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise NodeError("folder", "%s cannot be removed: %s" % (path, error.strerror)) from None
    return _emptied(base, until)


def _parts(path: str, of: str) -> List[str]:
    """The base, and the names of the two folders below it.

    :param of: the run
    :raises NodeError: it is not the path of a run folder of this run
    """
    above, node = os.path.split(path)
    base, run = os.path.split(above)
    if os.path.normpath(path) != path or base in ("", "/") or run != of or not node:
        raise NodeError("folder", "not a run folder of %s: %r" % (of, path))
    return [base, run, node]


def _opened(name: str, above: Optional[int], shown: str, opened: contextlib.ExitStack) -> int:
    """A folder of ours, not by way of a link.

    :raises OSError: it cannot be opened
    :raises NodeError: it is somebody else's
    """
    number = os.open(name, _OPEN, dir_fd=above)
    opened.callback(os.close, number)
    _check_owned(os.fstat(number), shown)
    return number


def _check_owned(found: os.stat_result, shown: str) -> None:
    if not stat.S_ISDIR(found.st_mode):
        raise NodeError("folder", "%s is not a folder" % shown)
    if found.st_uid != os.geteuid():
        raise NodeError("folder", "%s belongs to %s" % (shown, users.name(found.st_uid)))


def _check(asked: verbs.Remove) -> None:
    """That a folder is of the launch that is meant, and nothing of it lives.

    :raises NodeError: it is not, or something may live
    """
    facts = read_record(asked.dir)
    supervisor = facts["supervisor"]
    this = (facts["run"], facts["node"], facts["boot_id"], supervisor["pid"], supervisor["ticks"])
    if this != (asked.run, asked.node, asked.boot_id, asked.supervisor.pid, asked.supervisor.ticks):
        raise NodeError("changed", "another run is in that folder: %s" % _named(facts))
    here = os.uname().nodename
    # Processes of another machine, which may show the same folder, cannot be seen from this one.
    if facts["boot_id"] != procfs.boot_id() and facts.get("host") != here:
        what = "the run was on %s, and this is %s: whether it still runs cannot be seen from here"
        raise NodeError("elsewhere", what % (facts.get("host") or "another machine", here))
    if supervisor_alive(asked.dir):
        raise NodeError("alive", "its supervisor is still running")
    if leftovers.find(asked.dir, asked.run, asked.node):
        raise NodeError("alive", "processes of the run are still running")
    if not asked.unended and not _ended(asked.dir):
        raise NodeError("unended", "no recorded end on that node")


def _named(facts: Dict[str, Any]) -> str:
    return "%s of %s" % (facts["run"], facts["node"])


def _emptied(base: str, until: float) -> Dict[str, Any]:
    """Delete what was renamed for that, now or earlier."""
    size, left, late = 0, "", False
    for path in _trash(base):
        found = trees.cleared(path, until)
        size += found.bytes
        left, late = left or found.left, late or found.late
    return {"bytes": size, "left": left, "late": late}


def _trash(base: str) -> Iterator[str]:
    for name in names(base):
        path = os.path.join(base, name)
        with contextlib.suppress(OSError):
            found = os.lstat(path)
            ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
            if name.startswith(trees.TRASH) and ours:
                yield path
