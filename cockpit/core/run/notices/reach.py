"""Nodes that stay out of reach, or are lost, while others go on: nothing is stopped for that."""

from __future__ import annotations

from collections.abc import Iterator

from cockpit.base.events import NoticeStep
from cockpit.base.shell import quote
from cockpit.core.pace.pace import Pace
from cockpit.core.run.notices.rule import About, Condition, Rule
from cockpit.core.run.states import LIVE, Node, RankState, Run
from cockpit.core.time_text import clock

AWAY_S = 300.0
"""A link that is lost for less comes back by itself as a rule."""


class Reach(Rule):
    """Where no node answers at all, it is our own network, and shown with the links."""

    id = "reach"

    def __init__(self, about: About) -> None:
        super().__init__(about)
        self._since: dict[str, float] = {}

    def look(self, at: float, run: Run, pace: Pace) -> Iterator[Condition]:
        """See :class:`Rule`."""
        away = [node for node in run.nodes.values() if self._is_away(at, run, node)]
        self._since = {node.name: self._since.get(node.name, at) for node in away}
        others = [node for node in run.nodes.values() if node.link == "ok" and not node.over]
        for node in away if any(rank.state in LIVE for one in others for rank in run.on(one.name)) else ():
            if node.lost:
                since, why = self._since[node.name], node.lost
                what = f"{node.name} is lost; the ranks on other nodes keep running"
            else:
                since, why = node.link_since, node.link_why
                what = (
                    f"{node.name} is not reachable since {clock(since, at)}; its ranks may still be running"
                )
            stop = NoticeStep(
                f"cockpit stop {quote(self.about.name)}", "if the others are only waiting for it"
            )
            yield Condition(
                node.name, what, since, None, (why,) if why else (), "sure", nodes=(node.name,), steps=(stop,)
            )

    def _is_away(self, at: float, run: Run, node: Node) -> bool:
        if node.lost:
            return any(rank.state is RankState.LOST and not rank.recorded for rank in run.on(node.name))
        return not node.over and node.link in ("stale", "gone") and at - node.link_since >= AWAY_S

    def ended(self, of: str) -> str:
        """See :class:`Rule`."""
        return f"{of} answers again"
