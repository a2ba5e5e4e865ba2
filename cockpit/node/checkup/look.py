"""The verb ``checkup``: all checks at once, each in its own thread, and why one of them gave no answer."""

from __future__ import annotations

from typing import Any, Callable, Dict

from cockpit.base import verbs
from cockpit.node.calls import Call
from cockpit.node.checkup import gpus, leftovers, machine, network, shells
from cockpit.node.checkup.within import Silent, within

CHECKS: Dict[str, Callable[[verbs.Checkup, bytes], Any]] = {
    "system": machine.system,
    "limits": machine.limits,
    "disks": machine.disks,
    "network": network.network,
    "driver": gpus.driver,
    "gpus": gpus.gpus,
    "profiling": machine.profiling,
    "session": machine.session,
    "port": network.port,
    "leftovers": leftovers.leftovers,
    "login": shells.login,
    "code": machine.code,
    "names": network.names,
}
"""By the field of the answer that each of them fills."""

_SPARE_S = 0.3
"""So much longer than its parts a check may take as a whole."""


def checkup(call: Call) -> Dict[str, Any]:
    """The parts of the node's condition that are asked for, within ``limit_s`` seconds.

    ``silent`` names what gave no answer, with the reason: a check, or a part of one (a folder, a name).
    """
    asked = call.asked(verbs.Checkup)
    silent: Silent = {}

    def one(name: str) -> Any:
        found = CHECKS[name](asked, call.payload)
        if isinstance(found, tuple):
            found, more = found
            silent.update(more)
        return found

    wanted = [name for name in asked.parts if name in CHECKS]
    answer, failed = within(asked.limit_s + _SPARE_S, wanted, one, threads=len(wanted))
    return {**answer, "silent": {**silent, **failed}}
