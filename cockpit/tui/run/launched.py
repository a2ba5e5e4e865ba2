"""The commands of a launch, as the nodes got them, for the list of commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cockpit.base.shell import join, quote
from cockpit.engine.links.payload import COMMAND
from cockpit.engine.records.folder import Manifest
from cockpit.transport.registry import TRANSPORTS
from cockpit.tui.run.command_list import Command


def launched_commands(manifest: Manifest) -> list[Command]:
    """What was run to launch: on this machine, and on each node."""
    found = []
    for node in manifest.nodes:
        typed = TRANSPORTS[node.transport].typed(manifest.transport_options, node.name)
        text = join([*typed, COMMAND]) if typed else COMMAND
        found.append(Command(manifest.created, f"agent on {node.name}", text))
    launches = [
        Command(manifest.created, f"launch on {plan.get('node')}", _launch(plan)) for plan in manifest.plans
    ]
    return [*found, *launches]


def _launch(plan: Mapping[str, Any]) -> str:
    """The launch of one node as a person would type it; manifests have no secrets."""
    lines = [f"cd {quote(str(plan.get('cwd')))}"]
    lines += [f"export {name}={quote(str(value))}" for name, value in plan.get("env", {}).items()]
    if plan.get("setup"):
        lines.append(str(plan["setup"]))
    words = plan.get("run_argv") or plan.get("argv") or ()
    return "\n".join([*lines, join(map(str, words))])
