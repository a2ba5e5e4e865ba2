"""The exact shell commands that cockpit ran, to read and to copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cockpit.base.record import ENV_DIR
from cockpit.base.secret import is_hidden
from cockpit.base.shell import join, quote
from cockpit.core.text import one_line
from cockpit.engine.links.payload import COMMAND
from cockpit.engine.records.manifest import Manifest
from cockpit.engine.run.foreign_jobs import launchers_of
from cockpit.plans.command_words import render_word
from cockpit.transport.registry import TRANSPORTS
from cockpit.tui.look.units import clock_text
from cockpit.tui.panes.list_pane import ListPane
from cockpit.tui.panes.text_pane import Line, Piece, fold, hanging


@dataclass(frozen=True)
class Ran:
    """Something cockpit did, as a person would type it.

    :param at: unix seconds on our clock
    :param title: what it is for, like ``launch on gpu01``
    :param text: the command or script, of any number of lines; may hold what a node sent
    """

    at: float
    title: str
    text: str


class CommandList(ListPane[Ran]):
    """Commands in the order they ran, the newest last."""

    FOLLOWS = True
    empty = ("no command has been run yet",)

    def show(self, commands: Sequence[Ran]) -> None:
        """Show these."""
        self.show_items(tuple(commands))  # the caller goes on filling its list

    def item_lines(self, item: Ran, before: Ran | None, width: int) -> Iterator[Line]:
        """Time and title, below them the command, indented; an empty line between two commands."""
        if before is not None:
            yield Line(heading=True)
        title = one_line(item.title, limit=400)
        yield from hanging((Piece(clock_text(item.at, 8) + " ", "time"),), title, width, "title")
        indent = "  " if width >= 30 else ""
        for text in _shown(item.text):
            role = "label" if text.lstrip().startswith("#") else ""
            for number, piece in enumerate(fold(text, max(1, width - len(indent)))):
                yield Line((Piece(indent), Piece(piece, role)), len(indent), joins=number > 0)

    def copy_text(self) -> str:
        """The command under the cursor, without its title: ready to be pasted."""
        item = self.current
        return "\n".join(_shown(item.text)) if item else ""


def _shown(text: str) -> list[str]:
    return [one_line(line) for line in text.rstrip("\n").split("\n")]


def launched_commands(manifest: Manifest) -> list[Ran]:
    """What was run to launch: what was typed, then on this machine for each node, and on each node."""
    verb = "attach" if manifest.foreign else "run"
    found = [Ran(manifest.created, verb, join(manifest.command))] if manifest.command else []
    for node in manifest.nodes:
        for launcher in launchers_of(manifest, node.name):
            title = f"found on {node.name}, pid {launcher.pid}"
            found.append(Ran(manifest.created, title, one_line(launcher.command, limit=2000)))
    for node in manifest.nodes:
        kind = TRANSPORTS.get(node.transport)
        typed = kind.typed(manifest.transport_options, node.name) if kind else ()
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
