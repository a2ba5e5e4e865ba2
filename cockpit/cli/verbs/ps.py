"""``cockpit ps``: the runs known here and their states, as reported by their nodes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cockpit.base.shell import quote
from cockpit.cli import node_options
from cockpit.cli.output import complain, out, out_json, table
from cockpit.cli.parsing import Parser, add_link_options, reach
from cockpit.core.ranks import nodes_text
from cockpit.core.run.summary import state_text
from cockpit.errors import CockpitError, Exit

if TYPE_CHECKING:
    from argparse import Namespace

    from cockpit.engine.links.roll import Roll
    from cockpit.engine.records.folder import RunFolder


EMPTY = "No runs yet. Start one: cockpit run HOSTFILE -- train.py ARGS, or try: cockpit demo"


def main(words: list[str]) -> int:
    """List runs, or show one."""
    parser = Parser(
        "ps",
        "List runs, newest last; with RUN, its nodes and ranks. Asks the nodes of runs that have not ended.",
        "A run started from another machine: cockpit ps --hostfile FILE (or -w NODES) finds it on its nodes.",
    )
    parser.add_argument("run", metavar="RUN", nargs="?", help="a run's name, a part of it, or: last")
    parser.add_argument("-a", "--all", action="store_true", help="all runs, not just the newest 20")
    parser.add_argument("--no-connect", action="store_true", help="show what was known last; ask no node")
    parser.add_argument(
        "--hostfile", metavar="FILE", help="look on these nodes for runs not known here; -: from stdin"
    )
    node_options.add_options(parser)
    parser.add_argument(
        "--node-dir", metavar="DIR", default="", help="as given to run, with --hostfile or -w"
    )
    parser.add_argument("--json", action="store_true", help="JSON")
    add_link_options(parser)
    args = parser.parse_args(words)
    from cockpit.engine.records.folder import RunFolder, list_runs

    if args.hostfile or args.nodelist or args.slurm is not None:
        _adopt(args)
    if args.run:
        from cockpit.cli.run_details import show

        return show(RunFolder.find(args.run), connect=not args.no_connect, as_json=args.json)
    folders = list_runs() if args.all else list_runs()[-20:]
    rows = asyncio.run(_rows(folders, connect=not args.no_connect))
    if args.json:
        out_json(rows)
    elif not rows:
        out(EMPTY)
    else:
        _table(rows)
    return Exit.OK


def _adopt(args: Namespace) -> None:
    from cockpit.cli import unfinished_starts
    from cockpit.cli.awaiting import telling
    from cockpit.engine.links.pool import PYTHONS, LinkPool
    from cockpit.engine.run.join import adopt

    names = [host.name for host in node_options.nodes(node_options.source(args.hostfile, args, ""))]

    async def look() -> None:
        patience_s = unfinished_starts.PATIENCE_S
        async with LinkPool(list(PYTHONS), reach(args), patience_s=patience_s) as pool:
            pool.roll.call(names)
            async with telling(lambda: pool.roll) as teller:
                errors = await adopt(pool, names, args.node_dir)
        for error in errors.values():
            if str(error) not in teller.told:
                complain(error)

    asyncio.run(look())


async def _rows(folders: Sequence[RunFolder], *, connect: bool) -> list[dict[str, Any]]:
    """One row per run; the nodes of all runs are asked at once."""
    from cockpit.cli.awaiting import telling
    from cockpit.engine.links.roll import Roll

    rolls = [Roll() for _ in folders]
    async with telling(lambda: Roll.merged(rolls), failures=False):
        asked = zip(folders, rolls, strict=True)
        return await asyncio.gather(*(_row_or_why(folder, roll, connect=connect) for folder, roll in asked))


async def _row_or_why(folder: RunFolder, roll: Roll, *, connect: bool) -> dict[str, Any]:
    from cockpit.engine.records.folder import NewerCockpit

    try:
        return await _row(folder, roll, connect=connect)
    except CockpitError as error:
        # One damaged folder hides no other run.
        state = error.what if isinstance(error, NewerCockpit) else f"damaged: {error.what}"
        empty: dict[str, Any] = {"nodes": [], "ranks": 0, "running": 0, "unreachable": [], "launcher": ""}
        empty["foreign"] = False
        return {
            "run": folder.name,
            **empty,
            "state": state,
            "program": [],
            "started": folder.created,
        }


async def _row(folder: RunFolder, roll: Roll, *, connect: bool) -> dict[str, Any]:
    manifest = folder.manifest
    model = folder.model()
    unreachable: list[str] = []
    state = ""
    if not model.over:
        from cockpit.cli import unfinished_starts
        from cockpit.engine.run.join import model_now, pool_for

        async with pool_for(manifest, roll, unfinished_starts.PATIENCE_S) as pool:
            state, unreachable = await unfinished_starts.start_state(folder, pool, connect=connect)
            if connect and not state:
                model, errors = await model_now(pool, manifest)
                unreachable = [name for name in errors if not model.nodes[name].lost]
    return {
        "run": manifest.run,
        "nodes": [node.name for node in manifest.nodes],
        "ranks": len(model.ranks),
        "running": model.alive(),
        "state": state or state_text(model),
        "unreachable": unreachable,
        "launcher": manifest.launcher,
        "foreign": manifest.foreign is not None,
        "program": manifest.program,
        "started": manifest.created,
    }


def _table(rows: list[dict[str, Any]]) -> None:
    lines = [("RUN", "STATE", "RUNNING", "NODES", "STARTED", "PROGRAM")]
    for row in rows:
        state = row["state"]
        if row["unreachable"]:
            state += f" (no answer: {nodes_text(row['unreachable'])})"
        started = time.strftime("%m-%d %H:%M", time.localtime(row["started"]))
        alive = f"{row['running']}/{row['ranks']}"
        program = " ".join(row["program"])
        lines.append((row["run"], state, alive, nodes_text(row["nodes"]), started, program))
    table(lines, cut=True)
    live = [row for row in rows if row["state"] in ("running", "starting")]
    if live:
        run = quote(live[-1]["run"])
        out()
        # What others started is not stopped in passing.
        stop = "" if live[-1]["foreign"] else f" · stop: cockpit stop {run}"
        out(f"watch: cockpit attach {run}{stop}")
