"""``cockpit ps``: the runs known here and how they are, as their nodes say."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from cockpit.cli.parsing import Parser
from cockpit.core.model import LIVE, RunModel
from cockpit.core.ranks import nodes_text
from cockpit.errors import Exit

EMPTY = "No runs yet. Start one: cockpit run HOSTFILE -- train.py ARGS"


def main(words: list[str]) -> int:
    """List runs."""
    parser = Parser(
        "ps",
        "List runs, newest last. Nodes of runs that have not ended are asked.",
    )
    parser.add_argument("-a", "--all", action="store_true", help="all runs, not just the newest 20")
    parser.add_argument("--no-connect", action="store_true", help="ask no node: what was known last")
    parser.add_argument("--json", action="store_true", help="a JSON list")
    args = parser.parse_args(words)
    from cockpit.engine.runs import list_runs

    folders = list_runs() if args.all else list_runs()[-20:]
    rows = [_row(folder, connect=not args.no_connect) for folder in folders]
    if args.json:
        print(json.dumps(rows))
    elif not rows:
        print(EMPTY)
    else:
        _table(rows)
    return Exit.OK


def _row(folder: Any, *, connect: bool) -> dict[str, Any]:
    manifest = folder.manifest
    model: RunModel = folder.model()
    unreachable: list[str] = []
    if connect and not model.over:
        from cockpit.core.events import Event
        from cockpit.engine.joining import ask_all
        from cockpit.engine.runs import planned

        answers, errors = asyncio.run(ask_all(manifest, "status"))
        model = RunModel()
        model.apply(planned(manifest))
        for name, answer in answers.items():
            for line in answer["events"]:
                model.apply(Event.from_json(line, name))
        for name, error in errors.items():
            if getattr(error, "kind", "") == "gone":
                model.apply(Event(time.time(), "node_lost", name, {"why": error.what}))
            else:
                unreachable.append(name)
    return {
        "run": manifest.run,
        "nodes": [node.name for node in manifest.nodes],
        "ranks": len(model.ranks),
        "running": model.alive(),
        "state": _state(model),
        "unreachable": unreachable,
        "launcher": manifest.launcher,
        "program": manifest.program,
        "started": manifest.created,
    }


def _state(model: RunModel) -> str:
    if model.over:
        code = model.exit_code()
        first = model.first_failure()
        if first is not None:
            return f"failed: rank {first.rank} {first.text}"
        if model.stop_reason or any(node.stop_requested_at for node in model.nodes.values()):
            return "stopped"
        return "ended" if code == 0 else "failed"
    states = {rank.state for rank in model.ranks.values()}
    first = model.first_failure()
    if first is not None:
        return f"failing: rank {first.rank} {first.text}"
    return "running" if model.alive() else "starting" if states & LIVE else "ending"


def _table(rows: list[dict[str, Any]]) -> None:
    lines = [("RUN", "STATE", "RANKS", "NODES", "STARTED", "PROGRAM")]
    for row in rows:
        state = row["state"]
        if row["unreachable"]:
            state += f" (no answer: {nodes_text(row['unreachable'])})"
        started = time.strftime("%m-%d %H:%M", time.localtime(row["started"]))
        alive = f"{row['running']}/{row['ranks']}"
        program = " ".join(row["program"])[:60]
        lines.append((row["run"], state, alive, nodes_text(row["nodes"]), started, program))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]) - 1)]
    for line in lines:
        cells = [f"{cell:<{width}}" for cell, width in zip(line, widths, strict=False)]
        print("  ".join([*cells, line[-1]]))
    live = [row["run"] for row in rows if row["state"] in ("running", "starting")]
    if live:
        print(f"\nwatch: cockpit attach {live[-1]} · stop: cockpit stop {live[-1]}")
