"""Keeps the watch over a run: its progress each second, a look at all ranks when it stands still.

One cockpit does this, the one that writes the run's folder here; others read in its journal what it says.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from cockpit.base.events import Watched
from cockpit.base.gate import Malformed
from cockpit.core.logs.sources import Nccl, Writer
from cockpit.core.pace.pace import Pace
from cockpit.core.ranks import nodes_text
from cockpit.core.run import watch_messages as words
from cockpit.core.run.event_table import witnessed
from cockpit.core.run.events import Event, journaled
from cockpit.core.run.model import RunModel
from cockpit.core.run.states import HUNG
from cockpit.core.stacks.case import Case
from cockpit.core.stacks.class_facts import ClassPart
from cockpit.core.stacks.progress import Done, Progress
from cockpit.core.stacks.snapshot import Snapshot
from cockpit.core.stacks.verdict import standstill, verdict
from cockpit.core.watch.judge import Inspection
from cockpit.core.watch.options import WatchOptions
from cockpit.core.watch.progress import FRESH_S, Tracker, heard_at
from cockpit.core.watch.watch import FOREIGN_LOOKS, StallWatch, Terms
from cockpit.engine.extra_facts import Facts
from cockpit.engine.files import open_regular
from cockpit.engine.run.handover import is_news
from cockpit.engine.run.session import Session
from cockpit.engine.stacks.ask import Ask, Party
from cockpit.engine.stacks.take import Sampler
from cockpit.engine.stacks.targets import RunParty
from cockpit.errors import CockpitError

TICK_S = 1.0
"""Seconds between two looks at what is known of progress."""

GAP_S = 1.5
"""Seconds from the beginning of one sample of a look to that of the next, at least."""

SAMPLE_S = 15.0
"""Seconds after which a sample is as it is: who has not answered, has not."""

HEARD_S = 0.1
"""Seconds between two looks for whether nodes have told."""

TIMEOUT_S = 5.0
"""Seconds that py-spy may take for one rank."""

_TOLD = (b'"watch"', b'"stop_asked"', b'"rest_kept"', b'"profile"')
"""Parts of the lines of a journal that may be news to whoever reads along."""

_ASIDE = 1 << 20
"""Bytes of a journal that whoever reads along takes at a time."""


def watch_stalls(session: Session, options: WatchOptions) -> None:
    """Keep the watch for as long as a session is open; while another cockpit does, read what that says."""
    session.accompany(_read_along(session), "reading along")
    if options.on:
        session.act(lambda: Watching(session, options).keep(), "watch")


class Watching:
    """The watch over the run of one session."""

    def __init__(self, session: Session, options: WatchOptions) -> None:
        self._session = session
        self._stops = options.on_hang == "stop" and session.manifest.foreign is None
        foreign = session.manifest.foreign is not None
        stop_after_s = (self._stops and options.stop_after_s) or None
        terms = Terms(options.hang_after_s, FOREIGN_LOOKS if foreign else None, stop_after_s)
        self._tracker = Tracker(options.hang_after_s)
        self._watch = StallWatch(terms, session.model.watch.total)
        self._attempts = 0
        party = RunParty(session.manifest, session.model, session.pool.at_hand)
        root = session.folder.path / "stacks"
        self._looker = Looker(party, root, session.pace, lambda: self._tracker.logged)
        self._look: asyncio.Task[None] | None = None
        self._stop: asyncio.Task[Any] | None = None

    # It listens to its session

    def joined(self, model: RunModel, pace: Pace) -> None:
        """See :class:`cockpit.engine.run.session.Listener`."""

    def log(self, node: str, writer: Writer, offset: int, data: bytes) -> None:
        """A rank printed something: a sign of life, and maybe of a step."""
        if not isinstance(writer, Nccl):
            self._tracker.spoke(time.time())

    def event(self, event: Event, changed: set[str | int]) -> None:
        """See :class:`cockpit.engine.run.session.Listener`."""

    async def keep(self) -> None:
        """Keep the watch until the run is over; cancel it to end it."""
        self._session.listeners.append(self)
        try:
            while not self._session.model.over:
                await asyncio.sleep(TICK_S)
                self._tick()
        finally:
            self._session.listeners.remove(self)
            for task in (self._look, self._stop):
                if task is not None:
                    task.cancel()

    def _tick(self) -> None:
        session = self._session
        at, ticks = time.time(), time.monotonic()
        attempts = sum(rank.attempt for rank in session.model.ranks.values())
        if attempts != self._attempts:
            self._attempts = attempts
            self._tracker.restarted()
            self._say(self._watch.restarted(at, ticks))
        if session.said_step is not None:
            self._tracker.said(*session.said_step)
        seen = self._tracker.look(at, session.model, session.pace)
        if any(session.behind.get(name) for name in session.model.nodes if name not in seen.lost):
            seen = replace(seen, known=False)  # what its log says of steps is not here yet
        self._watch.paused(session.model.longest)
        self._say(self._watch.tick(at, ticks, seen))
        self._mind_hang()
        if self._watch.due and (self._look is None or self._look.done()):
            self._say(self._watch.begin(at, ticks))
            self._look = asyncio.create_task(self._look_once())

    async def _look_once(self) -> None:
        looked: Inspection | None = None
        try:
            looked = await self._looker.look()
            await self._heard(time.time())
        except CockpitError as error:
            self._session.remark(f"ranks were not inspected: {error}")
        finally:
            self._tick()  # what it has seen counts only if there was no step meanwhile
            self._say(self._watch.looked(time.time(), time.monotonic(), looked))

    async def _heard(self, since: float) -> None:
        """Wait until nodes have told how far they were at a moment (unix seconds), or do not tell."""
        late = time.monotonic() + FRESH_S
        while heard_at(self._session.model) <= since and time.monotonic() < late:  # noqa: ASYNC110 (asks)
            await asyncio.sleep(HEARD_S)

    def _say(self, facts: Iterable[Watched]) -> None:
        session = self._session
        for fact in facts:
            try:
                session.record(witnessed(session.model, time.time(), "", fact))
            except CockpitError as error:
                session.remark(f"the watch's state could not be saved: {error}")

    def _mind_hang(self) -> None:
        """Stop the run if that was asked for: on proof that it is stuck, or after the time that was named."""
        model = self._session.model
        if not self._stops or self._stop is not None or model.asked_to_stop:
            return
        proven, still_s = self._watch.proven, self._watch.overstayed_s
        if proven or still_s is not None:
            reason = words.stop_reason(model.watch, None if proven else still_s)
            self._stop = asyncio.create_task(self._stop_run(reason))

    async def _stop_run(self, reason: str) -> None:
        for error in await self._session.stop(reason, by=HUNG):
            self._session.remark(str(error))


class Looker(Facts):
    """Looks at all ranks of a job: two samples of stacks, their recorders, the verdict.

    :param root: folder in which snapshots are kept
    :param pace: of its run
    :param logged: gives the last step printed in a log, when, and the usual seconds between two
    """

    def __init__(
        self,
        party: Party,
        root: Path,
        pace: Pace | None,
        logged: Callable[[], tuple[int, float, float | None] | None],
    ) -> None:
        super().__init__(party, pace)
        self._party = party
        self._root = root
        self._logged = logged

    async def look(self) -> Inspection | None:
        """Look once, and keep the snapshot; None: nobody answered.

        :raises CockpitError: it failed here
        """
        sampler = Sampler(self._party, Ask(timeout_s=TIMEOUT_S), self._root, self)
        began = time.monotonic()
        await _within(sampler)
        await asyncio.sleep(max(0.0, began + GAP_S - time.monotonic()))
        await _within(sampler)
        if not any(sample.dumps for sample in sampler.snapshot.samples):
            return None
        looked = await asyncio.to_thread(seen, sampler.snapshot.copy(), self._party.command)
        try:
            kept = (await sampler.kept()).name
        except CockpitError as error:
            return replace(looked, why=f"its stacks could not be saved: {error}")
        return replace(looked, snapshot=kept)

    # What its verdict uses beside stacks

    async def gather(self, sampler: Sampler) -> None:
        """See :class:`cockpit.engine.stacks.take.More`: steps also where only the log tells of them."""
        await super().gather(sampler)
        logged, ranks = self._logged(), sampler.snapshot.ranks
        if sampler.snapshot.progress is None and logged is not None and ranks:
            step, at, usual_s = logged
            sampler.snapshot.progress = Progress(time.time(), usual_s, False, {min(ranks): Done(step, at)})


async def _within(sampler: Sampler) -> None:
    """One sample; what has not come in time is left out."""
    taken = asyncio.create_task(sampler.take())
    try:
        done, _ = await asyncio.wait({taken}, timeout=SAMPLE_S)
        if not done:
            sampler.cancel()
        await taken
    finally:
        taken.cancel()


def seen(snapshot: Snapshot, command: str) -> Inspection:
    """What a look amounts to.

    :param command: takes the same stacks
    """
    case, stand = Case(snapshot), standstill(snapshot)
    goers = [part for part in (*case.others, *case.waits) if part.ranks & stand.moving]
    silent = snapshot.samples[-1].silent
    return Inspection(
        verdict(snapshot).completed(command),
        stand.frozen | stand.polling,
        stand.moving,
        stand.missing,
        case.waiting,
        _place(goers),
        why=f"{nodes_text(silent)} did not answer" if silent else "",
    )


def _place(parts: list[ClassPart]) -> str:
    """``evaluate.py:31``: where the first of them are, of which that is known."""
    return next((part.where.partition(" ")[0] for part in parts if part.where), "")


async def _read_along(session: Session) -> None:
    """Take in what another cockpit that keeps the watch writes in the run's journal."""
    path = session.folder.path / "journal.jsonl"
    at, rest, more = 0, b"", True
    while not session.model.over:
        await asyncio.sleep(0 if more else TICK_S)
        if session.writer:
            more = False
            continue
        data = b""
        with suppress(OSError), os.fdopen(open_regular(path), "rb") as file:
            file.seek(at)
            data = file.read(_ASIDE)
        at, more = at + len(data), bool(data)
        *lines, rest = (rest + data).split(b"\n")
        rest = rest[-_ASIDE:]  # what is longer is no event
        for line in lines:
            with suppress(Malformed):
                event = journaled(line) if any(kind in line for kind in _TOLD) else None
                if event and is_news(session.model, event):
                    session.record(event)
