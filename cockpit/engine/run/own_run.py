"""A run of ours as the source of a session: its record and logs, and what processes say where it has none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from cockpit.base import events, verbs
from cockpit.base.answers import BegunFile, FollowItem, Remains, StopAnswer
from cockpit.base.events import Fact, Gap, StopAsked
from cockpit.base.gate import Malformed
from cockpit.base.record import INDEX, logged_rank, nccl_rank
from cockpit.core.run.event_table import known
from cockpit.core.run.events import Event, RecordReader, journaled
from cockpit.core.run.model import LIVE
from cockpit.engine.files import lines
from cockpit.engine.links.link import Link
from cockpit.engine.links.pool import InternalError
from cockpit.engine.records.manifest import NodeEntry
from cockpit.engine.run.copies import CREDIT, unknown
from cockpit.engine.run.join import still_there
from cockpit.engine.run.node_steps import kept_steps
from cockpit.engine.run.reboot import booted
from cockpit.engine.run.source import Desk, Source
from cockpit.engine.time_slices import by_turns
from cockpit.transport.base import LinkError

_SLICE_S = 0.005
"""Keys and the screen wait no longer than this, and one log, for an answer that brings many."""

_LOOK_S = 0.5
"""Between two looks at what the cockpit that writes has of a file."""

_JOURNAL = 256 << 10
"""Bytes of a journal that are read for it, most of them at the end."""


class OurRun(Source):
    """Its nodes are followed; what is lost of a node is what its processes say where its folder is gone.

    :param desk: the session
    """

    caught_up_s = 60.0  # the steps of a night come over a slow link

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._records = {entry.name: RecordReader(entry.name, entry.ranks) for entry in desk.manifest.nodes}
        self._links: dict[str, Link] = {}
        """The last link of each node."""
        self._strangers: set[str] = set()
        self._found: dict[str, tuple[Fact, ...]] = {}
        self._along: dict[str, dict[str, float]] = {}
        """Files that are read from the copies of the one who writes, and when last (monotonic seconds)."""
        self._read: dict[str, int] = {}
        """How long the journal was when it was read for each node."""

    # What is here

    def recorded(self, entry: NodeEntry) -> Iterator[Event]:
        """See :meth:`Source.recorded`."""
        return self._desk.folder.recorded(entry, self._records[entry.name])

    async def taken_in(self, name: str, data: bytes) -> None:
        """See :meth:`Source.taken_in`."""
        async for event in by_turns(self._records[name].feed(data)):
            self._desk.emit(event, record=False)
        bad = self._records[name].bad
        if bad != self._desk.model.nodes[name].damaged:
            self._desk.note(name, events.Damaged(bad), record=False)

    # What arrives

    async def request(self, entry: NodeEntry, link: Link) -> verbs.Follow:
        """See :meth:`Source.request`."""
        name, desk = entry.name, self._desk
        self._links[name] = link
        if desk.asked is not None and not desk.model.nodes[name].over:
            await self.stop(name, link, desk.asked)
        self._along.pop(name, None)
        files = desk.copies.sizes[name]
        there = {file: desk.copies.there(name, file) for file in files}
        marks = {file: desk.copies.trail(name, file).mark for file in files}
        return verbs.Follow(entry.dir, there, CREDIT, desk.manifest.run, name, marks)

    async def take(self, entry: NodeEntry, item: FollowItem, data: bytes) -> None:
        """See :meth:`Source.take`."""
        name, desk, copies = entry.name, self._desk, self._desk.copies
        if sum(part.length for part in item.parts) != len(data):
            raise Malformed("follow: other bytes than its parts say")
        for begun in item.begun:
            if _is_of(entry, begun.file):
                self._begin_anew(name, begun)
        if not desk.writer:
            await self._read_along(name)
        for file, why in item.trouble.items():
            desk.remark_of(name, f"{file} {why}")
        start, began = 0, time.monotonic()
        for part in item.parts:
            if time.monotonic() - began > _SLICE_S:
                await asyncio.sleep(0)
                began = time.monotonic()
            chunk = data[start : start + part.length]
            start += part.length
            if not _is_of(entry, part.file):
                self._ignore(name, part.file)
                continue
            if copies.waits(name, part.file) or part.file in self._along.get(name, ()):
                continue
            here, offset = copies.there(name, part.file), copies.size(name, part.file)
            if part.offset > here:
                raise Malformed(f"follow: {part.file} from {part.offset}, and {here} bytes are here")
            fresh = chunk[here - part.offset :]
            if copies.add(name, part.file, fresh):
                await desk.tell_of(name, part.file, offset, fresh)
        own = {file: size for file, size in item.sizes.items() if _is_of(entry, file)}
        desk.behind[name] = copies.behind(name, own)
        self._take_found(entry, item)
        if item.alive is False and not desk.behind[name] and not desk.model.nodes[name].over:
            self._supervisor_gone(name, ended=item.gone is None)

    def _take_found(self, entry: NodeEntry, item: FollowItem) -> None:
        """What its agent found beside the record; it comes with every answer, and is news only once."""
        found = tuple(line.fact for line in item.found.lines)
        if found == self._found.get(entry.name, ()):
            return
        self._found[entry.name] = found
        for event in self._records[entry.name].events(item.found.lines):
            if not known(self._desk.model, event):
                self._desk.emit(self._as_far_as_known(entry, event))

    def _as_far_as_known(self, entry: NodeEntry, event: Event) -> Event:
        """What an agent found of a rank, without a boot that this node has not had."""
        fact, link = event.fact, self._links.get(entry.name)
        if not isinstance(fact, events.RankLost) or booted(link, self._desk.manifest, entry):
            return event
        return replace(event, fact=replace(fact, by="agent"))

    def _ignore(self, name: str, file: str) -> None:
        """A log of a rank that is not of this node."""
        if name not in self._strangers:
            self._strangers.add(name)
            text = f"sends {file}, the log of a rank that is not its own; such logs are ignored"
            self._desk.note(name, events.Note(text), record=False)

    # Files that begin anew

    def _begin_anew(self, name: str, begun: BegunFile) -> None:
        """A file goes on from its start on its node; our copy goes on where it is.

        :raises Malformed: it does so too often
        """
        copies = self._desk.copies
        lost = None if begun.end is None else max(0, begun.end - copies.there(name, begun.file))
        gap = copies.gap(name, begun.file, lost)
        if begun.file in INDEX:
            copies.renew(name, begun.file)
        elif self._desk.writer:
            self._desk.note(name, gap)
        else:
            self._along.setdefault(name, {})[begun.file] = 0.0

    async def _read_along(self, name: str) -> None:
        """Tell what the one who writes has of files that began anew: it says where in their copies."""
        along = self._along.setdefault(name, {})
        # In this order: it says so before it writes the first byte.
        ends = {file: self._desk.copies.spools[name].offset(file) for file in along}
        said = self._said(name)
        for event in said:
            assert isinstance(event.fact, Gap)
            along.setdefault(event.fact.file, 0.0)
            await self._desk.tell_gap(event, event.fact)
        for file, end in ends.items():
            if time.monotonic() >= along[file] + _LOOK_S:
                along[file] = time.monotonic()
                await self._desk.tell_copy(name, file, end)

    def _said(self, name: str) -> list[Event]:
        """What the one who writes has said since of files of a node that begin anew."""
        path = self._desk.folder.path / "journal.jsonl"
        size = path.stat().st_size if path.exists() else 0
        if size == self._read.get(name):
            return []
        self._read[name] = size
        return unknown(_gaps(path, name), self._desk.model.nodes[name].gaps)

    # Its end

    async def ends(self, entry: NodeEntry, link: Link, item: FollowItem) -> bool:
        """See :meth:`Source.ends`."""
        if item.gone is not None:
            await self._without_folder(entry.name, link, item.gone, alive=item.alive is True)
        return self._desk.model.nodes[entry.name].ended and not self._desk.behind[entry.name]

    async def _without_folder(self, name: str, link: Link, gone: Remains, *, alive: bool) -> None:
        """The run folder of a node is gone, but something of the run is still there."""
        desk = self._desk
        for event in still_there(desk.model, name, gone):
            desk.emit(event, record=False)
        if desk.asked is None or alive:
            return
        # Its supervisor has done what it could, or is dead: what is left is ended now, or named.
        survivors = (await self._send_stop(name, link, desk.asked)).survivors
        if survivors:
            desk.note(name, events.NodeLost(f"{gone.why}; not all of its processes could be ended"))

    def _supervisor_gone(self, name: str, *, ended: bool) -> None:
        model = self._desk.model
        if not model.nodes[name].supervisor_gone:
            self._desk.note(name, events.SupervisorGone())
        if ended and not any(rank.state in LIVE for rank in model.on(name)):
            self._desk.note(name, events.Ended())

    async def catch_up(self, entry: NodeEntry, link: Link, known: float) -> None:
        """See :meth:`Source.catch_up`: the steps that it kept."""
        desk = self._desk
        offset_s = desk.model.nodes[entry.name].offset_s
        try:
            rows = await kept_steps(link, entry, known, offset_s, desk.pace.steps.limit // 2)
            await desk.paces.missed(desk.model, entry, rows)
        except LinkError:
            return  # the loss of the link shows elsewhere
        except Exception as error:
            # A bug of ours costs the past of its steps, not the watch over it.
            desk.note(entry.name, events.Note(str(InternalError(error, where=entry.name))), record=False)

    # What is asked

    async def stop(self, name: str, link: Link, asked: StopAsked) -> None:
        """See :meth:`Source.stop`."""
        await self._send_stop(name, link, asked)

    async def _send_stop(self, name: str, link: Link, asked: StopAsked) -> StopAnswer:
        run, folder = self._desk.manifest.run, self._desk.dir(name)
        request = verbs.Stop(folder, asked.reason, asked.by, asked.hard, run=run, node=name)
        answer = await link.call(request, deadline_s=20)
        if answer.survivors:
            self._desk.note(name, events.Survivors(answer.survivors))
        return answer


def _gaps(path: Path, name: str) -> Iterator[Event]:
    """What a journal says at its end of files of a node that began anew."""
    for line in lines(path, _JOURNAL):
        if b'"gap"' in line:
            with suppress(Malformed):
                event = journaled(line)
                if event is not None and event.node == name and isinstance(event.fact, Gap):
                    yield event


def _is_of(entry: NodeEntry, file: str) -> bool:
    """Whether a file is a node's own, not the log of another node's rank."""
    rank = logged_rank(file)
    rank = nccl_rank(file) if rank is None else rank
    return rank is None or rank in entry.ranks
