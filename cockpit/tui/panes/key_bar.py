"""The last line: keys that work right now, and background activity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual import events
from textual.message import Message
from textual.strip import Strip

from cockpit.tui.commands import Command, Id, shown
from cockpit.tui.panes.meanings import Meaningful

SLOTS = 6
"""Keys shown at most: nobody would read more."""

GAP = 2
"""Columns between two keys."""

BAR = 12
"""Columns of the progress."""


@dataclass(frozen=True)
class Activity:
    """Background work.

    :param text: what is going on
    :param share: how much of it is done, 0 to 1; None: unknown
    """

    text: str
    share: float | None = None


class KeyBar(Meaningful):
    """Keys on the left, activity on the right."""

    DEFAULT_CSS = "KeyBar { height: 1; background: $panel; color: $foreground; }"

    @dataclass
    class Pressed(Message):
        """A key was clicked."""

        command: Id

    def __init__(self, *, ascii_only: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self._commands: Sequence[Command] = ()
        self._activity: Activity | None = None
        self._ascii = ascii_only
        self._spots: list[tuple[int, int, Id]] = []

    def show(self, commands: Sequence[Command], activity: Activity | None) -> None:
        """Draw these keys (the first six) and this activity.

        If there is no room for all, the last two stay longest.
        """
        if (commands, activity) != (self._commands, self._activity):
            self._commands, self._activity = commands, activity
            self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        key = self.style_of("key")
        text = self.style_of("")
        right = self._right(width // 2)
        taken = sum(segment.cell_length for segment in right)
        segments = [Segment(" ", text)]
        used = 1
        self._spots = []
        for name, command in self._fitting(width - 1 - taken + (0 if right else GAP)):
            size = cell_len(name) + 1 + cell_len(command.short)
            segments += [Segment(name, key), Segment(f" {command.short}  ", text)]
            self._spots.append((used, used + size, command.id))
            used += size + GAP
        gap = max(0, width - used - taken)
        return Strip([*segments, Segment(" " * gap, text), *right]).adjust_cell_length(width, text)

    def _fitting(self, room: int) -> list[tuple[str, Command]]:
        """The keys that fit into this many columns, as they are written."""
        kept = [(shown(command.keys[0]), command) for command in self._commands[:SLOTS] if command.keys]
        while kept and sum(cell_len(name) + 1 + cell_len(c.short) + GAP for name, c in kept) > room:
            del kept[-3 if len(kept) > 2 else -1]
        return kept

    def _right(self, room: int) -> list[Segment]:
        activity = self._activity
        if activity is None:
            return []
        style = self.style_of("dim")
        words = f"{activity.text} "
        if cell_len(words) > room:
            words = set_cell_size(words, max(0, room - 2)) + "… "
        if activity.share is None:
            return [Segment(words, style)]
        progress = self.style_of("spark")
        share = min(1.0, max(0.0, activity.share))
        done = round(share * BAR)
        full, rest = ("#", ".") if self._ascii else ("━", "━")
        return [
            Segment(words, style),
            Segment(full * done, progress),
            Segment(rest * (BAR - done), style),
            Segment(f" {share:4.0%} ", style),
        ]

    def on_click(self, event: events.Click) -> None:
        for start, end, command in self._spots:
            if start <= event.x < end:
                self.post_message(self.Pressed(command))
