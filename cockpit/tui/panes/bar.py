"""A line of parts at the top of a screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget

from cockpit.tui.panes.line import Part, fit


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
        width = self.size.width
        base = self.rich_style
        segments = [Segment(" ")]
        for text, style in fit(self._parts, width - 2):
            segments.append(Segment(text, self.get_component_rich_style(f"bar--{style}") if style else None))
        return Strip(segments).adjust_cell_length(width, base).apply_style(base)
