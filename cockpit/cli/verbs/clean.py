"""``cockpit clean``: what old runs take, here and on their nodes, and removes those that are meant."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cockpit.cli import node_options
from cockpit.cli.awaiting import PATIENCE_S, telling
from cockpit.cli.output import confirmed, out, out_json, out_lines, say, table
from cockpit.cli.parsing import Parser, add_flag, add_link_options, add_word, age, byte_count, reach, whole
from cockpit.core.run.cleaning import STATES, Old, Wanted
from cockpit.core.text import counted, size
from cockpit.core.time_text import span_text
from cockpit.engine.clean import removal
from cockpit.engine.clean.survey import Place, Survey, survey
from cockpit.engine.links.pool import PYTHONS, LinkPool
from cockpit.engine.records.folder import likely, list_runs
from cockpit.engine.run.join import Pools
from cockpit.errors import CockpitError, Exit

if TYPE_CHECKING:
    from argparse import Namespace

CHOOSE = "select runs with RUN, --older-than, --larger-than, --state or --keep"


def parser() -> Parser:
    """Its options."""
    made = Parser(
        "clean",
        "Remove old runs, here and on their nodes. It first lists what each takes and where, and why one "
        "stays, then asks; without a terminal it only lists, unless --yes is given.\n"
        "A run stays while anything of it is running, while a cockpit watches it, while its end is not "
        "recorded (--unended), while reports on its nodes were not collected (--uncollected), and while "
        "one of its nodes doesn't answer (--here).\n"
        "Run folders on nodes whose run is not known here are listed with their owner; another machine may "
        "know them. Only --unknown RUN removes one.\n"
        "Exit codes: 0 listed, or all removed, 3 something could not be removed (it says what).",
        "examples:\n"
        "  cockpit clean                                   list everything\n"
        "  cockpit clean --older-than 30d                  lists, then asks\n"
        "  cockpit clean --older-than 30d --state failed --yes\n"
        "  cockpit clean --keep 20 --larger-than 1G\n"
        "  cockpit clean -w 'gpu[01-04]'                   run folders that nobody here knows\n"
        "  cockpit clean -w gpu01 --unknown 20261121-040441-otter",
        usual="--nodelist --older-than --larger-than --state --keep --here --unended --uncollected --unknown "
        "--yes --json",
    )
    made.add_argument("runs", metavar="RUN", nargs="*", help="only these runs, by full name")
    made.add_argument(
        "--older-than", type=age, default=0.0, metavar="AGE", help="ended longer ago than AGE: 30d, 12h"
    )
    made.add_argument(
        "--larger-than",
        type=byte_count,
        default=0,
        metavar="SIZE",
        help="larger in total than SIZE: 500M, 1G",
    )
    made.add_argument(
        "--state", action="append", default=[], choices=STATES, help="in this state (repeatable)"
    )
    made.add_argument(
        "--keep", type=whole("a number of runs"), default=None, metavar="N", help="keep the newest N"
    )
    add_flag(made, "--here", "only this machine; don't contact nodes")
    add_flag(made, "--unended", "also runs with no recorded end and no live process")
    add_flag(made, "--uncollected", "also runs with reports on their nodes that were not collected")
    made.add_argument(
        "--unknown",
        metavar="RUN",
        action="append",
        default=[],
        help="also remove the node folders of this unknown run (repeatable)",
    )
    add_flag(made, "-y --yes", "don't ask")
    add_word(made, "--hostfile", "FILE", "also look for unknown runs on these nodes; -: from stdin", None)
    node_options.add_options(made)
    add_word(made, "--node-dir", "DIR", "the --node-dir of unknown runs on the nodes of --hostfile or -w")
    add_flag(made, "--json", "one JSON object")
    add_link_options(made)
    return made


def main(words: list[str]) -> int:
    """List, ask, and remove."""
    args = parser().parse_args(words)
    wanted = Wanted(
        frozenset(args.runs),
        args.older_than,
        args.larger_than,
        frozenset(args.state),
        args.keep,
        args.here,
        args.unended,
        args.uncollected,
    )
    return asyncio.run(_clean(args, wanted))


async def _clean(args: Namespace, wanted: Wanted) -> Exit:
    folders = list_runs()
    by_name = {folder.name: folder for folder in folders}
    if missing := wanted.names - set(by_name):
        meant = likely(min(missing), folders)
        hint = "on nodes alone: --unknown RUN; those known here: cockpit ps --all"
        hint = f"did you mean: {meant}" if meant else hint
        raise CockpitError("no such run", where=", ".join(sorted(missing)), hint=hint)
    async with Pools(PATIENCE_S) as pools:
        async with telling(lambda: pools.roll):
            found = await survey(folders, pools, wanted, _also(args, pools), args.node_dir)
            strays = await _named(found, frozenset(args.unknown), wanted)
        kept = {run.run: wanted.why_kept(run) for run in found.runs}
        going = [run for run in found.runs if not kept[run.run]] if wanted.chosen else []
        leaving = [place for place, why in strays if not why]
        if not args.json:
            _show(found, kept, strays, wanted)
        if not (going or leaving) or not (args.yes or (not args.json and _sure(going, leaving, wanted))):
            return _listed(args, found, kept, strays, going, leaving)
        work = [removal.remove(run, by_name[run.run], found, wanted) for run in going]
        work += [removal.remove_stray(place, unended=wanted.unended) for place in leaving]
        async with telling(lambda: pools.roll, failures=False):
            done = [await each for each in work]  # one at a time: a half-done one is told as such
        trash = await asyncio.to_thread(removal.empty_trash)
    return _told(args, found, kept, strays, done, trash)


def _also(args: Namespace, pools: Pools) -> Mapping[str, LinkPool]:
    """The nodes that were named, and how they are reached."""
    if not (args.hostfile or node_options.named(args)):
        return {}
    if args.here:
        raise CockpitError("--here asks no nodes", hint="leave out either --here or the nodes")
    names = [host.name for host in node_options.nodes(node_options.source(args.hostfile, args, ""))]
    pool = pools.reaching(reach(args), PYTHONS, {})
    return dict.fromkeys(names, pool)


Strays = Sequence[tuple[Place, str]]
"""Run folders that were named, each with why it stays."""


async def _named(found: Survey, names: frozenset[str], wanted: Wanted) -> Strays:
    places = [place for place in found.strays if place.run in names]
    missing = names - {place.run for place in places}
    if missing:
        hint = "a run that is known here is named without --unknown; other nodes: -w NODES"
        raise CockpitError(
            "no folder of an unknown run of this name", where=", ".join(sorted(missing)), hint=hint
        )
    parts = await asyncio.gather(*map(removal.part_of, places))
    return [(place, removal.why_stray_kept(part, wanted)) for place, part in zip(places, parts, strict=True)]


# What is shown


def _bytes(number: int, whole: bool = True) -> str:
    text = f"{number} B" if number < 1000 else size(number)
    return text if whole else f"{text}+"


def _show(found: Survey, kept: Mapping[str, str], strays: Strays, wanted: Wanted) -> None:
    if found.runs:
        rows = [("RUN", "STATE", "AGE", "HERE", *(() if wanted.here else ("NODES",)), "STAYS")]
        table([*rows, *(_row(run, kept[run.run], wanted) for run in found.runs)])
    elif not found.strays:
        out("no runs" if not found.passed else f"none of {counted(found.passed, 'run')} matches")
    for run in found.runs:
        if len(run.parts) > 1 and run.away:
            where = ", ".join(f"{name} {_bytes(part.bytes, part.whole)}" for name, part in run.parts.items())
            out(f"{run.run}: {where}")
    if found.strays and (strays or not wanted.names):
        why = {id(place): text for place, text in strays}
        out_lines(["", "run folders on nodes that this machine has no record of:"] if found.runs else [])
        rows = [("RUN", "NODE", "OWNER", "AGE", "SIZE", "FOLDER", "")]
        table([*rows, *(_stray_row(place, why.get(id(place), "")) for place in found.strays)])
    if found.more:
        say(f"{found.more:,} more run folders on nodes are not listed")


def _row(run: Old, why: str, wanted: Wanted) -> tuple[str, ...]:
    nodes = "" if wanted.here else _bytes(run.away, run.whole) if run.parts else "-"
    cells = (run.run, run.state, span_text(run.age_s), _bytes(run.here))
    return (*cells, *(() if wanted.here else (nodes,)), why)


def _stray_row(place: Place, why: str) -> tuple[str, ...]:
    one = place.folder
    state = why or ("running" if one.alive or one.living else "")
    size = _bytes(one.bytes, one.whole)
    return (place.run, place.node, one.owner, span_text(one.idle_s), size, one.dir, state)


def _sure(going: Sequence[Old], leaving: Sequence[Place], wanted: Wanted) -> bool:
    """Whether a person at the terminal wants them removed."""
    what = [counted(len(going), "run")] if going else []
    what += [f"{counted(len(leaving), 'folder')} of unknown runs"] if leaving else []
    here = sum(run.here for run in going)
    away = sum(run.away for run in going) + sum(place.folder.bytes for place in leaving)
    sizes = f"{_bytes(here)} here" + ("" if wanted.here else f", {_bytes(away)} on nodes")
    return confirmed(f"Remove {' and '.join(what)} for good ({sizes})?")


# What became of it


def _listed(
    args: Namespace,
    found: Survey,
    kept: Mapping[str, str],
    strays: Strays,
    going: Sequence[Old],
    leaving: Sequence[Place],
) -> Exit:
    """Nothing was removed."""
    if args.json:
        out_json(_json(found, kept, strays, []))
    elif going or leaving:
        say("nothing removed; to remove what doesn't stay, add --yes")
    elif found.runs and not any(kept[run.run] == "" for run in found.runs):
        say("nothing to remove")
    elif found.runs:
        say(f"nothing removed; {CHOOSE}")
    return Exit.OK


def _told(
    args: Namespace,
    found: Survey,
    kept: Mapping[str, str],
    strays: Strays,
    done: Sequence[removal.Removed],
    trash: int,
) -> Exit:
    if args.json:
        out_json(_json(found, kept, strays, done))
    else:
        gone = [each for each in done if each.gone]
        here, away = sum(each.here for each in done) + trash, sum(each.away for each in done)
        out(f"removed: {len(gone)} of {len(done)}; freed {_bytes(here)} here, {_bytes(away)} on nodes")
        for each in done:
            for node, why in each.left.items():
                say(f"{each.run}: not removed{f' on {node}' if node else ''}: {why}")
    return Exit.NODE_UNFIT if any(each.left for each in done) else Exit.OK


def _json(
    found: Survey, kept: Mapping[str, str], strays: Strays, done: Sequence[removal.Removed]
) -> dict[str, Any]:
    removed = {each.run: each for each in done}
    why = {id(place): text for place, text in strays}
    return {
        "runs": [_run_json(run, kept[run.run], removed.get(run.run)) for run in found.runs],
        "unknown": [_stray_json(place, why.get(id(place)), removed.get(place.run)) for place in found.strays],
        "unlisted": found.more,
        "not_asked": {name: error.what for name, error in found.errors.items()},
        "freed": {"here": sum(each.here for each in done), "nodes": sum(each.away for each in done)},
    }


def _run_json(run: Old, why: str, done: removal.Removed | None) -> dict[str, Any]:
    parts = {
        name: {
            "bytes": part.bytes,
            "whole": part.whole,
            "there": part.there,
            "uncollected": part.reports,
            "why": part.why,
        }
        for name, part in run.parts.items()
    }
    return {
        "run": run.run,
        "state": run.state,
        "text": run.text,
        "age_s": round(run.age_s, 3),
        "here": run.here,
        "nodes": parts,
        "stays": why,
        "removed": done is not None and done.gone,
        "left": {} if done is None else done.left,
    }


def _stray_json(place: Place, why: str | None, done: removal.Removed | None) -> dict[str, Any]:
    one = place.folder
    return {
        "run": place.run,
        "node": place.node,
        "dir": one.dir,
        "owner": one.owner,
        "age_s": round(one.idle_s, 3),
        "bytes": one.bytes,
        "whole": one.whole,
        "running": bool(one.alive or one.living),
        "stays": "only --unknown RUN removes it" if why is None else why,
        "removed": done is not None and done.gone,
        "left": {} if done is None else done.left,
    }
