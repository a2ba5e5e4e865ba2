"""The line of a replay: where it is in the run, how fast it goes, and what there is to look at."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from textual import events
from textual.message import Message
from textual.strip import Strip

from cockpit.core.replay.marks import CHECKPOINT, FAILURE, STALL, Mark, gravest
from cockpit.core.time_text import span_text
from cockpit.tui.look.glyphs import Glyphs
from cockpit.tui.panes.line import Part, fit
from cockpit.tui.panes.meanings import Meaningful

LEAST, NEAR_S = 12, 1.0
"""Columns of the track, at least; the log is said to be off from so many seconds on."""

STYLES = {FAILURE: "bad", STALL: "odd", CHECKPOINT: "key"}


@dataclass(frozen=True)
class Track:
    """What the line says; times are unix seconds.

    :param at: the moment that is shown, between ``begin`` and ``end``
    :param off_s: how far lines of the log may be from it
    :param busy: pace and measurements are still those of another moment
    """

    begin: float
    end: float
    at: float
    speed: int
    plays: bool
    marks: Sequence[Mark] = ()
    off_s: float = 0.0
    busy: bool = False

    def column(self, at: float, columns: int) -> int:
        """The column of a moment."""
        share = (at - self.begin) / (self.end - self.begin) if self.end > self.begin else 1.0
        return min(columns - 1, max(0, int(share * columns)))


class ReplayBar(Meaningful):
    """One line; draws what :meth:`show` was last given."""

    DEFAULT_CSS = "ReplayBar { height: 1; background: $panel; color: $foreground; }"

    @dataclass
    class Sought(Message):
        """A moment of the track was clicked.

        :param share: how much of the run is before it, 0 to 1
        """

        share: float

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._track: Track | None = None
        self._spot = (0, 0)

    def show(self, track: Track) -> None:
        """Draw this."""
        if track != self._track:
            self._track = track
            self.refresh()

    def render_line(self, y: int) -> Strip:
        if self._track is None:
            return self.strip_of([(" REPLAY", "strong"), ("  reading the run", "dim")])
        room = self.size.width - 2
        left, right = self._before(self._track), self._after(self._track)
        before = fit(left, max(1, room - LEAST - 2))
        used = sum(len(text) for text, _ in before)
        after = fit(right, room - used - LEAST - 4) if right and room - used - LEAST > 12 else []
        columns = max(1, room - used - 2 - (2 + sum(len(text) for text, _ in after) if after else 0))
        self._spot = (used + 3, columns)
        pieces = [(" ", ""), *before, ("  ", ""), *self._cells(self._track, columns)]
        return self.strip_of([*pieces, *([("  ", ""), *after] if after else [])])

    def _before(self, track: Track) -> list[Part]:
        day = "%m-%d " if _day(track.begin) != _day(track.end) else ""
        clock = time.strftime(f"{day}%H:%M:%S", time.localtime(track.at))
        signs = ("||", ">") if self._glyphs.ascii else ("┃┃", "▶")
        sign = signs[track.plays]
        state = "playing" if track.plays else "paused"
        speed = f"{track.speed:,}{'x' if self._glyphs.ascii else '×'}"
        return [
            Part(((f"{sign} {state}", "good" if track.plays else "odd"),), 1, Part(((sign, "odd"),), 1)),
            Part(((clock, "strong"),), 0),
            Part(((f"+{span_text(track.at - track.begin)}", "dim"),), 3),
            Part(((speed, ""),), 2),
        ]

    def _after(self, track: Track) -> list[Part]:
        if track.busy:
            return [Part((("reading", "dim"),), 1)]
        found = [Part(((f"of {span_text(track.end - track.begin)}", "dim"),), 2)]
        if track.off_s >= NEAR_S:
            found.append(Part(((f"log within {span_text(track.off_s)}", "dim"),), 1))
        return found

    def _cells(self, track: Track, columns: int) -> list[tuple[str, str]]:
        """The track: what has been, where it is, what comes, and the gravest mark of each column."""
        signs = {
            FAILURE: self._glyphs.failed,
            STALL: self._glyphs.look,
            CHECKPOINT: "c" if self._glyphs.ascii else "◆",
        }
        here = track.column(track.at, columns)
        found: dict[int, list[Mark]] = {}
        for one in track.marks:
            found.setdefault(track.column(one.at, columns), []).append(one)
        done, rest = ("=", "-") if self._glyphs.ascii else ("━", "─")
        cells = []
        for column in range(columns):
            mark = gravest(found.get(column, ()))
            text, style = (done, "spark") if column < here else (rest, "dim")
            if mark is not None:
                text, style = signs[mark.kind], STYLES[mark.kind]
            elif column == here:
                text = "|" if self._glyphs.ascii else "┃"
            cells.append((text, f"{style}+cursor" if column == here else style))
        return cells

    def on_click(self, event: events.Click) -> None:
        first, columns = self._spot
        if self._track is not None and first <= event.x < first + columns:
            self.post_message(self.Sought((event.x - first + 0.5) / columns))


def _day(at: float) -> tuple[int, ...]:
    return tuple(time.localtime(at)[:3])
