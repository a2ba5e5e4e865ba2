"""One node or rank: its measurements, its process, what was found on it, its command and environment."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cockpit.tui.panes.text_pane import Line, TextPane
from cockpit.tui.run.detail_paper import About, Paper
from cockpit.tui.run.node_detail import node_lines
from cockpit.tui.run.rank_detail import rank_lines


class Detail(TextPane):
    """The node or rank that is selected; everything scrolls."""

    _sight: About | None = None
    _rows = 0, 0
    """How many it fills if it cuts the command as short as it may, and if it does not cut it."""

    def show(self, sight: About) -> None:
        """Draw this; call it again when anything about it may have changed."""
        before, rows = self._sight, self._rows
        self._sight = sight
        self.rebuild()
        if self._rows != rows:
            self.refresh(layout=True)
        if before is None or (before.node, before.rank) != (sight.node, sight.rank):
            self.home()

    def build(self, width: int) -> Sequence[Line]:
        """The lines shown."""
        if self._sight is None:
            return [Line.of("nothing is selected", "label")]
        cut, whole = self._cut_and_whole(self._sight, width)
        self._rows = len(cut), len(whole)
        spare = self.size.height - len(cut)
        if len(whole) - len(cut) <= spare:
            return whole
        return cut if spare <= 0 else detail_lines(self._sight, width, self.ascii_only, 1 + spare)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        """As many lines as there are at least."""
        if self._sight is None:
            return 1
        return len(self._cut_and_whole(self._sight, width - self.scrollbar_size_vertical)[0])

    def rows_cut(self, width: int) -> int:
        """Those of the command."""
        if self._sight is None:
            return 0
        cut, whole = self._cut_and_whole(self._sight, width - self.scrollbar_size_vertical)
        return len(whole) - len(cut)

    def _cut_and_whole(self, sight: About, width: int) -> tuple[list[Line], list[Line]]:
        cut = detail_lines(sight, width, self.ascii_only)
        return cut, detail_lines(sight, width, self.ascii_only, sys.maxsize) if sight.more else cut


def detail_lines(sight: About, width: int, ascii_only: bool = False, rows: int = 1) -> list[Line]:
    """The lines of a detail.

    :param rows: of its command where that is cut
    """
    node = sight.model.nodes.get(sight.node)
    if node is None:
        return [Line.of("nothing is selected", "label")]
    paper = Paper(width, ascii_only, plain=sight.plain, rows=rows)
    if sight.rank is None:
        return list(node_lines(sight, node, paper))
    rank = sight.model.ranks.get(sight.rank)
    if rank is None:
        return [Line.of(f"no rank {sight.rank} in this run", "label")]
    return list(rank_lines(sight, node, rank, paper))
