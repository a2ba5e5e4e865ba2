"""What torch's flight recorders say of pace: looked at now and then, never followed.

How much of each step was work; and, of ranks whose steps are not known, which collective was their last.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from pathlib import Path

from cockpit.core.masks import ranks_of
from cockpit.core.pace.pace import Pace
from cockpit.core.recorder.counts import Count, counts
from cockpit.core.recorder.merge import Look
from cockpit.core.recorder.work import Step, Work, parts, unknown, work
from cockpit.core.run.probes import has_recorder
from cockpit.core.run.states import Run
from cockpit.engine.recorder import Recorders
from cockpit.engine.run import work_unknown
from cockpit.engine.run.paces import EVERY_S as EVERY_KEPT_S
from cockpit.engine.run.paces import SETTLED_S
from cockpit.engine.run.session import Session
from cockpit.engine.stacks.ask import Party
from cockpit.engine.stacks.targets import RunParty

FIRST_S = 15.0
"""Seconds after the first steps until the first look."""

EVERY_S = 60.0
"""Seconds between two looks: a full recorder takes a rank up to 0.1 s to write out."""

OVERLAP_S, OVERLAP_STEPS = 10.0, 2
"""Seconds, and beyond them usual steps, that a look goes back beyond the one before: of a step only what is
known from its begin on tells how much of it was work."""

SOON_S = 15.0
"""Seconds between two looks, at least, if steps have become longer or shorter: what is known says nothing of
them."""

CHECKED_S = 2.0
"""Seconds between two times that it is seen whether they have."""

GLANCE_S = 10.0
"""Seconds that a person waits for recorders, at most."""

GLANCE_ROWS = 400
"""Calls of each rank that are looked at then."""


def watch_works(session: Session, *, first_s: float = FIRST_S, every_s: float = EVERY_S) -> None:
    """Look at a run's recorders for as long as its session is open and the one that writes.

    :param first_s: seconds after the first steps until the first look
    :param every_s: seconds between two looks
    """
    if not session.manifest.foreign:
        party = RunParty(session.manifest, session.model, session.pool.at_hand)
        folder = session.folder.path
        recorders = Recorders(party)
        works = Works(recorders, session.pace, session.model, first_s=first_s, every_s=every_s, folder=folder)
        session.act(works.watch, "work")


def untold(run: Run, pace: Pace) -> bool:
    """Whether nothing but its recorder tells how far some rank is."""
    return any(has_recorder(rank) and pace.of(rank.rank).step is None for rank in run.ranks.values())


def unworked(run: Run, pace: Pace) -> bool:
    """Whether recorders may tell how much of the last steps was work, and nobody has asked them lately."""
    return pace.exact and not pace.works and any(map(has_recorder, run.ranks.values()))


async def glance_at_work(party: Party, pace: Pace) -> None:
    """Look at recorders once for the work in the steps that are not kept yet, and for signs of progress.

    What does not answer soon is left out.
    """
    with suppress(asyncio.TimeoutError):
        works = Works(Recorders(party), pace, every_s=SETTLED_S + EVERY_KEPT_S)
        await asyncio.wait_for(works.look(), GLANCE_S)


async def glance(party: Party, pace: Pace) -> None:
    """Look at recorders once for the signs of progress in them; what does not answer soon is left out."""
    with suppress(asyncio.TimeoutError):
        asked = Recorders(party).look(time.time() - OVERLAP_S, GLANCE_ROWS)
        heard = await asyncio.wait_for(asked, GLANCE_S)
        _note(pace, await asyncio.to_thread(counts, heard.look))


def _note(pace: Pace, found: Mapping[int, Count]) -> None:
    at = time.time()
    for rank, count in found.items():
        pace.signs.entered(rank, count, at)


@dataclass(eq=False)
class Works:
    """Looks at the recorders of a run's ranks, and tells the pace what they say.

    :param run: its ranks with their probes; None: recorders are looked at for work only
    :param first_s: seconds after the first steps until the first look
    :param every_s: seconds between two looks
    :param folder: where it is kept why work is not known; None: nowhere
    """

    recorders: Recorders
    pace: Pace
    run: Run | None = None
    _: KW_ONLY
    first_s: float = FIRST_S
    every_s: float = EVERY_S
    folder: Path | None = None

    async def watch(self) -> None:
        """Look now and then, once ranks note steps or have a recorder alone; cancel it to end it."""
        looked = -math.inf
        while True:
            if self.pace.exact:
                await self.look()
                await self._pause()
                continue
            if time.monotonic() - looked >= self.every_s and self._untold():
                await self.look()
                # Once they do note steps, the first look at their work does not wait for so long.
                looked = time.monotonic()
            await asyncio.sleep(self.first_s)

    async def _pause(self) -> None:
        """Wait until the next look, less long if steps take another time than those of which is known."""
        until = time.monotonic() + self.every_s
        await asyncio.sleep(min(SOON_S, self.every_s))
        while (left := until - time.monotonic()) > 0 and not self.pace.moved_on():  # noqa: ASYNC110 (asks)
            await asyncio.sleep(min(CHECKED_S, left))

    def _untold(self) -> bool:
        return self.run is not None and untold(self.run, self.pace)

    async def look(self) -> None:
        """Look once."""
        steps_s = OVERLAP_STEPS * (self.pace.usual() or 0.0)
        since = time.time() - self.every_s - OVERLAP_S - steps_s
        heard = await self.recorders.look(since)
        found, stages = await asyncio.to_thread(worked, heard.look, steps_of(self.pace, heard.look, since))
        _note(self.pace, await asyncio.to_thread(counts, heard.look))
        if stages:  # else nothing of training is on record, as in an evaluation
            self.pace.steps.staged(stages)
        self.pace.unworked = unknown(found, heard.silent)
        if self.folder is not None:
            await asyncio.to_thread(work_unknown.keep, self.folder, self.pace.unworked)
        known = [one for one in found if one.us is not None]
        # Of most ranks: what one node says of its own ranks does not change what is said of the others.
        if known:
            self.pace.lag = 2 * len({one.rank for one in known if one.lag}) > len({one.rank for one in known})
        for one in known:
            self.pace.worked(one.rank, one.step, (one.us or 0) / 1e6, one.cost_us / 1e6)


def steps_of(pace: Pace, look: Look, since: float) -> dict[int, list[Step]]:
    """Steps of ranks with a recorder, from a moment on, that had nothing between them and the step before.

    :param since: unix seconds
    """
    return {
        rank: [
            Step(step, round(begin * 1e6), round(end * 1e6))
            for (before, begin), (step, end) in pairwise(pace.ends(rank, since))
            if step == before + 1 and end > begin
        ]
        for rank in ranks_of(look.heard)
    }


def worked(look: Look, steps: dict[int, list[Step]]) -> tuple[list[Work], dict[int, int]]:
    """How much of these steps was work, and the stages of a pipeline that ranks are in, if it has several."""
    stages = parts(one for one in look.collectives if one.members.bit_count() > 1)
    return work(look, steps, stages=stages), stages
