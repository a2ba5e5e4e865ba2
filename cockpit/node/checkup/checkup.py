"""The verb ``checkup``: all checks at once, each in its own thread, and why one of them gave no answer."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Dict

from cockpit.base import verbs
from cockpit.node.calls import Call
from cockpit.node.checkup.deadline import Silent, within

CHECKS = {
    "system": "machine",
    "limits": "machine",
    "disks": "machine",
    "network": "network",
    "driver": "gpus",
    "gpus": "gpus",
    "profiling": "machine",
    "session": "machine",
    "port": "network",
    "leftovers": "leftovers",
    "login": "shells",
    "code": "machine",
    "names": "network",
}
"""The fields of the answer, each filled by the function of that name in a module beside this one.

Modules are imported on demand: a node compiles what it was sent.
"""

_SPARE_S = 1.0
"""So much longer than its parts a check may take as a whole."""


def checkup(call: Call) -> Dict[str, Any]:
    """The parts of the node's condition that are asked for, within ``limit_s`` seconds.

    ``silent`` names what gave no answer, with the reason: a check, or a part of one (a folder, a name).
    """
    asked = call.asked(verbs.Checkup)
    silent: Silent = {}

    def one(name: str) -> Any:
        check = getattr(import_module("cockpit.node.checkup." + CHECKS[name]), name)
        found = check(asked, call.payload)
        if isinstance(found, tuple):
            found, more = found
            silent.update(more)
        return found

    wanted = [name for name in asked.parts if name in CHECKS]
    answer, failed = within(asked.limit_s + _SPARE_S, wanted, one, threads=len(wanted))
    return {**answer, "silent": {**silent, **failed}}
