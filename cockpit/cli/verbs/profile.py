"""``cockpit profile``: what the ranks of a job do in the same few steps; ``profile show``: what that says."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from cockpit import paths
from cockpit.base.shared_fields import PROFILE_STEPS
from cockpit.base.shell import quote
from cockpit.cli import job_options, slurm_options
from cockpit.cli.awaiting import EVERY_S
from cockpit.cli.output import StatusLine, say
from cockpit.cli.parsing import Parser, add_flag, add_word, rank_set, seconds, whole
from cockpit.cli.profiled import grouped, tell
from cockpit.core.profile.collection import DONE, Collection, RankResult
from cockpit.core.profile.nsys import KIND as NSYS
from cockpit.core.ranks import ranks_named
from cockpit.core.text import counted, size
from cockpit.engine.collect import collect
from cockpit.engine.profile.choose import ALL, LONGEST_S, RATE, SECONDS, STEPS, Wish
from cockpit.engine.profile.known import keep_event, known_of, store_of
from cockpit.engine.profile.reports import keep, read_here, sum_up
from cockpit.engine.profile.store import MAIN, NUMBER, Store
from cockpit.engine.profile.taking import Taking
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.join import pool_for
from cockpit.errors import CockpitError, Exit
from cockpit.plans.profilers.registry import WARNING

SHOW = "show"
OF_TORCH = ("stack", "memory", "no_shapes")
OF_SHOW = ("md", "html", "folded", "speedscope", "perfetto", "nsys", "report", "spread", "svg", "csv")

USUAL = "--kind --ranks --steps --seconds --stack --fetch --json --md --html --perfetto --nsys --spread"
"""The options that are used most."""

EPILOG = f"""examples:
  cockpit profile last                     {STEPS} steps of all ranks, by torch's profiler
  cockpit profile last --ranks 0,13 --stack
  cockpit profile last --kind cpu --seconds 30
  cockpit profile last --kind nsys         a report per node, if it was launched with --profile nsys-ready
  cockpit profile hostfile                 any job on these nodes, by py-spy
  cockpit profile show last                what the newest profile says
  cockpit profile show last 2 --json
  cockpit profile show last --fetch --perfetto all.tar
  cockpit profile show last --nsys         sum up the nsys reports of a run on its nodes
  cockpit profile show last --spread       sizes and durations of its collectives

Exit codes: 0 all ranks are in it, 2 no profile can be taken now (it says why), 3 some ranks are missing (it \
says why), no node answers or the run has ended, 130 Ctrl-C.
"""


def main(words: list[str]) -> int:
    """Take a profile, or show one."""
    args = parser().parse_args(words)
    if args.target == SHOW:
        _refuse(args, ("kind", "ranks", "steps", "seconds", *OF_TORCH), "cockpit profile RUN")
        if args.nsys and args.report:
            raise CockpitError("--nsys asks the nodes, --report reads a file: give one of them")
        return _show_report(args) if args.report else _show(args)
    if args.more:
        hint = f"to show a profile: cockpit profile {SHOW} RUN [N]"
        raise CockpitError(f"unexpected argument {args.more[0]!r}", hint=hint)
    _refuse(args, OF_SHOW, f"cockpit profile {SHOW} RUN")
    if args.kind in ("cpu", NSYS):
        _refuse(args, OF_TORCH, "--kind torch")
    slurm_options.take_step(args)
    nodes = job_options.names_nodes(
        args.target, args, "give a run (see: cockpit ps), a HOSTFILE, or -w NODES"
    )
    return asyncio.run(_take(_ours(args) or nodes or _meant(args.target), args))


def _refuse(args: argparse.Namespace, names: Sequence[str], only: str) -> None:
    for name in names:
        if getattr(args, name) not in (None, False, ""):
            raise CockpitError(f"--{name.replace('_', '-')} goes with: {only}")


def parser() -> Parser:
    """Its options."""
    made = Parser(
        "profile",
        "Profile the ranks of a running job: the same steps on all ranks, summed up on the nodes. "
        "The script is not changed.",
        EPILOG,
        USUAL,
    )
    made.usage = f"cockpit profile RUN|HOSTFILE [options]\n       cockpit profile {SHOW} RUN [N] [options]"
    made.add_argument(
        "target",
        metavar="RUN|HOSTFILE|show",
        nargs="?",
        help="a run's name, a part of it, or: last; a hostfile (-: stdin), for any job; show RUN [N]: what "
        "profile N of a run says (default: the newest)",
    )
    made.add_argument("more", metavar="RUN [N]", nargs="*", help="with show: the run, and which profile")
    group = made.add_argument_group("what to profile")
    group.add_argument(
        "--kind",
        choices=("torch", "cpu", "nsys"),
        default="",
        help="torch: its profiler, whole steps, needs the probe; cpu: py-spy, any job; nsys: of whole nodes, "
        "of a run launched with --profile nsys-ready, there the default (else: torch if steps are counted)",
    )
    group.add_argument(
        "--ranks",
        type=rank_set,
        metavar="SET",
        help=f"only these ranks: 0-3,7 (default: all; beyond {ALL}: one per node, the slowest, a median one)",
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
    add_flag(group, "--no-shapes", "torch: no tensor sizes; costs less, but says less about collectives")
    group.add_argument(
        "--rate",
        type=whole("a rate", 1, 1000),
        default=RATE,
        metavar="N",
        help=f"cpu: samples per second at most (default: {RATE}); fewer if a sample takes long",
    )
    job_options.add_options(made)
    _add_output(made)
    return made


def _add_output(made: Parser) -> None:
    """Options of what is shown, and how."""
    group = made.add_argument_group("output")
    form = group.add_mutually_exclusive_group()
    add_flag(form, "--json", "one JSON object at the end")
    add_flag(form, "--md", "show: as Markdown")
    add_word(form, "--html", "FILE", "show: of cpu, a flame graph of all ranks as a page")
    add_word(form, "--folded", "FILE", "show: of cpu, folded stacks")
    add_word(form, "--speedscope", "FILE", "show: of cpu, for speedscope")
    add_word(form, "--perfetto", "FILE", "show: of torch, all traces on one timeline, a .tar for Perfetto")
    add_flag(form, "--spread", "show: size against duration of collectives, and which stick out")
    add_word(form, "--svg", "FILE", "show: the same as a picture")
    add_word(form, "--csv", "FILE", "show: the same as a table, a row per collective and rank")
    add_flag(group, "--nsys", "show: sum up the nsys reports of RUN on its nodes first")
    add_word(group, "--report", "FILE", "show: an nsys report, or its SQLite export, on this machine")
    add_flag(group, "--fetch", "fetch the traces too, verified, as `cockpit collect` does")


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
        if plan.kind == "cpu" and not args.kind and folder is not None:
            say("no steps counted so far: using --kind cpu")
        say(plan.text)
        for text in grouped(plan.left_out):
            say(text)
        one = await _watched(taking)
    if folder is not None:
        keep_event(folder, one)
    if taking.trouble:
        say(f"not all of it is saved: {taking.trouble}")
    if args.fetch and folder is not None:
        await _fetch(folder, one)
    tell(one, store, folder, args)
    if one.cancelled:
        return Exit.LEFT
    return Exit.NODE_UNFIT if one.missing else Exit.OK


async def _watched(taking: Taking) -> Collection:
    """Take it, and say how far it is; the first Ctrl-C ends it, and what has come stays."""
    loop = asyncio.get_running_loop()
    progress = StatusLine()

    def leave() -> None:
        progress.clear()
        over = taking.results and taking.over == len(taking.results)
        say("all is collected: not timing later steps" if over else "cancelling; collected ranks are kept")
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
    """``profile 3: 2 of 4 ranks collected, step 813; profiling: ranks 1-2``."""
    waited: dict[str, list[int]] = {}
    for rank, one in taking.results.items():
        if one.state != DONE and not one.why:
            waited.setdefault(one.state or "ordered", []).append(rank)
    parts = [f"{state}: {ranks_named(ranks)}" for state, ranks in waited.items()]
    sizes = {one.node: one.size for one in taking.results.values() if one.state == "writing"}
    parts += [f"{size(sum(sizes.values()))} so far"] if any(sizes.values()) else []
    done = sum(one.state == DONE for one in taking.results.values())
    if done and not parts:
        parts = ["timing the next steps"]
    of = counted(len(taking.results), "rank")
    front = f", step {max(taking.steps.values()):,}" if taking.steps and waited else ""
    return "; ".join([f"profile {taking.number}: {done} of {of} collected{front}", *parts])


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
    if one.kind == "nsys":
        say(WARNING)


def _show(args: argparse.Namespace) -> int:
    """``cockpit profile show RUN [N]``."""
    if not 1 <= len(args.more) <= 2:
        what = f"unexpected argument {args.more[2]!r}" if args.more else "no run given"
        raise CockpitError(what, hint=f"usage: cockpit profile {SHOW} RUN [N]")
    run, *number = args.more
    if args.nsys:
        return asyncio.run(_show_nsys(run, number, args))
    wanted = [_number(text, run) for text in number]
    folder, store, known = _kept(run)
    if not number and (empty := [each for each in store.begun() if each > known[-1]]):
        say(f"profile {empty[-1]} is empty: not started yet, or its cockpit was killed; showing {known[-1]}")
    one = store.load(wanted[0] if wanted else known[-1])
    if args.fetch and folder is not None:
        asyncio.run(_fetch(folder, one))
    tell(one, store, folder, args)
    return Exit.NODE_UNFIT if one.missing else Exit.OK


async def _show_nsys(run: str, number: list[str], args: argparse.Namespace) -> int:
    """``cockpit profile show RUN [N] --nsys``."""
    folder = RunFolder.find(run)
    store = store_of(folder)
    wanted = ""
    if number:
        wanted = store.head(_number(number[0], run)).id
    progress = StatusLine()

    def tell_how_far(results: Mapping[int, RankResult]) -> None:
        states: dict[str, list[int]] = {}
        for rank, one in results.items():
            states.setdefault(one.state, []).append(rank)
        progress.show("nsys: " + "; ".join(f"{state}: {ranks_named(some)}" for state, some in states.items()))

    async with pool_for(folder.manifest) as pool:
        try:
            one = await sum_up(folder, pool, wanted, tell_how_far)
        finally:
            progress.clear()
    one = await asyncio.to_thread(keep, store, one)
    keep_event(folder, one)
    if args.fetch:
        await _fetch(folder, one)
    tell(one, store, folder, args)
    return Exit.NODE_UNFIT if one.missing else Exit.OK


def _show_report(args: argparse.Namespace) -> int:
    """``cockpit profile show [RUN] --report FILE``."""
    if len(args.more) > 1:
        hint = f"cockpit profile {SHOW} [RUN] --report FILE"
        raise CockpitError(f"unexpected argument {args.more[1]!r}", hint=hint)
    folder = RunFolder.find(args.more[0]) if args.more else None
    one = asyncio.run(read_here(Path(args.report), folder))
    tell(one, None, None, args)
    return Exit.NODE_UNFIT if one.missing else Exit.OK


def _number(text: str, run: str) -> int:
    """That of a profile.

    :raises CockpitError: it is none
    """
    if not re.fullmatch(NUMBER, text):
        hint = f"the newest: cockpit profile {SHOW} {run}"
        raise CockpitError(f"not the number of a profile: {text!r}", hint=hint)
    return int(text)


def _kept(target: str) -> tuple[RunFolder | None, Store, list[int]]:
    """Where the profiles of a run are, or the one of a folder that was printed; and their numbers.

    :raises CockpitError: there is none
    """
    path = Path(target)
    if "/" in target and re.fullmatch(NUMBER, path.name) and (path / MAIN).exists():
        return None, Store(path.parent), [int(path.name)]
    folder = RunFolder.find(target)
    store = store_of(folder)
    if known := store.numbers():
        return folder, store, known
    again = f"{SHOW} {quote(folder.name)} --nsys" if NSYS in (folder.manifest.profile or {}) else ""
    over = not again and (folder.bundled or folder.model().over)
    hint = "only a running run can be profiled" if over else f"cockpit profile {again or quote(folder.name)}"
    raise CockpitError("no profile of it yet", where=folder.name, hint=hint)
