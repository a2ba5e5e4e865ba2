"""``cockpit replay RUN``: a run as it was at any moment, from what is known of it here."""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import TYPE_CHECKING, Any

from cockpit.base.shell import quote
from cockpit.cli.output import out, out_json, out_lines, table
from cockpit.cli.parsing import Parser, add_flag, add_theme, add_word, whole
from cockpit.cli.slurm_options import add_run, run_folder
from cockpit.core.replay.places import HINT, place_of
from cockpit.core.replay.player import SPEEDS
from cockpit.errors import CockpitError, Exit

if TYPE_CHECKING:
    from cockpit.core.pace.pace import Pace
    from cockpit.core.run.model import RunModel
    from cockpit.engine.records.folder import RunFolder
    from cockpit.engine.replay.recorded import Recorded


def parser() -> Parser:
    """Its options."""
    made = Parser(
        "replay",
        "Show a run as it was at any moment: nodes, ranks, pace, measurements and log; play it,\n"
        "pause, seek. Of a run that continues: what is recorded so far. No node is asked, nothing is "
        "changed.",
        "Without a terminal, --at prints the states at that moment.\n\n"
        "examples:\n"
        "  cockpit replay last\n"
        "  cockpit replay last --at 03:12 --speed 10\n"
        "  cockpit replay run.tar.gz --at step 1200 --json | jq '.ranks[].text'",
    )
    add_run(made)
    add_word(made, "--at", "MOMENT", "where to begin: " + HINT.replace(" -30s,", ""))
    made.add_argument(
        "--speed",
        type=whole("a speed", 1, SPEEDS[-1]),
        metavar="N",
        help=f"play at once, N times as fast as it was (1 to {SPEEDS[-1]})",
    )
    add_flag(made, "--plain", "print the state at --at as text, even on a terminal")
    add_flag(made, "--json", "the same as one JSON object")
    add_theme(made)
    return made


def main(words: list[str]) -> int:
    """Open the app on it, or print one moment of it."""
    args = parser().parse_args(_joined(words))
    folder = run_folder(args.run, args.slurm)
    from cockpit.cli import terminal

    if terminal.wanted(plain=args.plain, headless=False, json=args.json):
        from cockpit.tui.run.purpose import Replaying

        return terminal.fly(Replaying(folder, args.at, args.speed), read_only=True, theme=args.theme)
    if not args.at:
        what = "there is no terminal to show it on"
        if args.plain or args.json:
            what = "no moment given"
        hint = f"add --at MOMENT: {HINT}; for example cockpit replay {quote(args.run)} --at end"
        raise CockpitError(what, where=folder.name, hint=hint)
    return asyncio.run(_print(folder, args))


def _joined(words: list[str]) -> list[str]:
    """``--at step 1200`` as ``--at 'step 1200'``."""
    for at in range(len(words) - 2):
        if words[at : at + 2] == ["--at", "step"]:
            return [*words[: at + 1], " ".join(words[at + 1 : at + 3]), *words[at + 3 :]]
    return words


async def _print(folder: RunFolder, args: argparse.Namespace) -> int:
    from cockpit.engine.replay.recorded import Recorded

    recorded = await Recorded.read(folder)
    at = await recorded.at(place_of(args.at, recorded.begin, recorded.begin, recorded.end))
    model, pace = recorded.model_at(at), await recorded.pace_at(at)
    for event in recorded.samples(at, model):
        model.apply(event)
    if args.json:
        out_json(_json(recorded, model, pace, at))
    else:
        _tell(recorded, model, pace, at)
    return Exit.OK


def _tell(recorded: Recorded, model: RunModel, pace: Pace, at: float) -> None:
    from cockpit.cli.rank_details import NODES, node_row, rank_rows
    from cockpit.core.run.summary import state_text
    from cockpit.core.time_text import span_text

    front = "" if pace.front is None else f", step {pace.front[0]:,}"
    when = f"{_clock(at)}, {span_text(at - recorded.begin)} after its start"
    out(f"{recorded.folder.name} as it was at {when}: {state_text(model)}{front}")
    out()
    table([NODES, *map(node_row, model.nodes.values())])
    out()
    table(list(rank_rows(model, pace, at)))
    told = list(_beside(recorded, at))
    if told:
        out()
        out_lines(told)


def _beside(recorded: Recorded, at: float) -> list[str]:
    """What was before and after, and how exact that moment is in the logs."""
    from cockpit.core.replay.marks import beside

    found = []
    for name, step in (("before", -1), ("after", 1)):
        mark = beside(recorded.marks, at, step)
        if mark is not None:
            found.append(f"{name} that: {mark.kind} at {_clock(mark.at)}")
    if recorded.folder.damaged:
        found.append(f"{recorded.folder.damaged} damaged lines of its journal are left out")
    return found


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _json(recorded: Recorded, model: RunModel, pace: Pace, at: float) -> dict[str, Any]:
    from dataclasses import asdict

    from cockpit.cli.rank_details import ranks_json
    from cockpit.core.run.summary import state_text

    return {
        "run": recorded.folder.name,
        "t": at,
        "begin": recorded.begin,
        "end": recorded.end,
        "state": state_text(model),
        "step": None if pace.front is None else pace.front[0],
        "nodes": [asdict(node) for node in model.nodes.values()],
        "ranks": ranks_json(model, pace, {}, at),
        "marks": [{"t": mark.at, "kind": mark.kind} for mark in recorded.marks],
    }
