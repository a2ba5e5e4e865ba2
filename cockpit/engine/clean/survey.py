"""What runs take here and on their nodes, and run folders on nodes that no run known here has."""

from __future__ import annotations

import asyncio
import posixpath
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from cockpit import paths
from cockpit.base import trees, verbs
from cockpit.base.answers import KeptFolder
from cockpit.base.events import SupervisorStarted
from cockpit.core.run.cleaning import Old, Part, Wanted, state_of
from cockpit.core.run.summary import state_text
from cockpit.engine.clean.reports import uncollected
from cockpit.engine.links.pool import LinkPool, settle
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.lock import other_owner
from cockpit.engine.records.manifest import NodeEntry
from cockpit.engine.run.current_state import model_now
from cockpit.engine.run.join import Errors, Pools
from cockpit.errors import CockpitError

MEASURE_S = 20.0
"""Seconds that a node may take to look at its run folders; those it has no time for are counted in part."""
_HERE_S = 30.0
"""The same for one run on this machine."""
_ANSWER_S = 60.0
"""What a node may take for the answer, beyond that."""


@dataclass(frozen=True)
class Place:
    """A run folder on a node, and how that is reached.

    :param node: the one that made it, or if it is not known which that is, one that shows it
    """

    node: str
    pool: LinkPool
    folder: KeptFolder

    @property
    def run(self) -> str:
        """By its record, or else by where it is."""
        facts = self.folder.record
        return posixpath.basename(posixpath.dirname(self.folder.dir)) if facts is None else facts.run


@dataclass
class Survey:
    """What was found.

    :param runs: those that are meant, the oldest first
    :param passed: how many others there are
    :param places: the folders of these runs on their nodes, by run and node
    :param strays: run folders whose run is not known here
    :param errors: nodes that did not answer, and why
    :param more: how many folders nodes had no room for in their answers
    """

    runs: list[Old] = field(default_factory=list)
    passed: int = 0
    places: dict[tuple[str, str], Place] = field(default_factory=dict)
    strays: list[Place] = field(default_factory=list)
    errors: Errors = field(default_factory=dict)
    more: int = 0


async def survey(
    folders: Sequence[RunFolder],
    pools: Pools,
    wanted: Wanted,
    also: Mapping[str, LinkPool],
    above: str = "",
) -> Survey:
    """Look at runs here, and ask the nodes of those that are meant.

    :param folders: all runs known here, oldest first
    :param also: nodes that are asked too, for runs that are not known here
    :param above: the folder for run folders on them, as given at the launch; empty: the usual one
    """
    by_name = {folder.name: folder for folder in folders}
    known = [await _here(folder, pools, wanted) for folder in folders]
    meant = wanted.first(known)
    found = Survey()
    if not wanted.here:
        nodes = _Nodes(pools)
        for run in meant:
            nodes.add_run(by_name[run.run])
        for name, pool in also.items():
            nodes.add(pool, name).above = above
        await nodes.ask(found)
        meant = [await nodes.with_parts(run, by_name[run.run], found) for run in meant]
        found.strays = nodes.strays(folders)
    found.runs = [run for run in meant if wanted.large(run)]
    found.passed = len(known) - len(found.runs)
    return found


# This machine


async def _here(folder: RunFolder, pools: Pools, wanted: Wanted) -> Old:
    """A run as it is known here; one that may go on is asked for."""
    taken = await asyncio.to_thread(trees.measured, str(folder.path), time.monotonic() + _HERE_S)
    age = max(0.0, time.time() - (taken.written or folder.created))
    fixed, timed = _fixed(folder), True
    try:
        manifest = folder.manifest
        if manifest.closed and not wanted.here:
            fixed = fixed or f"{manifest.closed}, so its nodes are not contacted; to remove it here: --here"
        model = folder.model()
        if not model.over and not fixed and not wanted.here:
            model, _ = await model_now(pools.of(manifest), manifest)
            # That a job which others started has gone is seen only now: when it went nobody knows.
            timed = manifest.foreign is None
    except CockpitError as error:
        return Old(folder.name, "damaged", f"damaged: {error.what}", age, taken.bytes, fixed=fixed)
    ends = [model.ended_at(rank) for rank in model.ranks.values() if rank.ended_at]
    if ends and model.over and timed:
        age = max(0.0, time.time() - max(ends))
    return Old(folder.name, state_of(model), state_text(model), age, taken.bytes, fixed=fixed)


def _fixed(folder: RunFolder) -> str:
    """Why a run stays, whatever is wanted."""
    if folder.path.is_symlink():
        return f"its folder here is a link; remove that yourself: rm {folder.path}"
    if owner := other_owner(folder.path):
        return f"its folder is {owner}'s"
    try:
        vacant = folder.writer.vacant()
    except CockpitError as error:
        return error.what
    return "" if vacant else folder.writer.held()


def trash() -> list[Path]:
    """What earlier deletions have left in the folder of runs."""
    try:
        return [path for path in paths.runs().iterdir() if path.name.startswith(trees.TRASH)]
    except OSError:
        return []


# Nodes


@dataclass
class _Node:
    """A node that is asked once for all of its run folders.

    :param bases: the folders in which it is looked for them
    :param above: one more, as it was given at a launch; empty: none
    :param host: the machine that answered
    """

    pool: LinkPool
    name: str
    bases: set[str] = field(default_factory=set)
    above: str = ""
    host: str = ""
    folders: list[KeptFolder] = field(default_factory=list)
    error: CockpitError | None = None

    async def ask(self) -> int:
        """Ask it; what it says of other places than those it was asked for is ignored.

        :return: how many folders it had no room for in its answer
        """
        link = await self.pool.lend(self.name)
        self.host = link.hello.host
        self.bases |= {link.hello.base, *([f"{self.above}/cockpit-{link.hello.uid}"] if self.above else [])}
        request = verbs.Folders(tuple(sorted(self.bases)), MEASURE_S)
        asked = link.call(request, deadline_s=MEASURE_S + _ANSWER_S)
        answer = await self.pool.roll.heard(self.name, asked)
        self.folders = [one for one in answer.folders if _is_below(one, self.bases)]
        return answer.more


class _Nodes:
    """All nodes that are asked."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._nodes: dict[tuple[int, str], _Node] = {}
        self._of_run: dict[tuple[str, str], _Node] = {}

    def add_run(self, folder: RunFolder) -> None:
        """Ask the nodes of a run, unless its folder does not say how, or they have none of it."""
        with suppress(CockpitError):
            pool = self._pools.of(folder.manifest)
            for entry in folder.manifest.nodes if not folder.manifest.foreign else ():
                self._of_run[folder.name, entry.name] = self.add(pool, entry.name, _base(entry.dir))

    def add(self, pool: LinkPool, name: str, base: str = "") -> _Node:
        """Ask one more node, or one of another place, too."""
        node = self._nodes.setdefault((id(pool), name), _Node(pool, name))
        node.bases.update([base] if base else [])
        return node

    async def ask(self, found: Survey) -> None:
        """Ask them all at once."""
        self._pools.roll.expect(node.name for node in self._nodes.values())
        work = {f"{place} {node.name}": node for place, node in enumerate(self._nodes.values())}
        more, errors = await settle({key: node.ask() for key, node in work.items()})
        found.more = sum(more.values())
        for key, error in errors.items():
            work[key].error = found.errors[work[key].name] = error

    async def with_parts(self, run: Old, folder: RunFolder, found: Survey) -> Old:
        """The same run with its folders on its nodes."""
        if run.state == "damaged" or run.fixed or folder.manifest.foreign:
            return run
        parts, _ = await settle(
            {entry.name: self._part(folder, entry, found) for entry in folder.manifest.nodes}
        )
        return replace(run, parts=parts)

    async def _part(self, folder: RunFolder, entry: NodeEntry, found: Survey) -> Part:
        node = self._of_run[folder.name, entry.name]
        if node.error is not None:
            return Part(whole=False, why=node.error.what)
        one = next((one for one in node.folders if one.dir == entry.dir), None)
        if one is None or not _is_its(folder, entry, one):
            return Part()
        part = Part(True, one.bytes, one.whole, 0, bool(one.alive or one.living), one.ended)
        if not one.ours:
            return replace(part, why=f"its folder there is {one.owner}'s")
        if one.record is None:
            return replace(part, why="its folder there has no valid record")
        found.places[folder.name, entry.name] = Place(node.name, node.pool, one)
        try:
            return replace(part, reports=await uncollected(folder, await node.pool.lend(node.name), entry))
        except CockpitError as error:
            return replace(part, why=error.what)

    def strays(self, folders: Iterable[RunFolder]) -> list[Place]:
        """Folders of no run that is known here, each once, whichever node shows it; the oldest first."""
        known: set[object] = set()
        for folder in folders:
            with suppress(CockpitError):
                for entry in folder.manifest.nodes:
                    known |= {entry.dir, (folder.name, entry.name)}
        seen: dict[str, Place] = {}
        for node in self._nodes.values():
            for one in node.folders:
                facts = one.record
                if one.dir in known or (facts is not None and (facts.run, facts.node) in known):
                    continue
                # On a shared file system each node shows the folders of all: the one that made it is asked.
                if one.id not in seen or (facts is not None and facts.host == node.host):
                    seen[one.id] = Place(node.name, node.pool, one)
        return sorted(seen.values(), key=lambda place: (-place.folder.idle_s, place.folder.dir))


def _base(dir: str) -> str:
    return posixpath.dirname(posixpath.dirname(dir))


def _is_below(one: KeptFolder, bases: Collection[str]) -> bool:
    """Whether a run folder is where its name says; a node could name any folder."""
    facts = one.record
    named = facts is None or posixpath.basename(posixpath.dirname(one.dir)) == facts.run
    return named and posixpath.normpath(one.dir) == one.dir and _base(one.dir) in bases


def _is_its(folder: RunFolder, entry: NodeEntry, one: KeptFolder) -> bool:
    """Whether a folder on a node is that of this launch, and not of another one of the same name."""
    facts = one.record
    if facts is None:
        return True
    if (facts.run, facts.node) != (folder.name, entry.name):
        return False
    for event in islice(folder.recorded(entry), 1):
        if isinstance(event.fact, SupervisorStarted) and event.fact.pid:
            began = (event.fact.pid, event.fact.ticks, event.fact.boot_id)
            return began == (facts.supervisor.pid, facts.supervisor.ticks, facts.boot_id)
    return True
