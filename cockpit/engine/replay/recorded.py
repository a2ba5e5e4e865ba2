"""What the folder of a run tells of any moment: its model, its pace, and what its nodes measured."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

from cockpit.base.events import Sample
from cockpit.core.finding import Finding
from cockpit.core.pace.pace import Pace
from cockpit.core.replay.marks import Mark, Marks
from cockpit.core.replay.moments import EVERY, Moments
from cockpit.core.replay.order import Timed
from cockpit.core.replay.places import Place
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.engine.logs.last_words import last_cause
from cockpit.engine.logs.spooled import last_times
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.history import history
from cockpit.engine.run import measures
from cockpit.engine.run.paces import PaceBook, kept, last_kept
from cockpit.errors import CockpitError


class Recorded:
    """A run from its folder alone; no node is asked, and nothing is written.

    :param folder: the run's folder
    :param told: its events, the earliest first
    """

    def __init__(self, folder: RunFolder, model: RunModel, told: list[Timed]) -> None:
        self.folder = folder
        self.moments = Moments(model, told)
        self.marks: list[Mark] = []
        """What there is to look at, the earliest first."""
        self.begin = folder.manifest.created
        """The first moment, unix seconds on our clock."""
        self.end = self.begin
        """The last one that anything is known of."""
        self.judged: Finding | None = None
        """Who broke first, as is known in the end."""
        self._paces: PaceBook | None = None
        self._paced = 0.0

    @classmethod
    async def read(cls, folder: RunFolder) -> Recorded:
        """Read the run's folder.

        :raises CockpitError: manifest or journal cannot be read
        """
        model, told = await history(folder)
        found = cls(folder, model, told)
        await found._look_through(told)
        if model.first_failure() is not None:
            found.judged = await asyncio.to_thread(last_cause, model, folder)
        return found

    async def _look_through(self, told: list[Timed]) -> None:
        """Go through all of it once: for keyframes, for marks, and to find its end."""
        model, marks = self.moments.model, Marks(self.moments.model)
        over: float | None = None
        for at, event in told:
            self.moments.show(self.moments.done + 1)
            marks.take(at, event)
            if self.moments.done % EVERY == 0:
                await asyncio.sleep(0)
            # What is noted of a run that is over, such as that somebody looked at it, is no part of it.
            over = None if not model.over else at if over is None else over
        self.marks = marks.all
        known = [over if over is not None else told[-1][0]] if told else []
        if (last := last_kept(self.folder)) is not None:
            known.append(last.at)
        for entry in self.folder.manifest.nodes:
            offset_s = model.nodes[entry.name].offset_s
            known += [at - offset_s for at, _ in list(last_times(self.folder, entry))[-1:]]
        self.begin = min([self.begin, *(told[0][0] for _ in told[:1])])
        self.end = max([self.begin, *known])

    def model_at(
        self, at: float, tell: Callable[[Event, set[str | int]], object] = lambda *_: None
    ) -> RunModel:
        """The model as it was at a moment; it is the same one each time.

        :param at: unix seconds
        :param tell: see :meth:`Moments.show`
        """
        self.moments.show(self.moments.count(at), tell)
        model = self.moments.model
        model.judged = self.judged if model.failures() else None
        return model

    async def pace_at(self, at: float) -> Pace:
        """The pace as it was at a moment; another one each time that is earlier than the last.

        :raises CockpitError: the file of its steps cannot be read
        """
        if self._paces is None or at < self._paced:
            self._paces = PaceBook(self.folder, writer=False)
        self._paced = at
        await self._paces.recall(until=at)
        return self._paces.pace

    def samples(self, at: float, model: RunModel) -> Iterator[Event]:
        """The last measurements up to a moment, of the processes that ran then, the earliest first.

        :raises CockpitError: their file cannot be read
        """
        started = {
            number: (rank.started_at or 0.0) - model.nodes[rank.node].offset_s
            for number, rank in model.ranks.items()
        }
        for found in measures.kept(self.folder.path, self.folder.manifest, at):
            sample: Sample = found.sample
            ranks = {rank: one for rank, one in sample.ranks.items() if started.get(rank, at) <= found.at}
            yield Event(found.at, found.node, replace(sample, ranks=ranks))

    async def at(self, place: Place) -> float:
        """The moment of a place, unix seconds, within the run.

        :raises CockpitError: the run did not get there, or its steps are not known
        """
        if place.step is None:
            return min(max(place.at or 0.0, self.begin), self.end)
        return await asyncio.to_thread(self._reached, place.step)

    def _reached(self, step: int) -> float:
        """When the run had finished a step for the first time."""
        last = None
        with suppress(FileNotFoundError):
            for last in kept(self.folder):
                if last.step >= step:
                    return last.at
        if last is None:
            hint = "type a time instead: --at 14:30"
            raise CockpitError("its steps are not known here", where=self.folder.name, hint=hint)
        what = f"it did not get to step {step:,}: the last one known here is {last.step:,}"
        raise CockpitError(what, where=self.folder.name, hint="cockpit metrics lists its steps")
