"""The environments that the ranks were started with, each asked for once."""

from __future__ import annotations

from cockpit.base.answers import EnvironAnswer
from cockpit.base.record import rank_environ
from cockpit.core.run.model import Rank, RankState
from cockpit.core.text import one_line
from cockpit.engine.run.session import Session
from cockpit.transport.base import LinkError
from cockpit.tui.door import explained


class Environs:
    """What is known of each rank's environment.

    :param recorded: the run is looked at from disk: no node is asked
    """

    def __init__(self, session: Session, *, recorded: bool) -> None:
        self._session = session
        self._recorded = recorded
        self._known: dict[tuple[int, int], EnvironAnswer | str] = {}
        """By rank and attempt; or why it is not known."""
        self._asked: set[tuple[int, int]] = set()

    def of(self, rank: Rank) -> EnvironAnswer | str | None:
        """What is known, or why it is not; None: it was not asked for, or there is no answer yet."""
        return self._known.get((rank.rank, rank.attempt))

    def wants(self, rank: Rank) -> bool:
        """Whether to :meth:`fetch` it: once per process, since what it was started with stays."""
        key = rank.rank, rank.attempt
        if key in self._asked or rank.state in (RankState.WAITING, RankState.STARTING):
            return False
        if self._recorded and self._session.manifest.foreign:
            self._known[key] = "nobody copied it while the process lived"
        elif self._recorded:
            path = f"{self._session.dir(rank.node)}/{rank_environ(rank.rank)}"
            self._known[key] = f"not copied here; {rank.node} may still have it: {path}"
        elif self._session.model.nodes[rank.node].link == "ok":
            self._asked.add(key)
            return True
        return False

    async def fetch(self, rank: Rank) -> None:
        """Ask its node."""
        node, key = rank.node, (rank.rank, rank.attempt)
        try:
            answer = await self._session.ask(node, self._session.source.environ_of(rank))
            self._known[key] = answer
        except Exception as error:
            self._known[key] = one_line(explained(error).what, limit=300)
            if isinstance(error, LinkError):
                self._asked.discard(key)  # asked again when the link is back
