"""``cockpit stop RUN``: stop a run on all its nodes, in stages, and name what survives."""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import replace
from functools import partial

from cockpit.base import users
from cockpit.base.answers import StopAnswer
from cockpit.base.events import Survivor
from cockpit.base.shell import quote
from cockpit.base.verbs import Stop
from cockpit.cli.awaiting import telling
from cockpit.cli.output import confirmed, out, say
from cockpit.cli.parsing import Parser, add_flag, add_seconds
from cockpit.cli.slurm_options import add_run, run_folder
from cockpit.cli.stopped import nothing_to_stop, tell_survivors
from cockpit.core.ranks import nodes_text
from cockpit.core.run.event_table import STAGES
from cockpit.core.run.model import Node, RunModel
from cockpit.core.run.summary import state_text
from cockpit.engine.launch.all_or_none import remains, unfinished
from cockpit.engine.links.link import Link
from cockpit.engine.links.pool import LinkPool
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.engine.run.current_state import model_now
from cockpit.engine.run.join import ask_all, pool_for
from cockpit.errors import CockpitError, Exit
from cockpit.transport.base import Reclaimed

AGAIN_S = 0.5
TRIES = 2
"""So many times in a row a node that stops is silent before nobody waits for it: one may be busy."""


def parser() -> Parser:
    """Its options."""
    made = Parser(
        "stop",
        "Stop a run: SIGTERM to its ranks, time for the profiler to write, SIGKILL, then clean up leftovers.",
        "Exit codes: 0 nothing of the run is left, 1 something survived, 3 a node was not reachable.",
    )
    add_run(made, "a run's name, its last word, or: last; with any other part, it asks first")
    add_flag(made, "--now", "send SIGKILL at once; profiler reports are lost")
    add_seconds(made, "--grace", None, "seconds between SIGTERM and SIGKILL")
    add_flag(
        made,
        "--foreign",
        "end a job that cockpit didn't start: SIGTERM to its launchers, after --grace to the processes left "
        "below them (--now: SIGKILL); without this option, only print what would be stopped",
    )
    add_flag(made, "--json", "one JSON object at the end")
    return made


def main(words: list[str]) -> int:
    """Ask every node to stop and wait until it has."""
    args = parser().parse_args(words)
    sure = partial(_confirmed, asks=not args.json)
    folder = run_folder(args.run, args.slurm, lambda name: RunFolder.find_for_sure(name, sure))
    by = f"{users.name(os.geteuid())}@{socket.gethostname()}"
    wish = Stop("", "cockpit stop", by, args.now, args.grace)
    return asyncio.run(_stop_or_why_not(folder, wish, foreign=args.foreign, as_json=args.json))


def _confirmed(name: str, *, asks: bool) -> bool:
    """Whether a person at the terminal says that this run is to be stopped."""
    return asks and confirmed(f"Stop {name}?")


async def _stop_or_why_not(folder: RunFolder, wish: Stop, *, foreign: bool, as_json: bool) -> Exit:
    async with pool_for(folder.manifest) as pool:
        if folder.manifest.foreign:
            from cockpit.cli import foreign_stop

            return await foreign_stop.stop(folder, pool, wish, sure=foreign, as_json=as_json)
        if unfinished(folder):
            async with telling(lambda: pool.roll):
                launched, errors = await remains(folder, pool)
            if not launched and not errors:
                return nothing_to_stop(folder.name, "never started", as_json=as_json)
        return await _stop(folder.manifest, pool, wish, as_json=as_json)


async def _stop(manifest: Manifest, pool: LinkPool, wish: Stop, *, as_json: bool) -> Exit:
    async def ask(link: Link, node: NodeEntry) -> StopAnswer:
        return await link.call(replace(wish, dir=node.dir, run=manifest.run, node=node.name))

    async with telling(lambda: pool.roll):
        answers, errors = await ask_all(pool, manifest, ask)
    reclaimed = [error for error in errors.values() if isinstance(error, Reclaimed)]
    if reclaimed and len(reclaimed) == len(manifest.nodes) and not as_json:
        return nothing_to_stop(manifest.run, reclaimed[0].what, as_json=False)
    errors = {name: error for name, error in errors.items() if not isinstance(error, Reclaimed)}
    if not errors and not any(answer.alive or answer.survivors for answer in answers.values()):
        model, _ = await model_now(pool, manifest)
        if model.over and not as_json:
            return nothing_to_stop(manifest.run, state_text(model), as_json=False)
    sent = {name: answer.sent for name, answer in answers.items() if answer.sent}
    for name, what in sent.items():
        say(f"{name}: {STAGES[what.lower()]}")
    told = {f"{name} {what.lower()}" for name, what in sent.items()}
    silent: dict[str, int] = {}
    while True:
        # A node that could not be asked to stop is not asked for its state either: that would take as long.
        model, unasked = await model_now(pool, manifest, only=answers)
        unasked = {name: error for name, error in unasked.items() if not model.nodes[name].lost}
        silent = {name: silent.get(name, 0) + 1 for name in unasked}
        # A supervisor that has vanished since can no longer carry it out: what it left is ended now.
        again = [name for name, answer in answers.items() if answer.alive and _is_left(model.nodes[name])]
        if again:
            answers.update((await ask_all(pool, manifest, ask, again))[0])
        for node in model.nodes.values():
            if node.stage and not node.over and (key := f"{node.name} {node.stage}") not in told:
                told.add(key)
                say(f"{node.name}: {STAGES.get(node.stage, node.stage)}")
        # A node without a supervisor was swept at once.
        if all(
            # A busy node may be silent for long just once.
            node.over
            or silent.get(node.name, 0) >= TRIES
            or node.name not in answers
            or not answers[node.name].alive
            for node in model.nodes.values()
        ):
            break
        await asyncio.sleep(AGAIN_S)
    survivors = {node.name: node.survivors for node in model.nodes.values() if node.survivors}
    survivors.update({name: answer.survivors for name, answer in answers.items() if answer.survivors})
    return _report(manifest, model, survivors, {**errors, **unasked}, sent, as_json=as_json)


def _is_left(node: Node) -> bool:
    """Whether a node's supervisor vanished without ending, and something of the run may be there."""
    return node.supervisor_gone and not node.over


def _report(
    manifest: Manifest,
    model: RunModel,
    survivors: dict[str, tuple[Survivor, ...]],
    errors: dict[str, CockpitError],
    sent: dict[str, str],
    *,
    as_json: bool,
) -> Exit:
    ranks = {rank.rank: rank.text for rank in model.ranks.values()}
    code = tell_survivors(manifest.run, ranks, survivors, errors, sent, as_json=as_json)
    if as_json:
        return code
    if errors:
        say(f"not stopped: {nodes_text(errors)}; to try again: cockpit stop {quote(manifest.run)}")
    else:
        out(f"{manifest.run}: stopped" if not survivors else f"{manifest.run}: some processes survived")
    return code
