"""nsys reports of a run, summed up on their nodes, or one that is here: they become a collection.

Each node answers for itself: one that is slow, or lost, costs nobody else's.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from cockpit.base import verbs
from cockpit.base.answers import ProfileItem
from cockpit.base.gate import RANKS_A_NODE, Malformed
from cockpit.base.profile.summary import RankProfile
from cockpit.base.shared_fields import Target
from cockpit.base.shell import join
from cockpit.config import load
from cockpit.core.profile import nsys
from cockpit.core.profile.collection import DONE, Collection, RankResult
from cockpit.core.run.model import RunModel
from cockpit.core.text import one_line
from cockpit.engine.links.link import Link, RemoteError, streaming
from cockpit.engine.links.pool import PYTHONS, LinkPool, settle
from cockpit.engine.profile.store import Store
from cockpit.engine.profile.taking import ROOM, SUMMARY, summary_of, unpacked
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.errors import CockpitError, os_error
from cockpit.plans.profilers.nsys import Nsys
from cockpit.transport.base import Reach

REPORT_S = 2500.0
"""For a node to say something new: it exports one report, and reads it."""

HELP_S = 10.0
"""For nsys here to say what it can do."""

HERE = "localhost"

_STATES = frozenset({"exporting", "reading", DONE, "failed"})

Progress = Callable[[Mapping[int, RankResult]], None]
"""Is told how far each rank is."""


class _Asked(NamedTuple):
    """What a node is asked for.

    :param own: ranks that it may speak of; None: it numbers them itself
    """

    name: str
    request: verbs.SumUp
    own: frozenset[int] | None


def tools(manifest: Manifest | None = None) -> tuple[str, ...]:
    """Where nsys may be on a node: what the run was launched with, else the usual places."""
    told = (manifest.profile or {}).get(nsys.KIND) if manifest is not None else None
    return (*([told] if isinstance(told, str) and told else []), *Nsys().places)


async def sum_up(
    folder: RunFolder, pool: LinkPool, wanted: str = "", progress: Progress = lambda results: None
) -> Collection:
    """Sum up the reports of all nodes of a run.

    :param wanted: the id of the collection that they are part of; empty: the newest
    :raises CockpitError: no node has such a report
    """
    manifest = folder.manifest
    found, errors = await settle({node.name: _list(pool, node) for node in manifest.nodes})
    groups = {nsys.collection_of(name) for names in found.values() for name in names}
    chosen = wanted or nsys.newest(groups)
    files = {
        node: tuple(name for name in names if nsys.collection_of(name) == chosen)
        for node, names in found.items()
    }
    if not any(files.values()):
        raise next(iter(errors.values()), _none(folder))
    results: dict[int, RankResult] = {}
    offsets: dict[str, float] = {}

    async def ask(node: NodeEntry) -> None:
        link = await pool.lend(node.name)
        if link.clock.rtt_s == float("inf"):
            await link.measure_clock()
        offsets[node.name] = link.clock.offset_s
        request = verbs.SumUp(node.dir, files[node.name], tuple(node.ranks), tools=tools(manifest))
        await _ask(link, _Asked(node.name, request, frozenset(node.ranks)), results, progress)
        for rank in nsys.ranks_in(files[node.name], node.ranks) & set(node.ranks):
            one = results.setdefault(rank, RankResult(rank, node.name))
            if one.state not in (DONE, "failed"):
                results[rank] = replace(one, why="no further status from its node")

    work = {node.name: ask(node) for node in manifest.nodes if files.get(node.name)}
    _, failed = await settle(work)
    errors |= failed
    for node in manifest.nodes:
        if (error := errors.get(node.name)) is not None:
            for rank in node.ranks:
                if results.get(rank) is None or results[rank].state != DONE:
                    results[rank] = RankResult(rank, node.name, "failed", one_line(error.what, limit=300))
    return _collection(chosen, folder.name, results, offsets)


async def _list(pool: LinkPool, node: NodeEntry) -> list[str]:
    """Names of the reports of a node."""
    link = await pool.lend(node.name)
    answer = await link.call(verbs.Reports(node.dir))
    return [one.name for one in answer.files if one.name.endswith(nsys.SUFFIX)][:1000]


def _none(folder: RunFolder) -> CockpitError:
    hint = "launch with --profile nsys" if not folder.manifest.profile else "see: cockpit collect"
    return CockpitError("its nodes have no nsys report", where=folder.name, hint=hint)


def keep(store: Store, one: Collection) -> Collection:
    """Keep a collection of reports, with what is known of it already.

    :raises CockpitError: it cannot be kept
    """
    known = [head.number for head in store.heads() if (head.kind, head.id) == (nsys.KIND, one.id)]
    before = store.load(known[-1]) if known else replace(one, number=store.begin(load().quotas))
    one = _merged(before, one)
    store.save(one)
    return one


def _merged(before: Collection, one: Collection) -> Collection:
    """A collection with what its reports say now; what was known stays where they say nothing."""
    results = dict(before.results)
    for rank, now in one.results.items():
        was = results.get(rank)
        if was is None or was.state != DONE:
            results[rank] = now
        elif now.state == DONE:
            results[rank] = replace(now, began=was.began or now.began)
        else:
            results[rank] = replace(was, why=one_line(f"not summed up now: {now.why}", limit=300))
    seconds = before.seconds if one.seconds is None else one.seconds
    offsets = {**before.offsets, **one.offsets}
    return replace(before, results=results, offsets=offsets, seconds=seconds)


async def read_here(file: Path, folder: RunFolder | None = None) -> Collection:
    """Sum up a report, or its SQLite export, that is on this machine.

    :param folder: of the run that it is of, whose processes are its ranks
    :raises CockpitError: it cannot be read, or there is no nsys
    """
    try:
        path = file.resolve(strict=True)
    except OSError as error:
        raise os_error("cannot be read", file, error) from None
    if path.suffix not in (nsys.SUFFIX, ".sqlite"):
        hint = "expected a .nsys-rep, or the .sqlite that nsys export makes of it"
        raise CockpitError("not a report of nsys", where=str(file), hint=hint)
    model = None if folder is None else folder.model()
    targets = _targets(model, path)
    request = verbs.SumUp(
        str(path.parent),
        (path.name,),
        tuple(one.rank for one in targets),
        targets,
        tools(),
        named=True,
    )
    results: dict[int, RankResult] = {}
    async with LinkPool([sys.executable, *PYTHONS], Reach("local")) as pool:
        link = await pool.lend(HERE)
        own = frozenset(one.rank for one in targets) or None
        await _ask(link, _Asked(HERE, request, own), results, lambda results: None)
    node = _node_of(model, path)
    results = {rank: replace(one, node=node) for rank, one in results.items()}
    if not any(one.state == DONE for one in results.values()):
        why = next((one.why for one in results.values()), "it has nothing in it")
        raise CockpitError(f"cannot be summed up: {why}", where=str(file))
    return _collection(nsys.LAUNCH, "" if folder is None else folder.name, results, {})


def _node_of(model: RunModel | None, path: Path) -> str:
    """The node of a run that a fetched report comes from; this machine, where that is not known."""
    nodes = [] if model is None else list(model.nodes)
    named = [node for node in nodes if node in f"{path.parent.name} {path.name}"]
    return max(named, key=len) if named else nodes[0] if len(nodes) == 1 else HERE


def _targets(model: RunModel | None, path: Path) -> tuple[Target, ...]:
    """The processes that are ranks of the run."""
    if model is None:
        return ()
    node = _node_of(model, path)
    ranks = model.on(node) if node in model.nodes else []
    return tuple(Target(one.rank, one.pid, one.ticks or 0) for one in ranks if one.pid)


async def _ask(link: Link, asked: _Asked, results: dict[int, RankResult], progress: Progress) -> None:
    """One node, until it has said all."""
    async with streaming(link, asked.request) as stream:
        while (part := await stream.part(REPORT_S)) is not None:
            await _take_in(asked, *part, results)
            progress(results)


async def _take_in(asked: _Asked, item: ProfileItem, data: bytes, results: dict[int, RankResult]) -> None:
    """What a node says of one rank.

    :raises RemoteError: it is nothing that a node of ours sends
    """
    rank, before = item.rank, results.get(item.rank)
    if asked.own is not None and rank not in asked.own:
        what = f"sent a profile of rank {rank}, which was not requested"
        raise RemoteError("protocol", what, where=asked.name)
    if len(results) >= RANKS_A_NODE and asked.own is None:
        raise RemoteError("protocol", "sent too many ranks", where=asked.name)
    odd = item.state not in _STATES or item.file not in asked.request.files or (data and item.state != DONE)
    if odd or (before is not None and before.state == DONE):
        raise RemoteError("protocol", f"sent a profile that is {item.state[:20]!r}", where=asked.name)
    why = one_line(item.what, limit=300)
    one = RankResult(rank, asked.name, item.state, why, file=item.file, size=item.size)
    if item.state == "failed":
        one = replace(one, why=why or "it failed")
    if item.state == DONE:
        one = await asyncio.to_thread(_opened, one, data, ROOM // max(1, len(asked.request.ranks)))
    results[rank] = one


def _opened(one: RankResult, data: bytes, room: int) -> RankResult:
    """A rank with its summary; with the reason, if that is nothing that can be used. Runs in a thread."""
    try:
        summary = summary_of(unpacked(data, min(SUMMARY, room)), one)
    except Malformed as error:
        return replace(one, state="failed", why=one_line(f"its summary is invalid: {error}", limit=300))
    return replace(one, summary=summary, sha256=summary.sha256)


def _collection(
    id: str, run: str, results: Mapping[int, RankResult], offsets: Mapping[str, float]
) -> Collection:
    profiles = {rank: one.summary for rank, one in results.items() if one.summary is not None}
    kept = dict(sorted(results.items()))
    for rank, profile in nsys.matched(profiles).items():
        began = profile.steps[0].began / 1e9 - offsets.get(kept[rank].node, 0.0) if profile.steps else None
        kept[rank] = replace(kept[rank], summary=profile, began=began if began and began > 0 else None)
    first = _first(profiles.values())
    steps = max((len(profile.steps) for profile in profiles.values()), default=0)
    # Without steps each is one window.
    took = [profile.steps[0].took / 1e9 for profile in profiles.values() if profile.steps]
    seconds = round(median(took), 3) if took and first is None else None
    return Collection(
        0, id, run, nsys.KIND, time.time(), first, steps, seconds, results=kept, offsets=offsets
    )


def _first(profiles: Iterable[RankProfile]) -> int | None:
    """The first step that any has; None: steps are not marked."""
    return min((profile.steps[0].step for profile in profiles if len(profile.steps) > 1), default=None)


def recipe_of(reports: Path | None) -> str:
    """The command by which NVIDIA's own tool sums up all reports of a folder; empty: this nsys has none."""
    found = shutil.which("nsys")
    if reports is None or found is None:
        return ""
    try:
        with TemporaryDirectory() as empty:
            done = subprocess.run(
                [found, "--help"], cwd=empty, capture_output=True, timeout=HELP_S, check=False
            )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return join(["nsys", "recipe", "nccl_sum", "--input", str(reports)]) if b" recipe" in done.stdout else ""
