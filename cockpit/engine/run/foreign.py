"""A job that others started, watched like a run: its ranks, their measurements, and the files they write.

Nothing of ours runs beside it. What a run's record says, its processes say here: a rank runs while its
process does, and how it ended is not known.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cockpit.base import events, times, verbs
from cockpit.base.answers import Launching, OutputsAnswer, WatchItem
from cockpit.base.fields import FILES_A_NODE, Identity, Target
from cockpit.base.gate import Malformed
from cockpit.base.record import TIMES, logged_rank
from cockpit.config import Quotas
from cockpit.core.logs.folding import Source
from cockpit.core.run.model import LIVE, Rank, RankState
from cockpit.engine.links.link import Link
from cockpit.engine.links.pool import LinkPool
from cockpit.engine.logs.spool import RECORD
from cockpit.engine.quotas import QuotaReached
from cockpit.engine.records.folder import Foreign, NodeEntry, RunFolder
from cockpit.engine.run import foreign_jobs
from cockpit.engine.run.listener import Listener
from cockpit.engine.run.outlets import Outlet, Outlets, log_name
from cockpit.engine.run.session import CREDIT, CREDIT_PORTION, PAUSED_S, Session
from cockpit.errors import CockpitError

_AGAIN_S = 5.0
"""Seconds between two looks for ranks that were started again, or that write to other files."""

_EXIT = re.compile(rb"exitcode *: *(-?\d{1,3})\)?[^\n]{0,40}?\(pid: *(\d{1,9})\)")
"""How torch's launchers tell the end of a rank (torch/distributed/elastic: multiprocessing/errors, api)."""

_SAID = 512
"""Bytes of a launcher's console that may be the first half of such words."""

REFUSED = "cockpit did not start this job and stops it only with --foreign"


def session_of(
    folder: RunFolder, *listeners: Listener, writer: bool = True, known: foreign_jobs.Known | None = None
) -> Session:
    """The session with a run, or with a job that others started.

    :param known: how such a job was just made known here
    """
    if folder.manifest.foreign is None:
        return Session(folder, *listeners, writer=writer)
    if known is None:
        return ForeignSession(folder, *listeners, writer=writer)
    return ForeignSession(folder, *listeners, pool=known.pool, writer=writer, told=known.told)


class ForeignSession(Session):
    """A job that others started; see :class:`Session` for the parameters.

    :param told: what its nodes have just said of their processes' files: they are not asked again
    """

    def __init__(
        self,
        folder: RunFolder,
        *listeners: Listener,
        pool: LinkPool | None = None,
        writer: bool = True,
        quotas: Quotas | None = None,
        told: Mapping[str, OutputsAnswer] | None = None,
    ) -> None:
        super().__init__(folder, *listeners, pool=pool, writer=writer, quotas=quotas)
        self._told = dict(told or {})
        assert self.manifest.foreign is not None
        self._foreign: Foreign = self.manifest.foreign
        self._outlets = Outlets.of(folder)
        self._launchers: dict[str, Sequence[Launching]] = {
            name: foreign_jobs.of_it_alone(self.manifest, foreign_jobs.launchers_of(self.manifest, name))
            for name in self._nodes
        }
        self._looked: dict[str, float] = {}
        self._said: dict[str, bytes] = {}
        self._silent: dict[int, str] = {}
        """Why ranks have no output here."""

    async def rejoin(self) -> None:
        """Rebuild the model from what is known here; bytes of unknown origin are taken back."""
        noted = self._outlets.load()
        await super().rejoin()
        for name, offsets in self._offsets.items():
            for file, size in list(offsets.items()):
                if file in RECORD:
                    continue
                known = noted.get((name, logged_rank(file)), 0)
                if size > known:
                    if self.writer:
                        self._spools[name].cut(file, known)
                    offsets[file] = known

    async def _recall_spools(self) -> None:
        """See :meth:`Session._recall_spools`: the ledger says how far each file was taken."""
        self._outlets.close()
        self._outlets = Outlets.of(self.folder)
        noted = self._outlets.load()
        for name, entry in self._nodes.items():
            self._spools[name].look_again()
            for file in self._spools[name].offsets():
                if file not in RECORD:
                    self._spools[name].cut(file, noted.get((entry.name, logged_rank(file)), 0))
        await super()._recall_spools()

    async def _follow(self, entry: NodeEntry, link: Link) -> None:
        name = entry.name
        self.paused.pop(name, None)
        await self._find(name, link)
        files = self._outlets.read_by(name)
        if len(files) > FILES_A_NODE:
            self._remark(name, f"its job writes {len(files)} files here; the first {FILES_A_NODE} are read")
            files = files[:FILES_A_NODE]
        for one in files:
            one.restart()
        request = verbs.Watch(
            foreign_jobs.targets(self.model, name),
            tuple(Identity(one.pid, one.ticks) for one in self._launchers[name]),
            tuple(one.asked for one in files),
            CREDIT,
        )
        stream = await link.stream(request)
        samples = asyncio.create_task(self._sample(entry, link)) if request.targets else None
        used = 0
        credited = time.monotonic()
        try:
            async for item, data in stream.parts():
                self._link_event(name, "ok")
                self._take_item(entry, item, data)
                self._measure_clock(name, link)
                used += len(data)
                now = time.monotonic()
                if used >= CREDIT_PORTION and (name not in self.paused or now >= credited + PAUSED_S):
                    await stream.credit(used)
                    used, credited = 0, now
                if self._has_room(name):
                    return  # followed again, from the end of the spool on
                if self._is_over(name, item) and not item.parts:
                    self._finish(name)
                    return
                if self._looks_again(name, item):
                    return
        finally:
            if samples is not None:
                samples.cancel()
            await stream.close()

    async def _find(self, name: str, link: Link) -> None:
        """Look for ranks that were started again, and for the files that they write."""
        self._looked[name] = time.monotonic()
        own = self.model.nodes[name].ranks
        answer = self._told.pop(name, None)
        if answer is None:
            if own:
                job = foreign_jobs.job_on(name, await link.call(verbs.Seek()), self._foreign, self.model)
                for event in foreign_jobs.restarts(self.model, name, job):
                    self._emit(event)
            callers = tuple(self._foreign.callers.get(name, ()))
            answer = await foreign_jobs.outputs(link, foreign_jobs.targets(self.model, name), callers)
        if answer.launchers:
            self._launchers[name] = foreign_jobs.of_it_alone(self.manifest, answer.launchers)
        for file in answer.files:
            self._outlets.known(name, file)
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
            self._remark(name, text)

    def _by_srun(self, name: str) -> set[int]:
        """The ranks that an srun on this machine has started."""
        callers = self._foreign.callers.get(name, ())
        return {rank for caller in callers if not caller.to_port for rank in caller.ranks}

    def _remark(self, name: str, text: str) -> None:
        """A note, unless it is there already: the node says the same each time."""
        if text not in self.model.nodes[name].notes:
            self._note(name, events.Note(text), record=False)

    def _looks_again(self, name: str, item: WatchItem) -> bool:
        """Whether it is time to look for other processes or files."""
        lacks = len(item.ranks) < len(self.model.nodes[name].ranks)
        changed = any(text.endswith("exchanged") for text in item.trouble.values())
        return (lacks or changed) and time.monotonic() - self._looked[name] >= _AGAIN_S

    def _is_over(self, name: str, item: WatchItem) -> bool:
        """Whether nothing more can come from a node."""
        if item.ranks or item.launchers or self.behind[name] or name in self.paused:
            return False
        # A file that it reads for others too ends with the last of them.
        writers = {rank for one in self._outlets.read_by(name) for rank in one.ranks}
        return not any(self.model.ranks[rank].state in LIVE for rank in writers)

    def _log(self, name: str, rank: int | None, offset: int, data: bytes) -> None:
        offset, data = self._untold(name, log_name((name, rank)), offset, data)
        if data:
            super()._log(name, rank, offset, data)
        if rank is None:
            self._hear(name, data)

    def _hear(self, name: str, data: bytes) -> None:
        """Take a launcher at its word about how its ranks ended: it is the one who saw it."""
        said = self._said.get(name, b"") + data
        self._said[name] = said[-_SAID:]
        for found in _EXIT.finditer(said):
            code, pid = int(found[1]), int(found[2])
            for rank in self.model.on(name):
                if rank.pid == pid and rank.state in (RankState.RUNNING, RankState.GONE):
                    how = {"code": code} if code >= 0 else {"signal": min(-code, 255)}
                    fact = events.RankExited(rank.rank, rank.attempt, pid, by="launcher", **how)
                    self._note(name, fact)

    def _finish(self, name: str) -> None:
        for one in self._outlets.read_by(name):
            self._keep(one, self._outlets.rest(one))
        self._note(name, events.Ended())
        self._note(name, events.Complete())

    # What arrives

    def _take_item(self, entry: NodeEntry, item: WatchItem, data: bytes) -> None:
        """Take in one part of what a node sends.

        :raises Malformed: it does not fit what was asked
        :raises CockpitError: it cannot be kept
        """
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
            if name in self.paused:
                continue
            if part.offset != one.next:
                raise Malformed(
                    f"watch: file {part.number} from {part.offset}, and {one.next} bytes are here"
                )
            self._take_bytes(name, one, chunk, item.marks.get(part.number))
        for number, text in item.trouble.items():
            self._outlets.numbered(number, name)  # refuses what was not asked for
            self._remark(name, text)
        self.behind[name] = sum(
            max(0, item.sizes[one.number] - one.next)
            for one in self._outlets.read_by(name)
            if one.number in item.sizes
        )
        for event in foreign_jobs.ended(self.model, name, item):
            self._emit(event)

    def _begun_output(self, name: str, one: Outlet, end: int | None) -> None:
        """A file was shortened: what is held of a line is all there will be of it."""
        lost = None if end is None else max(0, end - one.next)
        try:
            self._keep(one, self._outlets.rest(one))
        except QuotaReached as error:
            self._pause_logs(name, error)
        source = self._outlets.log_of(one)
        self._begins((name, str(one.number)), one.place.path)
        one.begin_anew()
        gap = events.Gap(log_name(source), self._log_size(source), lost, one.place.path)
        self._note(source[0], gap)

    def _take_bytes(self, name: str, one: Outlet, chunk: bytes, mark: int | None) -> None:
        before = replace(one)
        why = self._spools[name].wait_for(len(one.held) + len(chunk)) if self.writer else None
        if why is None:
            try:
                one.mark, one.marked = mark, one.next + len(chunk)
                self._keep(one, self._outlets.sort(one, chunk))
                return
            except CockpitError as error:
                one.offset, one.held, one.open = before.offset, before.held, before.open
                one.mark, one.marked = before.mark, before.marked
                if not isinstance(error, QuotaReached):
                    raise
                why = error
        self._pause_logs(name, why)

    def _keep(self, one: Outlet, pieces: Sequence[tuple[Source, bytes]]) -> None:
        """Put bytes into the logs they belong to: all of them, or none.

        :raises CockpitError: they cannot be kept
        """
        sizes: dict[Source, int] = {}
        begun = one.offset
        kept = sum(len(data) for _, data in pieces)
        told = []
        try:
            for source, data in pieces:
                offset = sizes.get(source, self._log_size(source))
                if self.writer:
                    self._spools[source[0]].append(log_name(source), offset, data)
                sizes[source] = offset + len(data)
                told.append((source, offset, data))
            if self.writer and pieces:
                self._index(sizes)
                one.offset = begun + kept
                self._outlets.note(one, sizes)
        except CockpitError:
            one.offset = begun
            for source in sizes:
                self._spools[source[0]].cut(log_name(source), self._log_size(source))
            raise
        one.offset = begun + kept
        for (node, rank), offset, data in told:
            self._offsets.setdefault(node, {})[log_name((node, rank))] = offset + len(data)
            self._log(node, rank, offset, data)

    def _log_size(self, source: Source) -> int:
        return self._offsets.setdefault(source[0], {}).get(log_name(source), 0)

    def _index(self, sizes: dict[Source, int]) -> None:
        """Note when these bytes were there: what the supervisor does for a run of ours."""
        now = time.time()
        for node in dict.fromkeys(node for node, _ in sizes):
            grown = {log_name(source): size for source, size in sizes.items() if source[0] == node}
            line = times.line(now + self.model.nodes[node].offset_s, grown)
            spool, offsets = self._spools[node], self._offsets.setdefault(node, {})
            at = offsets.get(TIMES, 0)
            try:
                if at >= times.LIMIT:
                    fewer = times.thinned(spool.read(TIMES, 0, at))
                    spool.cut(TIMES, 0)
                    offsets[TIMES] = len(spool.append(TIMES, 0, fewer))
                    at = offsets[TIMES]
                spool.append(TIMES, at, line)
            except QuotaReached:
                continue  # lines without a time of their own have that of the ones before
            offsets[TIMES] = at + len(line)

    # What is asked

    def _measured(self, entry: NodeEntry) -> verbs.Samples:
        return verbs.Samples(entry.dir, targets=foreign_jobs.targets(self.model, entry.name))

    def environ_of(self, rank: Rank) -> verbs.Environ:
        """See :meth:`Session.environ_of`."""
        target = Target(rank.rank, rank.pid or 1, rank.ticks or 0)
        return verbs.Environ(self.dir(rank.node), rank.rank, target)

    def log_place(self, rank: Rank) -> str:
        """See :meth:`Session.log_place`."""
        own = [one for one in self._outlets.written_by(rank.rank) if not one.shared]
        found = own or self._outlets.written_by(rank.rank)
        if found:
            # In a shared one, whoever writes it says whose its lines are.
            return ", ".join(f"{one.node}:{one.place.path}{' (shared)' * one.shared}" for one in found)
        return self._silent.get(rank.rank, "not known")

    async def stop(self, reason: str, *, hard: bool = False, by: str = "a person") -> list[CockpitError]:
        """Refused: see ``cockpit stop --foreign``."""
        hint = f"what that would do: cockpit stop {self.folder.name}"
        return [CockpitError(REFUSED, where=self.folder.name, hint=hint)]

    async def close(self) -> None:
        """Leave: the job goes on."""
        await super().close()
        self._outlets.close()
