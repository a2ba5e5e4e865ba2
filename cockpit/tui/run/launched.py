"""The commands of a launch, as they were typed here and as the nodes got them, for the list of commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cockpit.base.record import ENV_DIR
from cockpit.base.secret import is_hidden
from cockpit.base.shell import join, quote
from cockpit.core.text import one_line
from cockpit.engine.links.payload import COMMAND
from cockpit.engine.records.folder import Manifest
from cockpit.engine.run.foreign_jobs import launchers_of
from cockpit.plans.script import render_word
from cockpit.transport.registry import TRANSPORTS
from cockpit.tui.run.command_list import Ran


def launched_commands(manifest: Manifest) -> list[Ran]:
    """What was run to launch: what was typed, then on this machine for each node, and on each node."""
    verb = "attach" if manifest.foreign else "run"
    found = [Ran(manifest.created, verb, join(manifest.command))] if manifest.command else []
    for node in manifest.nodes:
        for launcher in launchers_of(manifest, node.name):
            title = f"found on {node.name}, pid {launcher.pid}"
            found.append(Ran(manifest.created, title, one_line(launcher.command, limit=2000)))
    for node in manifest.nodes:
        typed = TRANSPORTS[node.transport].typed(manifest.transport_options, node.name)
        text = join([*typed, COMMAND]) if typed else COMMAND
        found.append(Ran(manifest.created, f"agent on {node.name}", text))
    dirs = {node.name: node.dir for node in manifest.nodes}
    for plan in manifest.plans:
        node_name = str(plan.get("node"))
        text = _launch(plan, dirs.get(node_name, ""))
        found.append(Ran(manifest.created, f"launch on {node_name}", text))
    return found


def _launch(plan: Mapping[str, Any], folder: str) -> str:
    """The launch of one node as a person would type it; of secrets the manifest has the names alone.

    :param folder: the run's folder on the node
    """
    lines = [f"cd {quote(str(plan.get('cwd')))}", f"export {ENV_DIR}={quote(folder)}"]
    for name, value in plan.get("env", {}).items():
        given = f"${{{name}?is a secret: set it first}}" if is_hidden(str(value)) else quote(str(value))
        lines.append(f"export {name}={given}")
    if plan.get("setup"):
        lines.append(str(plan["setup"]))
    words = plan.get("run_argv") or plan.get("argv") or ()
    return "\n".join([*lines, " ".join(render_word(str(word)) for word in words)])
