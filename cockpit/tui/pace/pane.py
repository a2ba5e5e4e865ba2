"""The pane of ranks × time: who was slow when, and how far each rank is."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from cockpit.core.pace.heat import Heat
from cockpit.core.time_text import span_text
from cockpit.tui.pace.lines import lines_at_most, pace_lines
from cockpit.tui.pace.map_lines import ASCII_SHADES, SHADES
from cockpit.tui.pace.strip import strip_lines
from cockpit.tui.pace.view_model import Sight
from cockpit.tui.panes.meanings import PACE
from cockpit.tui.panes.text_pane import Line, TextPane

_LEGEND = ("no step", "median", "+15 %", "+30 %", "+50 %", "×2")


class PacePane(TextPane):
    """Draws what :meth:`show` was last given."""

    _sight: Sight | None = None
    _room: tuple[int, int] | None = None
    """The columns that it was last laid out for, and the rows it asked for in them."""

    def __init__(self, *, ascii_only: bool = False, id: str | None = None) -> None:
        super().__init__(ascii_only=ascii_only, id=id)
        self._heat = Heat()

    def show(self, sight: Sight) -> None:
        """Draw this; call it again when anything about it may have changed."""
        if self._sight is not None and self._sight.pace is not sight.pace:
            self._heat = Heat()  # what it has drawn is of other steps
        self._sight = sight
        if self._room is not None and self._room[1] != self._rows(self._room[0]):
            self.refresh(layout=True)
        self.rebuild()
        if sight.tall:
            self._say(_span(sight))
        else:
            self._say_legend(sight)

    def build(self, width: int) -> Sequence[Line]:
        """The lines shown."""
        if self._sight is None:
            return []
        if self._sight.tall:
            return strip_lines(self._sight, width, self._sight.tall)
        return pace_lines(self._sight, self._heat, width, self.scrollable_size.height)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        """As many lines as it has something to draw in."""
        rows = self._rows(width)
        self._room = width, rows
        return rows

    def _rows(self, width: int) -> int:
        if self._sight is None:
            return 0
        return self._sight.tall or lines_at_most(self._sight, width)

    def _say_legend(self, sight: Sight) -> None:
        if sight.pace.front is None:
            self._say(Content())
            return
        shades = ASCII_SHADES if self.ascii_only else SHADES if sight.plain else ""
        for levels in ((1, 2, 3, 4, 5, 0), (1, 3, 5, 0)):
            parts: list[str | tuple[str, str]] = []
            for level in levels:
                sign = shades[level] if shades else "■"
                text = _LEGEND[level] if not self.ascii_only else _LEGEND[level].replace("×", "x")
                parts += [(sign, "" if shades else f"${_variable(level)}"), f" {text}  "]
            legend = Content.assemble(*parts)
            if legend.cell_length <= self.outer_size.width - len("╭─  ─╮"):
                break
        self._say(legend)

    def _say(self, below: Content) -> None:
        if self.border_subtitle != below.markup:  # else the whole pane would be drawn anew
            self.border_subtitle = below


def _span(sight: Sight) -> Content:
    """How much of the past the strip has."""
    began = sight.pace.began_at
    if began is None or sight.doing:
        return Content()
    return Content(f"{'' if sight.ended else 'last '}{span_text(max(0.0, sight.now - began))}")


def _variable(level: int) -> str:
    return f"pace-{PACE[level]}"
