"""Cockpits that are attached to the simulated run, and what they were told."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import cast

from cockpit.base.events import NodeLost, StopAsked, Watched
from cockpit.core.logs.sources import Writer
from cockpit.core.pace.pace import Pace
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.core.watch.options import WatchOptions
from cockpit.engine.links.link import Link
from cockpit.engine.links.pool import LinkPool
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.session import Session
from cockpit.engine.watching import watch_stalls
from tests.weeks.link import Line
from tests.weeks.node import Node


class Pool(LinkPool):
    """Links to simulated nodes."""

    def __init__(self, nodes: dict[str, Node]) -> None:
        super().__init__(["python3"])
        self._nodes = nodes

    async def _connect(self, node: str) -> Link:
        return cast(Link, Line(self._nodes[node]))


@dataclass
class Told:
    """What people were told, and when (seconds that nobody sets); a listener of a session."""

    stalls: list[tuple[float, Watched]] = field(default_factory=list)
    stops: list[tuple[float, StopAsked]] = field(default_factory=list)
    lost: list[Event] = field(default_factory=list)

    def joined(self, model: RunModel, pace: Pace) -> None:
        """See :class:`cockpit.engine.run.session.Listener`."""

    def log(self, node: str, writer: Writer, offset: int, data: bytes) -> None:
        """See :class:`cockpit.engine.run.session.Listener`."""

    def event(self, event: Event, changed: set[str | int]) -> None:
        """See :class:`cockpit.engine.run.session.Listener`."""
        match event.fact:
            case Watched(state="quiet" | "stalled") as watched:
                self.stalls.append((time.monotonic(), watched))
            case StopAsked() as asked:
                self.stops.append((time.monotonic(), asked))
            case NodeLost():
                self.lost.append(event)


async def attached(folder: RunFolder, nodes: dict[str, Node], told: Told) -> Session:
    """A cockpit more: the session that ``attach`` has, with the watch over it."""
    session = Session(folder, told, pool=Pool(nodes), writer=folder.writer.take())
    await session.rejoin()
    session.watch()
    watch_stalls(session, WatchOptions())
    return session
