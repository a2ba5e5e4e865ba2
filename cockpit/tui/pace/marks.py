"""Words above and below the map that point at columns: who slows since when, checkpoints, times of day."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import groupby, islice
from typing import NamedTuple

from cockpit.core.pace.heat import Window
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.pauses import Pause
from cockpit.core.pace.pauses import pauses as pace_pauses
from cockpit.core.pace.slow import Slow
from cockpit.core.ranks import ranks_text
from cockpit.core.time_text import span_text
from cockpit.tui.look.units import clock_text
from cockpit.tui.pace.view_model import Frame
from cockpit.tui.panes.text_pane import Piece

DAY_S = 86400.0

PAUSES = 30
"""Marks of steps that began late, of the newest ones: as many as one can read."""

NAMED = 3
"""Slow ranks that are named; of more it is said how many they are."""

EVERY = 12
"""Columns between two times of day."""


class Mark(NamedTuple):
    """Words in a line.

    :param end: the column after the last of them
    """

    end: int
    text: str
    role: str = "label"


class Note(NamedTuple):
    """Something to say of a column, in one of several ways.

    :param least: the fewest words for it; if there is no room for those, what comes after them
    :param more: what is said where there is room, the best first
    """

    least: Sequence[Mark]
    more: Sequence[Mark] = ()


def placed(notes: Iterable[Note], columns: int) -> list[Piece]:
    """Notes in one line; one that does not fit beside those before it is left out.

    The first ones matter most, but none gets more words before each has the fewest that it needs.
    """
    line, roles = [" "] * columns, ["label"] * columns
    found = [(note, mark) for note in notes if (mark := _put(line, note.least)) is not None]
    # Twice: when a later one has moved to the other side of its column, there is room for an earlier one.
    for _ in range(2):
        for at, (note, before) in enumerate(found):
            _write(line, before._replace(text=" " * len(before.text)))
            found[at] = note, _put(line, (*note.more, before)) or before
    for _, mark in found:
        roles[mark.end - len(mark.text) : mark.end] = [mark.role] * len(mark.text)
    runs = groupby(zip(line, roles, strict=True), key=lambda cell: cell[1])
    return [Piece("".join(sign for sign, _ in run), role) for role, run in runs]


def _put(line: list[str], ways: Iterable[Mark]) -> Mark | None:
    """Write the first of these for which there is room."""
    for mark in ways:
        start = mark.end - len(mark.text)
        if (
            start >= 0
            and mark.end <= len(line)
            and not "".join(line[max(0, start - 1) : mark.end + 1]).strip()
        ):
            _write(line, mark)
            return mark
    return None


def _write(line: list[str], mark: Mark) -> None:
    line[mark.end - len(mark.text) : mark.end] = mark.text


def beside(column: int, text: str, frame: Frame, role: str = "label") -> tuple[Mark, Mark]:
    """A text that points at a column from the left, or from the right."""
    here = "v" if frame.ascii_only else "▾"
    return Mark(column + 1, f"{text} {here}", role), Mark(column + len(text) + 2, f"{here} {text}", role)


def slowing(pace: Pace, frame: Frame) -> list[Note]:
    """Where ranks that are slow began to be; at the left edge if it was before that."""
    found, does = (pace.late(), "late") if pace.lags else (pace.slow(), "slow")
    starts: dict[int, list[Slow]] = {}
    for one in found[:NAMED]:
        starts.setdefault(pace.apart_since(one.rank), []).append(one)
    if len(found) > NAMED and starts:
        starts = {min(starts): list(found)}
    notes = []
    for since, some in starts.items():
        step = pace.step(since)
        if step is not None and step.typical_end <= frame.window.until:
            notes.append(_slowing([one.rank for one in some], does, since, step.typical_end, frame))
    return notes


def _slowing(ranks: Sequence[int], does: str, since: int, at: float, frame: Frame) -> Note:
    many = len(ranks) > NAMED
    who = f"{len(ranks):,} ranks" if many else ranks_text(ranks)
    column = column_of(at, frame)
    if column < 0:
        mark = "<" if frame.ascii_only else "◂"
        whole = who if many else f"rank{'s' if len(ranks) > 1 else ''} {who}"
        texts = (
            f"{mark} {who}",
            f"{mark} {whole} {does} since step {since:,}",
            f"{mark} {who} {does} since step {since:,}",
            f"{mark} {who} {does} since {since:,}",
            f"{mark} {who} {does}",
        )
        marks = [Mark(len(text), text, "pace-slow") for text in texts]
        return Note(marks[:1], marks[1:])
    least = beside(column, f"{len(ranks):,} {does}" if many else who, frame, "pace-slow")
    said = f"{who} {does}{'s' if does == 'slow' and len(ranks) == 1 else ''}"
    longer = [f"{said} since step {since:,}", said] if many else [said]
    return Note(least, [mark for text in longer for mark in beside(column, text, frame, "pace-slow")])


def pauses(pace: Pace, frame: Frame, saves: Sequence[float] = ()) -> list[Note]:
    """Steps that began late, as after a checkpoint or an evaluation: in which column, and by how much.

    :param saves: when logs named a checkpoint: nothing is called one without that
    """
    found = islice(pace_pauses(pace, saves, frame.window.since), PAUSES)
    return [pause_note(pause, frame) for pause in found if pause.until < frame.window.until]


def pause_note(pause: Pause, frame: Frame) -> Note:
    """What is said of one."""
    column, long = column_of(pause.until, frame), span_text(pause.seconds)
    word = "checkpoint" if pause.saved else "no step"
    words = beside(column, word, frame)
    return Note((*words, *beside(column, long, frame)), (*beside(column, f"{word} {long}", frame), *words))


def stopping(pace: Pace, frame: Frame) -> list[Note]:
    """Where the last step of all ended, if that is on the screen."""
    last = next(iter(pace.steps.newest()), None)
    if last is None or last.typical_end < frame.window.since:
        return []
    column = min(wall(pace, frame), frame.window.columns - 1)
    return [Note(beside(column, "no step", frame, "pace-slow")[::-1])]


def wall(pace: Pace, frame: Frame) -> int:
    """The first column in which no step can have gone on."""
    last = next(iter(pace.steps.newest()), None)
    return 0 if last is None else max(0, column_of(last.typical_end, frame) + 1)


def before(pace: Pace, frame: Frame) -> int:
    """The columns before the first step that is known: that none went on there is not said."""
    began = pace.began_at
    if began is None:
        return 0
    start = began - (pace.usual() or 0.0)
    return min(frame.window.columns, max(0, column_of(start, frame)))


def column_of(at: float, frame: Frame) -> int:
    """The column of a moment; negative: it is further to the left."""
    return int((at - frame.window.since) // frame.window.wide)


def axis(frame: Frame, now: float, *, ended: bool = False) -> Piece:
    """Times of day below the map.

    :param now: at its right edge
    :param ended: the run is over: that is no ``now``
    """
    window = frame.window
    live = abs(window.until - now) < 2 * window.wide and not ended
    marks = [Mark(window.columns, "now" if live else _time(now, window))]
    columns = range(window.columns - EVERY, 0, -EVERY)
    marks += [Mark(column, _time(window.since + column * window.wide, window)) for column in columns]
    notes = (Note([mark]) for mark in marks)
    return Piece("".join(piece.text for piece in placed(notes, window.columns)), "time")


def _time(at: float, window: Window) -> str:
    """The time of day as exactly as columns are wide; of more than a day, the day as well."""
    day = ""
    if window.wide * window.columns > DAY_S:
        with suppress(OverflowError, ValueError, OSError):
            day = time.strftime("%m-%d ", time.localtime(at))
    return day + clock_text(at, 8 if window.wide * EVERY < 60 else 5)
