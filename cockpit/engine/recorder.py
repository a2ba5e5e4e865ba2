"""One look at the flight recorders of all ranks of a job: asked node by node, read together."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from cockpit.base import verbs
from cockpit.base.answers import RecorderItem
from cockpit.base.gate import Malformed
from cockpit.base.recorder.trace import Trace
from cockpit.base.recorder.unpacking import unpack
from cockpit.core.recorder.members import Memberships
from cockpit.core.recorder.merge import Look, Recorded, look
from cockpit.core.text import one_line
from cockpit.engine.links.link import Link, RemoteError, streaming
from cockpit.engine.stacks.ask import Party
from cockpit.errors import CockpitError

ROWS = 400_000
"""Calls of all ranks in one look: some 60 MB."""

ROWS_A_RANK = 4000

CLOCK_PINGS = 3
"""Pings to a node whose clock has not been measured yet."""

SILENCE_S = 20.0
"""Seconds until the next rank's answer."""


@dataclass(frozen=True)
class RecorderAnswers:
    """What all recorders say, and which ranks' say nothing.

    :param silent: why, by rank
    :param probed: whether any rank has a probe at all
    """

    look: Look
    silent: dict[int, str]
    probed: bool


class Recorders:
    """The recorders of one job's ranks. What one look teaches about its groups, the next one knows."""

    def __init__(self, party: Party) -> None:
        self._party = party
        self._memberships = Memberships(0)

    async def look(self, since: float = 0.0, rows: int = ROWS_A_RANK) -> RecorderAnswers:
        """Ask all nodes at once.

        :param since: only calls from this moment on (unix seconds, our clock) are wanted, but of each group
            the last one, and all that are not done
        :param rows: at most so many of each rank; fewer if there are many ranks
        """
        places = self._party.places()
        world = 1 + max(places, default=-1)
        self._memberships.grow(world)
        rows = max(20, min(rows, ROWS // max(1, world)))
        of_node: dict[str, list[int]] = {node: [] for node in self._party.nodes}
        for rank, place in places.items():
            of_node.get(place.node, []).append(rank)
        asks = [_Asked(self._party, node, ranks, since, rows) for node, ranks in of_node.items() if ranks]
        await asyncio.gather(*(ask.answer() for ask in asks))
        heard = {rank: one for ask in asks for rank, one in ask.heard.items()}
        silent = {rank: why for ask in asks for rank, why in ask.silent.items()}
        for rank, place in places.items():
            if rank not in heard:
                silent.setdefault(rank, place.why or "its node was not asked")
        found = await asyncio.to_thread(look, heard, self._memberships)
        return RecorderAnswers(found, silent, any(ask.probed for ask in asks))


class _Asked:
    """One node."""

    def __init__(self, party: Party, node: str, ranks: list[int], since: float, rows: int) -> None:
        self._party = party
        self._node = node
        self._ranks = ranks
        self._since = since
        self._rows = rows
        self.heard: dict[int, Recorded] = {}
        self.silent: dict[int, str] = {}
        self.probed = False

    async def answer(self) -> None:
        """Ask it; what goes wrong is noted for its ranks and costs no other node's answer."""
        why = "no answer"
        try:
            if self._party.folder(self._node):
                await self._ask(await self._party.link(self._node))
            else:
                why = "cockpit did not start it: no probe runs in it"
        except CockpitError as error:
            why = one_line(error.what, limit=200)
        except Exception as error:
            # A bug of ours.
            why = one_line(f"internal error: {error!r}", limit=200)
        for rank in self._ranks:
            if rank not in self.heard:
                self.silent.setdefault(rank, why)

    async def _ask(self, link: Link) -> None:
        pings = 0 if link.clock.rtt_s < 1 else CLOCK_PINGS
        for _ in range(pings):
            await link.measure_clock()
        ahead_us = round(link.clock.offset_s * 1e6)
        since_us = max(0, round(self._since * 1e6) + ahead_us)
        folder = self._party.folder(self._node)
        request = verbs.Recorder(folder, tuple(self._ranks), since_us if self._since else 0, self._rows)
        async with streaming(link, request) as stream:
            while (part := await stream.part(SILENCE_S)) is not None:
                await asyncio.to_thread(self._take, *part, ahead_us)

    def _take(self, item: RecorderItem, data: bytes, ahead_us: int) -> None:
        """What came of one rank.

        :raises RemoteError: it is nothing that a node of ours sends
        """
        rank = item.rank
        if rank not in self._ranks or rank in self.heard or rank in self.silent:
            raise self._odd(f"the recorder of rank {rank}, which was not requested")
        if item.kind:
            self.probed |= item.kind != "absent"
            self.silent[rank] = one_line(item.what, limit=200)
            return
        self.probed = True
        if sum(item.lengths) != len(data):
            raise self._odd("a truncated recorder")
        traces = []
        try:
            for length in item.lengths:
                traces.append(self._trace(data[:length]).shifted(-ahead_us))
                data = data[length:]
        except Malformed as error:
            # What a training program says of itself costs nobody else's answer.
            self.silent[rank] = one_line(f"its recorder's answer is invalid: {error}", limit=200)
            return
        self.heard[rank] = Recorded(round(item.at * 1e6) - ahead_us, tuple(traces))

    def _trace(self, data: bytes) -> Trace:
        trace = unpack(data, lambda text: one_line(text, limit=250))
        if len(trace.entries) > self._rows:
            raise Malformed("more entries than requested")
        return trace

    def _odd(self, what: str) -> RemoteError:
        return RemoteError("protocol", f"sent {what}", where=self._node)
