"""Taking over and giving way: which of the cockpits attached to a run writes and acts for it changes hands.

When that happens is found out in :mod:`cockpit.engine.run.succession`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import NamedTuple, Protocol

from cockpit.base import events
from cockpit.core.run.event_table import witnessed
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.engine.logs.spool import SpoolUnusable
from cockpit.engine.records.lock import Holder
from cockpit.engine.run.copies import unknown
from cockpit.engine.run.source import Desk, Source
from cockpit.engine.run.succession import LOOK_S
from cockpit.engine.time_slices import by_turns
from cockpit.errors import CockpitError


class Post(Desk, Protocol):
    """What is handed over: a session; see :class:`cockpit.engine.run.session.Session`."""

    source: Source

    def remark(self, text: str) -> None:
        """Say something to whoever watches here."""

    async def pause(self) -> None:
        """Follow no node."""

    async def resume(self) -> None:
        """Follow them, from the end of the copies on."""


class Handover:
    """Makes a session the one that writes and acts for its run, or no longer that one.

    :param writes: whether it is the one to begin with
    """

    def __init__(self, session: Post, *, writes: bool) -> None:
        self._session = session
        self.writes = writes
        """Whether this process keeps the run's folder."""
        self.acts = asyncio.Event()
        """Set once, and as long as, the session does what only the one that writes does."""
        if writes:
            self.acts.set()
        self.acting: list[asyncio.Task[None]] = []
        """What it does then."""
        self.taking = {entry.name: asyncio.Lock() for entry in session.manifest.nodes}
        """Held while what has arrived from a node is taken in: whole, or not at all."""

    @asynccontextmanager
    async def _between_parts(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for taking in self.taking.values():
                await stack.enter_async_context(taking)
            yield

    async def give_way(self, given: Callable[[], object]) -> None:
        """Let another cockpit write as soon as one is there that would also act.

        :param given: called when that has been done
        """
        session = self._session
        while not session.folder.writer.attended():  # noqa: ASYNC110 (another process)
            await asyncio.sleep(LOOK_S)
        async with self._between_parts():
            self.writes = False
            self.acts.clear()
            for task in self.acting:
                task.cancel()
            session.copies.close()
            session.paces.give_way()
            session.folder.close()
        given()

    async def take_over(self, why: str) -> None:
        """Become the one that writes and acts, from exactly where another cockpit has left it.

        :param why: said to whoever watches, here and later
        :raises CockpitError: it cannot; the session reads along as before
        """
        session = self._session
        left = await self._left()  # first: if that cannot be read, nothing has been changed
        async with self._between_parts():
            await session.pause()
        try:
            await self._recall(left)
        except Exception:
            self.writes = False
            await session.resume()
            raise
        # Nodes that could not be asked then are asked as soon as they are reached.
        session.asked = session.asked or left.asked
        self.acts.set()
        end = f"({Holder.here()}) now controls the run"
        with suppress(CockpitError):  # the session reports a full disk
            kept = events.Note(f"{why}: another one {end}")  # to those who read it later
            session.folder.write(witnessed(session.model, time.time(), "", kept))
        session.remark(f"{why}: this cockpit {end}")
        await session.resume()

    async def _left(self) -> _Left:
        left = _Left({name: [] for name in self.taking}, [], None)
        async for event in by_turns(self._session.folder.journal()):
            if isinstance(event.fact, events.Gap) and not event.fact.of and event.node in left.gaps:
                left.gaps[event.node].append(event)
            elif is_news(self._session.model, event):
                left.told.append(event)
            if isinstance(event.fact, events.StopAsked):
                left = left._replace(asked=event.fact)
        return left

    async def _recall(self, left: _Left) -> None:
        session = self._session
        for event in left.told:
            if is_news(session.model, event):
                session.emit(event, record=False)
        self.writes = True
        session.source.recall()
        for name, said in left.gaps.items():
            for event in unknown(said, session.model.nodes[name].gaps):
                assert isinstance(event.fact, events.Gap)
                await session.tell_gap(event, event.fact)
            with suppress(SpoolUnusable):
                before = session.copies.recall(name, partial(session.source.kept, name))
                for file, at, data in session.copies.fresh(name, before):
                    await session.tell_of(name, file, at, data)
        session.paces.take_over()


class _Left(NamedTuple):
    """What the cockpit that wrote has left in the journal: gaps by node, decisions, the stop it asked for."""

    gaps: dict[str, list[Event]]
    told: list[Event]
    asked: events.StopAsked | None


def is_news(model: RunModel, event: Event) -> bool:
    """Whether an event of the journal, which another cockpit writes, says what is not known here."""
    if isinstance(event.fact, events.Watched):
        return event.at > model.watch.at
    if isinstance(event.fact, events.RestKept):
        return not model.rest_kept
    if isinstance(event.fact, events.Profiled):
        return model.new_profile(event.fact.number)
    return isinstance(event.fact, events.StopAsked) and not model.stop_reason
