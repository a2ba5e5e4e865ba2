"""A session with a run: launch it or join it, follow its nodes through lost links, stop it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Any

from cockpit.base import events, verbs
from cockpit.base.answers import BegunFile, FollowItem, Remains, SamplesItem, StopAnswer
from cockpit.base.events import Fact
from cockpit.base.gate import Malformed
from cockpit.base.record import EVENTS, INDEX, logged_rank
from cockpit.base.trail import SPAN, Trail
from cockpit.base.verbs import Answer, Item, Request
from cockpit.config import Quotas, load
from cockpit.core.run.event_table import known, witnessed
from cockpit.core.run.events import Event, RecordReader
from cockpit.core.run.model import LIVE, Rank, RunModel
from cockpit.engine.links.link import Link, RemoteError
from cockpit.engine.links.pool import InternalError, LinkPool, link_state, pause_s, retried, settle
from cockpit.engine.logs.spool import RECORD, Shelf, Spool, SpoolUnusable
from cockpit.engine.quotas import QuotaReached
from cockpit.engine.records.folder import Manifest, NodeEntry, RunFolder, planned
from cockpit.engine.records.lock import Holder
from cockpit.engine.run import job_end
from cockpit.engine.run.boots import booted, lost
from cockpit.engine.run.failures import FailurePolicy
from cockpit.engine.run.job_end import JobEnd
from cockpit.engine.run.join import pool_for, still_there
from cockpit.engine.run.listener import Listener
from cockpit.engine.run.noticing import Noticing
from cockpit.engine.run.paces import PaceBook
from cockpit.engine.run.succession import LOOK_S, Succession
from cockpit.engine.run.unwatched import kept_steps
from cockpit.engine.turns import by_turns
from cockpit.errors import CockpitError
from cockpit.transport.asking import NeedsPerson
from cockpit.transport.base import LinkError, Reclaimed
from cockpit.transport.registry import TRANSPORTS

CREDIT = 4 << 20
"""Bytes of logs in flight per node: enough to fill a link, few enough to keep keys responsive."""
CREDIT_PORTION = CREDIT // 4
"""Credit is returned in portions: every message wakes the agent."""

PAUSED_S = 5.0
"""Seconds between two portions of credit while there is no room here: states arrive, but few other bytes."""

_LOGS_FIRST_S = 2.0
"""A node that is far behind is not measured for this long: its logs come first."""

_SLICE_S = 0.005
"""Keys and the screen wait no longer than this, and one log, for an answer that brings many."""

_CLOSE_S = 10.0
"""For work in progress to end when the session is closed."""

_GAPS, _GAP_S = 64, 5.0
"""A file that has begun anew so many times does so once in that many seconds: our agents send no more."""


class Session:
    """One run, followed over the links to its nodes.

    :param folder: the run's local folder
    :param listeners: told of logs and events, each whatever the others make of them
    :param pool: lends the links; closed with the session; None: one that reaches the nodes as at the start
    :param writer: whether this is the run's only writer (spool, journal, failure policy)
    :param quotas: how much may be spooled; None: according to the user's settings
    :raises CockpitError: the settings are wrong
    """

    def __init__(
        self,
        folder: RunFolder,
        *listeners: Listener,
        pool: LinkPool | None = None,
        writer: bool = True,
        quotas: Quotas | None = None,
    ) -> None:
        self.folder = folder
        self.manifest: Manifest = folder.manifest
        self.model = RunModel()
        self.changed = asyncio.Event()
        """Set at every event; a waiter clears it."""
        self.pool = pool or pool_for(self.manifest)
        """Lends the links to the nodes to whoever needs one."""
        self._paces = PaceBook(folder, writer=writer)
        self.pace = self._paces.pace
        """How far the ranks are."""
        self.listeners = list(listeners)
        """They receive logs and events; one that is added later reads the model first."""
        for listener in self.listeners:
            listener.joined(self.model, self.pace)
        self._unheard: set[tuple[str, type[Exception]]] = set()
        """Which listeners have failed, and how: each failure is reported once."""
        self._writing = asyncio.Event()
        if writer:
            self._writing.set()
        self._nodes = {entry.name: entry for entry in self.manifest.nodes}
        self._heard: dict[str, Link] = {}
        """The last link of each node."""
        settings = load()
        shelf = Shelf(folder.path, quotas or settings.quotas)
        self._noticing = Noticing(folder, self.model, self.pace, self._note, settings.notices)
        self._failures = FailurePolicy(
            self.model,
            self.manifest.failure_wait_s,
            stop=self._stop_after,
            stopping=lambda: self._stop is not None,
        )
        self._job_end = JobEnd(folder, self.model, self.pool, self._note, self._emit)
        self._spools = {name: Spool(folder.spool_dir(entry), shelf) for name, entry in self._nodes.items()}
        self._offsets: dict[str, dict[str, int]] = {}
        """How long our copy of each file is, by node."""
        self._trails: dict[tuple[str, str], Trail] = {}
        """What is here of the file that a node has now, in short."""
        self._gaps: dict[tuple[str, str], tuple[int, float]] = {}
        """How often each file has begun anew, and when last (monotonic seconds)."""
        self._records = {name: RecordReader(name, entry.ranks) for name, entry in self._nodes.items()}
        self._strangers: set[str] = set()
        self._left_there: set[tuple[str, str]] = set()
        """Nodes and files of theirs that there is no room for here, though there is for the rest."""
        self._found: dict[str, tuple[Fact, ...]] = {}
        self._stop: events.StopAsked | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._companions: list[asyncio.Task[None]] = []
        """What goes on beside the watch, also while that has failed and begins again."""
        self._acting: list[asyncio.Task[None]] = []
        """Those of them that only the one that writes does."""
        self._taken: asyncio.Task[None] | None = None
        """Finds out why the nodes were taken back, where they were lent."""
        self.behind: dict[str, int] = {}
        """Bytes a node has that are not here yet."""
        self.paused: dict[str, QuotaReached] = {}
        """Nodes whose logs wait there because there is no room here, and why; their states still arrive."""
        self.secrets: Mapping[str, str] = {}
        """Variables of the ranks that are secrets, if this process has started the run; on no disk."""
        self._policy = True
        self._taking = {name: asyncio.Lock() for name in self._nodes}
        self._told_of: dict[tuple[str, str], int] = {}
        """How far files were told of here that are taken in again: another cockpit had kept less of them."""
        self._succession: Succession | None = None

    @property
    def writer(self) -> bool:
        """Whether this is the run's only writer (spool, journal, failure policy)."""
        return self._writing.is_set()

    @property
    def alone(self) -> str:
        """That nobody acts for the run, in a sentence; empty: somebody does."""
        return "" if self._succession is None else self._succession.alone

    # Beginning

    def record(self, event: Event) -> None:
        """Apply an event of ours, and keep it in the journal."""
        self._emit(event)

    async def rejoin(self) -> None:
        """Rebuild the model from what is known here."""
        self._emit(planned(self.manifest), record=False)
        async for event in by_turns(self.folder.journal()):
            self.model.apply(event)
        await self._paces.recall()
        for name, entry in self._nodes.items():
            with suppress(SpoolUnusable):  # reported when its record is read, and when more is to be written
                self._offsets[name] = self._spools[name].offsets()
            async for event in by_turns(self.folder.recorded(entry, self._records[name])):
                self.model.apply(event)
        self._paces.await_missed(name for name in self._nodes if not self.model.nodes[name].done)

    # Watching

    def watch(self, *, policy: bool = True) -> None:
        """Follow every node in the background until it is done; see :attr:`model` and :attr:`changed`.

        :param policy: whether to stop the run after a failure, if the run was started that way
        """
        self._policy = policy
        self._tasks = [asyncio.create_task(self._watch(entry)) for entry in self.manifest.nodes]
        self._tasks += [asyncio.create_task(work) for work in self._noticing.works()]
        if TRANSPORTS[self.manifest.transport].ending is not None and not self.model.job_end:
            self._taken = asyncio.create_task(self._job_end.mind())
            self._tasks.append(self._taken)
        if policy and self.writer and self.manifest.on_failure == "stop":
            self._tasks.append(asyncio.create_task(self._failures.mind()))

    def stand_by(self) -> None:
        """Take over from the cockpit that writes once that is gone; if this one only reads, say so then.

        If this one writes but does not act, it gives way to one that does.
        """
        if not self.writer:
            self._succession = Succession(
                self.folder, may=self._policy, remark=self.remark, take_over=self._take_over
            )
            self.accompany(self._succession.mind(), "taking over")
        elif not self._policy:
            self.give_way(self.stand_by)

    def give_way(self, given: Callable[[], object]) -> None:
        """Let another cockpit write as soon as one is there that would also act.

        :param given: called when that has been done
        """
        self.accompany(self._give_way(given), "giving way")

    async def _give_way(self, given: Callable[[], object]) -> None:
        while not self.folder.writer.attended():  # noqa: ASYNC110 (another process)
            await asyncio.sleep(LOOK_S)
        async with AsyncExitStack() as stack:
            for taking in self._taking.values():
                await stack.enter_async_context(taking)
            self._writing.clear()
            for task in self._acting:
                task.cancel()
            for spool in self._spools.values():
                spool.close()
            self._paces.give_way()
            self.folder.close()
        given()

    async def _take_over(self, why: str) -> None:
        """Become the one that writes and acts, from exactly where another cockpit has left it."""
        async with AsyncExitStack() as stack:
            for taking in self._taking.values():
                await stack.enter_async_context(taking)  # what has arrived is taken in whole, or not at all
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        async for event in by_turns(self.folder.journal()):
            if isinstance(event.fact, events.Gap):  # where they are in the copies that are there
                self.model.apply(event)
            elif is_news(self.model, event):
                self._emit(event, record=False)
        await self._recall_spools()
        self._paces.take_over()
        self._writing.set()
        text = f"this cockpit ({Holder.here()}) keeps the run from now on and acts for it"
        with suppress(CockpitError):  # said all the same; a full disk here is told with what is lost by it
            self._note("", events.Note(f"{why}: {text}" if why else text))
        self.watch(policy=self._policy)

    async def _recall_spools(self) -> None:
        """Go on with all copies as they are on the disk: tell what is news in them, and nothing twice."""
        self._trails.clear()
        for name, entry in self._nodes.items():
            spool, told = self._spools[name], self._offsets.get(name, {})
            spool.look_again()
            with suppress(SpoolUnusable):
                self._offsets[name] = spool.offsets()
            for file, size in self._offsets[name].items():
                at = told.get(file, 0)
                while at < size and (data := spool.read(file, at, min(CREDIT_PORTION, size - at))):
                    await self._tell_of(entry, file, at, data)
                    at += len(data)
            here = self._offsets[name]
            self._told_of.update({(name, file): at for file, at in told.items() if at > here.get(file, 0)})

    async def _tell_of(self, entry: NodeEntry, file: str, offset: int, data: bytes) -> None:
        """Tell what has come of a file, without what was told before."""
        name, rank = entry.name, logged_rank(file)
        offset, data = self._untold(name, file, offset, data)
        if file == EVENTS:
            await self._take_record(name, data)
        elif data and file not in INDEX:
            self._log(name, rank, offset, data)

    def _untold(self, name: str, file: str, offset: int, data: bytes) -> tuple[int, bytes]:
        """The part of new bytes of our copy that was not told before."""
        until = self._told_of.get((name, file))
        if until is None:
            return offset, data
        known = max(0, min(len(data), until - offset))
        if offset + known >= until:
            del self._told_of[name, file]
        return offset + known, data[known:]

    async def resume(self) -> None:
        """Watch again after :meth:`wait` has raised: the nodes send from the end of our spool on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
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
                    self._note(name, events.Note(remark), record=False)
                await self._follow(entry, link)
            except (QuotaReached, SpoolUnusable) as error:
                # Trouble with its files here must not affect the others.
                self._link_event(name, "gone", str(error))
                await asyncio.sleep(pause_s(error))
            except (LinkError, RemoteError, InternalError) as error:
                if isinstance(error, Reclaimed):
                    self._lose(name, link, error)
                    self._note(name, events.NodeLost(error.what))
                elif isinstance(error, RemoteError) and error.kind == "gone":
                    self._link_event(name, "ok")
                    self._note(name, lost(link, self.manifest, entry, error.what))
                else:
                    # Even a refused key may be accepted again: the run goes on, and so do we, only slower.
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

    async def _follow(self, entry: NodeEntry, link: Link) -> None:
        name = entry.name
        self._heard[name] = link
        if self._stop is not None and not self.model.nodes[name].over:
            await self._send_stop(name, link)
        there = {file: self._there(name, file) for file in self._offsets.setdefault(name, {})}
        self.paused.pop(name, None)
        self._left_there = {each for each in self._left_there if each[0] != name}
        marks = {file: self._trail(name, file).mark for file in there}
        stream = await link.stream(verbs.Follow(entry.dir, there, CREDIT, self.manifest.run, name, marks))
        samples: asyncio.Task[None] | None = None
        past: asyncio.Task[None] | None = None
        used = 0
        began = credited = time.monotonic()
        try:
            async for item, data in stream.parts():
                # Not before: an agent that greets and then says nothing is not a link to its node.
                self._link_event(name, "ok")
                async with self._taking[name]:
                    await self._take(entry, item, data)
                if item.gone is not None:
                    await self._without_folder(name, link, item.gone, alive=item.alive is True)
                self._measure_clock(name, link)
                if past is None:
                    past = asyncio.create_task(self._catch_up(entry, link))
                used += len(data)
                now = time.monotonic()
                if samples is None and (self.behind[name] < CREDIT or now >= began + _LOGS_FIRST_S):
                    samples = asyncio.create_task(self._sample(entry, link))
                if used >= CREDIT_PORTION and (name not in self.paused or now >= credited + PAUSED_S):
                    portion = min(used, CREDIT_PORTION) if name in self.paused else used
                    await stream.credit(portion)
                    used -= portion
                    credited = now
                if self._has_room(name):
                    return  # followed again, from the end of the spool on
                if self.model.nodes[name].ended and not self.behind[name]:
                    await asyncio.wait({past}, timeout=_CLOSE_S)
                    self._note(name, events.Complete())
                if self.model.nodes[name].done:
                    return
        finally:
            for task in (samples, past):
                if task is not None:
                    task.cancel()
            await stream.close()

    async def _catch_up(self, entry: NodeEntry, link: Link) -> None:
        """Take in the steps that a node kept while nobody watched it."""
        since = self._paces.missed_since(entry, self.model.nodes[entry.name].offset_s)
        try:
            rows = await kept_steps(link, entry, since, self.pace.steps.limit // 2)
            await self._paces.missed(self.model, entry, rows)
        except LinkError:
            return  # the loss of the link shows elsewhere
        except Exception as error:
            # A bug of ours costs the past of its steps, not the watch over it.
            self._note(entry.name, events.Note(str(InternalError(error, where=entry.name))), record=False)

    async def _take(self, entry: NodeEntry, item: FollowItem, data: bytes) -> None:
        """Take in one part of what a node sends.

        :raises Malformed: it does not fit what is here
        :raises CockpitError: it cannot be kept
        """
        name = entry.name
        offsets = self._offsets[name]
        if sum(part.length for part in item.parts) != len(data):
            raise Malformed("follow: other bytes than its parts say")
        for begun in item.begun:
            if _is_of(entry, begun.file):
                self._begin_anew(name, begun)
        for file, why in item.trouble.items():
            if (text := f"{file} {why}") not in self.model.nodes[name].notes:
                self._note(name, events.Note(text), record=False)
        start, began = 0, time.monotonic()
        for part in item.parts:
            if time.monotonic() - began > _SLICE_S:
                await asyncio.sleep(0)
                began = time.monotonic()
            chunk = data[start : start + part.length]
            start += part.length
            rank = logged_rank(part.file)
            if rank is not None and rank not in entry.ranks:
                self._ignore(name, part.file)
                continue
            if (name in self.paused and part.file not in RECORD) or (name, part.file) in self._left_there:
                continue
            here = self._there(name, part.file)
            if part.offset > here:
                raise Malformed(f"follow: {part.file} from {part.offset}, and {here} bytes are here")
            fresh = chunk[here - part.offset :]
            offset = offsets.get(part.file, 0)
            if self.writer:
                try:
                    self._spools[name].append(part.file, offset, fresh)
                except QuotaReached as error:
                    if part.file == EVENTS:
                        raise
                    if part.file in INDEX:
                        # Costs the order of its output, but no bytes.
                        self._left_there.add((name, part.file))
                    else:
                        self._pause_logs(name, error)
                    continue
            self._trail(name, part.file).add(fresh)
            offsets[part.file] = offset + len(fresh)
            await self._tell_of(entry, part.file, offset, fresh)
        self.behind[name] = sum(
            max(0, size - self._there(name, file))
            for file, size in item.sizes.items()
            if _is_of(entry, file) and (name, file) not in self._left_there
        )
        # Comes with every answer until the node has ended: it is news only once.
        found = tuple(line.fact for line in item.found.lines)
        if found != self._found.get(name, ()):
            self._found[name] = found
            for event in self._records[name].events(item.found.lines):
                if not known(self.model, event):
                    self._emit(self._as_far_as_known(entry, event))
        if item.alive is False and not self.behind[name] and not self.model.nodes[name].over:
            self._supervisor_gone(name, ended=item.gone is None)

    def _there(self, name: str, file: str) -> int:
        """How far our copy goes in the file that the node has now: where it goes on."""
        return max(0, self._offsets[name].get(file, 0) - self.model.nodes[name].begin(file))

    def _trail(self, name: str, file: str) -> Trail:
        trail = self._trails.get((name, file))
        if trail is None:
            spool, there = self._spools[name], self._there(name, file)
            end = self._offsets[name].get(file, 0)
            head = spool.read(file, end - there, min(SPAN, there))
            tail = spool.read(file, end - min(SPAN, there), min(SPAN, there))
            trail = self._trails[name, file] = Trail(there, head, tail)
        return trail

    def _begins(self, key: tuple[str, str], file: str) -> None:
        """A file begins anew.

        :raises Malformed: it does so too often
        """
        count, last = self._gaps.get(key, (0, 0.0))
        if count >= _GAPS and time.monotonic() < last + _GAP_S:
            raise Malformed(f"{file} begins anew all the time")
        self._gaps[key] = count + 1, time.monotonic()

    def _begin_anew(self, name: str, begun: BegunFile) -> None:
        """A file goes on from its start on its node; our copy goes on where it is.

        :raises Malformed: it does so too often
        """
        key = name, begun.file
        self._begins(key, begun.file)
        self._trails[key] = Trail()
        if begun.file in INDEX:
            # It was thinned there: what comes stands for all that is here.
            if self.writer:
                self._spools[name].cut(begun.file, 0)
            self._offsets[name][begun.file] = 0
            return
        lost = None if begun.end is None else max(0, begun.end - self._there(name, begun.file))
        self._note(name, events.Gap(begun.file, self._offsets[name].get(begun.file, 0), lost))

    def _as_far_as_known(self, entry: NodeEntry, event: Event) -> Event:
        """What an agent found of a rank, without a boot that this node has not had."""
        fact = event.fact
        if not isinstance(fact, events.RankLost) or booted(self._heard.get(entry.name), self.manifest, entry):
            return event
        return replace(event, fact=replace(fact, by="agent"))

    def _pause_logs(self, name: str, why: QuotaReached) -> None:
        self.paused[name] = why
        text = f"its logs wait on the node, as there is no room for them here: {why}"
        self._note(name, events.Note(text), record=False)

    def _has_room(self, name: str) -> bool:
        """Whether a node's logs waited, and need not wait any longer."""
        if name not in self.paused or self._spools[name].wait_for(CREDIT_PORTION):
            return False
        text = "there is room here again: its logs resume where they paused"
        self._note(name, events.Note(text), record=False)
        return True

    def _ignore(self, name: str, file: str) -> None:
        """A log of a rank that is not of this node."""
        if name not in self._strangers:
            self._strangers.add(name)
            text = f"sends {file}, the log of a rank that is not its own; such logs are ignored"
            self._note(name, events.Note(text), record=False)

    async def _without_folder(self, name: str, link: Link, gone: Remains, *, alive: bool) -> None:
        """The run folder of a node is gone, but something of the run is still there."""
        for event in still_there(self.model, name, gone):
            self._emit(event, record=False)
        if self._stop is None or alive:
            return
        # Its supervisor has done what it could, or is dead: what is left is ended now, or named.
        survivors = (await self._send_stop(name, link)).survivors
        if survivors:
            self._note(name, events.NodeLost(f"{gone.why}; not all of its processes could be ended"))

    def _supervisor_gone(self, name: str, *, ended: bool) -> None:
        if not self.model.nodes[name].supervisor_gone:
            self._note(name, events.SupervisorGone())
        if ended and not any(rank.state in LIVE for rank in self.model.on(name)):
            self._note(name, events.Ended())

    async def _take_record(self, name: str, data: bytes) -> None:
        async for event in by_turns(self._records[name].feed(data)):
            self._emit(event, record=False)
        self._count_damage(name)

    def _count_damage(self, name: str) -> None:
        bad = self._records[name].bad
        if bad != self.model.nodes[name].damaged:
            self._note(name, events.Damaged(bad), record=False)

    async def _sample(self, entry: NodeEntry, link: Link) -> None:
        try:
            stream = await link.stream(self._measured(entry))
            try:
                async for item, _ in stream.parts():
                    self._take_sample(entry.name, item)
            finally:
                # Samples that nobody takes would hold up all that comes over the link.
                await stream.close()
        except LinkError:
            return  # the loss of the link shows elsewhere
        except RemoteError as error:
            # A node without measurements still runs.
            self._note(entry.name, events.Note(f"no measurements: {error}"), record=False)

    def _take_sample(self, name: str, item: SamplesItem) -> None:
        sample = events.Sample(item.node, item.ranks, item.gpus, item.memory, item.disks)
        self._note(name, sample, record=False)
        self._noticing.sampled(name, sample)

    def _measured(self, entry: NodeEntry) -> verbs.Samples:
        return verbs.Samples(entry.dir)

    def _measure_clock(self, name: str, link: Link) -> None:
        node, clock = self.model.nodes[name], link.clock
        if clock.rtt_s == float("inf"):
            return
        if node.rtt_s is None or abs(clock.offset_s - node.offset_s) > 0.005:
            self._note(name, events.ClockMeasured(clock.offset_s, clock.rtt_s))

    def _link_event(self, name: str, state: str, why: str = "", *, asks: bool = False) -> None:
        """It is news if the state is, or if a person has to log in, for another reason than before."""
        node = self.model.nodes[name]
        if node.link != state or (asks and node.link_why != why):
            self._note(name, events.LinkChanged(state, why, asks))

    def act(self, make: Callable[[], Coroutine[Any, Any, None]], what: str) -> None:
        """Do this once this session is the one that writes, for as long as it is: now, or later.

        :param what: see :meth:`accompany`
        """

        async def turn() -> None:
            await self._writing.wait()
            await make()

        self._acting.append(self.accompany(turn(), what))

    def accompany(self, task: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        """Do this for as long as the session is open.

        :param what: named where it fails: that costs what it is for, not the watch
        """

        async def guarded() -> None:
            try:
                await task
            except Exception as error:
                first = self.manifest.nodes[0].name
                self._note(first, events.Note(str(InternalError(error, where=what))), record=False)

        self._companions.append(asyncio.create_task(guarded()))
        return self._companions[-1]

    def _note(self, name: str, fact: Fact, *, record: bool = True) -> None:
        """What we ourselves see of a node now."""
        self._emit(witnessed(self.model, time.time(), name, fact), record=record)

    def _emit(self, event: Event, *, record: bool = True) -> None:
        if record and self.writer:
            self.folder.write(event)
        if isinstance(event.fact, events.StopRequested):
            self._job_end.stopped(event.fact)
            self._failures.stopped(event.node, event.fact)
        changed = self.model.apply(event)
        try:
            self._paces.event(self.model, event)
        except CockpitError as error:
            self._note(event.node, events.Note(str(error)), record=False)
        self._tell(event.node, lambda listener: listener.event(event, changed))
        self.changed.set()

    def _log(self, name: str, rank: int | None, offset: int, data: bytes) -> None:
        self._noticing.log(name, rank, data)
        self._tell(name, lambda listener: listener.log(name, rank, offset, data))

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
                    self._note(at, events.Note(str(InternalError(error, where=who))), record=False)

    @property
    def said_step(self) -> tuple[int, float] | None:
        """The last step printed in a log, and when (unix seconds)."""
        return self._noticing.said_step

    @property
    def saves(self) -> Sequence[float]:
        """When logs named a checkpoint, unix seconds: of what was seen since the run is watched from here."""
        return self._noticing.saves

    def remark(self, text: str) -> None:
        """Say something about the run that concerns whoever watches, and nobody later."""
        self._note("", events.Note(text), record=False)

    async def concluded(self) -> None:
        """Wait until it is known why the nodes were taken back, if they were, or cannot be known soon."""
        if self._taken is not None and self.model.done:
            await asyncio.wait({self._taken}, timeout=job_end.KNOWN_WITHIN_S + _CLOSE_S)

    # Stopping

    async def stop(self, reason: str, *, hard: bool = False, by: str = "a person") -> list[CockpitError]:
        """Ask every node that has not ended to stop; one with a lost link is asked when it is back.

        :return: an error for each node that could not be asked now, and one if this could not be recorded
        """
        self._stop = events.StopAsked(reason, by, hard)
        unsaid: list[CockpitError] = []
        try:
            self._note("", self._stop)
        except CockpitError as error:
            unsaid = [error]  # a full disk here must not keep a run from being stopped
        names = [name for name, node in self.model.nodes.items() if not node.over]
        _, errors = await settle({name: self._stop_now(name) for name in names})
        return [*unsaid, *errors.values()]

    async def _stop_after(self, reason: str) -> None:
        await self.stop(reason, by="the failure policy")

    async def _stop_now(self, name: str) -> StopAnswer:
        return await self._send_stop(name, await self.pool.at_hand(name))

    async def _send_stop(self, name: str, link: Link) -> StopAnswer:
        assert self._stop is not None
        stop = self._stop
        folder, run = self._nodes[name].dir, self.manifest.run
        request = verbs.Stop(folder, stop.reason, stop.by, stop.hard, run=run, node=name)
        answer = await link.call(request, deadline_s=20)
        if answer.survivors:
            self._note(name, events.Survivors(answer.survivors))
        return answer

    @property
    def stops_at(self) -> float | None:
        """When the failure policy will stop the run (unix seconds); None: it will not."""
        return None if self.model.rest_kept else self._failures.stops_at

    def keep(self) -> None:
        """Set aside the failure policy: what still runs is left alone until it ends or somebody stops it."""
        try:
            self._note("", events.RestKept())
        except CockpitError as error:  # a full disk here must not end what a person wants kept
            self._note("", events.RestKept(), record=False)
            self.remark(str(error))

    async def ask(self, node: str, request: Request[Answer, Item]) -> Answer:
        """One call to a node with an open link.

        :raises LinkError: there is no link now
        :raises RemoteError: the node refused
        """
        return await (await self.pool.at_hand(node)).call(request)

    def environ_of(self, rank: Rank) -> verbs.Environ:
        """The request for the environment that a rank's process was started with."""
        return verbs.Environ(self.dir(rank.node), rank.rank)

    def log_place(self, rank: Rank) -> str:
        """Where a rank's log is on its node, in words; empty: in the run folder there."""
        return ""

    def here(self, node: str) -> int:
        """Bytes of a node's logs and record that are here."""
        return sum(self._offsets.get(node, {}).values())

    def dir(self, node: str) -> str:
        """The run folder on a node."""
        return self._nodes[node].dir

    async def close(self) -> None:
        """Leave: the run goes on."""
        tasks = [*self._tasks, *self._companions]
        for task in tasks:
            task.cancel()
        # Each ends within a few seconds; whatever happens, so do we.
        ended = asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.wait({ended}, timeout=_CLOSE_S)
        await self.pool.close()
        for spool in self._spools.values():
            spool.close()
        with suppress(CockpitError):  # nobody is left to read it
            self._paces.close(over=self.model.over)
        self.folder.close()


def is_news(model: RunModel, event: Event) -> bool:
    """Whether an event of the journal, which another cockpit writes, says what is not known here."""
    if isinstance(event.fact, events.Watched):
        return event.at > model.watch.at
    if isinstance(event.fact, events.RestKept):
        return not model.rest_kept
    return isinstance(event.fact, events.StopAsked) and not model.stop_reason


def _is_of(entry: NodeEntry, file: str) -> bool:
    """Whether a file is a node's own, not the log of another node's rank."""
    rank = logged_rank(file)
    return rank is None or rank in entry.ranks
