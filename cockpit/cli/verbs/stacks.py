"""``cockpit stacks``: what every rank of a job is doing right now, merged, with a verdict."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from cockpit import paths
from cockpit.base.gate import plain
from cockpit.base.stacks.dump import Dump
from cockpit.cli import job_options, slurm_options, snapshots, terminal
from cockpit.cli.output import StatusLine, out_json, out_lines, say, shows_unicode, to_file
from cockpit.cli.parsing import Parser, add_flag, add_seconds, add_word, rank_set
from cockpit.core.finding import Finding
from cockpit.core.masks import count, mask_of
from cockpit.core.ranks import mask_text, nodes_text
from cockpit.core.recorder import report as recorder_text
from cockpit.core.stacks.class_facts import state_of
from cockpit.core.stacks.classes import RankClass, classes
from cockpit.core.stacks.flamegraph import to_folded, to_speedscope
from cockpit.core.stacks.merging import merged
from cockpit.core.stacks.page import as_page
from cockpit.core.stacks.snapshot import Place, Snapshot
from cockpit.core.stacks.text import as_lines
from cockpit.core.stacks.verdict import verdict
from cockpit.core.text import ascii_text
from cockpit.engine.extra_facts import Facts
from cockpit.engine.recorder import RecorderAnswers
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.stacks import saved
from cockpit.engine.stacks.ask import Ask, option_words
from cockpit.engine.stacks.take import ReplayedStacks, Sampler
from cockpit.errors import CockpitError, Exit

USUAL = "--ranks --native --locals --nodelist --slurm --k8s --match --json --html --list"
"""The options that are used most."""

EPILOG = """examples:
  cockpit stacks last                        the newest run
  cockpit stacks hostfile                    any deepspeed, torchrun, accelerate, srun or mpirun job there
  cockpit stacks last --native --ranks 13    C and C++ frames of one rank
  cockpit stacks last --json | jq .verdict
  cockpit stacks last --list                 all snapshots, including those its nodes took
  cockpit stacks ~/.local/state/cockpit/runs/…/stacks/20261121-040000
  cockpit stacks from-gpu01/ from-gpu02/     merges two snapshots, each taken on one node

Plain stacks do not disturb training: a rank is paused for about a millisecond, or longer with --native.
Exit codes: 0 every rank answered, 1 some are missing, 3 none answered, or the run has ended.
"""


def main(words: list[str]) -> int:
    """Take stacks, or show a snapshot."""
    args = parser().parse_args(words)
    slurm_options.take_step(args)
    if args.samples < 1:
        raise CockpitError("--samples must be 1 or more", hint="2 show what moves and what is frozen")
    if args.tui:
        terminal.needed()
    ask = "give a run (see: cockpit ps), a HOSTFILE, a SNAPSHOT, or -w NODES"
    nodes = job_options.names_nodes(args.target, args, ask)
    if args.more:
        return _merge([args.target, *args.more], args)
    meant = nodes or _meant(args.target)
    if args.list:
        if not isinstance(meant, RunFolder):
            raise CockpitError("--list needs a run", hint="see: cockpit ps")
        return asyncio.run(snapshots.show(meant, as_json=args.json))
    if isinstance(meant, Path) and os.path.isdir(meant):
        return _reopen(meant, args)
    return asyncio.run(_take(meant, args))


def _meant(target: str) -> Path | RunFolder:
    """The run that is meant, or else the path of a hostfile or a snapshot."""
    if job_options.names_run(target) or not os.path.lexists(target):
        return _run_folder(target)
    path = Path(target)
    # A shell's completion ends at one of the files in it.
    return path.parent if path.suffix == ".json" and saved.is_snapshot(path.parent) else path


def _run_folder(target: str) -> RunFolder:
    if "/" in target:
        try:
            os.stat(target)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            hint = "give a hostfile, the folder of a snapshot, or a run"
            raise CockpitError(f"cannot be read: {why}", where=target, hint=hint) from None
    try:
        return RunFolder.find(target)
    except CockpitError as error:
        hint = "see: cockpit ps; a job that cockpit did not start needs a hostfile"
        raise CockpitError(error.what, where=error.where, hint=hint) from None


def parser() -> Parser:
    made = Parser("stacks", "Python stacks of all ranks of a job, merged, with a verdict.", EPILOG, USUAL)
    made.usage = "cockpit stacks RUN|HOSTFILE|SNAPSHOT… [options]"
    made.add_argument(
        "target",
        metavar="RUN|HOSTFILE|SNAPSHOT",
        nargs="?",
        help="a run's name, a part of it, or: last; a hostfile (-: stdin), for any job; a snapshot's folder",
    )
    made.add_argument(
        "more", metavar="SNAPSHOT", nargs="*", help="snapshots taken on single nodes: they are merged"
    )
    group = made.add_argument_group("samples")
    group.add_argument("--ranks", type=rank_set, metavar="SET", help="only these ranks: 0-3,7")
    group.add_argument(
        "--samples", type=int, default=2, metavar="N", help="samples of each rank (default: 2)"
    )
    add_seconds(group, "--interval", 1.0, "seconds between two samples (default: 1)")
    add_flag(group, "--native", "include C and C++ frames; pauses ranks longer")
    add_flag(group, "--locals", "include local variables, without secrets")
    group.add_argument(
        "--threads", choices=("main", "all"), default="main", help="print all threads, not just the main one"
    )
    add_flag(group, "--children", "include Python child processes, such as data loaders")
    add_seconds(group, "--timeout", 10.0, "time limit per py-spy, in seconds (default: 10)")
    job_options.add_options(made)
    group = made.add_argument_group("output")
    form = group.add_mutually_exclusive_group()
    add_flag(form, "--text", "classes and tree as text (the default)")
    add_flag(form, "--json", "one JSON object")
    add_flag(form, "--tui", "in the app, like its key s")
    add_word(form, "--folded", "FILE", "folded stacks, for flame graphs; - is stdout", None)
    add_word(form, "--speedscope", "FILE", "for speedscope; - is stdout", None)
    add_word(form, "--html", "FILE", "a self-contained page; - is stdout", None)
    add_flag(group, "--list", "list RUN's snapshots, including those its nodes took")
    group.add_argument("-o", "--output", type=Path, metavar="DIR", help="save the snapshot under DIR")
    return made


def _reopen(path: Path, args: argparse.Namespace) -> int:
    if args.tui and args.ranks is not None:
        raise CockpitError("--ranks goes with text, --json and files", hint="in the app: / and the ranks")
    if args.tui:
        return asyncio.run(terminal.show_stacks(ReplayedStacks(path)))
    snapshot = saved.load(path)
    return _show(snapshot, path, verdict(snapshot), args)


def _merge(targets: list[str], args: argparse.Namespace) -> int:
    if args.tui:
        raise CockpitError("--tui shows one snapshot", hint="leave it out, or merge them as --html FILE")
    parts = {}
    for target in targets:
        path = Path(target)
        path = path.parent if path.suffix == ".json" else path
        if not saved.is_snapshot(path):
            hint = "only snapshots can be merged; give one run or one hostfile"
            raise CockpitError("is not a snapshot", where=target, hint=hint)
        parts[str(path)] = saved.load(path)
    whole = merged(parts)
    for text in whole.notes:
        say(text)
    return _show(whole.snapshot, Path(targets[0]), whole.judged(verdict(whole.snapshot)), args)


def _show(snapshot: Snapshot, path: Path, found: Finding, args: argparse.Namespace) -> int:
    """Print a snapshot that was taken before.

    :param found: the verdict over all its ranks: what one waits for is known from those not shown, too
    """
    job_options.check_ranks(snapshot.ranks, args.ranks, snapshot.title)
    at = snapshot.samples[-1].at if snapshot.samples else path.stat().st_mtime
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    say(f"snapshot of {when}: {snapshot.title}")
    if snapshot.by_nodes:
        say(f"taken by its nodes: {snapshot.by_nodes}")
    lacking = [name for name in ("native", "locals", "children") if getattr(args, name)]
    lacking = [name for name in lacking if not snapshot.options.get(name)]
    if lacking:
        say(f"it was taken without {option_words(lacking)}")
    if args.ranks is not None:
        for sample in snapshot.samples:
            sample.dumps = {rank: dump for rank, dump in sample.dumps.items() if rank in args.ranks}
        snapshot.ranks = {rank: place for rank, place in snapshot.ranks.items() if rank in args.ranks}
    return _tell(snapshot, found, str(path), "", args)


async def _take(meant: Path | RunFolder | list[str], args: argparse.Namespace) -> int:
    ranks = None if args.ranks is None else mask_of(args.ranks)
    ask = Ask(args.native, args.locals, args.children, args.timeout, ranks)
    unsaved = trouble = None
    folder = ""
    progress = StatusLine()
    root = meant.path / "stacks" if isinstance(meant, RunFolder) else paths.stacks()
    async with job_options.party(meant, args) as party:
        job_options.check_ranks(party.places(), args.ranks, party.title)
        more = Facts(party)
        stacks = Sampler(party, ask, args.output or root, more)
        if args.tui:
            return await terminal.show_stacks(stacks)
        whole = await _samples(stacks, args, progress)
        if whole and args.samples == 1:
            await more.gather(stacks)
        heard = more.heard if whole else None
        try:
            folder = str(await stacks.kept())
        except CockpitError as error:
            # Who may only read there has asked for the stacks, and has them.
            reads = args.output is None and not saved.writable(root)
            unsaved, trouble = (error, None) if reads else (None, error)
    try:
        code = _tell(stacks.snapshot, verdict(stacks.snapshot), folder, stacks.command, args, heard)
    finally:
        if folder:
            say(f"snapshot: {folder}")
        if unsaved is not None:
            say(f"not saved: {unsaved}; to save it in a folder of yours: -o DIR")
    if trouble is not None:
        raise trouble
    return code if whole else Exit.LEFT


async def _samples(stacks: Sampler, args: argparse.Namespace, progress: StatusLine) -> bool:
    """Take the samples; False if Ctrl-C ended that: what has arrived by then stays."""
    loop = asyncio.get_running_loop()
    left = asyncio.Event()

    def leave() -> None:
        left.set()
        stacks.cancel()
        # The next one ends everything, as usual.
        loop.remove_signal_handler(signal.SIGINT)

    loop.add_signal_handler(signal.SIGINT, leave)
    try:
        for number in range(args.samples):
            if number:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(left.wait(), args.interval)
            if not left.is_set():
                try:
                    await _sample(stacks, f"sample {number + 1} of {args.samples}", progress)
                except CockpitError as error:
                    if not number:
                        raise
                    say(str(error))
                    return True
            if left.is_set():
                say(f"left at sample {len(stacks.snapshot.samples)} of {args.samples}; here is what arrived:")
                return False
    finally:
        loop.remove_signal_handler(signal.SIGINT)
    return True


async def _sample(stacks: Sampler, which: str, progress: StatusLine) -> None:
    task = asyncio.create_task(stacks.take())
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=0.2)
            if stacks.snapshot.samples:
                progress.show(_how_far(stacks, which))
        task.result()
    finally:
        task.cancel()
        progress.clear()


def _how_far(stacks: Sampler, which: str) -> str:
    sample = stacks.snapshot.samples[-1]
    asked = {rank: place.node for rank, place in stacks.snapshot.ranks.items() if not place.why}
    late = (node for rank, node in asked.items() if rank not in sample.dumps)
    waited = dict.fromkeys(node for node in late if node not in sample.silent)
    rest = f", waiting for {nodes_text(waited)}" if waited else ""
    return f"{which}: {len(sample.dumps)} of {len(asked)} ranks{rest}"


def _tell(
    snapshot: Snapshot,
    found: Finding,
    folder: str,
    command: str,
    args: argparse.Namespace,
    heard: RecorderAnswers | None = None,
) -> Exit:
    if args.json:
        told = recorder_text.as_json(heard.look, heard.silent) if heard else None
        out_json({**_as_json(snapshot, found.completed(command), folder), "collectives": told})
    elif args.folded is not None:
        _put(args.folded, to_folded(snapshot))
    elif args.speedscope is not None:
        _put(args.speedscope, json.dumps(to_speedscope(snapshot)) + "\n")
    elif args.html is not None:
        _put(args.html, as_page(snapshot, found))
    else:
        threads = "all" if args.threads == "all" else "main" if args.locals or args.children else ""
        lines = as_lines(snapshot, found, threads=threads, command=command)
        if heard and heard.probed:
            lines += ["", *recorder_text.as_lines(heard.look, heard.silent)]
        out_lines(lines if shows_unicode() else map(ascii_text, lines))
    missing = snapshot.missing()
    if not missing:
        return Exit.OK
    return Exit.NODE_UNFIT if len(missing) == len(snapshot.ranks) else Exit.RANK_FAILED


def _put(target: str, text: str) -> None:
    if target == "-":
        out_lines(text.rstrip("\n").split("\n"))
    else:
        to_file(target, text)


def _as_json(snapshot: Snapshot, found: Finding, folder: str) -> dict[str, Any]:
    missing = snapshot.missing()
    newest = snapshot.samples[-1].dumps if snapshot.samples else {}
    return {
        "event": "stacks",
        "job": snapshot.title,
        "run": snapshot.run,
        "snapshot": folder,
        "samples": [sample.as_json() for sample in snapshot.samples],
        "verdict": saved.verdict_json(found),
        "classes": [_class_json(one) for one in classes(snapshot)],
        "ras": snapshot.ras and snapshot.ras.as_json(),
        "calls": {str(rank): plain(one) for rank, one in snapshot.calls.items()},
        "missing": {str(rank): why for rank, why in missing.items()},
        "ranks": {
            str(rank): _rank_json(place, newest.get(rank, Dump(rank, 0.0)))
            for rank, place in sorted(snapshot.ranks.items())
        },
    }


def _rank_json(place: Place, dump: Dump) -> dict[str, Any]:
    return {
        "node": place.node,
        "local_rank": place.local_rank,
        "pid": place.pid,
        "ns_pid": place.ns_pid,
        "inferred": place.inferred,
        "state": state_of(dump),
        "way": dump.way,
        "notes": list(dump.notes),
    }


def _class_json(found: RankClass) -> dict[str, Any]:
    return {
        "ranks": mask_text(found.ranks),
        "count": count(found.ranks),
        "kind": found.doing.kind,
        "doing": found.doing.text,
        "movement": found.movement,
        "state": found.state,
        "source": found.source,
        "stack": [f"{frame.name} {frame.file}:{frame.line}" for frame in found.frames],
    }
