"""``cockpit stop`` of a job that others started: what it would do first, and it only when asked by name."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace

from cockpit import slurm
from cockpit.base import verbs
from cockpit.base.answers import EndAnswer, OutputsAnswer
from cockpit.base.shared_fields import Identity
from cockpit.base.shell import join, quote
from cockpit.cli.awaiting import telling
from cockpit.cli.output import StatusLine, out, say
from cockpit.cli.stopped import nothing_to_stop, tell_object, tell_survivors
from cockpit.core.ranks import nodes_text, ranks_text
from cockpit.core.run.model import RankState, RunModel
from cockpit.core.text import counted, one_line
from cockpit.engine.links.link import Link
from cockpit.engine.links.pool import LinkPool
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import NodeEntry
from cockpit.engine.run import foreign_jobs
from cockpit.engine.run.current_state import model_now
from cockpit.engine.run.join import ask_all
from cockpit.errors import CockpitError, Exit
from cockpit.transport.srun import KILL_WAIT_S

GRACE_S = 15.0
"""For a launcher to end its own processes, before they are asked themselves."""

FIRST_S = 1.0
"""After ``scancel``, before the controller is asked whether the job is over; then as often as it may be."""

ENDS_S = 60.0
"""For a job to be over, after its SIGKILL."""


async def stop(folder: RunFolder, pool: LinkPool, wish: verbs.Stop, *, sure: bool, as_json: bool) -> Exit:
    """Say what stopping it would do; do it if that was asked for.

    :param sure: it was
    :raises CockpitError: it was not, or what would end it is not here
    """
    manifest = folder.manifest
    assert manifest.foreign is not None
    async with telling(lambda: pool.roll):
        model, errors = await model_now(pool, manifest)
    alive = [rank.rank for rank in model.ranks.values() if rank.state is RankState.RUNNING]
    if not alive and not errors:
        return nothing_to_stop(folder.name, "none of its ranks is running", as_json=as_json)
    words = ["cockpit", "stop", folder.name, "--foreign"]
    if manifest.foreign.slurm:
        # By its own number, the last element of an array would be all of it.
        element = await asyncio.to_thread(slurm.element, manifest.foreign.slurm)
        job = "_".join(element) if element else manifest.foreign.slurm
        say(
            f"plan: scancel {quote(job)}, which ends all of SLURM job {job}, "
            f"including ranks {ranks_text(alive)}"
        )
        if not sure:
            raise _unasked(folder, words)
        return await _scancel(folder, job, alive, as_json=as_json)
    targets = {name: foreign_jobs.targets(model, name) for name in model.nodes}

    async def ask(link: Link, node: NodeEntry) -> OutputsAnswer:
        answer = await link.call(verbs.Outputs(targets[node.name]))
        return replace(answer, launchers=foreign_jobs.of_it_alone(manifest, answer.launchers))

    found, unasked = await ask_all(pool, manifest, ask, [name for name in targets if targets[name]])
    ends = {name: _ends(answer, model, name) for name, answer in found.items()}
    for name, answer in found.items():
        for line in _would(name, answer, ends[name]):
            say(line)
    if not sure:
        raise _unasked(folder, words)
    grace = GRACE_S if wish.grace_s is None else wish.grace_s

    async def end(link: Link, node: NodeEntry) -> EndAnswer:
        request = verbs.End(tuple(ends[node.name]), 0.0 if wish.hard else grace, wish.hard)
        return await link.call(request, deadline_s=grace + 30)

    ended, refused = await ask_all(pool, manifest, end, list(ends))
    code = _report(folder, ended, {**errors, **unasked, **refused}, alive, as_json=as_json)
    if code is Exit.RANK_FAILED and not wish.hard and not as_json:
        # The first process of a container gets SIGTERM only if it asked for it.
        say(f"SIGTERM did not end them; to send SIGKILL: {join([*words, '--now'])}")
    return code


def _unasked(folder: RunFolder, words: Sequence[str]) -> CockpitError:
    what = "cockpit did not start this job and stops it only with --foreign"
    return CockpitError(what, where=folder.name, hint=f"to stop it: {join(words)}")


def _ends(answer: OutputsAnswer, model: RunModel, node: str) -> list[Identity]:
    """What is signalled on a node: launchers, and ranks that have none."""
    launched = {rank for one in answer.launchers for rank in one.ranks}
    alone = [one for one in foreign_jobs.targets(model, node) if one.rank not in launched]
    started = [Identity(one.pid, one.ticks) for one in answer.launchers]
    return started + [Identity(one.pid, one.ticks) for one in alone]


def _would(node: str, answer: OutputsAnswer, ends: Sequence[Identity]) -> list[str]:
    """What would happen on a node, in words."""
    lines = []
    for one in answer.launchers:
        command = one_line(one.command, limit=200)
        below = counted(one.below, "process") if one.below == 1 else f"{one.below} processes"
        lines.append(f"{node}: plan: SIGTERM to {one.pid} ({command}), then to the {below} below it")
    launchers = {one.pid for one in answer.launchers}
    alone = [str(one.pid) for one in ends if one.pid not in launchers]
    if alone:
        lines.append(f"{node}: plan: SIGTERM to ranks without a launcher of their own: {', '.join(alone)}")
    return lines


async def _scancel(folder: RunFolder, job: str, alive: Sequence[int], *, as_json: bool) -> Exit:
    if shutil.which("scancel") is None:
        hint = f"on a login node of the cluster: scancel {quote(job)}"
        raise CockpitError("no scancel on PATH: SLURM is not installed here", where=f"job {job}", hint=hint)
    child = await asyncio.create_subprocess_exec(
        "scancel", job, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, said = await child.communicate()
    if child.returncode:
        why = one_line(said.decode(errors="replace").strip(), limit=300)
        raise CockpitError(f"scancel failed: {why}", where=f"job {job}", code=Exit.NODE_UNFIT)
    state = await _its_end(job)
    if as_json:
        tell_object(folder.name, dict.fromkeys(alive, "asked to end" if state else "ended"))
    elif not state:
        out(f"{folder.name}: stopped: SLURM job {job} is over")
    if state:
        say(f"{folder.name}: SLURM is still ending job {job} ({state}); see: squeue -j {quote(job)}")
    return Exit.RANK_FAILED if state else Exit.OK


async def _its_end(job: str) -> str:
    """Wait until a job that was cancelled is over; its state if it takes too long, empty: it is over.

    Progress goes to stderr, each time that the controller was asked.
    """
    limit = slurm.setting("KillWait", KILL_WAIT_S, now=True) + ENDS_S
    began = time.monotonic()
    line = StatusLine()
    wait = FIRST_S
    while True:
        await asyncio.sleep(wait)
        try:
            state = await asyncio.to_thread(slurm.running, job)
        except CockpitError as error:
            state = one_line(error.what, limit=200)
        waited = time.monotonic() - began
        if not state or waited > limit:
            line.clear()
            return state
        text = f"waiting for SLURM job {job} to end: {state}, {waited:.0f} s so far"
        if line.on:
            line.show(text)
        else:
            say(text)
        wait = slurm.PERIOD_S


def _report(
    folder: RunFolder,
    ended: dict[str, EndAnswer],
    errors: dict[str, CockpitError],
    alive: Sequence[int],
    *,
    as_json: bool,
) -> Exit:
    survivors = {name: answer.survivors for name, answer in ended.items() if answer.survivors}
    ranks = dict.fromkeys(alive, "asked to end")
    code = tell_survivors(folder.name, ranks, survivors, errors, as_json=as_json)
    if as_json:
        return code
    for error in errors.values():
        say(str(error))
    if errors:
        say(f"not stopped: {nodes_text(errors)}")
    else:
        total = sum(answer.count for answer in ended.values())
        how = "some processes survived" if survivors else f"stopped: {total} processes ended"
        out(f"{folder.name}: {how}")
    return code
