"""One node or rank: its measurements, its process, what was found on it, its command and environment."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.tui.panes.text_pane import Line, TextPane
from cockpit.tui.run.detail_paper import About, Paper
from cockpit.tui.run.node_detail import node_lines
from cockpit.tui.run.rank_detail import rank_lines


class Detail(TextPane):
    """The node or rank that is selected; everything scrolls."""

    _sight: About | None = None

    def show(self, sight: About) -> None:
        """Draw this; call it again when anything about it may have changed."""
        before = self._sight
        self._sight = sight
        self.rebuild()
        if before is None or (before.node, before.rank) != (sight.node, sight.rank):
            self.home()

    def build(self, width: int) -> Sequence[Line]:
        """The lines shown."""
        if self._sight is None:
            return [Line.of("nothing is selected", "label")]
        return detail_lines(self._sight, width, self.ascii_only)


def detail_lines(sight: About, width: int, ascii_only: bool = False) -> list[Line]:
    """The lines of a detail."""
    node = sight.model.nodes.get(sight.node)
    if node is None:
        return [Line.of("nothing is selected", "label")]
    paper = Paper(width, ascii_only, plain=sight.plain)
    if sight.rank is None:
        return list(node_lines(sight, node, paper))
    rank = sight.model.ranks.get(sight.rank)
    if rank is None:
        return [Line.of(f"no rank {sight.rank} in this run", "label")]
    return list(rank_lines(sight, node, rank, paper))
