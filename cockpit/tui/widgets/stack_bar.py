"""The first line of the stack screen: whose stacks, from when, and how many ranks answered."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.tui.widgets.line import Part
from cockpit.tui.widgets.top_bar import TopBar


class StackBar(TopBar):
    """One line; draws what :meth:`tell` was last given."""

    def tell(self, parts: Sequence[Part]) -> None:
        """Draw these parts, in the styles of the bar of a run."""
        if parts != self._parts:
            self._parts = parts
            self.refresh()
