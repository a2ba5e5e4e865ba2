"""A session with a run: launch it or join it, follow its nodes through lost links, stop it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from cockpit.base import events
from cockpit.base.answers import SamplesItem
from cockpit.base.events import Fact
from cockpit.base.gate import Malformed
from cockpit.base.record import EVENTS, is_log
from cockpit.base.verbs import Answer, Item, Request
from cockpit.config import Quotas, load
from cockpit.core.logs.sources import Writer, file_of, writer_of
from cockpit.core.pace.pace import Pace
from cockpit.core.run.event_table import witnessed
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.engine.links.link import Link, RemoteError, streaming
from cockpit.engine.links.pool import InternalError, LinkPool, link_state, pause_s, retried, settle
from cockpit.engine.logs.spool import SpoolUnusable
from cockpit.engine.quotas import QuotaReached
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry, planned
from cockpit.engine.run import job_end
from cockpit.engine.run.copies import CREDIT, PORTION, Copies
from cockpit.engine.run.failures import FailurePolicy
from cockpit.engine.run.handover import Handover
from cockpit.engine.run.job_end import JobEnd
from cockpit.engine.run.join import ClosedPool, pool_for
from cockpit.engine.run.noticing import Noticing
from cockpit.engine.run.own_run import OurRun
from cockpit.engine.run.paces import PaceBook
from cockpit.engine.run.reboot import lost
from cockpit.engine.run.source import Desk, Source
from cockpit.engine.run.succession import Succession
from cockpit.engine.time_slices import by_turns
from cockpit.errors import CockpitError
from cockpit.transport.base import LinkError, Reclaimed
from cockpit.transport.login_prompts import NeedsPerson
from cockpit.transport.registry import TRANSPORTS

PAUSED_S = 5.0
"""Seconds between two portions of credit while there is no room here: states arrive, but few other bytes."""

_LOGS_FIRST_S = 2.0
"""A node that is far behind is not measured for this long: its logs come first."""

_CLOSE_S = 10.0
"""For work in progress to end when the session is closed."""


class Listener(Protocol):
    """Who wants to know what happens; called on the event loop, must not block."""

    def joined(self, model: RunModel, pace: Pace) -> None:
        """The model of the session, and how far its ranks are; called once, before all else."""
        return

    def log(self, node: str, writer: Writer, offset: int, data: bytes) -> None:
        """New bytes of a rank's log, of NCCL's file in it, or of the launcher's console, in order, once."""
        return

    def event(self, event: Event, changed: set[str | int]) -> None:
        """An event was applied to the model; ``changed`` are names of nodes and numbers of ranks."""
        return


class Session:
    """One run, followed over the links to its nodes.

    :param folder: the run's local folder
    :param listeners: told of logs and events, each whatever the others make of them
    :param source: what it is with; see :class:`cockpit.engine.run.source.Source`
    :param pool: lends the links; closed with the session; None: one that reaches the nodes as at the start
    :param writer: whether this is the run's only writer (spool, journal, failure policy)
    :param quotas: how much may be spooled; None: according to the user's settings
    :raises CockpitError: the settings are wrong
    """

    def __init__(
        self,
        folder: RunFolder,
        *listeners: Listener,
        source: Callable[[Desk], Source] = OurRun,
        pool: LinkPool | None = None,
        writer: bool = True,
        quotas: Quotas | None = None,
    ) -> None:
        self.folder = folder
        self.manifest: Manifest = folder.manifest
        self.model = RunModel()
        self.changed = asyncio.Event()
        """Set at every event; a waiter clears it."""
        self.pool = pool or (ClosedPool(self.manifest) if folder.bundled else pool_for(self.manifest))
        """Lends the links to the nodes to whoever needs one."""
        self.paces = PaceBook(folder, writer=writer)
        self.pace = self.paces.pace
        """How far the ranks are."""
        self.listeners = list(listeners)
        """They receive logs and events; one that is added later reads the model first."""
        for listener in self.listeners:
            listener.joined(self.model, self.pace)
        self._unheard: set[tuple[str, type[Exception]]] = set()
        """Which listeners have failed, and how: each failure is reported once."""
        self._handover = Handover(self, writes=writer)
        self._nodes = {entry.name: entry for entry in self.manifest.nodes}
        settings = load()
        self._noticing = Noticing(folder, self.model, self.pace, self.note, settings.notices)
        self._failures = FailurePolicy(
            self.model,
            self.manifest.failure_wait_s,
            stop=self._stop_after,
            stopping=lambda: self.asked is not None,
        )
        self._job_end = JobEnd(folder, self.model, self.pool, self.note, self.emit)
        self.copies = Copies(
            folder, quotas or settings.quotas, self.model, writes=lambda: self.writer, remark=self._remark
        )
        self.paused = self.copies.paused
        """Nodes whose logs wait there because there is no room here, and why; their states still arrive."""
        self.asked: events.StopAsked | None = None
        """The stop that was asked for here."""
        self._tasks: list[asyncio.Task[None]] = []
        self._companions: list[asyncio.Task[None]] = []
        """What goes on beside the watch, also while that has failed and begins again."""
        self._taken: asyncio.Task[None] | None = None
        """Finds out why the nodes were taken back, where they were lent."""
        self.behind: dict[str, int] = {}
        """Bytes a node has that are not here yet."""
        self.secrets: Mapping[str, str] = {}
        """Variables of the ranks that are secrets, if this process has started the run; on no disk."""
        self._policy = True
        self._succession: Succession | None = None
        self.source = source(self)

    @property
    def writer(self) -> bool:
        """Whether this is the run's only writer (spool, journal, failure policy)."""
        return self._handover.writes

    @property
    def alone(self) -> str:
        """That nobody acts for the run, in a sentence; empty: somebody does."""
        return "" if self._succession is None else self._succession.alone

    # Beginning

    def record(self, event: Event) -> None:
        """Apply an event of ours, and keep it in the journal."""
        self.emit(event)

    async def rejoin(self) -> None:
        """Rebuild the model from what is known here."""
        self.emit(planned(self.manifest), record=False)
        async for event in by_turns(self.folder.journal()):
            self.model.apply(event)
        await self.paces.recall()
        self.source.recall()
        for name, entry in self._nodes.items():
            with suppress(SpoolUnusable):  # reported when its record is read, and when more is to be written
                self.copies.recall(name, partial(self.source.kept, name))
            async for event in by_turns(self.source.recorded(entry)):
                self.model.apply(event)
        self.paces.await_missed(name for name in self._nodes if not self.model.nodes[name].done)

    # Watching

    def watch(self, *, policy: bool = True) -> None:
        """Follow every node in the background until it is done; see :attr:`model` and :attr:`changed`.

        :param policy: whether to stop the run after a failure, if the run was started that way
        """
        self._policy = policy
        self._tasks = [asyncio.create_task(self._watch(entry)) for entry in self.manifest.nodes]
        self._tasks += [asyncio.create_task(work) for work in self._noticing.works()]
        kind = TRANSPORTS.get(self.manifest.transport)
        if kind is not None and kind.ending is not None and not self.model.job_end_final:
            self._taken = asyncio.create_task(self._job_end.mind())
            self._tasks.append(self._taken)
        if policy and self.writer and self.manifest.on_failure == "stop":
            self._tasks.append(asyncio.create_task(self._failures.mind()))

    def stand_by(self) -> None:
        """Take over from the cockpit that writes once that is gone; if this one only reads, say so then.

        If this one writes but does not act, it gives way to one that does, and says so where there is none.
        """
        if self.writer and self._policy:
            return
        self._succession = Succession(
            self.folder,
            may=self._policy,
            over=lambda: self.model.done,
            remark=self.remark,
            take_over=self._handover.take_over,
        )
        self.accompany(self._succession.mind(), "taking over")
        if self.writer:
            self.give_way()

    def give_way(self, given: Callable[[], object] = lambda: None) -> None:
        """Let another cockpit write as soon as one is there that would also act.

        :param given: called when that has been done
        """
        self.accompany(self._handover.give_way(given), "giving way")

    async def tell_of(self, name: str, file: str, offset: int, data: bytes) -> None:
        """A copy has grown: tell what it is about, without what was told before."""
        if file == EVENTS:
            await self.source.taken_in(name, self.copies.untold(name, file, offset, data)[1])
        elif is_log(file):
            self.log(name, writer_of(file), offset, data)

    async def tell_copy(self, name: str, file: str, end: int) -> None:
        """Another cockpit's copy of a file goes as far as this: tell of all that was not told."""
        for at, data in self.copies.between(name, file, self.copies.size(name, file), end):
            await self.tell_of(name, file, at, data)
            self.copies.sizes[name][file] = at + len(data)

    async def tell_gap(self, event: Event, gap: events.Gap) -> None:
        """Another cockpit has seen that a file began anew: tell what its copy had then, and of that."""
        await self.tell_copy(event.node, gap.file, gap.at)
        self.copies.sizes[event.node][gap.file] = gap.at
        self.emit(event, record=False)

    async def pause(self) -> None:
        """Follow no node, until :meth:`resume`."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def resume(self) -> None:
        """Watch again, also after :meth:`wait` has raised: the nodes send from the end of our spool on."""
        await self.pause()
        self.watch(policy=self._policy)

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the next change (True), at most ``timeout_s`` seconds (False).

        :raises CockpitError: watching itself failed (a full disk here)
        """
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()
        try:
            await asyncio.wait_for(self.changed.wait(), timeout_s)
        except (TimeoutError, asyncio.TimeoutError):
            return False
        self.changed.clear()
        return True

    async def _watch(self, entry: NodeEntry) -> None:
        name = entry.name
        while not self.model.nodes[name].done:
            link: Link | None = None
            try:
                link = await self.pool.lend(name, patient=True)
                if remark := self.pool.roll.remarks.pop(name, ""):
                    self.note(name, events.Note(remark), record=False)
                await self._follow(entry, link)
            except (QuotaReached, SpoolUnusable) as error:
                # Trouble with its files here must not affect the others.
                self._link_event(name, "gone", str(error), here=True)
                if isinstance(error, QuotaReached):
                    self.paused[name] = error
                await asyncio.sleep(PAUSED_S if self.copies.is_full else pause_s(error))
                while self.copies.is_full:  # noqa: ASYNC110 (no disk says when there is room)
                    await asyncio.sleep(PAUSED_S)
            except (LinkError, RemoteError, InternalError) as error:
                if isinstance(error, Reclaimed):
                    self._lose(name, link, error)
                    self.note(name, events.NodeLost(error.what, taken=True))
                elif isinstance(error, RemoteError) and error.kind == "gone":
                    self._link_event(name, "ok")
                    self.note(name, lost(link, self.manifest, entry, error.what))
                elif isinstance(error, RemoteError) and error.kind == "unreadable":
                    self._lose(name, link, LinkError(error.what, where=name))
                else:
                    # Even a refused key may be accepted again: the run continues, and so do we, only slower.
                    self._lose(name, link, error)
            except Malformed as error:
                self._lose(name, link, LinkError(f"sent an invalid answer: {error}", where=name, retry=False))
            except CockpitError:
                raise  # our own trouble, such as a full disk here: the same for every node
            except Exception as error:
                # A bug of ours must not end the watch over the others.
                self._lose(name, link, InternalError(error, where=name))

    def _lose(self, name: str, link: Link | None, error: CockpitError) -> None:
        """There is no link to a node, or not one to rely on; the pool opens another when it is time."""
        if link is not None:
            link.lose(LinkError(error.what, where=name, hint=error.hint, retry=retried(error)))
        self._link_event(name, link_state(error), error.what, asks=isinstance(error, NeedsPerson))

    async def bring(self, names: Iterable[str], limit_s: float, room: int) -> dict[str, str]:
        """Copy what nodes have now, their records first: so many bytes of each at most, within that time.

        Whoever asks once keeps what is known of an end: the next one may find nobody to ask.

        :return: of nodes whose output is not all here, why
        """

        async def one(name: str) -> None:
            link = await self.pool.lend(name)
            with suppress(TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(self._follow(self._nodes[name], link, room), limit_s)

        wanted = [name for name in names if not self.model.nodes[name].done]
        before = {name: dict(self.copies.sizes[name]) for name in wanted}
        _, errors = await settle({name: one(name) for name in wanted})
        unseen = {name: dict(files) for name, files in self.folder.unseen.items()}
        for name, was in before.items():
            for file, size in self.copies.sizes[name].items():
                if is_log(file) and size > was.get(file, 0):
                    unseen.setdefault(name, {}).setdefault(file, was.get(file, 0))
        if unseen:
            self.folder.note_unseen(unseen)
        left = {name: self.behind.get(name, 0) for name in wanted}
        why = {name: f"{size:,} bytes of its output were not fetched" for name, size in left.items() if size}
        why.update({name: f"its newest output was not fetched: {each.what}" for name, each in errors.items()})
        return why

    async def _follow(self, entry: NodeEntry, link: Link, room: int | None = None) -> None:
        """Follow a node until it is done; with ``room`` until all, or so many bytes, are here."""
        name = entry.name
        self.copies.follows(name)
        stream = await link.stream(await self.source.request(entry, link))
        samples: asyncio.Task[None] | None = None
        past: asyncio.Task[None] | None = None
        # Before anything is taken in: of a rank that has ended, its last steps come first.
        known = self.paces.known_until(entry)
        used = brought = 0
        began = credited = time.monotonic()
        try:
            async for item, data in stream.parts():
                if room is None:
                    # Not before: an agent that greets and then says nothing is not a link to its node.
                    self._link_event(name, "ok")
                async with self._handover.taking[name]:
                    await self.source.take(entry, item, data)
                ends = await self.source.ends(entry, link, item)
                self._measure_clock(name, link)
                if past is None:
                    past = asyncio.create_task(self.source.catch_up(entry, link, known))
                used, brought = used + len(data), brought + len(data)
                now = time.monotonic()
                caught_up = self.behind[name] < CREDIT or now >= began + _LOGS_FIRST_S
                if room is None and samples is None and caught_up:
                    samples = asyncio.create_task(self._sample(entry, link))
                if used >= PORTION and (name not in self.paused or now >= credited + PAUSED_S):
                    portion = min(used, PORTION) if name in self.paused else used
                    await stream.credit(portion)
                    used -= portion
                    credited = now
                if self.copies.has_room(name):
                    return  # followed again, from the end of the copies on
                enough = room is not None and (not self.behind[name] or brought >= room)
                if ends or enough:
                    await asyncio.wait({past}, timeout=self.source.caught_up_s)
                if ends:
                    self.note(name, events.Complete())
                if enough or self.model.nodes[name].done or self.source.again(name, item):
                    return
        finally:
            for task in (samples, past):
                if task is not None:
                    task.cancel()
            await stream.close()

    async def _sample(self, entry: NodeEntry, link: Link) -> None:
        request = self.source.measured(entry)
        if request is None:
            return
        try:
            # Closed in any case: samples that nobody takes would hold up all that comes over the link.
            async with streaming(link, request) as stream:
                async for item, _ in stream.parts():
                    self._take_sample(entry.name, item)
        except LinkError:
            return  # the loss of the link shows elsewhere
        except RemoteError as error:
            # A node without measurements still runs.
            self.note(entry.name, events.Note(f"no measurements: {error}", events.SAMPLES), record=False)

    def _take_sample(self, name: str, item: SamplesItem) -> None:
        sample = events.Sample(item.node, item.ranks, item.gpus, item.memory, item.disks)
        self.note(name, sample, record=False)
        self._noticing.sampled(name, sample)

    def _measure_clock(self, name: str, link: Link) -> None:
        node, clock = self.model.nodes[name], link.clock
        if clock.rtt_s == float("inf"):
            return
        if node.rtt_s is None or abs(clock.offset_s - node.offset_s) > 0.005:
            self.note(name, events.ClockMeasured(clock.offset_s, clock.rtt_s))

    def _link_event(
        self, name: str, state: str, why: str = "", *, asks: bool = False, here: bool = False
    ) -> None:
        """It is news if the state is, or if a person has to log in, for another reason than before."""
        node = self.model.nodes[name]
        if node.link != state or (asks and node.link_why != why):
            self.note(name, events.LinkChanged(state, why, asks, here))

    def act(self, make: Callable[[], Coroutine[Any, Any, None]], what: str) -> None:
        """Do this once this session is the one that writes, for as long as it is: now, or later.

        :param what: see :meth:`accompany`
        """

        async def turn() -> None:
            await self._handover.acts.wait()
            await make()

        self._handover.acting.append(self.accompany(turn(), what))

    def accompany(self, task: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        """Do this for as long as the session is open.

        :param what: named where it fails: that costs what it is for, not the watch
        """

        async def guarded() -> None:
            try:
                await task
            except Exception as error:
                first = self.manifest.nodes[0].name
                self.note(first, events.Note(str(InternalError(error, where=what))), record=False)

        self._companions.append(asyncio.create_task(guarded()))
        return self._companions[-1]

    def note(self, name: str, fact: Fact, *, record: bool = True) -> None:
        """What we ourselves see of a node now."""
        self.emit(witnessed(self.model, time.time(), name, fact), record=record)

    def _remark(self, name: str, fact: Fact) -> None:
        self.note(name, fact, record=False)

    def remark_of(self, name: str, text: str) -> None:
        """A note for whoever watches now, unless it is there already: a node says the same each time."""
        if text not in self.model.nodes[name].notes:
            self.note(name, events.Note(text), record=False)

    def emit(self, event: Event, *, record: bool = True) -> None:
        if record and self.writer:
            self._write(event)
        if isinstance(event.fact, events.StopRequested):
            self._failures.stopped(event.node, event.fact)
        if isinstance(event.fact, events.Gap) and is_log(event.fact.file):
            # A number is not read from two halves of lines.
            self._noticing.log(event.node, writer_of(event.fact.file), b"\n")
        changed = self.model.apply(event)
        try:
            self.paces.event(self.model, event)
        except CockpitError as error:
            self.note(event.node, events.Note(str(error)), record=False)
        self._tell(event.node, lambda listener: listener.event(event, changed))
        self.changed.set()

    def _write(self, event: Event) -> None:
        """A start that cannot be recorded is undone; a watch continues, and says that its events wait."""
        before = self.folder.refused
        self.folder.write(event, waits=bool(self._tasks))
        now = self.folder.refused
        if now is not None and before is None:
            self.remark(f"{now.where}: {now.what}; free some space: what this cockpit sees is saved then")
        elif now is None and before is not None:
            self.remark("enough disk space here again: what this cockpit saw meanwhile is saved")

    def log(self, name: str, writer: Writer, offset: int, data: bytes) -> None:
        """A copy of a log has grown by these bytes."""
        offset, data = self.copies.untold(name, file_of(writer), offset, data)
        if not data:
            return
        self._noticing.log(name, writer, data)
        self._tell(name, lambda listener: listener.log(name, writer, offset, data))
        if writer is None:
            self.source.heard(name, data)

    def _tell(self, name: str, tell: Callable[[Listener], None]) -> None:
        """Tell every listener something about a node; one that fails keeps nothing from the others."""
        for listener in self.listeners:
            try:
                tell(listener)
            except Exception as error:
                who = type(listener).__name__
                if (who, type(error)) not in self._unheard:
                    self._unheard.add((who, type(error)))
                    # Notes are shown with a node; some events have none.
                    at = name if name in self._nodes else self.manifest.nodes[0].name
                    self.note(at, events.Note(str(InternalError(error, where=who))), record=False)

    @property
    def said_step(self) -> tuple[int, float, bool] | None:
        """The last step in a log, its time (unix seconds), and whether it is the final one."""
        return self._noticing.said_step

    @property
    def saves(self) -> Sequence[float]:
        """When logs named a checkpoint, unix seconds: of what was seen since the run is watched from here."""
        return self._noticing.saves

    def remark(self, text: str, see: str = "") -> None:
        """Say something about the run that concerns whoever watches, and nobody later.

        :param see: a command that shows the evidence it is about
        """
        self.note("", events.Note(text, see=see), record=False)

    async def concluded(self) -> None:
        """Wait until it is known why the nodes were taken back, if they were, or cannot be known soon."""
        if self._taken is not None and self.model.done:
            await asyncio.wait({self._taken}, timeout=job_end.KNOWN_WITHIN_S + _CLOSE_S)

    # Stopping

    async def stop(self, reason: str, *, hard: bool = False, by: str = "a person") -> list[CockpitError]:
        """Ask every node that has not ended to stop; one with a lost link is asked when it is back.

        :return: an error for each node that could not be asked now, and one if this could not be recorded
        """
        if (refusal := self.source.refusal) is not None:
            return [refusal]
        self.asked = events.StopAsked(reason, by, hard)
        unsaid: list[CockpitError] = []
        try:
            self.note("", self.asked)
        except CockpitError as error:
            unsaid = [error]  # a full disk here must not keep a run from being stopped
        names = [name for name, node in self.model.nodes.items() if not node.over]
        _, errors = await settle({name: self._stop_now(name) for name in names})
        return [*unsaid, *errors.values()]

    async def _stop_after(self, reason: str) -> None:
        await self.stop(reason, by="the failure policy")

    async def _stop_now(self, name: str) -> None:
        link = await self.pool.at_hand(name)
        assert self.asked is not None
        await self.source.stop(name, link, self.asked)

    @property
    def stops_at(self) -> float | None:
        """When the failure policy will stop the run (unix seconds); None: it will not."""
        return None if self.model.rest_kept else self._failures.stops_at

    def keep(self) -> None:
        """Set aside the failure policy: what still runs is left alone until it ends or somebody stops it."""
        try:
            self.note("", events.RestKept())
        except CockpitError as error:  # a full disk here must not end what a person wants kept
            self.note("", events.RestKept(), record=False)
            self.remark(str(error))

    async def ask(self, node: str, request: Request[Answer, Item]) -> Answer:
        """One call to a node with an open link.

        :raises LinkError: there is no link now
        :raises RemoteError: the node refused
        """
        return await (await self.pool.at_hand(node)).call(request)

    def here(self, node: str) -> int:
        """Bytes of a node's logs and record that are here."""
        return sum(self.copies.sizes[node].values())

    def dir(self, node: str) -> str:
        """The run folder on a node."""
        return self._nodes[node].dir

    async def close(self, *, pool: bool = True) -> None:
        """Leave: the run continues.

        :param pool: whether its links are closed too
        """
        tasks = [*self._tasks, *self._companions]
        for task in tasks:
            task.cancel()
        # Each ends within a few seconds; whatever happens, so do we.
        ended = asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.wait({ended}, timeout=_CLOSE_S)
        if pool:
            await self.pool.close()
        self.copies.close()
        self.source.close()
        with suppress(CockpitError):  # nobody is left to read it
            self.paces.close(over=self.model.over)
        self.folder.close()
