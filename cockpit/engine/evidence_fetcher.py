"""A cockpit that watches a run keeps what its nodes keep: fetches it as it comes, and asks for it in time.

As a rank fails it asks the other nodes what their ranks are doing in that moment. And it sees to it that
supervisors have a py-spy, for the time when nobody is there.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

from cockpit.base import events, verbs
from cockpit.core.ranks import nodes_text
from cockpit.core.run.events import Event
from cockpit.engine.links.link import Link
from cockpit.engine.run.session import Listener, Session
from cockpit.engine.stacks.evidence import Depot, Shown, amiss, gather, lacking, none_of
from cockpit.engine.stacks.probes import PySpy
from cockpit.errors import CockpitError
from cockpit.transport.base import LinkError

_SETTLE_S = 1.0
"""Seconds after the first node's evidence until it is put together: others may still be looking."""
_PATIENCE_S = 10.0
"""Seconds that a cockpit whose run is over takes for it."""
_RECENT_S = 60.0
"""Seconds after which an end is no reason to look at the other ranks."""
_AGAIN_S = 30.0
_TICK_S = 0.2


def keep_evidence(session: Session) -> Keeper | None:
    """Fetch what nodes keep for as long as a session is open and the one that writes."""
    if session.manifest.foreign:
        return None
    keeper = Keeper(session)
    session.act(keeper.keep, "evidence")
    session.act(keeper.equip, "py-spy")
    return keeper


class Keeper(Listener):
    """Fetches the evidence of one session's nodes."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._changed = asyncio.Event()
        self._asked_at = float("-inf")
        self._tried: dict[str, int] = {}
        self._told: dict[Path, str] = {}
        self._spy = PySpy()
        self._settling, self._settled = asyncio.Lock(), False
        # Two at once would make one snapshot twice.
        self._turn = asyncio.Lock()
        self._asking: set[asyncio.Task[None]] = set()

    def event(self, event: Event, changed: set[str | int]) -> None:
        """A rank has failed, or a node has kept something."""
        fact = event.fact
        if isinstance(fact, events.EvidenceKept | events.Complete | events.NodeLost):
            self._changed.set()
        if isinstance(fact, events.RankExited) and (fact.code != 0 or fact.signal is not None):
            self._failed(event)

    def _failed(self, event: Event) -> None:
        """Ask the other nodes, now: what their ranks are doing is gone in a few seconds."""
        model, now = self._session.model, time.monotonic()
        node = model.nodes.get(event.node)
        if node is None or node.stop_requested_at is not None or model.stop_reason:
            return
        age_s = time.time() - (event.at - node.offset_s)
        if age_s > _RECENT_S or now - self._asked_at < _AGAIN_S:
            return
        self._asked_at = now
        for name, other in model.nodes.items():
            if name != event.node and not other.over and other.link == "ok":
                task = asyncio.create_task(self._ask(name))
                self._asking.add(task)
                task.add_done_callback(self._asking.discard)

    async def _ask(self, name: str) -> None:
        with suppress(CockpitError):  # its link is lost just now: what it has kept by itself is fetched later
            link = await self._session.pool.at_hand(name)
            await link.call(verbs.Keep(self._session.dir(name)))

    async def equip(self) -> None:
        """See to it that each node has a py-spy once its logs are here: its supervisor may need one."""
        session = self._session
        done: set[str] = set()
        why: dict[str, list[str]] = {}
        while not session.model.over and len(done) < len(session.model.nodes):
            await asyncio.sleep(_SETTLE_S)
            for name, node in session.model.nodes.items():
                if name in done or node.link != "ok" or session.behind.get(name, 1):
                    continue
                done.add(name)
                try:
                    await self._spy.equip(await session.pool.at_hand(name))
                except LinkError:
                    done.discard(name)
                except CockpitError as error:
                    why.setdefault(error.what, []).append(name)
        for what, names in why.items():
            session.remark(f"{nodes_text(names)}: stacks can't be saved there while nobody watches: {what}")

    async def keep(self) -> None:
        """Fetch what is there now, and what comes, until all has come; cancel it to end it."""
        self._session.listeners.append(self)
        try:
            await self._tell_known()
            while not self._session.model.done:
                if self._lacking():
                    await asyncio.sleep(_SETTLE_S)
                    await self._fetch()
                if not self._lacking() and not self._session.model.done:
                    self._changed.clear()
                    await self._changed.wait()
                await asyncio.sleep(_TICK_S)
        finally:
            self._session.listeners.remove(self)
        await self.settled()

    async def _tell_known(self) -> None:
        """Say what was already fetched: whoever comes later has not seen it."""
        depot = Depot(self._session.folder)
        if any(depot.names(entry) for entry in self._session.manifest.nodes):
            try:
                self._tell((await self._gather([]))[0])
            except CockpitError as error:
                self._session.remark(f"evidence could not be saved here: {error}")

    def _lacking(self) -> list[str]:
        """Nodes whose evidence is not here; one that could not give it is not asked for it forever."""
        model = self._session.model
        return [
            name
            for name in lacking(self._session.folder, model)
            if self._tried.get(name) != len(model.nodes[name].evidence)
        ]

    async def _fetch(self) -> None:
        session, names = self._session, self._lacking()
        model = session.model
        try:
            known = {name: len(model.nodes[name].evidence) for name in names}
            shown, errors = await self._gather(names)
            # A link that is lost comes back, and with it this.
            lost = {name for name, error in errors.items() if isinstance(error, LinkError)}
            for name in names:
                if name not in lost or session.model.nodes[name].over:
                    self._tried[name] = known[name]
            settled = {name for name in names if known[name] == len(model.nodes[name].evidence)} - lost
            told = {name: error for name, error in errors.items() if name not in lost}
            for text in amiss(session.folder, model, settled, told):
                session.remark(text)
            self._tell(shown)
        except CockpitError as error:
            self._tried.update(dict.fromkeys(names, -1))
            session.remark(f"evidence could not be saved here: {error}")

    async def _gather(self, names: list[str]) -> tuple[list[Shown], dict[str, CockpitError]]:
        async with self._turn:
            return await gather(self._session.folder, self._session.model, self._link, names)

    async def _link(self, name: str) -> Link:
        # A run that is over has no link to come back.
        return await self._session.pool.lend(name)

    def _tell(self, shown: list[Shown]) -> None:
        """Say what is new, or judged otherwise now that more of it is here."""
        for one in shown[-3:]:
            if self._told.get(one.path) != one.sentence:
                self._told[one.path] = one.sentence
                self._session.remark(one.sentence, one.command)

    async def settled(self) -> None:
        """Wait until what nodes have kept is here, or cannot be had soon.

        Of a run that failed, say which nodes have kept none.
        """
        async with self._settling:
            if self._settled or not self._session.writer:
                return
            self._settled = True
            with suppress(TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(self._settle(), _PATIENCE_S)
        if text := none_of(self._session.folder, self._session.model):
            self._session.remark(text)

    async def _settle(self) -> None:
        session = self._session
        if self._lacking():
            await self._fetch()
        model, depot = session.model, Depot(session.folder)
        silent = [
            entry.name
            for entry in session.manifest.nodes
            if not model.nodes[entry.name].lost and not depot.names(entry)
        ]
        # A supervisor that was killed may have kept what it could not record.
        if silent and (model.failures() or any(node.supervisor_gone for node in model.nodes.values())):
            self._tell((await self._gather(silent))[0])
