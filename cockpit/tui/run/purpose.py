"""What the app was opened for: to launch a run, to join one, or to look at one that has ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

from cockpit.core.watch.options import WatchOptions
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.foreign import session_of
from cockpit.engine.run.foreign_jobs import Known
from cockpit.engine.run.join import ClosedPool
from cockpit.engine.run.session import Session

if TYPE_CHECKING:
    from cockpit.engine.launch.start import Stages, Wanted


class Flight(Protocol):
    """A way to a session."""

    @property
    def name(self) -> str:
        """The run's name."""

    @property
    def nodes(self) -> Sequence[str]:
        """Names of its nodes."""

    @property
    def launches(self) -> bool:
        """Whether it starts anything on the nodes, which is undone if the start is given up halfway."""

    @property
    def collects(self) -> bool:
        """Whether profiler reports are collected when the run has ended."""

    @property
    def leaving(self) -> str:
        """What leaving means, if not that the run continues."""

    @property
    def stalls(self) -> WatchOptions:
        """How its progress is watched."""

    async def take_off(self, stages: Stages) -> Session:
        """Make the session; the caller watches and closes it.

        :raises CockpitError: it cannot be made; what to do about it
        """


@dataclass
class Launching:
    """A new run."""

    request: Wanted
    collects: bool = False
    leaving: str = ""
    stalls: WatchOptions = field(default_factory=WatchOptions)
    launches: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return self.request.job.run

    @property
    def nodes(self) -> Sequence[str]:
        return [host.name for host in self.request.job.hosts]

    async def take_off(self, stages: Stages) -> Session:
        # All that plans and starts ranks comes along, which whoever joins a run does without.
        from cockpit.engine.launch.start import start

        return await start(self.request, stages)


@dataclass
class _Recorded:
    """A run that has a folder here."""

    folder: RunFolder

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def nodes(self) -> Sequence[str]:
        return [entry.name for entry in self.folder.manifest.nodes]


@dataclass
class Joining(_Recorded):
    """A run that was started before."""

    known: Known | None = None
    collects: bool = False
    leaving: str = ""
    stalls: WatchOptions = field(default_factory=WatchOptions)
    launches: ClassVar[bool] = False

    async def take_off(self, stages: Stages) -> Session:
        writer = self.folder.lock()
        session = session_of(self.folder, stages.listener(self.folder), writer=writer, known=self.known)
        return await _rejoined(session)


@dataclass
class Replaying(_Recorded):
    """What is recorded of a run, to look at any moment of it; no node is asked.

    :param at: where to begin, as it was typed; empty: at the beginning
    :param speed: play at once, so many times as fast as it was; None: stand
    """

    at: str = ""
    speed: int | None = None
    collects: ClassVar[bool] = False
    leaving: ClassVar[str] = ""
    stalls: WatchOptions = field(default_factory=WatchOptions)
    launches: ClassVar[bool] = False

    async def take_off(self, stages: Stages) -> Session:
        pool = ClosedPool(self.folder.manifest)
        return await _rejoined(session_of(self.folder, stages.listener(self.folder), writer=False, pool=pool))


async def _rejoined(session: Session) -> Session:
    try:
        await session.rejoin()
    except BaseException:
        await session.close()
        raise
    return session
