"""What a session shows: everything that came from its nodes, ready to be drawn."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cockpit.base.events import Gap, Note
from cockpit.base.record import is_log
from cockpit.core.finding import Finding
from cockpit.core.logs.causes import TAIL
from cockpit.core.logs.metrics import Metrics
from cockpit.core.logs.sources import Nccl, Writer, writer_of
from cockpit.core.logs.trackers import HEAD
from cockpit.core.pace.pace import Pace
from cockpit.core.run.event_table import witnessed
from cockpit.core.run.events import Event
from cockpit.core.run.first import listened
from cockpit.core.run.model import RankState, RunModel
from cockpit.core.run.starting import doing, is_starting
from cockpit.core.run.timeline import Timeline
from cockpit.core.run.trends import Trends
from cockpit.core.text import one_line
from cockpit.engine.logs.book import Logbook
from cockpit.engine.logs.last_words import LastWords
from cockpit.engine.logs.step_log import Pages, middles
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.history import history
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.engine.run.foreign_jobs import launchers_of
from cockpit.engine.run.front import said_steps
from cockpit.engine.run.past_metrics import told_before
from cockpit.engine.time_slices import by_turns

SPEEDS = ("tokens_s", "samples_s")
"""Fields of the metrics: how fast it trains."""

# What torch prints around the compiler (torch/utils/cpp_extension.py), which may take minutes in silence.
_EXTENSION = re.compile(rb"(Building|Loading) extension module ([\w.-]{1,64})")

LONG, LAST = 32 << 20, 64 << 10
"""Bytes of all logs that take a while to be read, and of each log's last lines, shown until then."""
LAST_S = 1.0
"""Seconds after which reading those is given up too."""

_SEARCH_S = 10.0
"""Seconds for which logs that are here are searched for pages, in between of other things."""


class Board:
    """The listener of one session; what it holds is pulled, never pushed.

    :param folder: the run's folder
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.manifest: Manifest = folder.manifest
        self.model = RunModel()
        self.timeline = Timeline(self.model)
        self.book = Logbook(folder)
        self.shown = self.book
        """The book to show: of long logs the last lines, until :meth:`show_all`."""
        self._books = [self.book]
        self.metrics = Metrics()
        self.trends = Trends()
        self.pace = Pace()
        self.pages = Pages()
        """Pages of W&B and TensorBoard that its logs name."""
        self.building: dict[int, tuple[str, float]] = {}
        """The extension that each rank compiles, and since when (unix seconds): minutes without output."""
        self.moment: float | None = None
        """The moment of the run that is shown, unix seconds; None: the present, or all there is."""
        self.saves: Sequence[float] = ()
        """When checkpoints were saved, unix seconds, in a past that is shown."""
        self._words = LastWords(folder)
        self._judging: asyncio.Future[Finding | None] | None = None
        self._judged = (0, 0)
        self._changed: set[str | int] = set()
        self._loaded_at = 0.0
        self._printed = False
        """Whether a rank or a launcher has printed anything."""
        self._awaits = False
        """Whether lines come that were printed before, and whose times are not known yet."""

    async def recall(self) -> None:
        """Report what the journal and the run records here say about the time before the session."""
        past, events = await history(self.folder)
        told = Timeline(past)
        async for _, event in by_turns(events):
            past.apply(event)
            told.tell(event)
        self.timeline.precede(told)

    def await_missed(self) -> None:
        """Lines that come until :meth:`load` may have been printed long before: they get their times then."""
        self._awaits = True
        self.book.hold()

    async def load_last(self) -> bool:
        """Of long logs, read the last lines first, into a book of their own; return whether they are there.

        So also of others, while lines are awaited that were printed before: no line is held back.

        :raises CockpitError: the spool cannot be read
        """
        total, starts = self.book.last(LAST)
        if total < LONG and not self._awaits:
            return False
        if self._awaits:
            await self._read_ends()
        last = Logbook(self.folder)
        last.reads_along = self.book.reads_along
        self._books.append(last)
        try:
            await asyncio.wait_for(last.load(since=starts), LAST_S)
        except BaseException as error:
            self._books.remove(last)
            last.close()
            if isinstance(error, asyncio.TimeoutError):
                return False
            raise
        self.shown = last
        return True

    def show_all(self) -> None:
        """Nobody reads the last lines' own book any more."""
        self.shown = self.book
        for other in self._books[1:]:
            other.close()
        del self._books[1:]

    def flush(self, now: float, *, wait_s: float = 0.0) -> bool:
        """Close the batch of what has arrived; whether there is anything new to show since the last call."""
        return {book: book.flush(now, wait_s=wait_s) for book in self._books}[self.shown]

    async def load(self, progress: Callable[[float], None] | None = None) -> None:
        """Read the last numbers of the output that is already here, and index it."""
        if self._awaits:
            # What came in portions since then says nothing about the time of a step.
            self.metrics, self._awaits = Metrics(), False
            steps = said_steps(self.folder, self.model, self.pace)
            for rank, step, at in await asyncio.to_thread(list, steps):
                self.pace.stepped(rank, step, at, exact=False)
        await self._read_ends()
        self._printed |= any(self.book.logs.size(number) for number, _ in self.book.logs.outputs)
        await self.book.load(progress)
        until = time.monotonic() + _SEARCH_S
        async for source, data in by_turns(middles(self.book.logs)):
            self.pages.look(source, data)
            if time.monotonic() >= until:
                break
        for (node, _), error in self.book.logs.unreadable.items():
            note = witnessed(self.model, time.time(), node, Note(str(error)))
            self.model.apply(note)
            self.timeline.tell(note)

    async def _read_ends(self) -> None:
        """Read the last numbers of the output that is here."""
        self._loaded_at = time.time()
        for entry in self.manifest.nodes:
            consoles = (None,) if self.manifest.foreign else ()
            for rank in (*entry.ranks, *consoles):
                source = (entry.name, rank)
                tail = self.book.logs.tail(source, TAIL)
                if tail:
                    self.metrics.feed(rank, tail, self._loaded_at)
                    self.pages.look(source, self.book.logs.read(self.book.logs.number(source), 0, HEAD))
                    self.pages.read(source, tail, follows=False)
                    await asyncio.sleep(0)

    async def recall_numbers(self) -> None:
        """Read what the output that was already here says of the training, and when.

        :raises CockpitError: it cannot be read
        """
        if self.metrics.series("loss") or any(map(self.metrics.series, SPEEDS)):
            self.metrics.recall(await told_before(self.folder, self.model), self._loaded_at)

    # The listener of the session

    def joined(self, model: RunModel, pace: Pace) -> None:
        """The model and the pace that the session keeps."""
        self.model = model
        self.pace = pace
        self.timeline = Timeline(model)

    def log(self, node: str, writer: Writer, offset: int, data: bytes) -> None:
        """New bytes of a log."""
        for book in self._books:
            book.feed(node, writer, offset, data)
        if isinstance(writer, Nccl):
            return
        self._printed = True
        self.pages.read((node, writer), data)
        if writer is None and self.manifest.foreign:
            self.metrics.feed(None, data, time.time())  # its ranks may have no other output
        if writer is not None:
            self._read_numbers(writer, data, time.time())
            if b" extension module " in data:
                self._note_building(writer, data)

    def _read_numbers(self, rank: int, data: bytes, at: float) -> None:
        if not self.metrics.feed(rank, data, at):
            return
        reading = self.metrics.latest_of(rank)
        if reading.step is not None and not self._awaits:
            self.pace.stepped(rank, int(reading.step), at, exact=False)

    def _note_building(self, rank: int, data: bytes) -> None:
        found = _EXTENSION.findall(data)
        if found:
            what, name = found[-1]
            shown = one_line(name, limit=40)
            self.building.pop(rank, None)
            if what == b"Building":
                self.building[rank] = shown, time.time()

    def event(self, event: Event, changed: set[str | int]) -> None:
        """An event was applied to the model."""
        if isinstance(event.fact, Gap) and is_log(event.fact.file):
            for book in self._books:
                book.gap(event.node, event.fact)
            writer = writer_of(event.fact.file)
            if not isinstance(writer, Nccl):
                # Nothing is read from two halves of lines.
                self.pages.read((event.node, writer), b"\n")
                self.metrics.feed(writer, b"\n", time.time())
        self._changed |= changed
        self.trends.take(event)
        self.timeline.tell(event)

    # What is drawn

    @property
    def now(self) -> float:
        """What ages are counted from, unix seconds."""
        return time.time() if self.moment is None else self.moment

    def changed(self, what: set[str | int]) -> None:
        """These nodes and ranks are to be drawn anew."""
        self._changed |= what

    def starting(self, now: float) -> bool:
        """Whether no rank has got to work yet, as far as is known.

        :param now: unix seconds
        """
        stepped = self.pace.front is not None or self.metrics.latest.step is not None
        # What it printed may not be here yet, or nowhere where it can be read.
        printed = self.book.loading or self.manifest.foreign is not None or self._printed
        works = printed or (not stepped and any(map(self._entered, self.model.ranks)))
        return is_starting(self.model, now, stepped=stepped, printed=works)

    def _entered(self, rank: int) -> int | None:
        """How many collectives a rank has entered, if nothing tells its steps; None: not known."""
        sign = self.pace.of(rank).sign
        return None if sign is None else sign.collectives

    def doing(self, now: float) -> list[str]:
        """What ranks do before the first step, in lines.

        Who has not printed anything is said only where others have.

        :param now: unix seconds
        """
        logs, homes = self.book.logs, {rank: each.node for rank, each in self.model.ranks.items()}

        def printed(rank: int) -> bool:
            known = self.manifest.foreign is None and self.book.lines
            return not known or logs.size(logs.number((homes[rank], rank))) > 0

        builds = {rank: name for rank, (name, _) in self.building.items()}
        return doing(self.model, now, builds=builds, entered=self._entered, printed=printed)

    def take_changed(self) -> set[str | int]:
        """Names of nodes and numbers of ranks that changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def find_cause(self) -> None:
        """Look for the cause of the first failure, again if one more has failed or a log has grown since.

        That takes up to seconds, in a thread; the model has what it finds (:attr:`RunModel.judged`).
        """
        if self.moment is not None:
            return  # the logs that are here say more than they did then
        if self._judging is not None:
            if not self._judging.done():
                return
            done, self._judging = self._judging, None
            done.result()
        ended = sum(rank.failed or rank.state is RankState.GONE for rank in self.model.ranks.values())
        if not ended:
            self.model.judged = None  # it was started again
            return
        state = ended, sum(self._words.size(rank) for rank in listened(self.model))
        if self._judged != state:
            self._judged = state
            self._judging = asyncio.ensure_future(asyncio.to_thread(self._words.judge, self.model))

    @property
    def judging(self) -> bool:
        """Whether that is under way, or has not been asked for since it ended."""
        return self._judging is not None

    def entry(self, node: str) -> NodeEntry:
        """What the manifest says about a node."""
        return next(entry for entry in self.manifest.nodes if entry.name == node)

    def plan(self, node: str) -> Mapping[str, Any]:
        """The node's plan in the manifest, or what others started there; empty if there is none."""
        started = launchers_of(self.manifest, node)
        if started:
            return {"text": "\n".join(one.command for one in started), "cwd": self.entry(node).dir}
        return next((plan for plan in self.manifest.plans if plan.get("node") == node), {})

    def close(self) -> None:
        """Close what is open."""
        self.show_all()
        self.book.close()
        self._words.close()
