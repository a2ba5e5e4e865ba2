"""``cockpit ps``: the runs known here and their states, as reported by their nodes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from cockpit import paths
from cockpit.base.gate import plain
from cockpit.base.shell import quote
from cockpit.cli import node_options
from cockpit.cli.output import complain, out, out_json, say, table
from cockpit.cli.parsing import Parser, add_flag, add_link_options, add_word, reach
from cockpit.core.ranks import nodes_text
from cockpit.core.time_text import span_text
from cockpit.errors import Exit
from cockpit.slurm import own_job

if TYPE_CHECKING:
    from argparse import Namespace

    from cockpit.core.nccl.table import Table
    from cockpit.core.pace.pace import Pace
    from cockpit.core.run.brief import Brief
    from cockpit.core.run.model import RunModel
    from cockpit.engine.records.folder import RunFolder
    from cockpit.engine.run.join import Pools
    from cockpit.engine.stacks.evidence import Shown


OLD, OLD_S = 10.0, 30.0
"""A step of a live run that ended so many of its times and so many seconds ago has its age beside it: nothing
newer is known here."""

EMPTY = "No runs yet. Start one: cockpit run HOSTFILE -- train.py ARGS, or try: cockpit demo"


def parser() -> Parser:
    """Its options."""
    made = Parser(
        "ps",
        "List runs, newest last; with RUN, its nodes and ranks. Asks the nodes of runs that have not ended.",
        "A run started from another machine: cockpit ps --hostfile FILE (or -w NODES) finds it on its nodes.",
        usual="--all --no-connect --nccl --hostfile --nodelist --node-dir --json --transport --slurm --k8s",
    )
    made.add_argument("run", metavar="RUN", nargs="?", help="a run's name, a part of it, or: last")
    add_flag(made, "-a --all", "list all runs, not just the newest 20")
    add_flag(made, "--no-connect", "show the last known state without contacting nodes")
    add_flag(
        made,
        "--nccl",
        "with RUN: NCCL settings reported by the ranks, differences first; see run --nccl-debug",
    )
    add_word(
        made,
        "--hostfile",
        "FILE",
        "also find runs on these nodes that aren't known here; -: from stdin",
        None,
    )
    node_options.add_options(made)
    add_word(made, "--node-dir", "DIR", "the --node-dir the run was started with; with --hostfile or -w")
    add_flag(made, "--json", "JSON")
    add_link_options(made, "JOBID[.STEP]")
    return made


def main(words: list[str]) -> int:
    """List runs, or show one."""
    made = parser()
    args = made.parse_args(words)
    if args.nccl and not args.run:
        made.error("--nccl needs a RUN")
    within = ""
    if args.slurm is not None:
        from cockpit.cli import slurm_options

        within = args.slurm or own_job()
        slurm_options.take_step(args)
    if args.nccl:
        from cockpit.cli.nccl_details import show_nccl

        return show_nccl(*asyncio.run(_nccl(args)), as_json=args.json)
    if args.run:
        from cockpit.cli.run_details import show

        return show(*asyncio.run(_one(args)), as_json=args.json)
    rows = asyncio.run(_all(args, within))
    if args.json:
        out_json(rows)
    elif not rows:
        out(f"no known cockpit run in SLURM job {within}" if within else EMPTY)
    else:
        _table(rows)
    return Exit.OK


async def _one(args: Namespace) -> tuple[RunFolder, RunModel, str, Pace, list[Shown]]:
    from cockpit.cli.run_details import evidence, now
    from cockpit.engine.records.folder import RunFolder

    async with _pools(args) as pools:
        folder = RunFolder.find(args.run)
        found = await now(folder, pools, connect=not args.no_connect)
        return folder, *found, await evidence(folder, found[0], pools, connect=not args.no_connect)


async def _nccl(args: Namespace) -> tuple[RunFolder, Table, dict[str, str]]:
    from cockpit.cli.nccl_details import table_of
    from cockpit.engine.records.folder import RunFolder

    async with _pools(args) as pools:
        folder = RunFolder.find(args.run)
        return folder, *await table_of(folder, pools, connect=not args.no_connect)


async def _all(args: Namespace, within: str) -> list[dict[str, Any]]:
    from cockpit.cli import slurm_options
    from cockpit.engine.records.folder import list_runs

    async with _pools(args) as pools:
        if args.all and not within:
            return await _every(pools, connect=not args.no_connect)
        folders = slurm_options.runs_in(within) if within else list_runs()[-20:]
        return await _rows(folders, pools, connect=not args.no_connect)


@asynccontextmanager
async def _pools(args: Namespace) -> AsyncIterator[Pools]:
    """Links for all runs, after those on the named nodes have been made known."""
    from cockpit.cli import awaiting
    from cockpit.engine.run.join import Pools

    async with Pools(awaiting.PATIENCE_S) as pools:
        if args.hostfile or node_options.named(args):
            await _adopt(args, pools)
        yield pools


async def _adopt(args: Namespace, pools: Pools) -> None:
    from cockpit.cli.awaiting import telling
    from cockpit.engine.links.pool import PYTHONS
    from cockpit.engine.run.join import adopt

    names = [host.name for host in node_options.nodes(node_options.source(args.hostfile, args, ""))]
    pool = pools.reaching(reach(args), PYTHONS, {})
    pool.roll.call(names)
    async with telling(lambda: pool.roll) as teller:
        errors = await adopt(pool, names, args.node_dir)
    for error in errors.values():
        if str(error) not in teller.told:
            complain(error)


async def _every(pools: Pools, *, connect: bool) -> list[dict[str, Any]]:
    """One row per run: of those that are over as the index has it, of the others as their nodes tell."""
    from cockpit.engine.briefs import briefs
    from cockpit.engine.records.folder import RunFolder

    known = sorted(
        await asyncio.to_thread(lambda: list(briefs())), key=lambda brief: (brief.began, brief.run)
    )
    asked = [RunFolder(paths.runs() / brief.run) for brief in known if brief.open] if connect else []
    told = {row["run"]: row for row in await _rows(asked, pools, connect=True)} if asked else {}
    return [told.get(brief.run) or _row(brief) for brief in known]


async def _rows(folders: Sequence[RunFolder], pools: Pools, *, connect: bool) -> list[dict[str, Any]]:
    """One row per run; the nodes of all runs are asked at once."""
    from cockpit.cli.awaiting import telling
    from cockpit.engine.briefs import brief_now

    reached = pools if connect else None
    async with telling(lambda: pools.roll, failures=False):
        return [
            _row(brief) for brief in await asyncio.gather(*(brief_now(each, reached) for each in folders))
        ]


def _row(brief: Brief) -> dict[str, Any]:
    """A run for programs."""
    told: dict[str, Any] = plain(brief)
    for name in ("seen", "asked", "since", "complete", "well", "restart", "again", "settings"):
        del told[name]
    told["started"] = told.pop("began")
    return {**told, "how": brief.how(time.time())}


def _step(row: dict[str, Any]) -> str:
    """The step of the front, and of a live run when that was, if it was long ago."""
    if row["step"] is None:
        return ""
    text = f"{'~' if row['step_estimated'] else ''}{row['step']:,}"
    age = time.time() - row["step_t"]
    old = age > max(OLD_S, OLD * (row["step_s"] or 0.0))
    return f"{text} ({span_text(age)} ago)" if row["running"] and old else text


def _table(rows: list[dict[str, Any]]) -> None:
    lines = [("RUN", "STATE", "RUNNING", "STEP", "NODES", "STARTED", "PROGRAM")]
    for row in rows:
        state = "starting" if row["starting"] and row["state"] == "running" else row["state"]
        if row.get("recorded"):
            state += " (as recorded here)"
        if row["standing"]:
            state += f", {row['standing']}"
        if row["unreachable"]:
            state += f" (no answer: {nodes_text(row['unreachable'])})"
        started = time.strftime("%m-%d %H:%M", time.localtime(row["started"]))
        alive = f"{row['running']}/{row['ranks']}"
        program = " ".join(row["program"])
        lines.append((row["run"], state, alive, _step(row), nodes_text(row["nodes"]), started, program))
    table(lines, cut=True)
    if any(row.get("recorded") for row in rows):
        say("other users may have written the runs shown as recorded: their nodes are not contacted")
    live = [row for row in rows if row["state"] in ("running", "starting") and not row.get("recorded")]
    if live:
        run = quote(live[-1]["run"])
        out()
        # What others started is not stopped in passing.
        stop = "" if live[-1]["foreign"] else f" · stop: cockpit stop {run}"
        out(f"watch: cockpit attach {run}{stop}")
