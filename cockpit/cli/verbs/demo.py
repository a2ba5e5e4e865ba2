"""``cockpit demo``: a small cluster on this machine, real training, nothing left afterwards."""

from __future__ import annotations

import argparse
import asyncio
import os
import time

from cockpit import paths
from cockpit.base.events import StopRequested
from cockpit.base.shell import quote
from cockpit.cli import reporting, terminal
from cockpit.cli.output import say
from cockpit.cli.parsing import Parser, add_flag, add_seconds, whole
from cockpit.cli.verbs import run
from cockpit.demo import training
from cockpit.demo.cluster import Cluster, cluster
from cockpit.demo.ending import await_others
from cockpit.demo.keepsakes import saved_by_hand
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.names import new_name
from cockpit.engine.run.session import Session
from cockpit.plans.nodes.hostfile import MAX_SLOTS

LEAVING = "the demo ends and stops its run"
"""What leaving means here; for any other run it means that the run continues."""

UNNAMED = (
    "without torch no rank is called slow: all ranks' steps take as long as the slowest one's, and only "
    "torch knows how long each waited; s in the app, or cockpit stacks last, shows whom the others wait for"
)
"""What is said of a slow rank where nothing tells how long a rank waits for others."""

GRACE_S = 5.0
"""Seconds from SIGTERM to SIGKILL when the demo's run is stopped."""

HANG_AFTER_S = 10.0
"""Seconds without a step after which ranks are looked at: who tries it out should not have to wait."""

OTHERS_S = 5.0
"""Longest wait for a `cockpit stop` of another shell, which still asks what has become of the ranks."""

_OURSELVES = "cockpit demo"
"""Who asks for a stop here."""

STOP_S = 15.0
"""Seconds a stop may take before the cluster is ended regardless."""

NODES = 1000
"""The most that a demo starts."""

_USUAL = "--nodes --slots --fault --launcher --keep --headless"

_EPILOG = """examples:
  cockpit demo                         two nodes with two ranks each, healthy
  cockpit demo --fault crash           the last rank crashes; which rank failed first, and why?
  cockpit demo --nodes 8 --slots 8 --launcher command

The nodes are ssh servers on loopback with their own names and keys; everything else is what `cockpit run`
does. Leaving ends the demo: its run is stopped, and no process or file of it is left. If you took stacks or
collected files, the run's record is kept with them. Screenshots and copied text stay.
"""


def main(words: list[str]) -> int:
    """Make the cluster, run the example on it, leave nothing behind."""
    options = parser()
    args = options.parse_args(words)
    if args.report and not args.keep:
        options.error("--report goes with: --keep")
    chosen = training.choose(args.launcher, training.pythons(os.environ))
    say(f"demo: {args.nodes} × {args.slots} ranks; {chosen.why}")
    if args.fault == "slow" and chosen.launcher == "command":
        say(f"demo: {UNNAMED}")
    name = new_name()
    with cluster(args.nodes, args.slots) as made:
        training.copy_examples(made.folder / "examples")
        say("demo: leaving the demo stops its run")
        say(f"demo: in another shell: cockpit ps {quote(name)}, or logs, metrics, stacks, attach")
        left = "nothing is left behind"
        try:
            code = run.main(_words(args, chosen, made, name), LEAVING)
        finally:
            if (paths.runs() / name).is_dir():
                folder = RunFolder.find(name)
                asyncio.run(_stop(folder))
                if _stopped_elsewhere(folder):
                    await_others(made.folder, OTHERS_S)
                if args.keep:
                    asyncio.run(reporting.at_end(RunFolder(folder.path), asked=args.report))
                    left = f"the recorded run is saved: cockpit logs {quote(name)}"
                elif there := [str(path) for path in saved_by_hand(folder)]:
                    left = f"its run is kept with the stacks and files taken in it: {', '.join(there)}"
                else:
                    folder.discard()
    say(f"demo: finished, {left}")
    return code


def parser() -> Parser:
    made = Parser(
        "demo", "Try cockpit: a small cluster on this machine, and real training on it.", _EPILOG, _USUAL
    )
    for option, most, what in (("--nodes", NODES, "nodes"), ("--slots", MAX_SLOTS, "ranks per node")):
        number = whole("a number", 1, most)
        made.add_argument(option, type=number, default=2, metavar="N", help=f"{what} (default: 2)")
    made.add_argument(
        "--fault",
        choices=training.FAULTS,
        default="none",
        help="fault to inject into the last rank after a few steps (default: none)",
    )
    made.add_argument(
        "--launcher",
        choices=("auto", *training.LAUNCHERS),
        default="auto",
        help="auto: DeepSpeed, else plain torch, else pure Python",
    )
    made.add_argument(
        "--steps", type=whole("a number", 1), default=600, metavar="N", help="steps to train (default: 600)"
    )
    add_seconds(made, "--step-time", 0.5, "minimum step time in seconds (default: 0.5)")
    add_flag(made, "--keep", "keep the recorded run afterwards")
    terminal.add_options(made)
    return made


def _words(args: argparse.Namespace, chosen: training.Training, made: Cluster, name: str) -> list[str]:
    """The words of ``cockpit run`` that start the example on the cluster."""
    words = [str(made.hostfile), "--transport", "ssh", "--ssh-config", str(made.ssh_config), "--name", name]
    words += ["--cwd", str(made.folder / "examples"), "--python", chosen.python]
    # The resolver here may know another node1, and gloo asks it for this machine's own address.
    words += ["--launcher", chosen.launcher, "--master-addr", "127.0.0.1", "--env", "GLOO_SOCKET_IFNAME=lo"]
    words += ["--env", "OMP_NUM_THREADS=1", "--env", "DS_ACCELERATOR=cpu", "--grace", f"{GRACE_S:g}"]
    watching = {
        "plain": args.plain,
        "headless": args.headless,
        "json": args.json,
        "read-only": args.read_only,
    }
    words += [f"--{option}" for option, given in watching.items() if given]
    words += [] if args.notify is None else ["--notify", args.notify]
    words += ["--theme", args.theme] if args.theme else []
    words += ["--no-watch"] * args.no_watch
    words += ["--hang-after", f"{args.hang_after or HANG_AFTER_S:g}"]
    words += [] if args.on_hang is None else ["--on-hang", args.on_hang]
    words += [] if args.stop_after is None else ["--stop-after", f"{args.stop_after:g}"]
    world = args.nodes * args.slots
    return [
        *words,
        "--",
        chosen.script,
        *training.flags(chosen, args.fault, args.steps, args.step_time, world),
    ]


def _stopped_elsewhere(folder: RunFolder) -> bool:
    """Whether somebody else asked for the run's stop: it still reads what became of it."""
    facts = (event.fact for node in folder.manifest.nodes for event in folder.recorded(node))
    return any(isinstance(fact, StopRequested) and fact.by != _OURSELVES for fact in facts)


async def _stop(folder: RunFolder) -> None:
    """Stop the run if it has not ended yet, and watch until it has, so that its record here is complete."""
    if folder.model().done:
        return
    say(f"demo: stopping {folder.name}")
    writer = folder.lock()
    session = Session(folder, writer=writer)
    deadline = time.monotonic() + STOP_S
    try:
        await session.rejoin()
        session.watch(policy=False)
        await session.stop("the demo ends", by=_OURSELVES)
        while not session.model.done and time.monotonic() < deadline:
            await session.wait(0.2)
    finally:
        await session.close()
