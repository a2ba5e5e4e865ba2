"""Jobs that others started: made known here under a name, and asked how they are."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain

from cockpit import paths
from cockpit.base import events, verbs
from cockpit.base.answers import Launching, OutputsAnswer, SeekAnswer, WatchItem
from cockpit.base.gate import RANKS_A_NODE
from cockpit.base.same_file import file_id
from cockpit.base.shared_fields import CALLERS, Caller, Identity, Target
from cockpit.core.ranks import ranks_named
from cockpit.core.run.event_table import witnessed
from cockpit.core.run.events import Event
from cockpit.core.run.jobs import Job, MainProcess, group
from cockpit.core.run.model import LIVE, RankState, RunModel
from cockpit.core.text import one_line
from cockpit.engine.links.link import Link, streaming
from cockpit.engine.links.pool import LinkPool, settle
from cockpit.engine.records.folder import RunFolder, list_runs
from cockpit.engine.records.manifest import Foreign, Manifest, NodeEntry
from cockpit.engine.records.names import new_name
from cockpit.engine.run.foreign_logs import Outlets
from cockpit.errors import CockpitError
from cockpit.transport.local import is_here

GONE = "cockpit did not start it, so how it ended is not known"

_SERVE_OTHERS = ("ray", "notebook")
"""Launchers that go on when a job is over, and may hold other jobs: they are neither awaited nor ended."""

_ANSWER_S = 20.0
"""For one look at the processes of a job on a node."""

_SHOWN = 20
"""Sentences about outputs of one node."""


@dataclass(frozen=True)
class Known:
    """A job that was made known here.

    :param pool: lends links to its nodes; None: they are reached in another way than when it was first seen
    :param told: what the processes of each node write, where that was asked just now
    """

    folder: RunFolder
    pool: LinkPool | None = None
    told: Mapping[str, OutputsAnswer] = field(default_factory=dict)


WAYS_A_RANK = 4
"""Connections that one rank's output may leave its node by: two of its own, two of its launcher's."""

Answers = dict[str, tuple[str, OutputsAnswer]]
"""What nodes say about the outputs of a job, each with the name of its machine."""


async def make_known(
    job: Job, pool: LinkPool, command: Sequence[str], name: str = "", asked: Iterable[str] = ()
) -> Known:
    """Give a job a folder: that under which it was watched before, or a new one.

    :param command: the words that name it on the command line
    :param asked: nodes where it may have been started, besides this machine
    :param name: what a new one is called; empty: date, time and a word
    :raises CockpitError: it cannot be made, or a node does not tell what its processes write
    """
    for folder in reversed(list_runs()):
        if _is_of(folder, job) and not folder.manifest.closed:
            return Known(folder, _taken_over(pool, folder.manifest))

    async def ask(node: str) -> tuple[str, OutputsAnswer]:
        targets = [Target(rank, one.pid, one.ticks) for rank, one in job.ranks.items() if one.node == node]
        return await _outputs(pool, node, targets)

    answers, errors = await settle({node: ask(node) for node in job.nodes})
    if errors:
        raise next(iter(errors.values()))
    callers = _callers(job, answers)
    abroad = await _started_from(pool, callers, [*answers, *asked]) if callers else {}
    manifest = _manifest(name or new_name(), job, pool, answers, abroad, command)
    ways: dict[str, str] = {}
    for entry in manifest.nodes:
        with suppress(CockpitError):  # lost just now
            ways[entry.name] = (await pool.at_hand(entry.name)).transport.kind
    nodes = [replace(entry, transport=ways.get(entry.name, entry.transport)) for entry in manifest.nodes]
    folder = RunFolder.create(replace(manifest, nodes=nodes))
    try:
        for event in _starts(job):
            folder.write(event)
        outlets = Outlets.of(folder)
        for node, (_, answer) in chain(answers.items(), abroad.items()):
            for file in answer.files:
                outlets.known(node, file)
        outlets.save()
        outlets.close()
    finally:
        folder.close()
    folder = RunFolder(folder.path)
    # Where its output arrives as well, more has to be asked.
    told = {node: answer for node, (_, answer) in answers.items() if node not in abroad}
    return Known(folder, _taken_over(pool, folder.manifest), told)


def _taken_over(pool: LinkPool, manifest: Manifest) -> LinkPool | None:
    """The pool, for the nodes of this run alone; None: it is not the way to them."""
    hosts = {node.name: node.host for node in manifest.nodes}
    same = (pool.reach.kind, pool.reach.lasting) == (manifest.transport, manifest.transport_options)
    if not same or not pool.leads_to(hosts):
        return None
    pool.hosts.update(hosts)
    pool.roll.call(hosts)
    return pool


async def _outputs(
    pool: LinkPool, node: str, targets: Sequence[Target] = (), callers: Sequence[Caller] = ()
) -> tuple[str, OutputsAnswer]:
    link = await pool.lend(node)
    return link.hello.host, await outputs(link, targets, callers)


async def outputs(link: Link, targets: Sequence[Target], callers: Sequence[Caller]) -> OutputsAnswer:
    """What these processes write, and what those who have the near ends of these connections do.

    :raises CockpitError: the node cannot say
    """
    portions = _portions(callers)
    answer = await link.call(verbs.Outputs(tuple(targets), tuple(chain(*portions[:1]))))
    for portion in portions[1:]:
        more = await link.call(verbs.Outputs(callers=tuple(portion)))
        answer = replace(
            answer,
            files=(*answer.files, *more.files),
            why={**answer.why, **more.why},
            launchers=tuple(_united(chain(answer.launchers, more.launchers))),
        )
    return _without_ours(answer)


def _without_ours(answer: OutputsAnswer) -> OutputsAnswer:
    """What it says, without the files that this cockpit prints to: it would read for ever what it prints."""
    ours = set()
    for number in (1, 2):
        with suppress(OSError):
            info = os.fstat(number)
            ours |= {file_id(info)} if stat.S_ISREG(info.st_mode) else set()
    why = dict(answer.why)
    for file in answer.files:
        if file.id in ours:
            said = f"writes to {one_line(file.path)}, as this cockpit does; give cockpit a file of its own"
            why |= dict.fromkeys(file.ranks, said)
    files = tuple(file for file in answer.files if file.id not in ours)
    read = {rank for file in files for rank in file.ranks}
    return replace(answer, files=files, why={rank: text for rank, text in why.items() if rank not in read})


def _portions(callers: Iterable[Caller]) -> list[list[Caller]]:
    """As many as one request may have, for no more ranks than one answer may tell of."""
    found: list[list[Caller]] = []
    ranks = RANKS_A_NODE
    for one in callers:
        ranks += len(one.ranks)
        if ranks > RANKS_A_NODE or len(found[-1]) >= CALLERS.most:
            found.append([])
            ranks = len(one.ranks)
        found[-1].append(one)
    return found


def _united(told: Iterable[Launching]) -> list[Launching]:
    """The same launchers, each once, with all of its ranks."""
    found: dict[int, Launching] = {}
    for one in told:
        known = found.get(one.pid)
        ranks = one.ranks if known is None else tuple(sorted({*known.ranks, *one.ranks}))
        found[one.pid] = replace(one, ranks=ranks)
    return list(found.values())


def _callers(job: Job, answers: Answers) -> list[Caller]:
    """The connections by which output leaves its node; a node speaks of its own ranks only.

    All nodes are asked for all of them, and one node must not make them many.
    """
    found: list[Caller] = []
    for node, (_, answer) in answers.items():
        own = {rank for rank, one in job.ranks.items() if one.node == node}
        told = [
            replace(one, ranks=tuple(rank for rank in one.ranks if rank in own)) for one in answer.callers
        ]
        found += [one for one in told if one.ranks][: WAYS_A_RANK * len(own)]
    return found


async def _started_from(pool: LinkPool, callers: Sequence[Caller], asked: Iterable[str]) -> Answers:
    """Where the near ends of these connections are, and what has them there.

    Each is on one machine: this one is believed first, then the nodes in their order.
    """
    names = list(dict.fromkeys(asked))
    told, _ = await settle({node: _outputs(pool, node, (), callers) for node in names})
    own = {name for name, here in zip(names, await asyncio.gather(*map(is_here, names)), strict=True) if here}
    answers: Answers = {}
    here = socket.gethostname() if pool.reach.kind == "auto" else pool.reach.options.get("here", "")
    if here and not own:
        answers, _ = await settle({here: _outputs(pool, here, (), callers)})
    # By name: what a node says it is called may be anything.
    order = sorted((node for node in names if node in told), key=lambda node: node not in own)
    answers.update({node: told[node] for node in order})
    left = {rank for caller in callers for rank in caller.ranks}
    found: Answers = {}
    for node, answer in answers.items():
        host, said = answer
        launchers = [replace(one, ranks=tuple(sorted(left & {*one.ranks}))) for one in said.launchers]
        launchers = [one for one in launchers if one.ranks]
        if launchers:
            found[node] = host, replace(said, launchers=tuple(launchers))
        left.difference_update(*(one.ranks for one in launchers))
    return found


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
    answers: Answers,
    abroad: Answers,
    command: Sequence[str],
) -> Manifest:
    told = {**answers, **{node: answer for node, answer in abroad.items() if node not in answers}}
    ranks: dict[str, list[int]] = {node: [] for node in told}
    for rank, found in sorted(job.ranks.items()):
        ranks[found.node].append(rank)
    return Manifest(
        run=name,
        created=min(job.started, time.time()),
        nodes=[NodeEntry(node, answer.cwd, ranks[node], host=host) for node, (host, answer) in told.items()],
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
            pool.reach.lasting.get("job", "") or slurm_job(job),
            {node: _launchers(node, answers, abroad) for node in told},
            {node: _held(answer, _callers(job, answers)) for node, (_, answer) in abroad.items()},
            [rank for node, (_, answer) in answers.items() for rank in answer.passed if rank in ranks[node]],
            [node for node, (_, answer) in answers.items() if answer.passed or answer.callers],
        ),
    )


def _launchers(node: str, *answers: Answers) -> list[Launching]:
    """What started ranks on this node, or on others from here; a script may have started both."""
    found = _united(one for each in answers if node in each for one in each[node][1].launchers)
    return [replace(one, ranks=one.ranks[:RANKS_A_NODE]) for one in found]


def slurm_job(job: Job) -> str:
    """The number of the SLURM job that it runs in; empty: none.

    ``scancel`` is given it, and its nodes say it: words that are options would end other jobs.
    """
    number = job.name.partition(".")[0] if job.launcher == "slurm" else ""
    return number if re.fullmatch("[0-9]{1,10}", number) else ""


def _held(answer: OutputsAnswer, callers: Sequence[Caller]) -> list[Caller]:
    """The connections that a node has, by the ranks that it says were started by them."""
    ranks = {rank for one in answer.launchers for rank in one.ranks}
    return [caller for caller in callers if ranks.issuperset(caller.ranks)]


def _starts(job: Job) -> list[Event]:
    return [_start(rank, found) for rank, found in sorted(job.ranks.items())]


def _start(rank: int, found: MainProcess, attempt: int = 0) -> Event:
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
    started_by = of_it_alone(manifest, launchers_of(manifest, node.name))
    launchers = tuple(Identity(one.pid, one.ticks) for one in started_by)
    async with streaming(link, verbs.Watch(targets(model, node.name), launchers)) as stream:
        part = await stream.part(_ANSWER_S)
        if part is not None:
            item, _ = part
            take(ended(model, node.name, item))
            if not item.ranks and not item.launchers and not model.nodes[node.name].ended:
                take([witnessed(model, time.time(), node.name, events.Ended())])
    await link.measure_clock()
    clock = events.ClockMeasured(link.clock.offset_s, link.clock.rtt_s)
    take(Event(time.time(), node.name, fact) for fact in (clock, events.LinkChanged("ok")))
    return told


def remarks(reasons: Mapping[int, str], *, every: bool) -> list[str]:
    """Why ranks have no output here, one sentence for those that are alike.

    :param every: the node has no output at all
    """
    alike: dict[str, list[int]] = {}
    for rank, why in sorted(reasons.items()):
        alike.setdefault(why, []).append(rank)
    if len(alike) == 1 and every:
        # The same words for every such node: they are said once.
        return [f"no output here: each rank {_advised(why)}" for why in alike]
    found = [f"{ranks_named(ranks)}: no output here: it {_advised(why)}" for why, ranks in alike.items()]
    return found[:_SHOWN]


def _advised(why: str) -> str:
    """With what to do about it, if a node has not said that."""
    return why if "; " in why else f"{why}; next time, send it to a file: … >train.log 2>&1"


def launchers_of(manifest: Manifest, node: str) -> Sequence[Launching]:
    """What started the ranks of a node, as when the job was first seen."""
    return () if manifest.foreign is None else manifest.foreign.launchers.get(node, ())


def of_it_alone(manifest: Manifest, launchers: Sequence[Launching]) -> tuple[Launching, ...]:
    """Those of its launchers that are there for this job only, and end with it."""
    return () if manifest.launcher in _SERVE_OTHERS else tuple(launchers)
