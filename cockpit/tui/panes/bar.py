"""A line of parts at the top of a screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.strip import Strip
from textual.widget import Widget

from cockpit.tui.panes.line import Part, drawn, fit


class Bar(Widget):
    """One line; draws what :meth:`tell` was last given."""

    DEFAULT_CSS = """
    Bar {
        height: 1; background: $panel; color: $foreground;
        & > .bar--name { color: $key; text-style: bold; }
        & > .bar--strong { color: $foreground; text-style: bold; }
        & > .bar--dim { color: $dim; }
        & > .bar--good { color: $rank-running; text-style: bold; }
        & > .bar--warn { color: $link-stale; text-style: bold; }
        & > .bar--bad { color: $rank-failed; text-style: bold; }
        & > .bar--spark { color: $key; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"bar--{name}" for name in ("name", "strong", "dim", "good", "warn", "bad", "spark")
    }

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._parts: Sequence[Part] = ()

    def tell(self, parts: Sequence[Part]) -> None:
        """Draw these parts; if room is short, the least important are left out."""
        if parts != self._parts:
            self._parts = parts
            self.refresh()

    def render_line(self, y: int) -> Strip:
        return drawn(self, "bar", [(" ", ""), *fit(self._parts, self.size.width - 2)])
