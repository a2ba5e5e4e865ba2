"""Jobs that others started: made known here under a name, and asked how they are."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from cockpit import paths
from cockpit.base import events, verbs
from cockpit.base.answers import Launching, OutputsAnswer, SeekAnswer, WatchItem
from cockpit.base.fields import Identity, Target
from cockpit.core.ranks import ranks_named
from cockpit.core.run.event_table import witnessed
from cockpit.core.run.events import Event
from cockpit.core.run.jobs import Found, Job, group
from cockpit.core.run.model import LIVE, RankState, RunModel
from cockpit.engine.links.link import Link
from cockpit.engine.links.pool import LinkPool, settle
from cockpit.engine.records.folder import Foreign, Manifest, NodeEntry, RunFolder, list_runs, new_name
from cockpit.engine.run.outlets import Outlets
from cockpit.errors import CockpitError

GONE = "cockpit did not start it, so how it ended is not known"

_SHOWN = 20
"""Sentences about outputs of one node."""


async def make_known(job: Job, pool: LinkPool, command: Sequence[str], name: str = "") -> RunFolder:
    """The folder of a job: that under which it was watched before, or a new one.

    :param command: the words that name it on the command line
    :param name: what a new one is called; empty: date, time and a word
    :raises CockpitError: it cannot be made, or a node does not tell what its processes write
    """
    for folder in reversed(list_runs()):
        if _is_of(folder, job):
            return folder

    async def ask(node: str) -> tuple[str, OutputsAnswer]:
        link = await pool.lend(node)
        targets = [Target(rank, one.pid, one.ticks) for rank, one in job.ranks.items() if one.node == node]
        return link.hello.host, await link.call(verbs.Outputs(tuple(targets)))

    answers, errors = await settle({node: ask(node) for node in job.nodes})
    if errors:
        raise next(iter(errors.values()))
    folder = RunFolder.create(_manifest(name or new_name(), job, pool, answers, command))
    try:
        for event in _starts(job):
            folder.write(event)
        outlets = Outlets.of(folder)
        for node, (_, answer) in answers.items():
            for file in answer.files:
                outlets.known(node, file)
        outlets.save()
        outlets.close()
    finally:
        folder.close()
    return RunFolder(folder.path)


def _is_of(folder: RunFolder, job: Job) -> bool:
    """Whether a folder is that of this very job: one of its processes was seen before."""
    try:
        foreign = folder.manifest.foreign
        if foreign is None or tuple(foreign.key) != job.key:
            return False
        known = folder.model()
    except CockpitError:
        return False  # damaged: it is not in the way of a new one
    seen = {(rank.node, rank.pid, rank.ticks) for rank in known.ranks.values()}
    started = {(node, launcher.pid) for node, each in foreign.launchers.items() for launcher in each}
    return not known.over and any(
        (one.node, one.pid, one.ticks) in seen or started & {(one.node, pid) for pid in one.above[:3]}
        for one in job.ranks.values()
    )


def _manifest(
    name: str,
    job: Job,
    pool: LinkPool,
    answers: Mapping[str, tuple[str, OutputsAnswer]],
    command: Sequence[str],
) -> Manifest:
    ranks: dict[str, list[int]] = {node: [] for node in answers}
    for rank, found in sorted(job.ranks.items()):
        ranks[found.node].append(rank)
    in_slurm = job.name.partition(".")[0] if job.launcher == "slurm" else ""
    return Manifest(
        run=name,
        created=min(job.started, time.time()),
        nodes=[
            NodeEntry(node, answer.cwd, ranks[node], host=host) for node, (host, answer) in answers.items()
        ],
        launcher=job.launcher[:100],
        program=[job.command],
        cwd="",
        pythons=pool.pythons,
        on_failure="wait",
        transport=pool.reach.kind,
        transport_options=pool.reach.lasting,
        command=command,
        foreign=Foreign(
            list(job.key),
            pool.reach.lasting.get("job", "") or in_slurm,
            {node: answer.launchers for node, (_, answer) in answers.items()},
        ),
    )


def _starts(job: Job) -> list[Event]:
    return [_start(rank, found) for rank, found in sorted(job.ranks.items())]


def _start(rank: int, found: Found, attempt: int = 0) -> Event:
    fact = events.RankStarted(
        rank, attempt, found.local_rank, pid=found.pid, ticks=found.ticks, max_restarts=attempt
    )
    return Event(found.started, found.node, fact)


# -- how it is ---------------------------------------------------------------------------------------


def job_on(node: str, answer: SeekAnswer, foreign: Foreign, model: RunModel) -> Job | None:
    """The job as a node shows it now, perhaps started again by its launcher; None: nothing of it is there.

    The next job that is started in the same way looks the same: one of its processes has to be known.
    """
    launchers = {one.pid for one in foreign.launchers.get(node, ())}
    seen = {(rank.pid, rank.ticks) for rank in model.on(node)}
    found = [
        job
        for job in group({node: answer})
        if any((one.pid, one.ticks) in seen or launchers & set(one.above[:3]) for one in job.ranks.values())
    ]
    # torchrun may choose another port for each attempt.
    same = (job for job in found if job.key == tuple(foreign.key))
    return next(same, None) or next((job for job in found if not job.run), None)


def restarts(model: RunModel, node: str, job: Job | None) -> list[Event]:
    """The ranks of a node that have another process than the model knows."""
    if job is None:
        return []
    found = []
    for rank in model.on(node):
        now = job.ranks.get(rank.rank)
        if now is not None and (now.pid, now.ticks) != (rank.pid, rank.ticks):
            attempt = 0 if rank.pid is None else max(rank.attempt + 1, now.attempt)
            found.append(_start(rank.rank, now, attempt))
    return found


def ended(model: RunModel, node: str, item: WatchItem) -> list[Event]:
    """The ranks of a node that ran, and are gone."""
    facts = [
        events.RankGone(rank.rank, rank.attempt, rank.pid, GONE)
        for rank in model.on(node)
        if rank.state in LIVE and rank.rank not in item.ranks
    ]
    return [witnessed(model, time.time(), node, fact) for fact in facts]


def targets(model: RunModel, node: str) -> tuple[Target, ...]:
    """The processes of a node's ranks that are not known to be gone."""
    return tuple(
        Target(rank.rank, rank.pid, rank.ticks)
        for rank in model.on(node)
        if rank.state is RankState.RUNNING and rank.pid and rank.ticks is not None
    )


async def look(link: Link, manifest: Manifest, node: NodeEntry) -> list[Event]:
    """What is known of a node's ranks, and what its processes say now.

    :raises CockpitError: the node cannot say
    """
    assert manifest.foreign is not None
    folder = RunFolder(paths.runs() / manifest.run)
    told = [event for event in folder.journal() if event.node == node.name and event.kind != "link"]
    model = folder.model()

    def take(found: Iterable[Event]) -> None:
        for event in found:
            model.apply(event)
            told.append(event)

    job = job_on(node.name, await link.call(verbs.Seek()), manifest.foreign, model)
    take(restarts(model, node.name, job))
    launchers = tuple(Identity(one.pid, one.ticks) for one in launchers_of(manifest, node.name))
    stream = await link.stream(verbs.Watch(targets(model, node.name), launchers))
    try:
        async for item, _ in stream.parts():
            take(ended(model, node.name, item))
            if not item.ranks and not item.launchers and not model.nodes[node.name].ended:
                take([witnessed(model, time.time(), node.name, events.Ended())])
            break
    finally:
        await stream.close()
    await link.measure_clock()
    clock = events.ClockMeasured(link.clock.offset_s, link.clock.rtt_s)
    take(Event(time.time(), node.name, fact) for fact in (clock, events.LinkChanged("ok")))
    return told


def remarks(answer: OutputsAnswer) -> list[str]:
    """Why ranks have no output here, one sentence for those that are alike."""
    alike: dict[str, list[int]] = {}
    for rank, why in sorted(answer.why.items()):
        alike.setdefault(why, []).append(rank)
    if len(alike) == 1 and not answer.files:
        # The same words for every such node: they are said once.
        return [f"no output here: each rank {why}" for why in alike]
    found = [f"{ranks_named(ranks)}: no output here: it {why}" for why, ranks in alike.items()]
    return found[:_SHOWN]


def launchers_of(manifest: Manifest, node: str) -> Sequence[Launching]:
    """What started the ranks of a node, as when the job was first seen."""
    return () if manifest.foreign is None else manifest.foreign.launchers.get(node, ())
