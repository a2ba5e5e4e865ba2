"""The runs known here, kept up to date while somebody looks: by the index, and by nodes in the background."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from cockpit import paths
from cockpit.base import verbs
from cockpit.base.answers import SeekAnswer
from cockpit.core.ranks import nodes_text
from cockpit.core.run.brief import Brief
from cockpit.core.run.jobs import Job, group
from cockpit.core.text import counted, one_line
from cockpit.engine.briefs import brief_now, briefs
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.join import Pools, adopt
from cockpit.errors import CockpitError
from cockpit.plans.nodes.sources import nodes_from
from cockpit.transport.base import Reach

PATIENCE_S = 15.0
"""How long a node may take to answer."""

SCREENFUL, TAKEN_S = 100, 0.5
"""How many are read before somebody has taken these, and how long that is waited for."""

FRESH_S = 0.1
"""A folder that changed so recently may change again and keep its time: file systems count in ticks."""

ASKED = 20
"""Runs whose nodes are asked, the newest ones."""


class KnownRuns:
    """The runs, by name; whoever shows them takes what is new now and then."""

    def __init__(self) -> None:
        self.runs: dict[str, Brief] = {}
        self.read_once = asyncio.Event()
        """All have been read."""
        self.trouble = ""
        """Why they cannot be."""
        self.asking: set[str] = set()
        """Runs whose nodes are being asked."""
        self.asked_at: float | None = None
        """When all of them had answered, or had their time, unix seconds."""
        self._fresh: deque[Brief] = deque()
        self._taken = threading.Event()
        self._gone: deque[str] = deque()
        self._like: float | None = None
        self._enough = False
        self.elsewhere: dict[str, list[str]] = {}
        """What watches a job that has no folder here, by what it is listed as."""

    @property
    def read_whole(self) -> bool:
        """Whether all have been read and taken in, or cannot be."""
        return self.read_once.is_set() and not self._fresh

    @property
    def silent(self) -> list[str]:
        """Nodes that were asked and did not answer."""
        return sorted({node for run in self.runs.values() for node in run.unreachable})

    def take(self) -> bool:
        """Take in what is new; whether anything is."""
        news = False
        if self._fresh:
            self._taken.set()
        while self._fresh:
            brief = self._fresh.popleft()
            known = self.runs.get(brief.run)
            # What nodes have told is not taken back by what is here.
            if known is None or not (known.asked and not brief.asked and brief.open):
                news |= known != brief
                self.runs[brief.run] = brief
        while self._gone:
            news |= self.runs.pop(self._gone.popleft(), None) is not None
        return news

    def close(self) -> None:
        """Nobody looks any more."""
        self._enough = True

    async def read(self) -> None:
        """Read them, if any has come or gone since the last time."""
        like = 0.0
        with suppress(OSError):
            like = os.stat(paths.runs()).st_mtime
        if like != self._like:
            # A folder may change again within the tick of its time: what is so fresh is looked at once more.
            self._like = like if abs(time.time() - like) > FRESH_S else None
            await asyncio.to_thread(self._read)
            self.read_once.set()

    def _read(self) -> None:
        found = set()
        try:
            for brief in briefs():
                if self._enough:
                    return
                found.add(brief.run)
                self._fresh.append(brief)
                if len(found) == SCREENFUL and not self.runs:
                    self._taken.wait(TAKEN_S)  # reading takes the processor from drawing them
        except CockpitError as error:
            self.trouble = str(error)
            return
        self._gone.extend(self.runs.keys() - found - self.elsewhere.keys())

    async def again(self, run: str, pools: Pools | None = None) -> None:
        """Read one run again, and ask its nodes."""
        self._fresh.append(await brief_now(RunFolder(paths.runs() / run), pools))

    async def ask(self, pools: Pools) -> None:
        """Ask the nodes of all runs that go on, each for as long as it may take."""
        goes_on = [run for run in self.runs.values() if run.open and run.run not in self.asking]
        newest = sorted(goes_on, key=lambda run: run.began, reverse=True)[:ASKED]
        await asyncio.gather(*(self._ask(run.run, pools) for run in newest))
        self.asked_at = time.time() if newest else self.asked_at

    async def look(self, words: Sequence[str], pools: Pools) -> str:
        """Find runs and jobs on these nodes; return what came of it, in a sentence.

        :param words: of a source of nodes (:func:`cockpit.plans.nodes.sources.nodes_from`)
        :raises CockpitError: no nodes are named, or none answers
        """
        from cockpit.engine.links.pool import PYTHONS, settle

        names = [host.name for host in await asyncio.to_thread(nodes_from, words)]
        pool = pools.reaching(Reach(), PYTHONS, {})
        pool.roll.call(names)
        errors = await adopt(pool, names, "")

        async def seek(node: str) -> SeekAnswer:
            return await (await pool.lend(node)).call(verbs.Seek())

        answers, silent = await settle({name: seek(name) for name in names})
        if not answers:
            raise next(iter(silent.values()))
        jobs = [job for job in group(answers) if not job.run]
        for job in jobs:
            self._found(job, words)
        self._like = None  # runs were made known
        await self.read()
        told = f"{nodes_text(answers)}: {counted(len(jobs), 'job')} that cockpit did not start"
        quiet = {name: str(error) for name, error in {**errors, **silent}.items()}
        return "; ".join([told, *quiet.values()])

    def _found(self, job: Job, words: Sequence[str]) -> None:
        """List a job, unless it is known here under a name."""
        for run in self.runs.values():
            if (
                run.foreign
                and not run.over
                and {*run.nodes} == {*job.nodes}
                and abs(run.began - job.started) < 2
            ):
                return
        title = one_line(job.title, limit=200)
        self.elsewhere[title] = ["attach", *words, "--job", title]
        brief = Brief(
            run=title,
            began=max(0.0, min(job.started, time.time())),
            word="running",
            state="running",
            asked=time.time(),
            nodes=tuple(job.nodes),
            ranks=len(job.ranks),
            running=len(job.ranks),
            launcher=job.launcher[:100],
            program=(job.command[:1000],),
            foreign=True,
            recorded=True,
        )
        self._fresh.append(brief)

    async def _ask(self, run: str, pools: Pools) -> None:
        self.asking.add(run)
        try:
            await self.again(run, pools)
        finally:
            self.asking.discard(run)
