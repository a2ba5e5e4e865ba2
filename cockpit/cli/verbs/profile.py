"""``cockpit profile``: what the ranks of a job do in the same few steps; ``profile show``: what that says."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cockpit import paths
from cockpit.base.shared_fields import PROFILE_STEPS
from cockpit.base.shell import quote
from cockpit.cli import job_options, slurm_options
from cockpit.cli.awaiting import EVERY_S
from cockpit.cli.output import StatusLine, out, out_json, say, table
from cockpit.cli.parsing import Parser, add_flag, rank_set, seconds, whole
from cockpit.core.profile.collection import DONE, Collection, RankResult
from cockpit.core.ranks import ranks_named
from cockpit.core.text import size
from cockpit.engine.collect import collect, report_path
from cockpit.engine.profile.choose import ALL, LONGEST_S, RATE, SECONDS, STEPS, Wish
from cockpit.engine.profile.known import keep_event, known_of, store_of
from cockpit.engine.profile.store import Store
from cockpit.engine.profile.taking import Taking
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.join import pool_for
from cockpit.errors import CockpitError, Exit

SHOW = "show"

USUAL = "--kind --ranks --steps --seconds --fetch --json --md"
"""The options that are used most."""

EPILOG = f"""examples:
  cockpit profile last                     {STEPS} steps of all ranks, by torch's profiler
  cockpit profile last --ranks 0,13 --stack
  cockpit profile last --kind cpu --seconds 30
  cockpit profile hostfile                 any job on these nodes, by py-spy
  cockpit profile show last                what the newest profile says
  cockpit profile show last 2 --json

Exit codes: 0 all is here, 3 something is missing (it says what), 2 there can be no profile now (it says why).
"""


def main(words: list[str]) -> int:
    """Take a profile, or show one."""
    args = parser().parse_args(words)
    if args.target == SHOW:
        return _show(args)
    if args.more:
        raise CockpitError(f"unexpected argument {args.more[0]!r}", hint=f"cockpit profile {SHOW} RUN [N]")
    if args.md:
        raise CockpitError(f"--md goes with: cockpit profile {SHOW}")
    slurm_options.take_step(args)
    nodes = job_options.names_nodes(
        args.target, args, "give a run (see: cockpit ps), a HOSTFILE, or -w NODES"
    )
    return asyncio.run(_take(_ours(args) or nodes or _meant(args.target), args))


def parser() -> Parser:
    """Its options."""
    made = Parser(
        "profile",
        "Profile the ranks of a running job: the same steps on all of them, summed up where they were taken. "
        "The script need not know of it.",
        EPILOG,
        USUAL,
    )
    made.add_argument(
        "target",
        metavar="RUN|HOSTFILE|show",
        nargs="?",
        help="a run's name, a part of it, or: last; a hostfile (-: stdin), for any job; show RUN [N]: what "
        "profile N of a run says (default: the newest)",
    )
    made.add_argument("more", metavar="RUN [N]", nargs="*", help="after show")
    group = made.add_argument_group("what")
    group.add_argument(
        "--kind",
        choices=("torch", "cpu"),
        default="",
        help="torch: its profiler, in whole steps, needs the probe; cpu: py-spy, any job (default: torch "
        "where it can)",
    )
    group.add_argument(
        "--ranks",
        type=rank_set,
        metavar="SET",
        help=f"only these ranks: 0-3,7 (default: all; beyond {ALL}: one a node, the slowest, a median one)",
    )
    length = group.add_mutually_exclusive_group()
    length.add_argument(
        "--steps",
        type=whole("a number of steps", 1, PROFILE_STEPS),
        metavar="N",
        help=f"how many (default: {STEPS})",
    )
    length.add_argument(
        "--seconds", type=seconds, metavar="S", help=f"how long (default of cpu: {SECONDS:g})"
    )
    add_flag(group, "--stack", "torch: Python stacks of operations; costs more")
    add_flag(group, "--memory", "torch: what operations allocate; costs more")
    add_flag(group, "--no-shapes", "torch: no sizes of tensors; costs less, and tells less of collectives")
    group.add_argument(
        "--rate",
        type=whole("a rate", 1, 1000),
        default=RATE,
        metavar="N",
        help=f"cpu: looks a second at most (default: {RATE}); less where a look takes long",
    )
    job_options.add_options(made)
    group = made.add_argument_group("output")
    form = group.add_mutually_exclusive_group()
    add_flag(form, "--json", "one JSON object at the end")
    add_flag(form, "--md", "show: as Markdown")
    add_flag(group, "--fetch", "fetch the traces too, verified, as `cockpit collect` does")
    return made


def _ours(args: argparse.Namespace) -> RunFolder | None:
    """The one run of ours in a SLURM job that is named alone: its ranks have probes."""
    if args.slurm is None or args.target or args.nodelist or args.pid or args.match or args.job:
        return None
    found = slurm_options.runs_in(args.step.rstrip("."))
    return found[0] if len(found) == 1 else None


def _meant(target: str) -> Path | RunFolder:
    """The run that is meant, or else the path of a hostfile."""
    if job_options.names_run(target) or not os.path.lexists(target):
        return RunFolder.find(target)
    return Path(target)


async def _take(meant: Path | RunFolder | list[str], args: argparse.Namespace) -> int:
    if args.seconds is not None and not 0 < args.seconds <= LONGEST_S:
        raise CockpitError(f"expected more than 0 and at most {LONGEST_S:,.0f}", where="--seconds")
    folder = meant if isinstance(meant, RunFolder) else None
    store = Store(paths.profiles()) if folder is None else store_of(folder)
    wish = Wish(
        args.kind,
        args.ranks,
        args.steps,
        args.seconds,
        not args.no_shapes,
        args.stack,
        args.memory,
        args.rate,
    )
    async with job_options.party(meant, args) as party:
        job_options.check_ranks(party.places(), args.ranks, party.title)
        model = None if folder is None else folder.model()
        taking = Taking(party, wish, store, lambda: known_of(store, party.command, model, folder=folder))
        plan = await taking.prepare()
        say(plan.text)
        for ranks, why in _grouped(plan.left_out):
            say(f"{ranks}: {why}")
        one = await _watched(taking)
    if folder is not None:
        keep_event(folder, one)
    if taking.trouble:
        say(f"not all of it is saved: {taking.trouble}")
    if args.fetch and folder is not None:
        await _fetch(folder, one)
    _tell(one, store, folder, args)
    if one.cancelled:
        return Exit.LEFT
    return Exit.NODE_UNFIT if one.missing else Exit.OK


async def _watched(taking: Taking) -> Collection:
    """Take it, and say how far it is; the first Ctrl-C ends it, and what has come stays."""
    loop = asyncio.get_running_loop()
    progress = StatusLine()

    def leave() -> None:
        progress.clear()
        say("cancelling on all nodes; what is here is kept")
        taking.cancel("cancelled by Ctrl-C")
        # The next one ends everything, as usual.
        loop.remove_signal_handler(signal.SIGINT)

    loop.add_signal_handler(signal.SIGINT, leave)
    task = asyncio.create_task(taking.take())
    said, at = "", time.monotonic()
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=0.2)
            text = _how_far(taking)
            if progress.on:
                progress.show(text)
            elif text != said and time.monotonic() >= at + EVERY_S:
                say(text)
                said, at = text, time.monotonic()
        return task.result()
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        task.cancel()
        progress.clear()


def _how_far(taking: Taking) -> str:
    """``profile 3: 2 of 4 ranks here; profiling: ranks 1-2, step 813``."""
    waited: dict[str, list[int]] = {}
    for rank, one in taking.results.items():
        if one.state != DONE and not one.why:
            waited.setdefault(one.state or "ordered", []).append(rank)
    parts = [f"{state}: {ranks_named(ranks)}" for state, ranks in waited.items()]
    here = sum(one.state == DONE for one in taking.results.values())
    front = f", step {max(taking.steps.values()):,}" if taking.steps else ""
    return f"profile {taking.number}: {here} of {len(taking.results)} ranks here{front}; {'; '.join(parts)}"


async def _fetch(folder: RunFolder, one: Collection) -> None:
    """Fetch the traces of a collection."""
    names = frozenset(result.file for result in one.results.values() if result.file)
    if not names:
        return
    async with pool_for(folder.manifest) as pool:
        progress = StatusLine()
        try:
            collected = await collect(
                folder,
                pool,
                folder.path / "reports",
                lambda so_far: progress.show(
                    f"fetching traces: {sum(r.here for r in so_far.reports) / 1e6:.0f} MB"
                ),
                only=names,
            )
        finally:
            progress.clear()
    for report in collected.reports:
        if report.state != "collected":
            say(f"{report.node}: {report.name}: {report.state}: {report.why}")


def _show(args: argparse.Namespace) -> int:
    """``cockpit profile show RUN [N]``."""
    if not 1 <= len(args.more) <= 2:
        raise CockpitError("which run?", hint=f"cockpit profile {SHOW} RUN [N]; see: cockpit ps")
    run, *number = args.more
    if number and not (number[0].isascii() and number[0].isdigit()):
        raise CockpitError(
            f"not the number of a profile: {number[0]!r}", hint=f"cockpit profile {SHOW} {run}"
        )
    folder = RunFolder.find(run)
    store = store_of(folder)
    known = store.numbers()
    if not known:
        raise CockpitError(
            "no profile of it yet", where=folder.name, hint=f"cockpit profile {quote(folder.name)}"
        )
    one = store.load(int(number[0]) if number else known[-1])
    _tell(one, store, folder, args)
    return Exit.NODE_UNFIT if one.missing else Exit.OK


def _tell(one: Collection, store: Store, folder: RunFolder | None, args: argparse.Namespace) -> None:
    if args.json:
        out_json(_as_json(one, store, folder))
        return
    _tell_plainly(one)
    for ranks, why in _grouped(one.missing):
        out(f"missing: {ranks}: {why}")
    for line in _cost(one):
        out(line)
    for line in _files(one, folder):
        out(line)
    out(f"profile {one.number}: {store.folder(one.number)}")


def _tell_plainly(one: Collection) -> None:
    rows: list[tuple[str, ...]] = [
        ("RANK", "NODE", "STATE", "STEPS", "COMPUTE", "COMM", "DATA", "IDLE", "SIZE")
    ]
    for rank, result in sorted(one.results.items()):
        rows.append((str(rank), result.node, result.state, *_shares(result), size(result.size)))
    table(rows)


def _shares(result: RankResult) -> list[str]:
    if result.summary is None:
        return [str(result.samples or ""), "", "", "", ""]
    steps = result.summary.steps
    took = sum(step.took for step in steps) or 1
    names = ("compute", "communication", "data", "idle")
    return [
        str(len(steps)),
        *(f"{100 * sum(getattr(step, name) for step in steps) / took:.0f} %" for name in names),
    ]


def _cost(one: Collection) -> Iterable[str]:
    """What it cost, in step time."""
    if one.before and one.during:
        more = one.during / one.before - 1
        after = f", {one.after:.3g} s after" if one.after else ""
        yield f"steps took {one.before:.3g} s before, {one.during:.3g} s during ({more:+.0%}){after}"
    stops = [result.summary.stop_s for result in one.results.values() if result.summary is not None]
    if stops:
        yield f"stopping the profiler paused a rank for {max(stops):.2g} s at most"


def _files(one: Collection, folder: RunFolder | None) -> Iterable[str]:
    """Where the traces are, and what opens them."""
    if folder is None or not any(result.file for result in one.results.values()):
        return
    there = {entry.name: entry.dir for entry in folder.manifest.nodes}
    yield "traces, to open at https://ui.perfetto.dev (nothing is uploaded there), or in chrome://tracing:"
    absent = False
    for rank, result in sorted(one.results.items()):
        if not result.file:
            continue
        here = report_path(folder, result.node, result.file)
        if here is not None and here.exists():
            yield f"  rank {rank}: {here}"
        else:
            absent = True
            yield f"  rank {rank}: on {result.node}: {there.get(result.node, '')}/reports/{result.file}"
    if absent:
        yield f"  to fetch them, verified: cockpit collect {quote(folder.name)}"


def _grouped(whys: Any) -> Iterable[tuple[str, str]]:
    """Ranks by the reason that they have in common."""
    by_why: dict[str, list[int]] = {}
    for rank, why in sorted(whys.items()):
        by_why.setdefault(why, []).append(rank)
    return [(ranks_named(ranks), why) for why, ranks in by_why.items()]


def _as_json(one: Collection, store: Store, folder: RunFolder | None) -> dict[str, Any]:
    return {
        "event": "profile",
        "run": one.run,
        "number": one.number,
        "id": one.id,
        "kind": one.kind,
        "t": one.at,
        "first": one.first,
        "steps": one.steps,
        "seconds": one.seconds,
        "options": list(one.options),
        "apart_s": one.apart_s,
        "before_s": one.before,
        "during_s": one.during,
        "after_s": one.after,
        "cancelled": one.cancelled,
        "folder": str(store.folder(one.number)),
        "missing": {str(rank): why for rank, why in sorted(one.missing.items())},
        "ranks": {str(rank): _rank_json(result, folder) for rank, result in sorted(one.results.items())},
    }


def _rank_json(result: RankResult, folder: RunFolder | None) -> dict[str, Any]:
    here = None if folder is None or not result.file else report_path(folder, result.node, result.file)
    return {
        "node": result.node,
        "state": result.state,
        "why": result.why,
        "began": result.began,
        "file": result.file,
        "here": str(here) if here is not None and here.exists() else None,
        "size": result.size,
        "sha256": result.sha256,
        "rate": result.rate,
        "samples": result.samples,
        "errors": result.errors,
        "stop_s": None if result.summary is None else result.summary.stop_s,
    }
