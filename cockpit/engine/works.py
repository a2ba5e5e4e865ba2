"""How much of each step was work, from torch's flight recorders: looked at now and then, never followed."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from pathlib import Path

from cockpit.core.masks import ranks_of
from cockpit.core.pace.pace import Pace
from cockpit.core.recorder.look import Look
from cockpit.core.recorder.work import Step, Work, parts, unknown, work
from cockpit.engine.recorder import Recorders
from cockpit.engine.run import unworked
from cockpit.engine.run.session import Session
from cockpit.engine.stacks.ask import Party
from cockpit.engine.stacks.parties import RunParty

FIRST_S = 15.0
"""Seconds after the first steps until the first look."""

EVERY_S = 60.0
"""Seconds between two looks: a full recorder takes a rank up to 0.1 s to write out."""

OVERLAP_S = 10.0
"""Seconds that a look goes back beyond the one before."""


def watch_works(session: Session, *, first_s: float = FIRST_S, every_s: float = EVERY_S) -> None:
    """Look at a run's recorders for as long as its session is open, unless another cockpit does.

    :param first_s: seconds after the first steps until the first look
    :param every_s: seconds between two looks
    """
    if session.writer and not session.manifest.foreign:
        party = RunParty(session.manifest, session.model, session.pool.at_hand)
        works = Works(party, session.pace, first_s=first_s, every_s=every_s, folder=session.folder.path)
        session.accompany(works.watch(), "work")


class Works:
    """Looks at the recorders of a run's ranks, and tells the pace who worked how long.

    :param first_s: seconds after the first steps until the first look
    :param every_s: seconds between two looks
    :param folder: where it is kept why work is not known; None: nowhere
    """

    def __init__(
        self,
        party: Party,
        pace: Pace,
        *,
        first_s: float = FIRST_S,
        every_s: float = EVERY_S,
        folder: Path | None = None,
    ) -> None:
        self._folder = folder
        self._pace = pace
        self._recorders = Recorders(party)
        self._first_s = first_s
        self._every_s = every_s

    async def watch(self) -> None:
        """Look now and then, once ranks note their steps; cancel it to end it."""
        while True:
            wait = self._first_s
            if self._pace.exact:
                await self.look()
                wait = self._every_s
            await asyncio.sleep(wait)

    async def look(self) -> None:
        """Look once."""
        since = time.time() - self._every_s - OVERLAP_S
        heard = await self._recorders.look(since)
        steps = {rank: self._steps(rank, since) for rank in ranks_of(heard.look.heard)}
        found, stages = await asyncio.to_thread(_worked, heard.look, steps)
        self._pace.steps.staged(stages)
        self._pace.unworked = unknown(found, heard.silent)
        if self._folder is not None:
            await asyncio.to_thread(unworked.keep, self._folder, self._pace.unworked)
        known = [one for one in found if one.us is not None]
        # Of most ranks: what one node says of its own ranks does not change what is said of the others.
        if known:
            self._pace.lag = 2 * len({one.rank for one in known if one.lag}) > len(
                {one.rank for one in known}
            )
        for one in known:
            self._pace.worked(one.rank, one.step, (one.us or 0) / 1e6)

    def _steps(self, rank: int, since: float) -> list[Step]:
        """The steps of a rank that were as long as there was nothing between them."""
        ends = self._pace.ends(rank, since)
        pairs = pairwise(ends)
        return [
            Step(step, round(begin * 1e6), round(end * 1e6))
            for (before, begin), (step, end) in pairs
            if step == before + 1 and end > begin
        ]


def _worked(look: Look, steps: dict[int, list[Step]]) -> tuple[list[Work], dict[int, int]]:
    stages = parts(one for one in look.collectives if one.members.bit_count() > 1)
    return work(look, steps, stages=stages), stages
