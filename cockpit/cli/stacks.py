"""``cockpit stacks``: what every rank of a job does right now, merged, with a verdict."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cockpit.base.masks import count, mask_of, ranks_of
from cockpit.cli import jobs, terminal
from cockpit.cli.narration import say
from cockpit.cli.parsing import Parser, rank_set, seconds
from cockpit.core.classes import RankClass, classes
from cockpit.core.folded import to_folded, to_speedscope
from cockpit.core.ranks import ranks_text
from cockpit.core.snapshot import Snapshot
from cockpit.core.stacktext import as_text, ascii_text
from cockpit.core.verdict import verdict
from cockpit.engine import snapshots
from cockpit.engine.parties import open_run
from cockpit.engine.runs import RunFolder
from cockpit.engine.stacks import Ask, Party, Recorded, Stacks
from cockpit.errors import CockpitError, Exit

EPILOG = """examples:
  cockpit stacks last                        the run that was started last
  cockpit stacks hostfile                    any deepspeed, torchrun, accelerate or srun job on these nodes
  cockpit stacks last --native --ranks 13    C and C++ frames of one rank
  cockpit stacks last --json | jq .verdict
  cockpit stacks ~/.local/state/cockpit/runs/…/stacks/20261121-040000

Plain stacks do not disturb training: a rank is held for about a millisecond. --native holds it longer.
Exit codes: 0 every rank answered, 1 some are missing, 3 none answered.
"""


def main(words: list[str]) -> int:
    """Take stacks, or show a snapshot."""
    args = _parser().parse_args(words)
    if args.samples < 1:
        raise CockpitError("--samples must be 1 or more", hint="2 tell what moves from what is frozen")
    path = Path(args.target)
    if path.is_dir():
        return _reopen(path, args)
    return asyncio.run(_take(args))


def _parser() -> Parser:
    parser = Parser("stacks", "Python stacks of all ranks of a job, merged, with a verdict.", EPILOG)
    parser.add_argument(
        "target",
        metavar="RUN|HOSTFILE|SNAPSHOT",
        help="a run's name, a part of it, or: last; a hostfile, for any job; the folder of a snapshot",
    )
    group = parser.add_argument_group("what is asked of the ranks")
    group.add_argument("--ranks", type=rank_set, metavar="SET", help="only these: 0-3,7")
    group.add_argument("--samples", type=int, default=2, metavar="N", help="looks at every rank (2)")
    group.add_argument(
        "--interval", type=seconds, default=1.0, metavar="S", help="seconds between two looks (1)"
    )
    group.add_argument("--native", action="store_true", help="C and C++ frames too; holds ranks longer")
    group.add_argument("--locals", action="store_true", help="local variables, without secrets")
    group.add_argument(
        "--threads", choices=("main", "all"), default="main", help="print all threads, not just the main one"
    )
    group.add_argument("--children", action="store_true", help="Python children too, such as data loaders")
    group.add_argument(
        "--timeout", type=seconds, default=10.0, metavar="S", help="seconds one py-spy may take (10)"
    )
    jobs.add_options(parser)
    group = parser.add_argument_group("output")
    form = group.add_mutually_exclusive_group()
    form.add_argument("--text", action="store_true", help="classes and tree as text (the default)")
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument("--tui", action="store_true", help="in the app, as the key s shows them")
    form.add_argument("--folded", metavar="FILE", help="folded stacks, for flame graphs; - is stdout")
    form.add_argument("--speedscope", metavar="FILE", help="for speedscope; - is stdout")
    group.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="keep the snapshot below DIR",
    )
    return parser


def _reopen(path: Path, args: argparse.Namespace) -> int:
    if not snapshots.is_snapshot(path):
        what = f"is no snapshot: it has no {snapshots.MAIN}"
        raise CockpitError(what, where=str(path), hint="give the folder that `cockpit stacks` named")
    if args.tui:
        return asyncio.run(terminal.show_stacks(Recorded(path)))
    snapshot = snapshots.load(path)
    if args.ranks is not None:
        wanted = set(args.ranks)
        for sample in snapshot.samples:
            sample.dumps = {rank: dump for rank, dump in sample.dumps.items() if rank in wanted}
        snapshot.ranks = {rank: place for rank, place in snapshot.ranks.items() if rank in wanted}
    return _tell(snapshot, path, args)


async def _take(args: argparse.Namespace) -> int:
    ranks = None if args.ranks is None else mask_of(args.ranks)
    ask = Ask(args.native, args.locals, args.children, args.timeout, ranks)
    async with _party(args) as (party, root):
        _check_ranks(party, args.ranks)
        stacks = Stacks(party, ask, args.output or root)
        if args.tui:
            return await terminal.show_stacks(stacks)
        for number in range(args.samples):
            if number:
                await asyncio.sleep(args.interval)
            await _with_progress(stacks, f"{number + 1} of {args.samples}")
        folder = await stacks.kept()
    code = _tell(stacks.snapshot, folder, args)
    say(f"snapshot: {folder}")
    return code


def _check_ranks(party: Party, ranks: set[int] | None) -> None:
    known = party.places()
    if ranks is not None and (odd := ranks - set(known)):
        raise CockpitError(
            f"no rank {ranks_text(odd)}", where=party.title, hint=f"it has {ranks_text(known)}"
        )


@asynccontextmanager
async def _party(args: argparse.Namespace) -> AsyncIterator[tuple[Party, Path]]:
    """The job that is meant, and the folder its snapshots are kept in."""
    if Path(args.target).is_file():
        async with jobs.job_party(args) as found:
            yield found
    else:
        folder = _run_folder(args)
        async with open_run(folder) as run:
            yield run, folder.path / "stacks"


def _run_folder(args: argparse.Namespace) -> RunFolder:
    try:
        return RunFolder.find(args.target)
    except CockpitError as error:
        if "/" in args.target:
            what = "neither a hostfile nor the folder of a snapshot"
            raise CockpitError(what, where=args.target, hint="see: cockpit stacks --help") from None
        hint = "see: cockpit ps; a job that cockpit did not start needs a hostfile"
        raise CockpitError(error.what, where=error.where, hint=hint) from None


async def _with_progress(stacks: Stacks, which: str) -> None:
    """Take a sample; on a terminal, say how far it is."""
    task = asyncio.create_task(stacks.take())
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=0.2)
            if sys.stderr.isatty() and stacks.snapshot.samples:
                here = len(stacks.snapshot.samples[-1].dumps)
                sys.stderr.write(f"\r\x1b[Kstacks: sample {which}, {here}/{stacks.asked} ranks")
                sys.stderr.flush()
        task.result()
    finally:
        task.cancel()
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _tell(snapshot: Snapshot, folder: Path, args: argparse.Namespace) -> Exit:
    if args.json:
        print(json.dumps(_as_json(snapshot, folder)))
    elif args.folded:
        _write(args.folded, to_folded(snapshot))
    elif args.speedscope:
        _write(args.speedscope, json.dumps(to_speedscope(snapshot)) + "\n")
    else:
        text = as_text(snapshot, verdict(snapshot), all_threads=args.threads == "all")
        unicode = (sys.stdout.encoding or "").lower().startswith("utf")
        print(text if unicode else ascii_text(text))
    missing = snapshot.missing()
    if not missing:
        return Exit.OK
    return Exit.NODE_UNFIT if len(missing) == len(snapshot.ranks) else Exit.RANK_FAILED


def _write(target: str, text: str) -> None:
    if target == "-":
        sys.stdout.write(text)
        return
    try:
        Path(target).write_text(text)
    except OSError as error:
        raise CockpitError(f"cannot write: {error.strerror}", where=target) from None
    say(f"written: {target}")


def _as_json(snapshot: Snapshot, folder: Path) -> dict[str, Any]:
    missing = snapshot.missing()
    newest = snapshot.samples[-1].dumps if snapshot.samples else {}
    return {
        "event": "stacks",
        "job": snapshot.title,
        "run": snapshot.run,
        "snapshot": str(folder),
        "samples": [
            {"at": sample.at, "took_s": sample.took_s, "silent": sample.silent} for sample in snapshot.samples
        ],
        "verdict": snapshots.verdict_json(verdict(snapshot)),
        "classes": [_class_json(found) for found in classes(snapshot)],
        "missing": {str(rank): why for rank, why in missing.items()},
        "ranks": {
            str(rank): {
                "node": place.node,
                "local_rank": place.local_rank,
                "pid": place.pid,
                "state": _state(newest.get(rank)),
                "way": newest[rank].way if rank in newest else "",
                "notes": list(newest[rank].notes) if rank in newest else [],
            }
            for rank, place in sorted(snapshot.ranks.items())
        },
    }


def _state(dump: Any) -> str:
    return dump.process.state if dump is not None and dump.process is not None else ""


def _class_json(found: RankClass) -> dict[str, Any]:
    return {
        "ranks": ranks_text(ranks_of(found.ranks)),
        "count": count(found.ranks),
        "kind": found.doing.kind,
        "doing": found.doing.text,
        "movement": found.movement,
        "state": found.state,
        "source": found.source,
        "stack": [f"{frame.name} {frame.file}:{frame.line}" for frame in found.frames],
    }
