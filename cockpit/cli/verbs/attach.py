"""``cockpit attach``: watch a run that was left or lost, or a job that somebody else started."""

from __future__ import annotations

import argparse
import asyncio
import os

from cockpit.cli import job_options, node_options, reporting, slurm_options, terminal
from cockpit.cli.awaiting import started, telling
from cockpit.cli.output import say
from cockpit.cli.parsing import GIVE_UP, Parser, add_seconds, add_word
from cockpit.engine.records.folder import RunFolder, list_runs
from cockpit.engine.records.names import run_name
from cockpit.engine.run.foreign_jobs import Known, make_known
from cockpit.engine.run.join import adopt
from cockpit.errors import CockpitError


def parser() -> Parser:
    """Its options."""
    made = Parser(
        "attach",
        "Come back to a run: missed output first, merged by time, then live lines. With a hostfile, --slurm, "
        "--pid or --match: watch the job that is running there, whoever started it; it gets a local name.",
        "RUN is a run's name, a part of it, or: last. `cockpit ps` lists them.\n\n"
        "examples:\n"
        "  cockpit attach hostfile\n"
        "  cockpit attach --slurm 4711\n"
        "  cockpit attach -w 'gpu[01-04]' --match train_llama\n"
        "  cockpit attach --pid 31415            on this machine",
        "--name --headless --read-only --notify --nodelist --slurm --k8s --match --pid",
    )
    made.add_argument(
        "target",
        metavar="RUN|HOSTFILE|BUNDLE",
        nargs="?",
        help=f"a run, a bundle of one, or a hostfile: {node_options.HELP}",
    )
    add_seconds(made, "--give-up", 600.0, GIVE_UP)
    add_word(made, "--name", "NAME", "local name for a job that cockpit didn't start")
    terminal.add_options(made, launches=False)
    job_options.add_options(made)
    return made


def main(words: list[str]) -> int:
    """Join a run's nodes and go on as ``cockpit run`` does."""
    args = parser().parse_args(words)
    if args.name:
        run_name(args.name)
    slurm_options.take_step(args)
    source = job_options.names_nodes(
        args.target, args, "give a run (see: cockpit ps), a HOSTFILE, -w NODES, or --pid N"
    )
    if not source and os.path.isfile(args.target) and not job_options.names_run(args.target):
        source = [args.target]
    if source:
        return asyncio.run(_attach_job(source, args))
    folder = RunFolder.find(args.target)
    for option in ("job", "pid", "match"):
        if getattr(args, option):
            raise CockpitError(f"--{option} goes with nodes, not with a run", where=folder.name)
    if folder.bundled:
        say(f"{folder.name}: {folder.manifest.closed}; its nodes are not contacted")
        args.read_only = True
    else:
        asyncio.run(started(folder))
    return asyncio.run(_watch(folder, args))


async def _watch(folder: RunFolder, args: argparse.Namespace, known: Known | None = None) -> int:
    code = await _watched(folder, args, known)
    await reporting.at_end(RunFolder(folder.path), asked=args.report)
    return code


async def _watched(folder: RunFolder, args: argparse.Namespace, known: Known | None) -> int:
    stalls = terminal.watch_options(args, folder.manifest.launcher)
    if args.on_hang == "stop" and folder.manifest.foreign is not None:
        what = "cockpit did not start this job: --on-hang stop does not apply to it"
        raise CockpitError(what, where=folder.name, hint="leave the option out")
    if terminal.wanted(plain=args.plain, headless=args.headless, json=args.json):
        from cockpit.tui.run.purpose import Joining

        flight = Joining(folder, known, stalls=stalls)
        return await terminal.flown(flight, read_only=args.read_only, theme=args.theme, notify=args.notify)
    from cockpit.cli.joined import join  # the app does without

    return await join(folder, known, args, stalls)


async def _attach_job(source: list[str], args: argparse.Namespace) -> int:
    """Watch the job on these nodes, under a run's own name, or under one that it gets."""
    async with job_options.job_party(source, args) as party:
        name = party.job.run
        if name:
            async with telling(lambda: party.pool.roll, failures=False):
                await adopt(party.pool, party.nodes, "")
        if not any(folder.name == name for folder in list_runs()):
            words = ["cockpit", "attach", *party.source]
            known = await make_known(party.job, party.pool, words, args.name, party.nodes)
            why = "its run folder is not found there" if name else "cockpit did not start it"
            say(f"{why}; its name here: {known.folder.name}")
            return await _watch(known.folder, args, known)
    folder = RunFolder.find(name)
    await started(folder)
    return await _watch(folder, args)
