"""What a session is with: a run of ours, or a job that others started. One session is given one of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from cockpit.base import verbs
from cockpit.base.events import Fact, Gap, StopAsked
from cockpit.base.verbs import Request
from cockpit.core.logs.sources import Writer
from cockpit.core.pace.pace import Pace
from cockpit.core.run.events import Event
from cockpit.core.run.model import Rank, RunModel
from cockpit.engine.links.link import Link
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.engine.run.copies import Copies
from cockpit.engine.run.paces import PaceBook
from cockpit.errors import CockpitError


class Desk(Protocol):
    """What a session has for its source; see :class:`cockpit.engine.run.session.Session`."""

    folder: RunFolder
    manifest: Manifest
    model: RunModel
    pace: Pace
    paces: PaceBook
    copies: Copies
    behind: dict[str, int]
    asked: StopAsked | None
    """The stop that was asked for here."""

    @property
    def writer(self) -> bool:
        """Whether this process keeps the run's folder."""

    def dir(self, node: str) -> str:
        """The run folder on a node."""

    def note(self, name: str, fact: Fact, *, record: bool = True) -> None:
        """What we ourselves see of a node now."""

    def remark_of(self, name: str, text: str) -> None:
        """A note for whoever watches now, unless it is there already."""

    def emit(self, event: Event, *, record: bool = True) -> None:
        """An event happened."""

    async def tell_of(self, name: str, file: str, offset: int, data: bytes) -> None:
        """A copy has grown by these bytes."""

    async def tell_copy(self, name: str, file: str, end: int) -> None:
        """Another cockpit's copy of a file goes as far as this: tell of all that was not told."""

    async def tell_gap(self, event: Event, gap: Gap) -> None:
        """Another cockpit has seen that a file began anew: tell what its copy had then, and of that."""

    def log(self, name: str, writer: Writer, offset: int, data: bytes) -> None:
        """A copy of a log has grown."""


class Source:
    """What is asked of nodes, and what their answers are; as it is here for one of which there is nothing.

    :param desk: the session, which does all the rest
    """

    caught_up_s = 10.0
    """For :meth:`catch_up` to be done once a node has ended."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def recall(self) -> None:
        """Read again what is kept here of the source itself.

        :raises CockpitError: it cannot be read
        """

    def kept(self, name: str, file: str, size: int) -> int:
        """How many bytes of a copy of this size are known to be right."""
        return size

    def recorded(self, entry: NodeEntry) -> Iterator[Event]:
        """The events that the copy of a node's record has."""
        return iter(())

    async def taken_in(self, name: str, data: bytes) -> None:
        """The copy of a node's run record has grown."""

    async def request(self, entry: NodeEntry, link: Link) -> Request[Any, Any]:
        """What to ask a node for, to be told of it from now on.

        :raises CockpitError: the node cannot say what there is
        """
        raise NotImplementedError

    async def take(self, entry: NodeEntry, item: Any, data: bytes) -> None:
        """Take in one part of what a node sends.

        :raises Malformed: it does not fit what was asked
        :raises CockpitError: it cannot be kept
        """
        raise NotImplementedError

    async def catch_up(self, entry: NodeEntry, link: Link, known: float) -> None:
        """Take in what a node has kept while nobody watched it.

        :param known: :meth:`.PaceBook.known_until` as it was before the node was followed
        """

    async def ends(self, entry: NodeEntry, link: Link, item: Any) -> bool:
        """Whether nothing more comes of a node, after this part."""
        raise NotImplementedError

    def again(self, name: str, item: Any) -> bool:
        """Whether the node is to be asked anew."""
        return False

    def heard(self, name: str, data: bytes) -> None:
        """The console of a node's launcher said this."""

    def measured(self, entry: NodeEntry) -> verbs.Samples | None:
        """The request for measurements of a node; None: there is nothing to measure."""
        return verbs.Samples(entry.dir)

    async def stop(self, name: str, link: Link, asked: StopAsked) -> None:
        """Ask a node to end its ranks.

        :raises CockpitError: it could not be asked
        """

    @property
    def refusal(self) -> CockpitError | None:
        """Why a session does not stop it; None: it does."""
        return None

    def environ_of(self, rank: Rank) -> verbs.Environ:
        """The request for the environment that a rank's process was started with."""
        return verbs.Environ(self._desk.dir(rank.node), rank.rank)

    def log_place(self, rank: Rank) -> str:
        """Where a rank's log is on its node, in words; empty: in the run folder there."""
        return ""

    def close(self) -> None:
        """Close what is open."""
