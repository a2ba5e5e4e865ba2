"""Print output merged by time, from a run's book: ``cockpit logs``, and what ``attach`` has missed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Set
from typing import Protocol

from cockpit.base.events import Gap
from cockpit.base.record import is_log
from cockpit.base.shell import quote
from cockpit.cli.output import say
from cockpit.core.logs.query import Query
from cockpit.core.logs.sources import Source, Writer, writer_of
from cockpit.core.pace.log_steps import SaidSteps
from cockpit.core.pace.pace import Pace
from cockpit.core.ranks import in_order, nodes_text
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.engine.logs.book import Logbook
from cockpit.engine.logs.reader import LogPiece, Reader
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.arrival import arrived
from cockpit.engine.run.session import Listener, Session
from cockpit.engine.time_slices import Turn
from cockpit.tui.look.units import BINARY

_TICK_S = 0.1

_TOLD_S = 5.0
"""Seconds of waiting for missed output after which it prints how much is left."""


class Lines(Listener, Protocol):
    """Who prints."""

    def batch(self, at: float | None) -> None:
        """Print all complete lines so far; what follows was there at that time, unix seconds."""

    def gap(self, source: Source, gap: Gap, at: float) -> None:
        """Something of a log is missing here."""


class Show:
    """Prints what a query selects of a book, each byte once.

    :param hold: whether nothing may be printed now: a person is being asked something
    """

    def __init__(
        self, book: Logbook, query: Query, live: Lines, hold: Callable[[], bool] = lambda: False
    ) -> None:
        self._reader = Reader(book, query)
        self._live = live
        self._batch = 0
        self._ends: dict[Source, int] = {}  # how far each log has been printed
        self._book, self._times = book, query.times
        self._told: set[Source] = set()
        self._hold = hold

    def begin(self, since: float, tail: int | None) -> None:
        """Pass over what is too old, or before the last lines of each log."""
        self._batch, _ = self._reader.position_at(since)
        if tail is not None:
            first, self._ends = self._reader.tail(tail)
            self._batch = max(self._batch, first)

    async def batches(self) -> None:
        """Print whole lines."""
        await self._print(self._reader.pieces(self._batch))
        self._batch = self._reader.end[0]
        unreadable = self._book.logs.unreadable
        for source in unreadable.keys() - self._told:
            self._told.add(source)
            say(str(unreadable[source]))

    async def unfinished(self, since: float = 0.0) -> None:
        """Print what has arrived of unfinished lines."""
        await self._print(piece for piece in self._reader.unfinished() if piece.at >= since)

    async def _print(self, pieces: Iterable[LogPiece]) -> None:
        turn = Turn()
        batch = -1
        at = None
        for piece in pieces:
            if piece.batch != batch:
                batch, at = piece.batch, piece.at if self._times else None
                self._live.batch(at)
                await turn.pause()
                while self._hold():  # noqa: ASYNC110 (a person is typing)
                    await asyncio.sleep(_TICK_S)
            if piece.gap is not None and piece.offset >= self._ends.get(piece.source, 0):
                self._live.gap(piece.source, piece.gap, piece.at)
            done = max(0, self._ends.get(piece.source, 0) - piece.offset)
            if done < len(piece.data):
                self._live.log(*piece.source, piece.offset + done, piece.data[done:])
                self._ends[piece.source] = piece.offset + len(piece.data)
        self._live.batch(at)


class Missed(Listener):
    """Prints what nodes have and the spool lacks merged by time, as ``cockpit logs`` does; then what comes.

    It waits in the spool until all of it is here, and is read from there: memory stays flat.

    :param folder: of a run whose only writer is this cockpit
    :param live: gets the lines, and events at once
    """

    def __init__(self, folder: RunFolder, live: Lines) -> None:
        self._folder, self._live = folder, live
        self._steps: SaidSteps | None = None
        # Where in each log it begins.
        self._since: dict[Source, int] = {
            (node, writer_of(file)): at for node, files in folder.unseen.items() for file, at in files.items()
        }
        self._book: Logbook | None = None
        self._task: asyncio.Task[None] | None = None
        self._through = False

    def joined(self, model: RunModel, pace: Pace) -> None:
        """The model and the pace of the session."""
        self._steps = SaidSteps(pace)
        self._live.joined(model, pace)

    def event(self, event: Event, changed: set[str | int]) -> None:
        """An event was applied."""
        if self._through or not isinstance(event.fact, Gap) or not is_log(event.fact.file):
            self._live.event(event, changed)
            return
        self._since.setdefault((event.node, writer_of(event.fact.file)), event.fact.at)
        if self._book is not None:
            self._book.gap(event.node, event.fact)

    def log(self, node: str, writer: Writer, offset: int, data: bytes) -> None:
        """New bytes of a log: they are in the spool too."""
        if self._through:
            self._live.log(node, writer, offset, data)
            return
        if isinstance(writer, int) and self._steps is not None:
            self._steps.read(writer, data, time.time())
        self._since.setdefault((node, writer), offset)
        if self._book is not None:
            self._book.feed(node, writer, offset, data)

    def start(self, session: Session, hold: Callable[[], bool]) -> None:
        """Begin to print, in the background.

        :param session: it is watched already
        :param hold: whether nothing may be printed now: a person is being asked something
        """
        self._task = asyncio.create_task(self._show(session, hold))

    def through(self) -> bool:
        """Whether all that was missed has been printed.

        :raises CockpitError: it cannot be read here
        :raises OSError: it cannot be printed
        """
        if self._task is not None and self._task.done():
            self._task.result()
        return self._through

    async def stop(self) -> None:
        """Print nothing more of it; say so if there is more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._since and not self._through:
            say(
                f"some missed output was not printed; to see all "
                f"of it: cockpit logs {quote(self._folder.name)}"
            )

    async def _show(self, session: Session, hold: Callable[[], bool]) -> None:
        await self._arrived(session)
        if self._since:
            self._book = Logbook(self._folder)
            try:
                await self._print(self._book, Show(self._book, Query(), self._live, hold))
            finally:
                self._book.close()
            self._folder.note_unseen({})
        self._through = True

    async def _arrived(self, session: Session) -> None:
        """Wait for what nodes have; say once how much that is, if it takes long."""
        nodes, began, told = session.model.nodes, time.monotonic(), False

        def waits(names: Set[str]) -> None:
            nonlocal told
            left = sum(session.behind.get(name, 0) for name in names)
            if left and not told and time.monotonic() - began > _TOLD_S:
                told = True
                whose, much = nodes_text(in_order(names, nodes)), BINARY.text(left)
                say(f"waiting for {much} of missed output from {whose}, to print it in time order")

        await arrived(session, waits)

    async def _print(self, book: Logbook, show: Show) -> None:
        await book.load(since=dict(self._since))
        anything = True
        # False is certain: nothing is awaited between this answer and the first live line.
        while anything:
            await show.batches()
            await show.unfinished()
            anything = book.flush(time.time())
