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
    _rows = 0, 0
    """How many it fills at least, and how many more its command has."""

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
        lines, lacking = _laid_out(self._sight, width, self.ascii_only)
        self._rows = len(lines), lacking
        more = min(lacking, self.size.height - len(lines))
        return lines if more <= 0 else detail_lines(self._sight, width, self.ascii_only, 1 + more)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        """As many lines as there are at least."""
        return self._least(width)[0]

    def rows_cut(self, width: int) -> int:
        """Those of the command."""
        return self._least(width)[1]

    def _least(self, width: int) -> tuple[int, int]:
        if self._sight is None:
            return 1, 0
        lines, lacking = _laid_out(self._sight, width - self.scrollbar_size_vertical, self.ascii_only)
        return len(lines), lacking


def detail_lines(sight: About, width: int, ascii_only: bool = False, rows: int = 1) -> list[Line]:
    """The lines of a detail.

    :param rows: of its command where that is cut
    """
    return _laid_out(sight, width, ascii_only, rows)[0]


def _laid_out(sight: About, width: int, ascii_only: bool, rows: int = 1) -> tuple[list[Line], int]:
    """The lines, and how many rows the command lacks."""
    paper = Paper(width, ascii_only, plain=sight.plain, rows=rows)
    node = sight.model.nodes.get(sight.node)
    if node is None:
        return [Line.of("nothing is selected", "label")], 0
    if sight.rank is None:
        return list(node_lines(sight, node, paper)), paper.lacking
    rank = sight.model.ranks.get(sight.rank)
    if rank is None:
        return [Line.of(f"no rank {sight.rank} in this run", "label")], 0
    return list(rank_lines(sight, node, rank, paper)), paper.lacking
