"""What a piece of text may mean, and how that is drawn: in colours of the theme, alike everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.strip import Strip
from textual.widget import Widget

from cockpit.core.pace.phases import NAMES

PACE = ("none", "usual", "plus15", "plus30", "plus50", "double")
"""Colours of how slow a rank was, by level (:mod:`cockpit.core.pace.heat`)."""

PROFILE = ("data", "compute", "communication", "wait")
"""Colours of where a profiled step goes."""

_RANK = ("waiting", "starting", "running", "done", "failed", "killed", "lost", "stale")
_LINK = ("ok", "stale", "gone")

MEANINGS: Mapping[str, str] = {
    "label": "dim",
    "dim": "dim",
    "head": "dim",
    "number": "dim",
    "spark": "key",
    "gpu": "key",
    "node": "foreground",
    "warning": "log-warning",
    "slow": "log-warning",
    "pace-slow": "log-warning",
    "edge": "log-warning",
    "error": "log-error",
    "time": "log-time",
    "rank": "log-rank",
    "waits": "log-rank",
    "bar": "rank-running",
    "warn": "link-stale",
    "scarce": "link-stale",
    **{state: f"rank-{state}" for state in _RANK},
    **{f"link-{state}": f"link-{state}" for state in _LINK},
    **{f"pace-{level}": f"pace-{name}" for level, name in enumerate(PACE)},
    **{f"phase-{name}": f"phase-{name}" for name in NAMES},
    **{f"profile-{name}": f"profile-{name}" for name in PROFILE},
    "title": "bold",
    "strong": "bold",
    **dict.fromkeys(("name", "key", "likely", "chosen", "cursor", "mark"), "key bold"),
    **dict.fromkeys(("good", "sure"), "rank-running bold"),
    "odd": "link-stale bold",
    "bad": "rank-failed bold",
    "who": "log-warning bold",
}
"""A colour of the theme for each meaning, with how much of it is laid over the background if not all
(``foreground:0.7``); or ``bold``, or both."""

LAID_OVER = {
    "first": Style(bold=True),
    "mark": Style(bold=True, underline=True),
    "cursor": Style(reverse=True),
}
"""What may be laid over the colour of a meaning."""


class Meaningful(Widget):
    """Draws pieces of text by what they mean.

    A component class for each would be worked out anew for each widget whenever a screen is styled, several
    times before it is first seen.
    """

    MEANINGS: ClassVar[Mapping[str, str]] = MEANINGS

    @cached_property
    def _styles_of(self) -> dict[str, Style]:
        return {}

    def notify_style_update(self) -> None:
        """Draw in the new colours."""
        super().notify_style_update()
        self._styles_of.clear()

    def style_of(self, role: str) -> Style:
        """The style of a meaning; ``pace-3/1`` is in the colour of the one on that of the other, and what
        follows a ``+`` is laid over it.
        """
        style = self._styles_of.get(role)
        if style is None:
            name, *over = role.split("+")
            name, _, under = name.partition("/")
            style = self.rich_style + self._meaning(name)
            if under:
                style += Style(bgcolor=self._meaning(under).color)
            for each in over:
                style += LAID_OVER[each]
            self._styles_of[role] = style
        return style

    def _meaning(self, role: str) -> Style:
        style = Style()
        for word in self.MEANINGS[role].split() if role else ():
            if word == "bold":
                style += Style(bold=True)
                continue
            name, _, share = word.partition(":")
            colour = Color.parse(self.app.theme_variables[name])
            if share:  # one of the terminal's own colours stays as it is
                colour = self.background_colors[1] + colour.multiply_alpha(float(share))
            style += Style(color=colour.rich_color)
        return style

    def strip_of(self, pieces: Iterable[tuple[str, str]]) -> Strip:
        """Pieces, each a text with its meaning, as a line of the widget."""
        segments = [Segment(text, self.style_of(role)) for text, role in pieces]
        return Strip(segments).adjust_cell_length(self.size.width, self.rich_style)
