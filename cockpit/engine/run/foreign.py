"""A job that others started, watched like a run: its ranks, their measurements, and the files they write.

Nothing of ours runs beside it. What a run's record says, its processes say here: a rank runs while its
process does, and how it ended is not known.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from cockpit.base import events, times, verbs
from cockpit.base.answers import Launching, OpenFile, OutputsAnswer, WatchItem
from cockpit.base.gate import Malformed
from cockpit.base.record import TIMES, log_name, logged_rank
from cockpit.base.shared_fields import FILES_A_NODE, Identity, Target
from cockpit.config import Quotas
from cockpit.core.logs.sources import Output
from cockpit.core.run.model import LIVE, Rank, RankState
from cockpit.engine.links.link import Link
from cockpit.engine.links.pool import LinkPool
from cockpit.engine.logs import container
from cockpit.engine.logs.spool import RECORD
from cockpit.engine.quotas import QuotaReached
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Foreign, NodeEntry
from cockpit.engine.run import foreign_jobs
from cockpit.engine.run.copies import CREDIT
from cockpit.engine.run.foreign_logs import Outlet, Outlets
from cockpit.engine.run.own_run import OurRun
from cockpit.engine.run.session import Listener, Session
from cockpit.engine.run.source import Desk, Source
from cockpit.errors import CockpitError, NoRoom
from cockpit.kube.kubectl_errors import meaning
from cockpit.transport.base import Tail
from cockpit.transport.registry import TRANSPORTS

_AGAIN_S = 5.0
"""Seconds between two looks for ranks that were started again, or that write to other files."""

_EXIT = re.compile(rb"exitcode *: *(-?\d{1,3})\)?[^\n]{0,40}?\(pid: *(\d{1,9})\)")
"""How torch's launchers tell the end of a rank (torch/distributed/elastic: multiprocessing/errors, api)."""

_SAID = 512
"""Bytes of a launcher's console that may be the first half of such words."""

CONTAINER = "output of container "
"""So begins what the output of a node's container is called among files; of it, ``mark`` and ``marked`` are
the checksum and the time of the last line: see :class:`cockpit.engine.logs.container.Place`."""

REFUSED = "cockpit did not start this job and stops it only with --foreign"


def session_of(
    folder: RunFolder,
    *listeners: Listener,
    writer: bool = True,
    known: foreign_jobs.Known | None = None,
    pool: LinkPool | None = None,
    quotas: Quotas | None = None,
) -> Session:
    """The session with a run, or with a job that others started; see :class:`Session` for the parameters.

    :param known: how such a job was just made known here
    """
    source: Callable[[Desk], Source] = OurRun
    if folder.manifest.foreign is not None and not folder.bundled:
        told = None if known is None else known.told
        source = partial(ForeignJob, told=told)
        pool = pool if known is None else known.pool
    return Session(folder, *listeners, source=source, pool=pool, writer=writer, quotas=quotas)


class ForeignJob(Source):
    """A job that others started, as the source of a session.

    :param desk: the session
    :param told: what its nodes have just said of their processes' files: they are not asked again
    """

    def __init__(self, desk: Desk, told: Mapping[str, OutputsAnswer] | None = None) -> None:
        super().__init__(desk)
        self._told = dict(told or {})
        assert desk.manifest.foreign is not None
        self._foreign: Foreign = desk.manifest.foreign
        self._outlets = Outlets.of(desk.folder)
        self._noted: dict[Output, int] = {}
        """How long each log was, as far as it is known where that came from."""
        self._launchers: dict[str, Sequence[Launching]] = {
            entry.name: foreign_jobs.of_it_alone(
                desk.manifest, foreign_jobs.launchers_of(desk.manifest, entry.name)
            )
            for entry in desk.manifest.nodes
        }
        self._looked: dict[str, float] = {}
        self._said: dict[str, bytes] = {}
        self._silent: dict[int, str] = {}
        """Why ranks have no output here."""

    # What is here

    def recall(self) -> None:
        """See :meth:`Source.recall`: the ledger says how far each file was taken."""
        self._outlets.close()
        self._outlets = Outlets.of(self._desk.folder)
        self._noted = self._outlets.load()

    def kept(self, name: str, file: str, size: int) -> int:
        """See :meth:`Source.kept`: bytes of unknown origin are taken back."""
        return size if file in RECORD else self._noted.get((name, logged_rank(file)), 0)

    # What is asked of nodes

    async def request(self, entry: NodeEntry, link: Link) -> verbs.Watch:
        """See :meth:`Source.request`."""
        name = entry.name
        await self._find(name, link)
        files = [one for one in self._outlets.read_by(name) if not one.id.startswith(CONTAINER)]
        if len(files) > FILES_A_NODE:
            text = f"its job writes {len(files)} files here; the first {FILES_A_NODE} are read"
            self._desk.remark_of(name, text)
            files = files[:FILES_A_NODE]
        for one in files:
            one.restart()
        return verbs.Watch(
            foreign_jobs.targets(self._desk.model, name),
            tuple(Identity(one.pid, one.ticks) for one in self._launchers[name]),
            tuple(one.asked for one in files),
            CREDIT,
        )

    async def _find(self, name: str, link: Link) -> None:
        """Look for ranks that were started again, and for the files that they write."""
        model = self._desk.model
        self._looked[name] = time.monotonic()
        own = model.nodes[name].ranks
        answer = self._told.pop(name, None)
        if answer is None:
            if own:
                job = foreign_jobs.job_on(name, await link.call(verbs.Seek()), self._foreign, model)
                for event in foreign_jobs.restarts(model, name, job):
                    self._desk.emit(event)
            callers = tuple(self._foreign.callers.get(name, ()))
            answer = await foreign_jobs.outputs(link, foreign_jobs.targets(model, name), callers)
        if answer.launchers:
            self._launchers[name] = foreign_jobs.of_it_alone(self._desk.manifest, answer.launchers)
        for file in answer.files:
            self._outlets.known(name, file)
        kind = TRANSPORTS.get(self._desk.manifest.transport)
        if answer.contained and kind is not None and kind.output is not None:
            ranks = tuple(rank for rank in answer.contained if rank in own)
            self._outlets.known(name, OpenFile(CONTAINER + name, "/dev/stdout", 0, 0, 0, 0, 0, 0, ranks))
        # What another machine writes for them is read there; of an srun it is known there why it is not.
        mine = {*own, *self._by_srun(name)} - {
            rank for node in self._foreign.callers if node != name for rank in self._by_srun(node)
        }
        silent = {
            rank: why
            for rank, why in answer.why.items()
            if rank in mine and not self._outlets.written_by(rank)
        }
        self._silent.update({rank: f"none: it {why}" for rank, why in silent.items()})
        for text in foreign_jobs.remarks(silent, every=not answer.files):
            self._desk.remark_of(name, text)

    def _by_srun(self, name: str) -> set[int]:
        """The ranks that an srun on this machine has started."""
        callers = self._foreign.callers.get(name, ())
        return {rank for caller in callers if not caller.to_port for rank in caller.ranks}

    def again(self, name: str, item: WatchItem) -> bool:
        """See :meth:`Source.again`: it is time to look for other processes or files."""
        lacks = len(item.ranks) < len(self._desk.model.nodes[name].ranks)
        return (lacks or bool(item.exchanged)) and time.monotonic() - self._looked[name] >= _AGAIN_S

    async def ends(self, entry: NodeEntry, link: Link, item: WatchItem) -> bool:
        """See :meth:`Source.ends`; what is held of last lines is kept then."""
        name, desk = entry.name, self._desk
        if item.parts or item.ranks or item.launchers or desk.behind[name] or name in desk.copies.paused:
            return False
        # A file that it reads for others too ends with the last of them.
        writers = {rank for one in self._outlets.read_by(name) for rank in one.ranks}
        if any(desk.model.ranks[rank].state in LIVE for rank in writers):
            return False
        for one in self._outlets.read_by(name):
            self._keep(one, self._outlets.rest(one))
        desk.note(name, events.Ended())
        return True

    def heard(self, name: str, data: bytes) -> None:
        """See :meth:`Source.heard`: a launcher's word counts, as it is the one who saw how a rank ended."""
        said = self._said.get(name, b"") + data
        self._said[name] = said[-_SAID:]
        for found in _EXIT.finditer(said):
            code, pid = int(found[1]), int(found[2])
            for rank in self._desk.model.on(name):
                if rank.pid == pid and rank.state in (RankState.RUNNING, RankState.GONE):
                    how = {"code": code} if code >= 0 else {"signal": min(-code, 255)}
                    fact = events.RankExited(rank.rank, rank.attempt, pid, by="launcher", **how)
                    self._desk.note(name, fact)

    # What arrives

    async def take(self, entry: NodeEntry, item: WatchItem, data: bytes) -> None:
        """See :meth:`Source.take`."""
        name = entry.name
        if sum(part.length for part in item.parts) != len(data):
            raise Malformed("watch: other bytes than its parts say")
        for begun in item.begun:
            self._begun_output(name, self._outlets.numbered(begun.number, name), begun.end)
        start = 0
        for part in item.parts:
            one = self._outlets.numbered(part.number, name)
            chunk = data[start : start + part.length]
            start += part.length
            if name in self._desk.copies.paused:
                continue
            if part.offset != one.next:
                raise Malformed(
                    f"watch: file {part.number} from {part.offset}, and {one.next} bytes are here"
                )
            self._take_bytes(name, one, chunk, item.marks.get(part.number))
        for number, text in item.trouble.items():
            self._outlets.numbered(number, name)  # refuses what was not asked for
            self._desk.remark_of(name, text)
        self._desk.behind[name] = sum(
            max(0, item.sizes[one.number] - one.next)
            for one in self._outlets.read_by(name)
            if one.number in item.sizes
        )
        for event in foreign_jobs.ended(self._desk.model, name, item):
            self._desk.emit(event)

    async def catch_up(self, entry: NodeEntry, link: Link, known: float) -> None:
        """See :meth:`Source.catch_up`: what goes to the container's output is no file of the node."""
        name = entry.name
        one = next((each for each in self._outlets.read_by(name) if each.id.startswith(CONTAINER)), None)
        kind, reach = TRANSPORTS.get(self._desk.manifest.transport), self._desk.manifest.reach
        words = kind.output(reach.options, name) if kind is not None and kind.output is not None else ()
        while one is not None and words:
            said = Tail()
            try:
                await self._read_container(name, one, words, said)
                found = meaning(said.text())
                why = "" if found is None else found.what
            except (CockpitError, OSError) as error:
                why = str(error)
            if why:
                self._desk.remark_of(name, f"output of its container: {why}")
            if name in self._desk.copies.paused:
                return  # once there is room, the node is followed again, and this with it
            await asyncio.sleep(container.AGAIN_S)

    async def _read_container(self, name: str, one: Outlet, words: Sequence[str], said: Tail) -> None:
        after = None if one.mark is None else container.Place(one.marked, one.mark)
        async with aclosing(container.follow(words, after, said)) as found:
            async for lines in found:
                if lines.missing:
                    self._begun_output(name, one, None)
                self._take_bytes(name, one, lines.data, lines.end.mark, lines.end.ns)
                if name in self._desk.copies.paused:
                    return

    def _begun_output(self, name: str, one: Outlet, end: int | None) -> None:
        """A file was shortened: what is held of a line is all there will be of it."""
        lost = None if end is None else max(0, end - one.next)
        try:
            self._keep(one, self._outlets.rest(one))
        except QuotaReached as error:
            self._desk.copies.pause(name, error)
        node, rank = self._outlets.log_of(one)
        gap = self._desk.copies.gap(node, log_name(rank), lost, one.place.path)
        one.begin_anew()
        self._desk.note(node, gap)

    def _take_bytes(
        self, name: str, one: Outlet, chunk: bytes, mark: int | None, marked: int | None = None
    ) -> None:
        before = replace(one)
        spool = self._desk.copies.spools[name]
        why = spool.wait_for(len(one.held) + len(chunk)) if self._desk.writer else None
        if why is None:
            try:
                one.mark, one.marked = mark, one.next + len(chunk) if marked is None else marked
                self._keep(one, self._outlets.sort(one, chunk))
                return
            except CockpitError as error:
                one.offset, one.held, one.open = before.offset, before.held, before.open
                one.mark, one.marked = before.mark, before.marked
                if not isinstance(error, QuotaReached):
                    raise
                why = error
        self._desk.copies.pause(name, why)

    def _keep(self, one: Outlet, pieces: Sequence[tuple[Output, bytes]]) -> None:
        """Put bytes into the logs they belong to: all of them, or none.

        :raises QuotaReached: there is no room for them
        :raises CockpitError: they cannot be kept
        """
        copies, writer = self._desk.copies, self._desk.writer
        sizes: dict[Output, int] = {}
        begun = one.offset
        kept = sum(len(data) for _, data in pieces)
        told = []
        try:
            for source, data in pieces:
                offset = sizes.get(source, self._log_size(source))
                if writer:
                    copies.spools[source[0]].append(log_name(source[1]), offset, data)
                sizes[source] = offset + len(data)
                told.append((source, offset, data))
            if writer and pieces:
                self._index(sizes)
                one.offset = begun + kept
                self._outlets.note(one, sizes)
        except CockpitError as error:
            one.offset = begun
            for source in sizes:
                copies.spools[source[0]].cut(log_name(source[1]), self._log_size(source))
            raise (copies.refused(error) if isinstance(error, NoRoom) else error) from None
        one.offset = begun + kept
        for (node, rank), offset, data in told:
            copies.sizes[node][log_name(rank)] = offset + len(data)
            self._desk.log(node, rank, offset, data)

    def _log_size(self, source: Output) -> int:
        return self._desk.copies.size(source[0], log_name(source[1]))

    def _index(self, sizes: dict[Output, int]) -> None:
        """Note when these bytes were there: what the supervisor does for a run of ours."""
        now = time.time()
        for node in dict.fromkeys(node for node, _ in sizes):
            grown = {log_name(rank): size for (name, rank), size in sizes.items() if name == node}
            copies, at = self._desk.copies, now + self._desk.model.nodes[node].offset_s
            size = copies.size(node, TIMES)
            if size >= times.LIMIT:
                copies.renew(node, TIMES, times.thinned(copies.spools[node].read(TIMES, 0, size)))
            # Without room for it, lines without a time of their own have that of the ones before.
            copies.add(node, TIMES, times.line(at, grown))

    # What is asked

    def measured(self, entry: NodeEntry) -> verbs.Samples | None:
        """See :meth:`Source.measured`."""
        targets = foreign_jobs.targets(self._desk.model, entry.name)
        return verbs.Samples(entry.dir, targets=targets) if targets else None

    def environ_of(self, rank: Rank) -> verbs.Environ:
        """See :meth:`Source.environ_of`."""
        target = Target(rank.rank, rank.pid or 1, rank.ticks or 0)
        return verbs.Environ(self._desk.dir(rank.node), rank.rank, target)

    def log_place(self, rank: Rank) -> str:
        """See :meth:`Source.log_place`."""
        own = [one for one in self._outlets.written_by(rank.rank) if not one.shared]
        found = own or self._outlets.written_by(rank.rank)
        if found:
            # In a shared one, whoever writes it says whose its lines are.
            return ", ".join(f"{one.node}:{one.place.path}{' (shared)' * one.shared}" for one in found)
        return self._silent.get(rank.rank, "not known")

    @property
    def refusal(self) -> CockpitError | None:
        """See :meth:`Source.refusal`: there is ``cockpit stop --foreign``."""
        name = self._desk.folder.name
        return CockpitError(REFUSED, where=name, hint=f"what that would do: cockpit stop {name}")

    def close(self) -> None:
        """See :meth:`Source.close`."""
        self._outlets.close()
