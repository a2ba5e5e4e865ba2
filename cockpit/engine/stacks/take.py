"""Stacks of all ranks of one job: samples over open links, gathered into one snapshot.

All nodes are asked at once, each for itself: the answers go straight into the snapshot. A node that
is slow, or silent, delays nobody.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from cockpit.base.shell import quote
from cockpit.base.stacks.dump import Dump
from cockpit.base.stacks.unpacking import KEPT, Room
from cockpit.core.stacks.earlier import stood_since
from cockpit.core.stacks.snapshot import Place, Sample, Snapshot
from cockpit.engine.links.link import Link, RemoteError, streaming
from cockpit.engine.stacks import saved
from cockpit.engine.stacks.ask import Ask, Party, RankProcess, option_words
from cockpit.engine.stacks.probes import PySpy, clean
from cockpit.errors import CockpitError, Exit
from cockpit.transport.base import LinkError

T = TypeVar("T")

EARLIER_S = 3600.0
"""A look before this one counts if it is no older: a person looks, thinks, and looks again."""

SNAPSHOT_LIMIT = 512 << 20
"""Bytes that the samples of one snapshot may take up, as ``unpacking.Room`` counts them."""


class More(Protocol):
    """Puts into a snapshot what its verdict uses beside stacks."""

    async def gather(self, sampler: Sampler) -> None:
        """Ask for it, while a sample is taken."""

    async def look_closer(self, sampler: Sampler) -> None:
        """Look once more at the ranks of which more would tell for whom they wait."""


class _InTurn:
    """Runs functions in a thread, one after the other: all that wait in one visit.

    A visit to a thread costs some milliseconds while the loop has much to draw, and a thousand nodes answer
    at once.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self._visits: asyncio.Task[None] | None = None

    async def run(self, function: Callable[[], T]) -> T:
        """What it returns, or raises."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((function, done))
        if self._visits is None:
            self._visits = asyncio.create_task(self._visit())
        return await done

    async def _visit(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            outcomes = await asyncio.to_thread(_outcomes, [function for function, _ in waiting])
            for (_, done), (result, error) in zip(waiting, outcomes, strict=True):
                if done.cancelled():
                    continue
                if error is not None:
                    done.set_exception(error)
                else:
                    done.set_result(result)
        self._visits = None


def _outcomes(functions: Sequence[Callable[[], Any]]) -> list[tuple[Any, Exception | None]]:
    found: list[tuple[Any, Exception | None]] = []
    for function in functions:
        try:
            found.append((function(), None))
        except Exception as error:
            found.append((None, error))
    return found


class Sampler:
    """Takes samples of a job's ranks.

    :param party: the job
    :param ask: what is asked of every rank
    :param root: folder in which the snapshot's own folder is created
    :param more: for what its verdict uses beside stacks; it is asked from the second sample on, because one
        sample tells nothing that it could explain; None: stacks are all there is
    """

    recorded = False
    """Whether this is a snapshot from disk, of which no more samples can be taken."""

    def __init__(self, party: Party, ask: Ask, root: Path, more: More | None = None) -> None:
        self.party = party
        self.more = more
        self.command = party.command
        """The shell command that takes the same stacks."""
        self.ask = ask
        self.root = root
        options = ask.options if ask.ranks is None else {**ask.options, "ranks": True}
        self.snapshot = Snapshot(time.strftime("%Y%m%d-%H%M%S"), party.title, party.run, options=options)
        self._look_around()
        self.trouble = ""
        """Why the snapshot could not be kept on disk; empty while it can."""
        self._saved: Path | None = None
        self._taking: asyncio.Future[Any] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._standing: asyncio.Task[None] | None = None
        """Compares the first sample with an earlier look, while the second one is waited for."""
        self._probe = PySpy()
        self._used = [0]
        """Bytes that the snapshot takes up; at its end those of the sample that is being taken."""
        # One at a time: computing threads keep the loop waiting, and each takes memory.
        self._thread = _InTurn()

    @property
    def busy(self) -> bool:
        """Whether a sample is being taken."""
        return self._taking is not None and not self._taking.done()

    @property
    def asked(self) -> int:
        """How many ranks there are to ask."""
        return sum(not place.why for place in self.snapshot.ranks.values())

    def _look_around(self) -> None:
        self.snapshot.twice = {rank: clean(text) for rank, text in self.party.twice.items()}
        places = self.party.places().items()
        self.snapshot.ranks.update({rank: place for rank, place in places if self.ask.wants(rank)})

    async def take(self) -> Sample:
        """One more sample of all ranks; it is in the snapshot from the start and fills while they answer.

        :raises CockpitError: the snapshot has no room for another one
        """
        left = self._room_left()
        sample = Sample(time.time())
        began = time.monotonic()
        self._look_around()
        self.snapshot.samples.append(sample)
        nodes = self.party.nodes
        share = min(KEPT, left // max(1, len(nodes)))
        self._used.append(0)
        work = [self._node(node, sample, self.ask, share) for node in nodes]
        self._taking = asyncio.gather(*work)
        took_s = None
        try:
            await self._taking
            took_s = time.monotonic() - began
            if len(self.snapshot.samples) == 1:
                self._standing = asyncio.create_task(self._look_back())
            await self._explain()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and getattr(task, "cancelling", int)():
                raise
        finally:
            # Not before it is explained: a verdict is given as soon as nothing is under way.
            sample.took_s = took_s or time.monotonic() - began
        # In the background: waiting for the sample need not mean waiting for the disk.
        self._keeping = asyncio.create_task(self._keep(self._keeping, self.snapshot.copy()))
        return sample

    async def _look_back(self) -> None:
        self.snapshot.stood = await asyncio.to_thread(self._stood)

    def _stood(self) -> dict[int, float]:
        """Since when ranks have stood still, by the newest snapshot there; empty if it cannot tell."""
        folder = saved.newest(self.root)
        if folder is None:
            return {}
        try:
            head = saved.head(folder)
            if head.at is None or not 0 <= self.snapshot.samples[0].at - head.at <= EARLIER_S:
                return {}
            return stood_since(saved.load(folder), self.snapshot)
        except CockpitError:
            # It may be damaged: this look is then as good as the first one.
            return {}

    async def _explain(self) -> None:
        if self.more is None or len(self.snapshot.samples) < 2:
            return
        if self._standing is not None:
            await self._standing
        self.snapshot.asking = True
        self._taking = asyncio.ensure_future(self._ask_more(self.more))
        try:
            await self._taking
        finally:
            self.snapshot.asking = False

    async def _ask_more(self, more: More) -> None:
        """What fails here costs the verdict certainty, and nobody a stack."""
        try:
            await more.gather(self)
            await more.look_closer(self)
        except CockpitError as error:
            self.snapshot.problems += (clean(str(error)),)
        except Exception as error:
            # A bug of ours.
            self.snapshot.problems += (clean(f"internal error: {error!r}"),)

    def _room_left(self) -> int:
        """Bytes that another sample may take up."""
        left = SNAPSHOT_LIMIT - sum(self._used)
        if left < max(self._used):
            number = len(self.snapshot.samples)
            size = f"{number} sample{'s' * (number != 1)}, {sum(self._used) / 1e6:,.0f} MB"
            what = f"this snapshot is full ({size})"
            raise CockpitError(what, hint=f"begin another one: {self.command}")
        return left

    async def _keep(self, before: asyncio.Task[None] | None, snapshot: Snapshot) -> None:
        """Every sample goes to disk automatically: the job may be killed, and so may we."""
        if before is not None:
            await before
        try:
            if self._standing is not None:
                await self._standing
                snapshot.stood = self.snapshot.stood
            await asyncio.to_thread(self._save, snapshot)
            self.trouble = ""
        except CockpitError as error:
            self.trouble = str(error)
        except Exception as error:
            # A bug of ours.
            self.trouble = f"internal error: {error!r}"

    async def look(
        self, rank: int, *, native: bool = False, locals: bool = False, children: bool = False
    ) -> Dump:
        """One rank alone, with more than every rank is asked for; it is no sample of the snapshot.

        :raises CockpitError: the rank cannot be asked
        """
        place = self.snapshot.ranks.get(rank, Place(""))
        if place.why or not place.node:
            raise CockpitError(place.why or "it is on no node that was asked", where=f"rank {rank}")
        sample = Sample(time.time())
        ask = replace(self.ask, native=native, locals=locals, children=children, ranks=1 << rank)
        await self._node(place.node, sample, ask, KEPT)
        if place.node in sample.silent and rank not in sample.dumps:
            raise CockpitError(sample.silent[place.node], where=place.node, code=Exit.NODE_UNFIT)
        if rank not in sample.dumps:
            raise CockpitError(self.snapshot.ranks[rank].why or "no answer", where=f"rank {rank}")
        return sample.dumps[rank]

    def cancel(self) -> None:
        """End the sample under way; what has come stays."""
        if self._taking is not None:
            self._taking.cancel()

    async def kept(self) -> Path:
        """Wait until the newest sample is on disk; the snapshot's folder.

        :raises CockpitError: it cannot be written
        """
        if self._keeping is not None:
            await self._keeping
        if self.trouble or self._saved is None:
            return await asyncio.to_thread(self.save)
        return self._saved

    def save(self) -> Path:
        """Write the snapshot's folder and return it.

        :raises CockpitError: it cannot be written
        """
        return self._save(self.snapshot)

    def _save(self, snapshot: Snapshot) -> Path:
        if self._saved is None:
            self._saved = saved.new_folder(self.root, snapshot)
        saved.save(snapshot, self._saved)
        return self._saved

    async def _node(self, node: str, sample: Sample, ask: Ask, share: int) -> None:
        """Everything about one node; what goes wrong is noted in the sample and costs no other node's answer.

        :param share: bytes that its dumps may take up
        """
        try:
            link = await self.party.link(node)
            targets = await self._targets(node, link, ask)
            if targets:
                await self._probe.equip(link)
                await self._dumps(node, link, targets, sample, ask, Room(share))
        except CockpitError as error:
            text = f"{error.what}; {error.hint}" if error.hint else error.what
            sample.silent[node] = clean(text)
        except asyncio.CancelledError:
            sample.silent[node] = "cancelled before it answered"
            raise
        except Exception as error:
            # A bug of ours.
            sample.silent[node] = clean(f"internal error: {error!r}")

    async def _targets(self, node: str, link: Link, ask: Ask) -> list[RankProcess]:
        """The ranks of a node that are asked; it cannot take one that another node has."""
        known = self.snapshot.ranks
        targets = [
            target
            for target in await self.party.targets(node, link)
            if ask.wants(target.rank) and known.get(target.rank, Place(node)).node in ("", node)
        ]
        found = {target.rank: target.on(node) for target in targets}
        gone = {
            rank: replace(place, why="gone: its process no longer exists")
            for rank, place in known.items()
            if place.node == node and not place.why and ask.wants(rank) and rank not in found
        }
        known.update({**gone, **found})
        return targets

    async def _dumps(
        self, node: str, link: Link, targets: list[RankProcess], sample: Sample, ask: Ask, room: Room
    ) -> None:
        asked = {target.rank for target in targets}
        wanted = set(asked)
        request = self._probe.request(targets, self.party.folder(node), ask)
        whole_s = ask.whole_s(len(targets))
        end = time.monotonic() + whole_s
        async with streaming(link, request) as stream:
            parts = stream.parts()
            try:
                while True:
                    patience = min(ask.silence_s, max(0.0, end - time.monotonic()))
                    _, data = await asyncio.wait_for(anext(parts), patience)
                    await self._take_in(node, data, wanted, sample, room)
            except StopAsyncIteration:
                return
            except (TimeoutError, asyncio.TimeoutError):
                quiet = patience == ask.silence_s or not sample.dumps.keys() & asked
                silent = f"no answer within {ask.silence_s:g} s"
                what = silent if quiet else f"not finished within {whole_s:g} s"
                raise LinkError(what, where=node) from None

    async def _take_in(self, node: str, data: bytes, wanted: set[int], sample: Sample, room: Room) -> None:
        """Put what came into the sample; each part of an answer tells of ranks that have not been told of.

        :raises RemoteError: it is no such part
        """
        before = room.used
        dumps, why = await self._thread.run(partial(self._probe.decode, data, wanted, room))
        if any(one is sample for one in self.snapshot.samples[-1:]):
            self._used[-1] += room.used - before
        sample.dumps.update(dumps)
        wanted.difference_update(dumps)
        if not dumps and not why:
            why = "a part of an answer without a dump"
        if why:
            raise RemoteError("protocol", f"sent {why}", where=node)


class ReplayedStacks:
    """A snapshot from disk, shown as a live one is."""

    recorded = True
    busy = False
    trouble = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.snapshot = saved.load(folder)
        self.command = f"cockpit stacks {quote(str(folder))}"

    @property
    def asked(self) -> int:
        """How many ranks were asked."""
        return len(self.snapshot.ranks)

    async def take(self) -> Sample:
        """Not possible.

        :raises CockpitError: always
        """
        raise CockpitError(f"a snapshot from {self.snapshot.name}: its job can no longer be asked")

    async def look(
        self, rank: int, *, native: bool = False, locals: bool = False, children: bool = False
    ) -> Dump:
        """What was recorded of the rank, if that has what is asked for.

        :raises CockpitError: it was not asked for at the time
        """
        options: Mapping[str, object] = self.snapshot.options
        wanted = {"native": native, "locals": locals, "children": children}
        lacking = [name for name, wish in wanted.items() if wish and not options.get(name)]
        dumps = self.snapshot.dumps(rank)
        if lacking or not dumps:
            what = f"this snapshot was taken without {option_words(lacking)}" if lacking else "no dump of it"
            raise CockpitError(what, where=f"rank {rank}")
        return dumps[-1]

    def cancel(self) -> None:
        """Nothing is under way."""

    def save(self) -> Path:
        """The folder it came from."""
        return self.folder


Stacks = Sampler | ReplayedStacks
"""Where stacks come from: ranks that run, or a snapshot on disk."""
