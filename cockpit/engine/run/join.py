"""Ways back to earlier runs: from what is known here, or from what their nodes have recorded."""

from __future__ import annotations

import asyncio
import posixpath
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from cockpit.base import events, verbs
from cockpit.base.answers import FoundRun, Remains
from cockpit.base.shared_fields import RunFacts
from cockpit.base.shell import quote
from cockpit.core.run.events import Event
from cockpit.core.run.model import LIVE, RankState, RunModel
from cockpit.engine.links.link import Link
from cockpit.engine.links.pool import LinkPool, settle
from cockpit.engine.links.roll import Roll
from cockpit.engine.records.bundles import CLOSED
from cockpit.engine.records.folder import RunFolder, list_runs
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.errors import CockpitError, Exit
from cockpit.transport.base import Reach

if TYPE_CHECKING:
    from typing_extensions import Self


T = TypeVar("T")
Errors = dict[str, CockpitError]


def pool_for(manifest: Manifest, roll: Roll | None = None, patience_s: float | None = None) -> LinkPool:
    """A pool for one run; it reaches its nodes as when it was started; see :class:`LinkPool`.

    :raises CockpitError: others may have written how
    """
    check_ours(manifest)
    pool = LinkPool(list(manifest.pythons), manifest.reach, roll, patience_s)
    pool.hosts = {node.name: node.host for node in manifest.nodes}
    return pool


class ClosedPool(LinkPool):
    """Lends no link: the nodes of a run that was opened from a bundle are somebody else's, and what is
    replayed is over."""

    def __init__(self, manifest: Manifest) -> None:
        super().__init__([])
        self._manifest = manifest

    def _opening(self, node: str, *, now: bool) -> asyncio.Task[Link]:
        why = self._manifest.closed or "this is a replay"
        raise CockpitError(f"{why}: its nodes are not contacted", where=node)


def check_ours(manifest: Manifest) -> None:
    """Check that nobody else may have written how the nodes of a run are reached.

    :raises CockpitError: somebody may have; the error says what can be done all the same
    """
    if manifest.closed:
        if manifest.closed == CLOSED:
            raise CockpitError(f"{CLOSED}: its nodes are not contacted", where=manifest.run)
        run = quote(manifest.run)
        what = f"{manifest.closed}, so cockpit does not connect to its nodes"
        here = f"local data: cockpit ps {run} (or logs, metrics, stacks --list)"
        hint = f"{here}; to ask its nodes yourself: cockpit attach HOSTFILE"
        raise CockpitError(what, where=manifest.run, hint=hint, code=Exit.NODE_UNFIT)


class Pools:
    """The pools of many runs at once: whoever reaches a node the same way shares its link.

    :param patience_s: see :class:`LinkPool`
    """

    def __init__(self, patience_s: float) -> None:
        self.roll = Roll()
        """Which nodes have answered, of all pools."""
        self.patience_s = patience_s
        """See :class:`LinkPool`."""
        self._pools: list[LinkPool] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(pool.close() for pool in self._pools))

    def of(self, manifest: Manifest) -> LinkPool:
        """The pool for the nodes of a run, as they were reached when it was started.

        :raises CockpitError: others may have written how
        """
        check_ours(manifest)
        hosts = {node.name: node.host for node in manifest.nodes}
        return self.reaching(manifest.reach, manifest.pythons, hosts)

    def reaching(self, reach: Reach, pythons: Iterable[str], hosts: Mapping[str, str]) -> LinkPool:
        """The pool for nodes that are reached so.

        :param hosts: the machine that must answer to a node's name; empty: it is not known
        """
        pool = next((pool for pool in self._pools if pool.reach == reach and pool.leads_to(hosts)), None)
        if pool is None:
            pool = LinkPool([], reach, self.roll, self.patience_s)
            self._pools.append(pool)
        pool.hosts.update(hosts)
        pool.pythons += [python for python in pythons if python not in pool.pythons]
        return pool


async def ask_all(
    pool: LinkPool,
    manifest: Manifest,
    ask: Callable[[Link, NodeEntry], Awaitable[T]],
    only: Collection[str] | None = None,
) -> tuple[dict[str, T], Errors]:
    """Ask every node of a run the same question; answers and errors by node.

    :param only: names of the nodes to ask, where not all are
    """
    nodes = [node for node in manifest.nodes if only is None or node.name in only]

    async def one(node: NodeEntry) -> T:
        link = await pool.lend(node.name)
        return await pool.roll.heard(node.name, ask(link, node))

    pool.roll.expect(node.name for node in nodes)
    return await settle({node.name: one(node) for node in nodes})


def still_there(model: RunModel, name: str, gone: Remains) -> list[Event]:
    """What a model does not know yet about a node whose run folder is gone, from its processes.

    A rank whose process exists is running, unless its end is on record; one without a process has ended.
    """
    node = model.nodes[name]
    facts: list[events.Fact] = []
    note = f"{gone.why}; its logs and its run record can no longer be read"
    if note not in node.notes:
        facts.append(events.Note(note))
    running = {one.rank: one for one in gone.ranks}
    for rank in model.on(name):
        process = running.get(rank.rank)
        if process is None and rank.state in LIVE:
            why = "it is no longer running; its run folder is gone, so how it ended is unknown"
            facts.append(events.RankLost(rank.rank, rank.attempt, rank.pid, why, by="agent"))
        elif process is None or (rank.recorded and rank.state not in LIVE):
            continue
        elif rank.state is not RankState.RUNNING or rank.pid != process.pid:
            # An end that nobody recorded was none: only another attempt is told from what was said of it.
            attempt = rank.attempt + (rank.state not in LIVE)
            again = {"attempt": attempt, "max_restarts": max(attempt, rank.max_restarts)}
            facts.append(events.RankStarted(rank.rank, pid=process.pid, ticks=process.ticks, **again))
    # Facts about ranks are on the node's clock.
    return [Event(time.time() + node.offset_s, name, fact) for fact in facts]


async def adopt(pool: LinkPool, nodes: Iterable[str], base: str) -> Errors:
    """Make runs known here that only their nodes know; afterwards every verb accepts them.

    :param base: folder for run folders on the nodes; empty: each node's own temporary folder
    :return: an error for each node that did not answer, and for each run that could not be made known
    """

    async def one(node: str) -> list[_Part]:
        link = await pool.lend(node)
        where = f"{base}/cockpit-{link.hello.uid}" if base else link.hello.base
        answer = await link.call(verbs.Runs(where))
        if answer.more:
            hint = f"remove old runs below {where} there"
            too_many[node] = CockpitError(f"{answer.more} older runs are not listed", where=node, hint=hint)
        # On a shared file system each node shows the folders of all: a node speaks only for itself.
        mine = [run for run in answer.runs if run.record.node == node and _is_below(run, where)]
        return [_Part(node, link.hello.host, run.dir, run.record) for run in mine]

    too_many: Errors = {}
    answers, errors = await settle({node: one(node) for node in nodes})
    errors.update(too_many)
    known = {folder.name for folder in list_runs()}
    runs: dict[str, list[_Part]] = {}
    for part in (part for parts in answers.values() for part in parts):
        if part.record.run not in known:
            runs.setdefault(part.record.run, []).append(part)
    for name, parts in runs.items():
        try:
            RunFolder.create(_manifest(name, parts, pool)).close()
        except CockpitError as error:
            # One run that cannot be made known hides no other.
            errors[name] = error
    return errors


class _Part(NamedTuple):
    """One node's part of a run."""

    node: str
    host: str
    dir: str
    record: RunFacts


def _is_below(run: FoundRun, base: str) -> bool:
    """Whether a run folder is where its name says; a node could name any folder."""
    above = posixpath.join(base, run.record.run)
    return posixpath.normpath(run.dir) == run.dir and posixpath.dirname(run.dir) == above


def _manifest(name: str, parts: list[_Part], pool: LinkPool) -> Manifest:
    """A manifest as far as the nodes of a run know it.

    :raises CockpitError: two nodes claim one rank
    """
    parts = sorted(parts, key=lambda part: (part.record.index, part.node))
    owner: dict[int, str] = {}
    for part in parts:
        for rank in part.record.ranks:
            if owner.setdefault(rank, part.node) != part.node:
                what = f"{owner[rank]} and {part.node} both claim rank {rank}"
                raise CockpitError(what, where=name, code=Exit.NODE_UNFIT)
    record = parts[0].record
    return Manifest(
        run=name,
        created=record.t,
        nodes=[
            NodeEntry(
                part.node,
                part.dir,
                list(part.record.ranks),
                host=part.host,
                facts={"boot_id": part.record.boot_id},
            )
            for part in parts
        ],
        launcher=record.launcher,
        program=["(found on its nodes)"],
        cwd="",
        pythons=pool.pythons,
        profile=record.profile,
        nccl_debug=record.nccl_debug,
        on_failure="wait",
        transport=pool.reach.kind,
        transport_options=pool.reach.lasting,
    )
