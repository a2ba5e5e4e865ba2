"""Start a run's supervisor on this node, and ask it to stop."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from typing import Any, Dict, List

from cockpit.base import record, verbs
from cockpit.node import archive, procfs
from cockpit.node.calls import Call, NodeError
from cockpit.node.run import leftovers, stopping
from cockpit.node.run.folder import start
from cockpit.node.run.place import RunFolderError
from cockpit.node.run.status import read_record, supervisor_alive
from cockpit.node.safefiles import write_new


def launch(call: Call) -> Dict[str, Any]:
    """Start the supervisor of a run; the payload is the launch spec (JSON).

    :raises NodeError: the run folder cannot be ours, or the supervisor did not start; nothing is left behind
    """
    spec = json.loads(call.payload.decode())
    with open(archive.path(), "rb") as file:
        node_pyz = file.read()
    try:
        return start(spec, sys.executable, node_pyz)
    except RunFolderError as error:
        raise NodeError("folder", str(error), error.hint) from None


def stop(call: Call) -> Dict[str, Any]:
    """Ask the supervisor to stop (``reason``, ``by``, ``hard``, ``grace_s``); ``alive``: one is there.

    It is told over its socket, which needs no disk; an older one by a file, or where none can be written, and
    with ``run`` and ``node`` without a run folder too, by SIGTERM. ``sent``: what the ranks get.
    If the supervisor itself was killed, what is left of its run is ended right here, and survivors are
    in ``survivors``.
    """
    asked = call.asked(verbs.Stop)
    folder = asked.dir
    try:
        facts = read_record(folder)
    except NodeError as error:
        if error.kind not in ("gone", "unreadable") or not (asked.run and asked.node):
            raise
        return _stop_by_signal(folder, asked.run, asked.node, hard=asked.hard)
    # The cockpit's word takes precedence over a file that a training program can write.
    names = asked.run or facts["run"], asked.node or facts["node"]
    if not supervisor_alive(folder):
        return {"alive": False, "survivors": _swept(*names, folder)}
    wish: Dict[str, Any] = {"reason": asked.reason, "by": asked.by, "hard": asked.hard}
    if asked.grace_s is not None:
        wish["grace_s"] = asked.grace_s
    try:
        sent = _told_to_stop(folder, wish)
    except OSError:
        return _stop_by_signal(folder, *names, hard=asked.hard)
    return {"alive": True, "survivors": [], "sent": sent}


def _told_to_stop(folder: str, wish: Dict[str, Any]) -> str:
    """Tell a supervisor to stop; return what it sends to its ranks, if it has any.

    :raises OSError: neither is it reached nor can it be told by a file
    """
    from cockpit.node.run import helpers  # a launch does without

    with contextlib.suppress(OSError):
        said = helpers.ask(folder, helpers.STOP, wish)
        if said:
            return said.decode() if said in (b"TERM", b"KILL") else ""
    _wish(os.path.join(folder, record.STOP), wish)
    return "KILL" if wish["hard"] else "TERM"


def keep(call: Call) -> Dict[str, Any]:
    """Ask the supervisor to keep, now, what its ranks are doing; ``alive``: one is there."""
    folder = call.asked(verbs.Keep).dir
    read_record(folder)  # refuses what is not a run folder of ours
    alive = supervisor_alive(folder)
    if alive:
        _wish(os.path.join(folder, record.WISH), {})
    return {"alive": bool(alive)}


def _wish(path: str, wish: Dict[str, Any]) -> None:
    """Write a file that the supervisor looks for."""
    new = "%s.%d.new" % (path, os.getpid())
    with contextlib.suppress(FileNotFoundError):  # an agent that died here before us
        os.unlink(new)
    write_new(new, json.dumps(wish).encode())
    os.replace(new, path)


def _stop_by_signal(folder: str, run: str, node: str, *, hard: bool) -> Dict[str, Any]:
    supervisor = leftovers.find(folder, run, node).supervisor
    told = supervisor is not None and procfs.send(*supervisor, signal.SIGTERM)
    # A supervisor that is asked to stop ends everything, but it cannot be asked to do so at once.
    survivors = _swept(run, node, folder) if hard or not told else []
    sent = "KILL" if hard else "TERM"
    return {"alive": told, "survivors": survivors, "sent": sent if told else ""}


def _swept(run: str, node: str, folder: str) -> List[Dict[str, Any]]:
    survivors: List[Dict[str, Any]] = []

    def emit(kind: str, **found: Any) -> None:
        survivors.extend(found.get("procs", ()))

    stopping.sweep(run, node, emit, folder=folder)
    return survivors
