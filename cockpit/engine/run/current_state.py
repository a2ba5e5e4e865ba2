"""The state of a run, as it is known here and as its nodes report it now; what they tell of ends is kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

from cockpit import paths
from cockpit.base import events, verbs
from cockpit.base.progress.past import Stretch
from cockpit.core.run.events import Event, RecordReader
from cockpit.core.run.model import RunModel
from cockpit.engine.links.link import Link, RemoteError, streaming
from cockpit.engine.links.pool import LinkPool, link_state
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry, planned
from cockpit.engine.run import foreign_jobs
from cockpit.engine.run.join import Errors, ask_all, still_there
from cockpit.engine.run.node_steps import kept_steps
from cockpit.engine.run.reboot import why_lost
from cockpit.errors import CockpitError
from cockpit.transport.base import LinkError, Reclaimed

if TYPE_CHECKING:
    from cockpit.engine.run.paces import PaceBook

KEEP_S, KEEP_BYTES = 10.0, 8 << 20
"""Time, and bytes of each node, that copying what it has takes at most."""

_SAMPLE_S = 10.0
"""For one look at all processes of a node."""


async def model_now(
    pool: LinkPool,
    manifest: Manifest,
    *,
    measure: bool = False,
    only: Collection[str] | None = None,
    paces: PaceBook | None = None,
) -> tuple[RunModel, Errors]:
    """The state of a run as its nodes report it now, and an error for each node that did not answer.

    :param measure: take samples of every node too; it takes a second
    :param only: names of the nodes to ask, where not all are
    :param paces: is told what they report
    """

    missed: dict[str, list[Stretch]] = {}

    async def ask(link: Link, node: NodeEntry) -> list[Event]:
        try:
            found, alive = await recorded(link, manifest, node)
        except RemoteError as error:
            if error.kind != "gone":
                raise
            why = why_lost(link, manifest, node, error.what)
            raise RemoteError("gone", why, where=node.name) from None
        if measure and alive:
            model = RunModel.of([planned(manifest), *found])
            targets = foreign_jobs.targets(model, node.name) if manifest.foreign else ()
            found += await _samples(link, verbs.Samples(node.dir, targets=targets))
        if paces is not None and not manifest.foreign:
            known, most = paces.known_until(node), paces.pace.steps.limit // 2
            missed[node.name] = await kept_steps(link, node, known, link.clock.offset_s, most)
        return found

    answers, errors = await ask_all(pool, manifest, ask, only)
    folder = RunFolder(paths.runs() / manifest.run)
    model, news = _with_known(folder, answers)
    if news:
        await keep(folder, pool, news)
    if paces is not None:
        for event in chain(*answers.values()):
            paces.event(model, event)
        for node in manifest.nodes:
            await paces.missed(model, node, missed.get(node.name, ()))
    for name, error in list(errors.items()):
        model.apply(Event(time.time(), name, events.LinkChanged(link_state(error), error.what)))
        taken = isinstance(error, Reclaimed)
        if taken or (isinstance(error, RemoteError) and error.kind == "gone"):
            model.apply(Event(time.time(), name, events.NodeLost(error.what, taken=taken)))
    if not model.ended_by_itself and not model.job_end_final:
        vanished = any(node.supervisor_gone for node in model.nodes.values())
        if vanished or model.job_end or any(isinstance(error, Reclaimed) for error in errors.values()):
            for event in await asyncio.to_thread(folder.job_ended, ask=True, vanished=vanished):
                model.apply(event)
                if model.job_end_final:
                    _note(folder, event)
    return model, errors


def _note(folder: RunFolder, event: Event) -> None:
    """Keep what may not be known any more later, unless another cockpit does."""
    mine = RunFolder(folder.path)
    with suppress(CockpitError):  # it is as true without
        try:
            if mine.lock():
                mine.write(event)
        finally:
            mine.close()


_ENDS = (events.RankExited, events.RankLost, events.StopRequested, events.Ended)
"""What must not be forgotten, though nobody may be left to ask later."""
_OUTDATED = (events.NodeLost, events.SupervisorGone, events.LinkChanged)
"""What nodes that answer know better."""


def _with_known(folder: RunFolder, answers: Mapping[str, list[Event]]) -> tuple[RunModel, list[str]]:
    """What is known here of a run, and on top of it what its nodes answer; and who tells ends that are news.

    What was recorded first stays: a node that answers less than before takes nothing back.
    """
    manifest = folder.manifest
    if manifest.foreign:
        return RunModel.of([planned(manifest), *chain(*answers.values())]), []
    model = RunModel.of([planned(manifest)])
    for event in folder.journal():
        if event.node not in answers or not isinstance(event.fact, _OUTDATED):
            model.apply(event)
    news = []
    for node in manifest.nodes:
        known = set()
        for event in folder.recorded(node):
            known.add((event.at, event.kind))
            model.apply(event)
        fresh = [one for one in answers.get(node.name, ()) if (one.at, one.kind) not in known]
        for event in fresh:
            model.apply(event)
        if any(isinstance(event.fact, _ENDS) for event in fresh):
            news.append(node.name)
    for event in folder.job_ended():
        model.apply(event)
    return model, news


async def keep(folder: RunFolder, pool: LinkPool, names: Iterable[str]) -> dict[str, str]:
    """Copy what nodes have of a run, unless another cockpit does, within :data:`KEEP_S`.

    :return: of nodes whose output is not all here, why
    """
    from cockpit.engine.run.session import Session

    folder, names = RunFolder(folder.path), list(names)
    try:
        if not folder.lock():
            return {}
    except CockpitError:
        return {}  # only whoever may write there keeps anything
    session = Session(folder, pool=pool)
    try:
        await session.rejoin()
        return await session.bring(names, KEEP_S, KEEP_BYTES)
    except CockpitError as error:  # such as a full disk here
        return dict.fromkeys(names, f"its output cannot be copied: {error}")
    finally:
        await session.close(pool=False)


async def recorded(link: Link, manifest: Manifest, node: NodeEntry) -> tuple[list[Event], bool]:
    """What a node has recorded of a run, and whether it can be measured (its supervisor lives).

    If its run folder is gone, what was copied from it before counts, and what its processes say now.

    :raises CockpitError: the node cannot say
    """
    if manifest.foreign:
        return await foreign_jobs.look(link, manifest, node), True
    answer = await link.call(verbs.Status(node.dir, manifest.run, node.name))
    record = RecordReader(node.name, node.ranks)
    found = record.events(answer.events.lines + answer.found.lines)
    if answer.gone is not None:
        found = list(RunFolder(paths.runs() / manifest.run).recorded(node))
        model = RunModel.of([planned(manifest), *found])
        found += still_there(model, node.name, answer.gone)
    bad = answer.events.bad + answer.found.bad + record.bad
    await link.measure_clock()
    facts: list[events.Fact] = [
        events.ClockMeasured(link.clock.offset_s, link.clock.rtt_s),
        events.LinkChanged("ok"),
    ]
    if bad:
        facts.append(events.Damaged(bad))
    if not answer.alive and not any(isinstance(event.fact, events.Ended) for event in found):
        facts.append(events.SupervisorGone())
    found += [Event(time.time(), node.name, fact) for fact in facts]
    return found, bool(answer.alive) and answer.gone is None


async def _samples(link: Link, request: verbs.Samples) -> list[Event]:
    """Two: the first has the last steps of all ranks, the second their CPU shares since.

    :raises RemoteError: the node refused
    """
    found: list[Event] = []
    async with streaming(link, request) as stream:
        try:
            while len(found) < 2 and (part := await stream.part(_SAMPLE_S)) is not None:
                item, _ = part
                found.append(Event(time.time(), link.node, events.Sample(item.node, item.ranks, item.gpus)))
        except Reclaimed:
            raise
        except LinkError as error:
            # What the node reported about its ranks still holds.
            why = events.Note(f"no measurements: {error.what}", events.SAMPLES)
            return [*found, Event(time.time(), link.node, why)]
    return found or [Event(time.time(), link.node, events.Note("no measurements", events.SAMPLES))]
