"""One node or rank: its measurements, its process, what was found on it, its command and environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cockpit.base.answers import EnvironAnswer
from cockpit.core.logs.metrics import Metrics
from cockpit.core.run.model import RunModel
from cockpit.core.run.trends import Trends
from cockpit.engine.records.folder import NodeEntry
from cockpit.tui.panes.text_pane import Line, Piece, TextPane
from cockpit.tui.run.detail_lines import About, detail_lines


class Detail(TextPane):
    """The node or rank that is selected; everything scrolls."""

    _sight: About | None = None

    def show(
        self,
        node: str,
        rank: int | None,
        *,
        model: RunModel,
        trends: Trends,
        metrics: Metrics,
        entry: NodeEntry,
        plan: Mapping[str, Any],
        environ: EnvironAnswer | str | None,
        now: float,
    ) -> None:
        """Draw a node, or one rank of it; call it again when anything about it may have changed.

        :param entry: the node in the run's manifest
        :param plan: the node's plan in the run's manifest; empty if there is none
        :param environ: what the node answered to ``environ`` for this rank, or why it did not; None: no
            answer yet
        :param now: unix seconds
        """
        before = self._sight
        self._sight = About(node, rank, model, trends, metrics, entry, plan, environ, now)
        self.rebuild()
        if before is None or (before.node, before.rank) != (node, rank):
            self.home()

    def build(self, width: int) -> Sequence[Line]:
        """The lines shown."""
        if self._sight is None:
            return [Line((Piece("nothing is selected", "label"),))]
        return detail_lines(self._sight, width, self.ascii_only)
