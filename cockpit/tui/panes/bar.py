"""A line of parts at the top of a screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.strip import Strip

from cockpit.tui.panes.line import Part, fit
from cockpit.tui.panes.meanings import MEANINGS, Meaningful


class Bar(Meaningful):
    """One line; draws what :meth:`tell` was last given."""

    DEFAULT_CSS = """
    Bar { height: 1; background: $panel; color: $foreground; }
    """
    MEANINGS: ClassVar[Mapping[str, str]] = {**MEANINGS, "warn": "link-stale bold"}

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._parts: Sequence[Part] = ()

    def tell(self, parts: Sequence[Part]) -> None:
        """Draw these parts; if room is short, the least important are left out."""
        if parts != self._parts:
            self._parts = parts
            self.refresh()

    def render_line(self, y: int) -> Strip:
        return self.strip_of([(" ", ""), *fit(self._parts, self.size.width - 2)])
