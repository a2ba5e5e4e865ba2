"""The runs known here, each in one line: by what is here, by the index of that, or as their nodes tell."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cockpit.core.logs.causes import TAIL
from cockpit.core.masks import ranks_of
from cockpit.core.ranks import nodes_text, ranks_named
from cockpit.core.run.brief import DAMAGED, NOT_STARTED, Brief
from cockpit.core.run.model import RunModel
from cockpit.core.run.summary import ended_well, ended_when, outcome, state_text
from cockpit.core.run.watch_messages import standing
from cockpit.core.text import one_line
from cockpit.engine.logs.last_words import last_cause
from cockpit.engine.logs.spooled import SpooledLogs
from cockpit.engine.logs.step_log import speaker
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.index import Index
from cockpit.engine.records.manifest import Manifest, NewerCockpit
from cockpit.engine.run.eta import told
from cockpit.engine.run.front import front_here, starting_here
from cockpit.errors import CockpitError

if TYPE_CHECKING:
    from cockpit.engine.links.pool import LinkPool
    from cockpit.engine.run.join import Pools

NEVER = "never launched, as far as known here"
_LONG = 600


def briefs(wanted: Callable[[RunFolder], bool] | None = None) -> Iterator[Brief]:
    """All runs known here, without asking a node: those in the index first, then the others as they are read.

    Each part has the newest first.

    :param wanted: whether one that is not in the index is to be read; None: each is
    :raises CockpitError: the folder of runs cannot be read
    """
    yield from Index(brief_here).briefs(wanted)


def brief_here(folder: RunFolder) -> Brief:
    """What is known of a run without asking a node; a damaged folder hides no other."""
    from cockpit.engine.launch.all_or_none import unfinished

    try:
        state = NEVER if unfinished(folder) else ""
        return brief_of(folder, folder.model(), state)
    except CockpitError as error:
        return unreadable(folder, error)


async def brief_now(folder: RunFolder, pools: Pools | None) -> Brief:
    """The same as its nodes tell now; whoever does not answer is in it.

    :param pools: lends links; None: no node is asked
    """
    try:
        return await _asked(folder, pools)
    except CockpitError as error:
        return unreadable(folder, error)


def unreadable(folder: RunFolder, error: CockpitError) -> Brief:
    """What is known of a run whose folder makes no sense."""
    state = error.what if isinstance(error, NewerCockpit) else f"damaged: {error.what}"
    state = one_line(state, limit=_LONG)
    return Brief(run=folder.name[:255], began=folder.created, word=DAMAGED, state=state, cause=state)


async def _asked(folder: RunFolder, pools: Pools | None) -> Brief:
    manifest = folder.manifest
    model = await asyncio.to_thread(folder.model)
    if pools is None or manifest.closed or model.over:
        state = "" if model.over else (await start_state(folder, None))[0]
        return await asyncio.to_thread(brief_of, folder, model, state)
    pool = pools.of(manifest)
    now, state, unreachable = await _state(folder, model, pool)
    if pool.has_lost(unreachable):
        from cockpit.engine.run.join import pool_for

        # What broke the link may concern another run alone.
        async with pool_for(manifest, pools.roll, pools.patience_s) as own:
            now, state, unreachable = await _state(folder, model, own)
    made = await asyncio.to_thread(brief_of, folder, now, state, model)
    return replace(made, unreachable=unreachable, asked=time.time())


async def _state(folder: RunFolder, known: RunModel, pool: LinkPool) -> tuple[RunModel, str, list[str]]:
    """A run as its nodes report it, its state in words if it was not launched, and who did not answer."""
    from cockpit.engine.run.current_state import model_now

    state, unreachable = await start_state(folder, pool)
    if state:
        return known, state, unreachable
    model, errors = await model_now(pool, folder.manifest)
    return model, "", [name for name in errors if not model.nodes[name].lost]


async def start_state(folder: RunFolder, pool: LinkPool | None) -> tuple[str, list[str]]:
    """What to say about a run not known to have been launched, and who could not be asked; or nothing.

    :param pool: lends links to its nodes; None: they are not asked
    """
    from cockpit.engine.launch.all_or_none import remains, unfinished

    if not unfinished(folder):
        return "", []
    if pool is None:
        return NEVER, []
    try:
        launched, errors = await remains(folder, pool)
    except CockpitError:
        return "starting", []
    if launched:
        return "", []
    return ("start was interrupted", list(errors)) if errors else ("never started", [])


def brief_of(folder: RunFolder, model: RunModel, state: str = "", known: RunModel | None = None) -> Brief:
    """A run as a model has it. Does much reading.

    :param state: in words, if it was not launched
    :param known: the model of what is here, which knows what was seen while it was watched; None: the same
    """
    if model.first_failure() is not None:
        last_cause(model, folder)
    manifest = folder.manifest
    front = front_here(folder, model)
    starting = starting_here(folder, model, stepped=front["step"] is not None)
    watch = (known or model).watch
    word, cause = _word(model, state, starting=starting)
    stands = standing(known or model, time.time()) if model.alive() else ""
    since = None
    if word == "running" and watch.alarm is not None:
        word, since = "stalled", watch.since
        cause = f"{watch.alarm.what} · {watch.alarm.certainty}"
    return Brief(
        run=folder.name[:255],
        began=manifest.created,
        ended=ended_when(model),
        seen=last_written(folder),
        word=word,
        state=state or state_text(model),
        cause=cause,
        standing=stands,
        since=since,
        code=int(model.exit_code()) if model.over else None,
        **front,
        **_said(folder),
        nodes=tuple(node.name for node in manifest.nodes),
        ranks=len(model.ranks),
        running=model.alive(),
        command=tuple(manifest.command),
        program=tuple(manifest.program),
        cwd=manifest.cwd,
        launcher=manifest.launcher,
        foreign=manifest.foreign is not None,
        job=(manifest.foreign.slurm if manifest.foreign else folder.slurm_job) or manifest.allocation,
        recorded=bool(manifest.closed) and not model.over,
        starting=starting,
        over=model.over,
        complete=model.done,
        well=ended_well(model),
        restart=manifest.job_restart,
        again=manifest.again,
        settings=_settings(manifest),
    )


def _settings(manifest: Manifest) -> str:
    """What else a run was started with, as a digest, but for its nodes: another job may have got others."""
    plans = manifest.plans[:1]
    env = plans[0].get("env") if plans else None
    named = sorted(f"{name}={value}" for name, value in env.items()) if isinstance(env, dict) else []
    own = [one for one in named if not one.startswith(("MASTER_", "COCKPIT_"))]
    told = [manifest.launcher, len(manifest.world), str(manifest.profile or ""), *own]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def _word(model: RunModel, state: str, *, starting: bool) -> tuple[str, str]:
    """Its state in one word, and why."""
    if state:
        return ("starting", "") if state == "starting" else (NOT_STARTED, state)
    word, cause = outcome(model, starting=starting)
    told = model.judged
    if word == "failed" and told is not None and told.detail and told.certainty != "unsure":
        # How it exited says less than what it said before.
        exits = told.ranks and all(model.ranks[rank].code for rank in ranks_of(told.ranks))
        cause = f"{ranks_named(ranks_of(told.ranks)) if exits else cause}: {told.detail}"
    if word == "failed" and not cause:
        lost = [node.name for node in model.nodes.values() if node.lost]
        cause = f"lost: {nodes_text(lost)}: {model.nodes[lost[0]].lost}" if lost else ""
    return word, one_line(cause, limit=_LONG)


def _said(folder: RunFolder) -> dict[str, Any]:
    """Total and loss, as the end of the log says that says most."""
    with suppress(CockpitError), closing(SpooledLogs(folder)) as logs:
        source = speaker(logs)
        if source is not None:
            metrics = told(logs.tail(source, TAIL), source[1])
            loss, place = metrics.latest.loss, metrics.place
            return {
                "loss": loss if loss is not None and abs(loss) < 1e300 else None,
                "total": None if place is None else place[1],
            }
    return {}


def last_written(folder: RunFolder) -> float:
    """When anything of a run was last written here, unix seconds; 0: never."""
    found = 0.0
    for name in ("journal.jsonl", "now.jsonl", "pace.jsonl"):
        with suppress(OSError):
            found = max(found, (folder.path / name).lstat().st_mtime)
    return found
