"""One node or rank: its measurements, its process, what was found on it, its command and environment."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.tui.panes.text_pane import Line, TextPane
from cockpit.tui.run.detail_lines import About, detail_lines


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
