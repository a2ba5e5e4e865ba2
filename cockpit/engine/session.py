"""A session with a run: launch it or join it, follow its nodes through lost links, stop it."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from cockpit.base.record import EVENTS, LAUNCHER_LOG, SIZES
from cockpit.core.events import Event
from cockpit.core.model import LIVE, RunModel
from cockpit.engine.fleet import Fleet, close_all, settle
from cockpit.engine.joining import reach
from cockpit.engine.link import Link, RemoteError
from cockpit.engine.runs import Manifest, NodeEntry, RunFolder, planned
from cockpit.engine.spool import Spool
from cockpit.errors import CockpitError, ManyErrors
from cockpit.transport.base import LinkError

CREDIT = 4 << 20
"""Bytes of logs in flight a node: enough to fill a link, little enough that keys stay quick."""
CREDIT_PORTION = CREDIT // 4
"""Credit is given back in portions: every message wakes the agent."""

_RETRY_S = (0.5, 1, 2, 4, 8, 15)
"""Pauses between tries to get a lost link back; the last one repeats."""
_SLOW_S = 60.0
"""The pause where trying again hardly helps."""

_NO_RUN_THERE = ("gone", "folder", "shrunk")
"""Answers after which nothing can come from a node any more."""


class Listener(Protocol):
    """Who wants to know what happens; called on the event loop, must not block."""

    def joined(self, model: RunModel) -> None:
        """The model of the session; called once, before all else."""

    def log(self, node: str, rank: int | None, offset: int, data: bytes) -> None:
        """New bytes of a rank's log, or of the launcher's console (``rank`` is None), in order, once."""

    def event(self, event: Event, changed: set[str | int]) -> None:
        """An event was applied to the model; ``changed`` are names of nodes and numbers of ranks."""


class Session:
    """One run and the links to its nodes.

    :param folder: the run's local folder
    :param fleet: opens links; closed with the session
    :param listener: told of logs and events
    :param writer: whether this is the run's one writer (spool, journal, failure policy)
    """

    def __init__(self, folder: RunFolder, fleet: Fleet, listener: Listener, *, writer: bool = True) -> None:
        self.folder = folder
        self.manifest: Manifest = folder.manifest
        self.model = RunModel()
        self.changed = asyncio.Event()
        """Set at every event; a waiter clears it."""
        self._fleet = fleet
        self._listener = listener
        listener.joined(self.model)
        self.writer = writer
        self._nodes = {entry.name: entry for entry in self.manifest.nodes}
        self._links: dict[str, Link] = {}
        self._spools = {name: Spool(folder.spool_dir(entry)) for name, entry in self._nodes.items()}
        self._offsets: dict[str, dict[str, int]] = {}
        self._partial: dict[str, bytes] = {}
        self._stop: dict[str, Any] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.behind: dict[str, int] = {}
        """Bytes a node has that are not here yet."""
        self.stops_at: float | None = None
        """When the failure policy will stop the run (unix seconds); None: it will not."""
        self._kept = False
        self._policy = True

    # Launching

    async def launch(self, links: Mapping[str, Link], specs: Mapping[str, dict[str, Any]]) -> None:
        """Start the supervisors of all nodes, or leave none behind.

        :param links: an open link to each node; the session owns them from here on
        :param specs: the launch spec of each node
        :raises ManyErrors: one line for each node that refused; the others were stopped again
        """
        self._links.update(links)
        self._emit(planned(self.manifest))
        started, errors = await settle(
            {
                name: link.call("launch", json.dumps(specs[name]).encode(), deadline_s=60)
                for name, link in links.items()
            }
        )
        for name in list(started):
            self._emit(Event(time.time(), "launched", name, {"dir": self._nodes[name].dir}))
        if not errors:
            return
        reason = f"launch failed on {', '.join(errors)}"
        for name in started:
            with suppress(CockpitError):
                await links[name].call("stop", reason=reason, by="cockpit", hard=True)
        await settle({name: self._take_back(links[name], name) for name in started})
        self.folder.discard()
        raise ManyErrors(list(errors.values()))

    async def _take_back(self, link: Link, name: str) -> None:
        """Wait for the end of a supervisor that was told to stop, and remove its run folder."""
        folder = self._nodes[name].dir
        while (await link.call("status", dir=folder))["alive"]:  # noqa: ASYNC110 (on another machine)
            await asyncio.sleep(0.1)
        await link.call("discard", dir=folder)

    def rejoin(self) -> None:
        """Rebuild the model from what is known here."""
        self._emit(planned(self.manifest), record=False)
        for event in self.folder.journal():
            self.model.apply(event)
        for name, entry in self._nodes.items():
            self._offsets[name] = self._spools[name].offsets()
            for event in self.folder.recorded(entry):
                self.model.apply(event)
            self._partial[name] = self._cut_line(entry)

    def _cut_line(self, entry: NodeEntry) -> bytes:
        try:
            return (self.folder.spool_dir(entry) / EVENTS).read_bytes().rpartition(b"\n")[2]
        except FileNotFoundError:
            return b""

    # Watching

    def watch(self, *, policy: bool = True) -> None:
        """Follow every node in the background until it is done; see :attr:`model` and :attr:`changed`.

        :param policy: whether to stop the run after a failure, where the run was started so
        """
        self._policy = policy
        self._tasks = [asyncio.create_task(self._watch(entry)) for entry in self.manifest.nodes]
        if policy and self.writer and self.manifest.on_failure == "stop":
            self._tasks.append(asyncio.create_task(self._mind_failures()))

    async def resume(self) -> None:
        """Watch again after :meth:`wait` has raised: the nodes send from where our spool ends."""
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
        tries = 0
        while not self.model.nodes[name].done:
            link = self._links.get(name)
            try:
                if link is None or link.lost.done():
                    link = self._links[name] = await reach(self._fleet, entry)
                self._link_event(name, "ok")
                tries = 0
                await self._follow(entry, link)
            except RemoteError as error:
                if error.kind in _NO_RUN_THERE:
                    self._emit(Event(time.time(), "node_lost", name, {"why": error.what}))
                else:
                    # A fault of one node or of its agent must not end the watch over the others.
                    await self._pause(name, link, error.what, _SLOW_S)
            except LinkError as error:
                # Even a refused key may be accepted again: the run goes on, so do we, only slower.
                pause = _RETRY_S[min(tries, len(_RETRY_S) - 1)] if error.retry else _SLOW_S
                tries += 1
                await self._pause(name, link, error.what, pause, state="stale" if error.retry else "gone")

    async def _pause(
        self, name: str, link: Link | None, why: str, seconds: float, state: str = "gone"
    ) -> None:
        if link is not None:
            await link.close()
        self._link_event(name, state, why)
        await asyncio.sleep(seconds * random.uniform(0.7, 1.3))

    async def _follow(self, entry: NodeEntry, link: Link) -> None:
        if self._stop is not None and not self.model.nodes[entry.name].over:
            await self._send_stop(entry.name, link)
        offsets = self._offsets.setdefault(entry.name, {})
        stream = await link.stream("follow", dir=entry.dir, offsets=offsets, credit=CREDIT)
        samples = asyncio.create_task(self._sample(entry, link))
        used = 0
        try:
            async for item, data in stream.parts():
                try:
                    self._take(entry, item, data)
                except (KeyError, TypeError, ValueError, AttributeError) as error:
                    raise RemoteError(
                        "protocol", f"sent what makes no sense: {error!r}", where=entry.name
                    ) from None
                self._measure_clock(entry.name, link)
                used += len(data)
                if used >= CREDIT_PORTION:
                    await stream.credit(used)
                    used = 0
                if self.model.nodes[entry.name].ended and not self.behind[entry.name]:
                    self._emit(Event(time.time(), "complete", entry.name, {}))
                    return
        finally:
            samples.cancel()
            await stream.close()

    def _take(self, entry: NodeEntry, item: Mapping[str, Any], data: bytes) -> None:
        name = entry.name
        offsets = self._offsets[name]
        start = 0
        for file, offset, length in item["parts"]:
            chunk = data[start : start + length]
            start += length
            if not _is_followed(file):
                raise RemoteError("protocol", f"sent a file that was not asked for: {file!r}", where=name)
            if self.writer:
                fresh = self._spools[name].append(file, offset, chunk)
            else:
                fresh = chunk[max(0, offsets.get(file, 0) - offset) :]
            offsets[file] = max(offsets.get(file, 0), offset + length)
            if file == EVENTS:
                self._take_record(name, fresh)
            elif fresh and file != SIZES:
                rank = None if file == LAUNCHER_LOG else int(file[len("rank-") : -len(".log")])
                self._listener.log(name, rank, offset + length - len(fresh), fresh)
        self.behind[name] = sum(max(0, size - offsets.get(file, 0)) for file, size in item["sizes"].items())
        for line in item.get("found", ()):
            self._emit(Event.from_json(line, name))
        if item["alive"] is False and not self.behind[name] and not self.model.nodes[name].over:
            self._supervisor_gone(name)

    def _supervisor_gone(self, name: str) -> None:
        node = self.model.nodes[name]
        if not any("supervisor was killed" in note for note in node.notes):
            self._emit(Event(time.time(), "supervisor_gone", name, {}))
        if not any(rank.state in LIVE for rank in self.model.on(name)):
            self._emit(Event(time.time(), "ended", name, {}))

    def _take_record(self, name: str, data: bytes) -> None:
        *lines, self._partial[name] = (self._partial.get(name, b"") + data).split(b"\n")
        for line in lines:
            try:
                event = Event.from_json(json.loads(line), name)
            except ValueError:
                continue  # the node's file is the truth, and it is spooled; we cannot make sense of this line
            self._emit(event, record=False)

    async def _sample(self, entry: NodeEntry, link: Link) -> None:
        try:
            stream = await link.stream("samples", dir=entry.dir, credit=CREDIT)
            async for item, _ in stream.parts():
                data = {"sample": item["node"], "ranks": item["ranks"], "gpus": item["gpus"]}
                self._emit(Event(time.time(), "sample", entry.name, data), record=False)
        except LinkError:
            return  # the loss of the link shows elsewhere
        except (RemoteError, AttributeError, KeyError, TypeError, ValueError) as error:
            # A node without measurements still runs.
            self._emit(
                Event(time.time(), "note", entry.name, {"text": f"no measurements: {error}"}), record=False
            )

    def _measure_clock(self, name: str, link: Link) -> None:
        node, clock = self.model.nodes[name], link.clock
        if clock.rtt_s == float("inf"):
            return
        if node.rtt_s is None or abs(clock.offset_s - node.offset_s) > 0.005:
            self._emit(Event(time.time(), "clock", name, {"offset_s": clock.offset_s, "rtt_s": clock.rtt_s}))

    def _link_event(self, name: str, state: str, why: str = "") -> None:
        if self.model.nodes[name].link != state:
            self._emit(Event(time.time(), "link", name, {"state": state, "why": why}))

    def _emit(self, event: Event, *, record: bool = True) -> None:
        if record and self.writer:
            self.folder.write(event)
        self._listener.event(event, self.model.apply(event))
        self.changed.set()

    # Stopping

    async def stop(self, reason: str, *, hard: bool = False, by: str = "a person") -> list[CockpitError]:
        """Ask every node that is not over to stop; one with a lost link is asked when it is back.

        :return: an error for each node that could not be asked now
        """
        self._stop = {"reason": reason, "by": by, "hard": hard}
        self._emit(Event(time.time(), "stop_asked", "", dict(self._stop)))
        names = [name for name, node in self.model.nodes.items() if not node.over]
        links = {name: self._links[name] for name in names if name in self._links}
        _, errors = await settle({name: self._send_stop(name, link) for name, link in links.items()})
        return list(errors.values())

    async def _send_stop(self, name: str, link: Link) -> None:
        assert self._stop is not None
        await link.call("stop", dir=self._nodes[name].dir, deadline_s=20, **self._stop)

    def keep(self) -> None:
        """Set the failure policy aside: what still runs is left alone until it ends or somebody stops it."""
        self._kept = True
        self.stops_at = None

    async def _mind_failures(self) -> None:
        """The failure policy: a rank's recorded failure, and a while later the rest is stopped."""
        # Who comes back to a run that failed long ago gets as much time to decide as everybody else.
        joined = time.time()
        while not self.model.over:
            first = self.model.first_failure()
            if first is None:
                await asyncio.sleep(0.2)
                continue
            due = max(self.model.ended_at(first), joined) + self.manifest.failure_wait_s
            self.stops_at = None if self._kept or self._stop else due
            if self._kept:
                return
            if time.time() < due:
                await asyncio.sleep(min(0.2, self.manifest.failure_wait_s))
                continue
            self.stops_at = None
            if self._stop is None:
                reason = f"rank {first.rank} on {first.node} {first.text}"
                await self.stop(reason, by="the failure policy")
            return
        self.stops_at = None

    async def ask(self, node: str, verb: str, **fields: Any) -> dict[str, Any]:
        """One call about this run to a node whose link stands.

        :raises LinkError: there is no link now
        :raises RemoteError: the node refused
        """
        return await self.link(node).call(verb, dir=self._nodes[node].dir, **fields)

    def link(self, node: str) -> Link:
        """The link to a node, for a question of one's own.

        :raises LinkError: there is none now
        """
        link = self._links.get(node)
        if link is None or link.lost.done():
            raise LinkError("no link now", where=node)
        return link

    async def close(self) -> None:
        """Leave: the run goes on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await close_all(self._links.values())
        await self._fleet.close()
        for spool in self._spools.values():
            spool.close()
        self.folder.close()


def _is_followed(file: object) -> bool:
    if not isinstance(file, str):
        return False
    rank = file.removeprefix("rank-").removesuffix(".log")
    return file in (EVENTS, SIZES, LAUNCHER_LOG) or (
        f"rank-{rank}.log" == file and rank.isascii() and rank.isdigit()
    )
