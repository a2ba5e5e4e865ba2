"""Start a run's supervisor on this node, and ask it to stop."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict

from cockpit.base import record
from cockpit.node import supervisor
from cockpit.node.calls import Call, NodeError
from cockpit.node.recorded import supervisor_alive


def launch(call: Call) -> Dict[str, Any]:
    """Start the supervisor of a run; the payload is the launch spec (JSON).

    :raises NodeError: the run folder cannot be ours, or the supervisor did not start; nothing is left then
    """
    spec = json.loads(call.payload.decode())
    archive = next(path for path in sys.path if path.startswith("/proc/self/fd/") or path.endswith(".pyz"))
    with open(archive, "rb") as file:
        node_pyz = file.read()
    try:
        return supervisor.start(spec, sys.executable, node_pyz)
    except supervisor.RunFolderError as error:
        raise NodeError("folder", str(error)) from None


def stop(call: Call) -> Dict[str, Any]:
    """Ask the supervisor to stop: ``reason``, ``by``, ``hard``, ``grace_s``; ``alive`` says if one is there."""
    folder = call.text("dir")
    if not supervisor_alive(folder):
        return {"alive": False}
    wish = {name: call.header[name] for name in ("reason", "by", "hard", "grace_s") if name in call.header}
    path = os.path.join(folder, record.STOP)
    number = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(number, "w") as file:
        json.dump(wish, file)
    os.replace(path + ".new", path)
    return {"alive": True}
