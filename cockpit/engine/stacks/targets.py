"""Whose stacks can be taken: the ranks of a run, or of a job that somebody else started."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import chain

from cockpit.base import verbs
from cockpit.base.answers import SeekAnswer
from cockpit.base.shell import join, quote
from cockpit.core.ranks import nodes_text
from cockpit.core.run.events import Event
from cockpit.core.run.jobs import Job, MainProcess, choose, group, has_named, was_on, within
from cockpit.core.run.model import LIVE, Rank, RankState, RunModel
from cockpit.core.run.summary import endings
from cockpit.core.stacks.fate import End, Fate, of_rank
from cockpit.core.stacks.snapshot import Place
from cockpit.engine.links.link import Link
from cockpit.engine.links.pool import LinkPool, settle
from cockpit.engine.links.roll import Roll
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, planned
from cockpit.engine.run.current_state import recorded
from cockpit.engine.run.foreign_jobs import job_on
from cockpit.engine.run.join import pool_for
from cockpit.engine.stacks import saved
from cockpit.engine.stacks.ask import RankProcess
from cockpit.engine.stacks.evidence import amiss, gather, lacking
from cockpit.errors import CockpitError, Exit, ManyErrors
from cockpit.plans.launch import PER_NODE


class RunParty:
    """The ranks of a run that cockpit started.

    :param model: kept up to date by somebody else
    :param link: returns an open link
    :param again: asks for the model anew; None: somebody else keeps it up to date
    """

    def __init__(
        self,
        manifest: Manifest,
        model: RunModel,
        link: Callable[[str], Awaitable[Link]],
        again: Callable[[], Awaitable[RunModel]] | None = None,
    ) -> None:
        self._manifest = manifest
        self._again = again
        self._model = model
        # A job that others started has no run folder, and nobody there who may be asked for help.
        self._dirs = {entry.name: "" if manifest.foreign else entry.dir for entry in manifest.nodes}
        self.link = link
        self.title = self.run = manifest.run
        self.command = f"cockpit stacks {quote(manifest.run)}"

    @property
    def nodes(self) -> Sequence[str]:
        """The run's nodes, without those where nothing runs any more."""
        return [name for name, node in self._model.nodes.items() if not node.over]

    def places(self) -> dict[int, Place]:
        """Every rank, according to the run record."""
        return {rank.rank: self._place(rank) for rank in self._model.ranks.values()}

    def _place(self, rank: Rank) -> Place:
        """Whether a rank has not started is known only while its node answers."""
        heard = self._model.nodes[rank.node].link == "ok"
        runs = rank.state is RankState.RUNNING or (rank.state in LIVE and not heard)
        ended_at = None if runs or not rank.ended_at else self._model.ended_at(rank)
        if runs:
            return Place(rank.node, None, rank.pid)
        return Place(rank.node, None, rank.pid, rank.text, ended_at=ended_at, end=of_rank(rank))

    @property
    def twice(self) -> Mapping[int, str]:
        """None: the run record has one process for each rank."""
        return {}

    async def refresh(self) -> None:
        """Take in what was recorded meanwhile, such as how ranks have ended."""
        if self._again is not None:
            self._model = await self._again()

    def folder(self, node: str) -> str:
        """The run folder on a node."""
        return self._dirs[node]

    async def targets(self, node: str, link: Link) -> list[RankProcess]:
        """Processes with the run's tags; if one cannot be read any more, what the run record says."""
        foreign = self._manifest.foreign
        answer = await link.call(verbs.Seek() if foreign else verbs.Seek(self.run, node, self.folder(node)))
        job = None if foreign is None else job_on(node, answer, foreign, self._model)
        jobs = group({node: answer}) if foreign is None else [job] if job else []
        ranks = self._model.ranks
        found = {
            rank: _process(rank, place)
            for job in jobs
            for rank, place in job.ranks.items()
            # A child that outlives its rank has that rank's environment: the run record knows better.
            if rank in ranks and ranks[rank].node == node and ranks[rank].state in LIVE
        }
        for rank in self._model.on(node):
            if rank.rank not in found and rank.state in LIVE and rank.pid and rank.ticks:
                found[rank.rank] = RankProcess(rank.rank, rank.pid, rank.ticks)
        return [found[rank] for rank in sorted(found)]


@asynccontextmanager
async def open_run(folder: RunFolder, roll: Roll | None = None) -> AsyncIterator[RunParty | JobParty]:
    """The ranks of a run as its nodes report them now, and links that stay open until the end.

    A node that is known to have ended is not asked: it may be gone. If one does not answer, what it reported
    before counts.

    :param roll: told who has answered and who is awaited
    :raises CockpitError: the run has ended, or no node of it answers
    """
    manifest = folder.manifest
    entries = {entry.name: entry for entry in manifest.nodes}
    known = folder.model()
    asked = [name for name, node in known.nodes.items() if not node.over]

    async with pool_for(manifest, roll) as pool:

        async def look(node: str) -> list[Event]:
            events, _ = await recorded(await pool.lend(node), manifest, entries[node])
            return events

        async def now() -> tuple[RunModel, dict[str, CockpitError]]:
            answers, errors = await settle({name: look(name) for name in asked})
            told = [event for event in folder.journal() if event.kind != "link"]
            heard = (
                answers.get(name) or [*(e for e in told if e.node == name), *folder.recorded(entry)]
                for name, entry in entries.items()
            )
            return RunModel.of([planned(manifest), *chain(*heard)]), errors

        async def again() -> RunModel:
            return (await now())[0]

        pool.roll.call(asked)
        model, errors = await now()
        if model.over:
            unseen = await _fetched(folder, model, pool)
            kept = saved.newest(folder.path / "stacks")
            hint = f"cockpit stacks {quote(str(kept))}" if kept else f"cockpit logs {quote(folder.name)}"
            what = f"the run has ended: {endings(model)}"
            over = CockpitError(what, where=folder.name, hint=f"see: {hint}", code=Exit.NODE_UNFIT)
            raise ManyErrors([over, *unseen]) if unseen else over
        if errors and len(errors) == len(asked):
            raise next(iter(errors.values()))
        yield await spawned(manifest, pool, asked) or RunParty(manifest, model, pool.lend, again)


async def spawned(manifest: Manifest, pool: LinkPool, asked: Sequence[str]) -> JobParty | None:
    """The ranks that a run's programs have started by themselves; None: there are none, or none are seen.

    :param asked: the nodes where something runs
    """
    if manifest.launcher != PER_NODE:
        return None
    answers, _ = await settle({name: _sought(pool, name) for name in asked})
    jobs = [job for job in group(answers) if job.run == manifest.run]
    job = max(jobs, key=lambda each: len(each.ranks), default=None)
    return None if job is None else _OwnJob(job, manifest, asked, pool)


async def _sought(pool: LinkPool, node: str) -> SeekAnswer:
    return await (await pool.lend(node)).call(verbs.Seek())


async def _fetched(folder: RunFolder, model: RunModel, pool: LinkPool) -> list[CockpitError]:
    """Fetch what the nodes of a run that is over have kept; why some of it is not here."""
    wanted = lacking(folder, model)
    try:
        _, errors = await gather(folder, model, pool.lend, wanted)
    except CockpitError as error:
        return [error]
    return [CockpitError(text) for text in amiss(folder, model, wanted, errors)]


class JobParty:
    """The ranks of a job, whoever started it.

    :param job: as it was chosen among those that were found
    :param names: every node that was asked for it
    :param source: how the nodes and the job were named on the command line, for :attr:`command`
    :param silent: nodes that could not be asked
    :param step: see :func:`cockpit.core.run.jobs.within`
    """

    run: str = ""

    def __init__(
        self,
        job: Job,
        names: Sequence[str],
        pool: LinkPool,
        source: Sequence[str],
        silent: Iterable[str] = (),
        step: str = "",
    ) -> None:
        self.job = job
        self._step = step
        self.title = job.title
        self.nodes = names
        self.pool = pool
        self.link = pool.lend
        self.source = list(source)
        self.command = join(["cockpit", "stacks", *source])
        self._silent = list(silent)

    def places(self) -> dict[int, Place]:
        """Every rank up to the job's world size."""
        found = {rank: _process(rank, place).on(place.node) for rank, place in self.job.ranks.items()}
        why = "not found on the nodes that were asked"
        if self._silent:
            why += f"; {nodes_text(self._silent)} did not answer"
        for rank in range(self.job.world):
            node = "" if rank in found else was_on(self.job, rank)
            gone = f"gone: it was started on {node}, and is no longer there"
            end = End(Fate.GONE if node else Fate.UNSEEN)
            found.setdefault(rank, Place(node, why=gone if node else why, end=end))
        return found

    @property
    def twice(self) -> Mapping[int, str]:
        """Ranks that two processes have."""
        return self.job.twice

    async def refresh(self) -> None:
        """Nothing is recorded of these ranks."""

    def folder(self, node: str) -> str:
        """None: these ranks have no supervisor of ours."""
        return ""

    async def targets(self, node: str, link: Link) -> list[RankProcess]:
        """The job's processes on this node now: a rank may have been started again.

        Those that are inferred stay the same: at their end there is less to infer them from.
        """
        here = [_process(rank, place) for rank, place in self.job.ranks.items() if place.node == node]
        inferred = [process for process in here if process.inferred]
        if inferred:
            return sorted(inferred, key=lambda process: process.rank)
        jobs = group({node: within(await link.call(verbs.Seek()), self._step)})
        return [
            _process(rank, place)
            for job in jobs
            if job.key == self.job.key
            for rank, place in sorted(job.ranks.items())
            # Several names of one machine show the same processes: the first one speaks for them.
            if rank not in self.job.ranks or self.job.ranks[rank].node == node
        ]


class _OwnJob(JobParty):
    """The ranks that the programs of a run have started by themselves.

    :param manifest: of the run
    """

    def __init__(self, job: Job, manifest: Manifest, names: Sequence[str], pool: LinkPool) -> None:
        super().__init__(job, names, pool, [manifest.run])
        self.run = manifest.run
        self._dirs = {entry.name: entry.dir for entry in manifest.nodes}

    def folder(self, node: str) -> str:
        """The run folder on a node: its supervisor may trace all that is below it."""
        return self._dirs[node]


def _process(rank: int, found: MainProcess) -> RankProcess:
    inner = found.ns_pid if found.container else None
    return RankProcess(rank, found.pid, found.ticks, found.local_rank, inner, found.inferred)


async def find_job(
    names: Sequence[str], pool: LinkPool, wanted: str, *, pid: int = 0, match: str = "", step: str = ""
) -> tuple[Job, dict[str, CockpitError]]:
    """The only job on these nodes, or the requested one, and an error for each node that did not answer.

    See :func:`cockpit.core.run.jobs.choose` for what may be requested.

    :param step: see :func:`cockpit.core.run.jobs.within`
    :raises CockpitError: there is none, or there are several and none was named
    """

    async def ask(node: str, request: verbs.Seek) -> SeekAnswer:
        return within(await (await pool.lend(node)).call(request), step)

    answers, errors = await settle({name: ask(name, verbs.Seek()) for name in names})
    jobs = group(answers)
    if (pid or match) and not has_named(jobs, pid, match):
        # It may be a program that is no rank by itself.
        request = verbs.Seek(pid=pid, match="" if pid else match)
        again, late = await settle({name: ask(name, request) for name in answers})
        jobs, errors = group(again), {**errors, **late}
    if not jobs and errors:
        raise next(iter(errors.values()))
    return choose(jobs, wanted, pid=pid, match=match), errors
