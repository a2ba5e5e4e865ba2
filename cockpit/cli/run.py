"""``cockpit run HOSTFILE -- script``: launch on every node and watch."""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path
from typing import Any

from cockpit import paths
from cockpit.cli import cluster
from cockpit.cli.collect import fetch
from cockpit.cli.live import Live, Output, watch
from cockpit.cli.narration import say
from cockpit.cli.parsing import Parser, seconds
from cockpit.core.ranks import nodes_text
from cockpit.engine.fleet import PYTHONS, Fleet, close_all
from cockpit.engine.link import Link
from cockpit.engine.prepare import Prepared, Times, prepare
from cockpit.engine.runs import Manifest, NodeEntry, RunFolder
from cockpit.engine.session import Session
from cockpit.errors import CockpitError, Exit
from cockpit.plans.plan import build_plans
from cockpit.plans.script import plan_json


def main(words: list[str]) -> int:
    """Launch, watch, and collect at the end of a profiled run."""
    launch = cluster.parse(_parser(), words)
    build_plans(launch.job)  # what is wrong with the job itself is said before any node is asked
    if (paths.runs() / launch.job.run).exists():
        raise CockpitError(
            "a run of that name is known here", where=launch.job.run, hint="use another --name"
        )
    return asyncio.run(_run(launch))


def _parser() -> Parser:
    made = cluster.parser("run", "Launch on every node of a hostfile and watch. Leaving never stops the run.")
    group = made.add_argument_group("run")
    group.add_argument(
        "--on-failure",
        choices=("stop", "wait"),
        default="stop",
        help="after a rank's recorded failure: stop the rest (default), or wait for it to end",
    )
    group.add_argument(
        "--failure-wait", type=seconds, default=30.0, metavar="S", help="stop so long after the failure (30)"
    )
    group.add_argument(
        "--grace",
        type=seconds,
        default=30.0,
        metavar="S",
        help="of a stop: SIGKILL so long after SIGTERM (30)",
    )
    group.add_argument(
        "--finalise-wait", type=seconds, default=600.0, metavar="S", help="for a profiler to write (600)"
    )
    group.add_argument(
        "--give-up",
        type=seconds,
        default=600.0,
        metavar="S",
        help="wait so long for lost links when all else has ended (600)",
    )
    group.add_argument(
        "--node-dir",
        metavar="DIR",
        default="",
        help="where run folders go on the nodes (default: $TMPDIR or /tmp there)",
    )
    group.add_argument("--headless", action="store_true", help="ask nothing; SIGTERM stops, SIGHUP leaves")
    group.add_argument("--json", action="store_true", help="an event stream, one JSON object a line")
    group.add_argument(
        "--no-collect", action="store_true", help="leave a profiled run's reports on the nodes"
    )
    return made


async def _run(launch: cluster.Launch) -> int:
    args, job = launch.args, launch.job
    pythons = [*([job.python] if job.python else []), *PYTHONS]
    fleet = Fleet(pythons, args.transport, args.ssh_config)
    names = [host.name for host in job.hosts]
    links: dict[str, Link] = {}
    try:
        started = time.monotonic()
        answered: list[str] = []
        say(f"connecting to {_count(len(names), 'node')}: {nodes_text(names)}")
        links = await fleet.open_all(names, answered.append)
        times = Times(args.grace, args.finalise_wait)
        prepared = await prepare(job, links, times, args.node_dir)
    except BaseException:
        await close_all(links.values())
        await fleet.close()
        raise
    say(f"{_count(len(answered), 'node')} ready after {time.monotonic() - started:.1f} s")
    for note in dict.fromkeys(f"{plan.node}: {note}" for plan in prepared.plans for note in plan.notes):
        say(note)
    folder = RunFolder.create(_manifest(launch, prepared, links, pythons))
    code = await _session(launch, folder, fleet, links, prepared)
    if job.nsys and code != Exit.LEFT and not args.no_collect:
        outcome = await fetch(folder, as_json=args.json)
        code = max(code, outcome) if code == Exit.OK else code
    return code


async def _session(
    launch: cluster.Launch, folder: RunFolder, fleet: Fleet, links: dict[str, Link], prepared: Prepared
) -> Exit:
    output = Output(launch.args.json, launch.args.headless, launch.args.give_up)
    live = Live(folder.manifest, output)
    folder.lock()
    session = Session(folder, fleet, live)
    try:
        try:
            await session.launch(links, prepared.specs)
        except BaseException:
            live.close()
            raise
        job = launch.job
        say(f"{folder.name}: {_count(job.world_size, 'rank')} on {_count(len(links), 'node')} starting")
        return await watch(session, live, output)
    finally:
        await session.close()


def _manifest(
    launch: cluster.Launch, prepared: Prepared, links: dict[str, Link], pythons: list[str]
) -> Manifest:
    args: argparse.Namespace = launch.args
    nodes = [
        NodeEntry(
            plan.node,
            prepared.specs[plan.node]["dir"],
            list(plan.ranks),
            links[plan.node].transport.kind,
            str(links[plan.node].hello.get("host", "")),
            prepared.facts[plan.node],
        )
        for plan in prepared.plans
    ]
    profile: dict[str, Any] | None = prepared.specs[prepared.plans[0].node]["profile"]
    return Manifest(
        run=launch.job.run,
        created=time.time(),
        nodes=nodes,
        launcher=launch.job.launcher,
        program=list(launch.job.program),
        cwd=launch.job.cwd,
        hostfile=str(Path(args.hostfile).absolute()),
        pythons=pythons,
        profile=profile,
        on_failure=args.on_failure,
        failure_wait_s=args.failure_wait,
        transport=args.transport,
        ssh_config=str(Path(args.ssh_config).absolute()) if args.ssh_config else "",
        plans=[plan_json(plan) for plan in prepared.plans],
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
