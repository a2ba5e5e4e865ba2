"""What a verdict uses beside stacks: steps of all ranks, recorders, NCCL's RAS, a closer look at a few."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import replace

from cockpit.base import verbs
from cockpit.base.answers import RankCalls
from cockpit.base.events import RankSample
from cockpit.base.stacks.dump import Dump, Thread
from cockpit.core.pace.pace import Pace
from cockpit.core.stacks.class_facts import PEERS, ROOTS
from cockpit.core.stacks.collectives import of_look
from cockpit.core.stacks.last_calls import harmless
from cockpit.core.stacks.progress import Progress, of_pace
from cockpit.core.stacks.verdict import wanted
from cockpit.engine.links.link import Link, streaming
from cockpit.engine.logs.remote_tail import steps_there
from cockpit.engine.ras import ask_ras
from cockpit.engine.recorder import RecorderAnswers, Recorders
from cockpit.engine.stacks.ask import Party
from cockpit.engine.stacks.take import Sampler
from cockpit.engine.work_sampler import steps_of, worked
from cockpit.errors import CockpitError

RECENT = 200
"""Calls of each rank that are looked at: who is missing follows from the last of each group."""

ANSWER_S = 5.0
"""Seconds within which a node says how far its ranks are."""

SAID = frozenset(name for names in (*PEERS.values(), *ROOTS.values()) for name in names)
"""Variables that are kept of a call between two ranks, or of one that has a root."""


class Facts:
    """Puts into the snapshots of one job what a verdict uses beside stacks.

    :param pace: of its run, where a session keeps one: it knows steps that logs tell of, and who is slow
    """

    def __init__(self, party: Party, pace: Pace | None = None) -> None:
        self._recorders = Recorders(party)
        self._pace = pace
        self.heard: RecorderAnswers | None = None
        """What the recorders said last."""

    async def gather(self, sampler: Sampler) -> None:
        """Put into a snapshot what else its verdict uses; what nobody answers stays unknown."""
        party, snapshot = sampler.party, sampler.snapshot
        steps = _steps(party, logs=self._pace is None)
        asked = steps, self._recorders.look(rows=RECENT), ask_ras(party), _ends(sampler), _calls(sampler)
        own, heard, snapshot.ras, _, snapshot.calls = await asyncio.gather(*asked)
        self.heard = heard
        if heard.probed:
            snapshot.collectives = of_look(heard.look, heard.silent, time.time())
            await asyncio.to_thread(_worked, own, heard)
        snapshot.progress = _progress(own, self._pace)

    async def look_closer(self, sampler: Sampler) -> None:
        """Look once more at the ranks of which more would tell for whom they wait, unasked."""
        for rank, what in (await asyncio.to_thread(wanted, sampler.snapshot.copy())).items():
            with suppress(CockpitError):
                dump = await sampler.look(rank, native=what == "native", locals=what == "locals")
                if dump.threads:
                    sampler.snapshot.closer[rank] = _only_partners(dump)


def _only_partners(dump: Dump) -> Dump:
    """Without variables, except those that say with whom a call exchanges something."""

    def cut(thread: Thread) -> Thread:
        kept = [{name: text for name, text in one.items() if name in SAID} for one in thread.locals]
        return thread._replace(locals=tuple(kept) if any(kept) else ())

    return replace(dump, threads=tuple(map(cut, dump.threads[:1])), deputy=None)


async def _ends(sampler: Sampler) -> None:
    """How ranks have ended that were seen to: what is recorded says more than that they are gone."""
    dumps = sampler.snapshot.samples[-1].dumps if sampler.snapshot.samples else {}
    if all(rank in dumps and dumps[rank].threads for rank in sampler.snapshot.ranks):
        return
    with suppress(CockpitError):
        await sampler.party.refresh()
        for rank, place in sampler.party.places().items():
            if place.ended_at is not None and rank in sampler.snapshot.ranks:
                sampler.snapshot.ranks[rank] = place


async def _calls(sampler: Sampler) -> dict[int, RankCalls]:
    """The last calls of ranks without a stack, where they note them."""
    party, of_node = sampler.party, dict[str, list[int]]()
    for rank in sampler.snapshot.missing():
        node = sampler.snapshot.ranks[rank].node
        if node in party.nodes and party.folder(node):
            of_node.setdefault(node, []).append(rank)
    found: dict[int, RankCalls] = {}

    async def ask(node: str, ranks: list[int]) -> None:
        with suppress(CockpitError):
            link = await party.link(node)
            answer = await link.call(verbs.Calls(party.folder(node), tuple(ranks)), deadline_s=ANSWER_S)
            found.update({one.rank: harmless(one) for one in answer.ranks if one.rank in ranks})

    await asyncio.gather(*(ask(node, ranks) for node, ranks in of_node.items()))
    return found


async def _steps(party: Party, *, logs: bool) -> Pace:
    """The last steps of all ranks, as their probes note them.

    :param logs: where they do not, as logs tell
    """
    pace = Pace(sorted(party.places()))
    nodes = [node for node in party.nodes if party.folder(node)]
    await asyncio.gather(*(_of_node(party, node, pace, logs=logs) for node in nodes))
    return pace


async def _of_node(party: Party, node: str, pace: Pace, *, logs: bool) -> None:
    """What a node says of its own ranks; a node that says nothing leaves them unknown."""
    with suppress(CockpitError):
        link = await party.link(node)
        if link.clock.rtt_s >= 1:
            await link.measure_clock()
        ranks = await _sample(link, party.folder(node))
        here = {rank for rank, place in party.places().items() if place.node == node}
        noted = {rank: sample.progress for rank, sample in ranks.items() if rank in here and sample.progress}
        for rank, progress in noted.items():
            for step in progress.steps:
                pace.stepped(rank, step.step, step.t - link.clock.offset_s, span=step.seconds)
        if logs and not noted:
            for told in await steps_there(link, party.folder(node), here):
                pace.stepped(told.rank, told.step, told.at - link.clock.offset_s, exact=False)


async def _sample(link: Link, folder: str) -> dict[int, RankSample]:
    async with streaming(link, verbs.Samples(folder)) as stream:
        part = await stream.part(ANSWER_S)
        return {} if part is None else dict(part[0].ranks)


def _worked(pace: Pace, heard: RecorderAnswers) -> None:
    """How much of the last steps was work."""
    found, stages = worked(heard.look, steps_of(pace, heard.look, 0.0))
    if stages:
        pace.steps.staged(stages)
    for one in found:
        if one.us is not None:
            pace.lag = pace.lag or one.lag
            pace.worked(one.rank, one.step, one.us / 1e6, one.cost_us / 1e6)


def _progress(own: Pace, pace: Pace | None) -> Progress | None:
    now = time.time()
    found = of_pace(own, now)
    if pace is not None:
        known = of_pace(pace, now)
        if not found.ranks:
            return known if known.ranks else None
        if not found.slow:
            found = replace(found, slow=known.slow, usual_s=found.usual_s or known.usual_s)
    return found if found.ranks else None
