"""The numbers of training over a run, from its logs as they arrive, in chunks of any size.

The meaning of a line is worked out in :mod:`cockpit.core.logs.progress`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice
from operator import itemgetter

from cockpit.core.logs.lines import last_state
from cockpit.core.logs.progress.durations import time_left
from cockpit.core.logs.progress.line import plan_of
from cockpit.core.logs.progress.plan import Plan, Trust
from cockpit.core.logs.progress.rank import STALE, News, RankLog, newest_states
from cockpit.core.logs.progress.reading import Reading, reading_of
from cockpit.core.logs.progress.series import Series

LINE = 1024
"""Bytes at either end of a line that are read."""
LONG = 2048
"""Bytes of a piece that is scanned for numbers before it is taken apart."""
POINTS, RANK_POINTS = 512, 64
"""Points of a series of the run, and of one rank."""
PLANS, NEW_PLANS, SHAPE = 1024, 64, 256
"""Shapes of lines that are kept; that are examined in one chunk; bytes at either end of one."""

SERIES = ("loss", "lr", "samples_s", "tokens_s", "step_s")
"""Fields that have series."""

# What lines with numbers contain. A long piece is first searched for the usual ones, which is quick.
_HINTS = (b"loss", b"Loss", b"step", b"Step", b"poch", b"iter", b"Iter", b"it/s", b"s/it", b"Cost")
_HINTED = re.compile(b"loss|step|epoch|iter|batch|lr|learning|update|it/s|s/it|per_?sec|tps|eta[: ]|cost ")
# What does not change the shape of a line: numbers, blanks, and how much of a bar is drawn.
_FILLING = b"0123456789 ,\t\b" + bytes(range(0x80, 0xC0)) + b"\xe2"
_DRAWN = bytes(range(0x80, 0xC0)) + b"\xe2\b"
_STYLE = re.compile(rb"\x1b\[[\d;:?]*[A-Za-z]")


def hinted(line: bytes) -> bool:
    """Whether a line may have numbers of training; quick."""
    return _HINTED.search(line[-LONG:].lower()) is not None


def read_line(line: bytes) -> Reading | None:
    """The numbers of one line, None if none are of training."""
    line = _bounded(last_state(_clean(line)))
    plan = plan_of(line)
    if plan is None or plan.kind in (Trust.HEADING, Trust.SPEED):
        return None
    said = plan.read(line)
    if not said or (plan.kind is Trust.ALONE and "loss" not in said):
        return None
    left = time_left(line)
    return reading_of(said if left is None else {**said, "eta_s": left})


def _clean(text: bytes) -> bytes:
    if b"\x1b" in text:
        text = _STYLE.sub(b"", text)
    if not text.isascii() or b"\b" in text:
        text = text.translate(None, _DRAWN)
    return text.lower()


def _bounded(line: bytes, size: int = LINE) -> bytes:
    """Both ends of a long line, without the half words where it was cut."""
    if len(line) <= 2 * size:
        return line
    return line[:size].rpartition(b" ")[0] + b" | " + line[-size:].partition(b" ")[2]


class Metrics:
    """The numbers of all ranks of a run, from their logs as they arrive.

    If ranks differ, the lowest one that prints a number speaks for the run.
    """

    def __init__(self) -> None:
        self.latest = Reading()
        """The newest value of every field over the run."""
        self._ranks: dict[int | None, RankLog] = {}
        self._run: dict[str, Series] = {}
        self._speakers: dict[str, tuple[float, float]] = {}  # field: (rank, when it last printed it)
        self._plans: dict[bytes, Plan | None] = {}

    def latest_of(self, rank: int) -> Reading:
        """The newest value of every field that this rank printed."""
        return self._ranks[rank].latest if rank in self._ranks else Reading()

    def said(self, rank: int | None) -> Mapping[str, float]:
        """The fields that the last chunk with numbers of this log had, by name; a loss may be NaN."""
        return self._ranks[rank].last if rank in self._ranks else {}

    def series(self, name: str, rank: int | None = None) -> Sequence[tuple[float, float]]:
        """Finite values of a field with their times (unix seconds), oldest first.

        :param name: one of :data:`SERIES`
        :param rank: of this rank, 64 points at most; None: of the run, 512
        """
        if rank is None:
            found = self._run.get(name)
        else:
            found = self._ranks[rank].series.get(name) if rank in self._ranks else None
        return found.points() if found is not None else []

    def feed(self, rank: int | None, data: bytes, at: float) -> bool:
        """Take the next bytes of a log; return whether they contain new numbers.

        :param rank: None: the console of a launcher, which counts only for numbers that no rank prints itself
        :param data: any piece of it; only the last :data:`WINDOW` bytes are read
        :param at: when they arrived, unix seconds
        """
        state = self._ranks.get(rank)
        if state is None:
            state = self._ranks[rank] = RankLog()
        window = state.window(data) if data else b""
        if not window or (len(window) > LONG and all(window.rfind(hint) < 0 for hint in _HINTS)):
            return False
        news = self._read(state, _clean(window))
        if not news.said or (news.said == state.last and len(news.losses) < 2):
            return False
        state.last = news.said
        self._take(rank, state, news, at)
        return True

    def time_left(self, now: float) -> float | None:
        """Seconds until the last step of the run; None: unknown, or what is known is too old.

        :param now: unix seconds
        """
        state = self._speaker()
        return None if state is None else state.time_left(now)

    def _speaker(self) -> RankLog | None:
        """The log that tells the steps of the run."""
        if "step" not in self._speakers:
            return None
        speaker = self._speakers["step"][0]
        return self._ranks[None if math.isinf(speaker) else int(speaker)]

    def time_left_of(self, rank: int, now: float) -> float | None:
        """Seconds until the last step of this rank, see :meth:`time_left`."""
        return self._ranks[rank].time_left(now) if rank in self._ranks else None

    @property
    def place(self) -> tuple[int, int] | None:
        """The last step of the run, and how many it will have, counted over all epochs; None: not known."""
        state = self._speaker()
        return None if state is None else state.place

    def recall(self, past: Mapping[str, Sequence[tuple[float, float]]], until: float) -> None:
        """Put values of the past before those that are known.

        :param past: fields of the run with their times (unix seconds), oldest first
        :param until: what is known from before is replaced: it came with the time of its reading
        """
        for name, points in past.items():
            live = [point for point in self.series(name) if point[0] > until]
            first = live[0][0] if live else math.inf
            series = self._run[name] = Series(POINTS)
            for at, value in (*(point for point in points if point[0] < first), *live):
                series.add(at, [value])

    # Reading

    def _read(self, state: RankLog, window: bytes) -> News:
        lines, shapes = window.split(b"\n"), window.translate(None, _FILLING).split(b"\n")
        if max(map(len, shapes)) > 2 * SHAPE:
            lines, shapes = list(map(_bounded, lines)), [_bounded(shape, SHAPE) for shape in shapes]
        if len(self._plans) >= PLANS:
            self._plans.clear()
        for shape in islice(set(shapes) - self._plans.keys(), NEW_PLANS):
            self._learn(lines[shapes.index(shape)], shape)
        plans = map(self._plans.get, shapes)
        told = [(plan, line) for plan, line in zip(plans, lines, strict=True) if plan is not None]
        news = News()
        for plan, pairs in groupby(newest_states(told), key=itemgetter(0)):
            state.tell(plan, [line for _, line in pairs], news)
        if news.timed and (left := time_left(news.timed)) is not None:
            news.said["eta_s"] = left
        return news

    def _learn(self, line: bytes, shape: bytes) -> None:
        """Work out how to read lines of this shape from now on."""
        self._plans[shape] = plan_of(line) if _HINTED.search(line) else None

    # Taking

    def _take(self, rank: int | None, state: RankLog, news: News, at: float) -> None:
        reading = reading_of(news.said)
        step = reading.step
        if step is not None:
            before, since, _ = state.stepped or (step, at, 0.0)
            if reading.step_s is None and step > before and at > since:
                reading = replace(reading, step_s=(at - since) / (step - before))
            if step != before or state.stepped is None:
                state.stepped = step, at, at - since
        if reading.eta_s is not None:
            state.timed = reading.eta_s, at
        state.latest = reading.over(state.latest)
        order = math.inf if rank is None else rank
        spoken: dict[str, float] = {}
        for name, value in reading.said().items():
            speaker, when = self._speakers.get(name, (order, at))
            speaks = order <= speaker or at - when > STALE
            if speaks:
                self._speakers[name] = order, at
                spoken[name] = value
            if name in SERIES:
                values = news.losses if name == "loss" else [value]
                self._plot(state, name, list(filter(math.isfinite, values)), at, speaks)
        self.latest = Reading(**spoken).over(self.latest)  # type: ignore[arg-type]  # as they were in `reading`

    def _plot(self, state: RankLog, name: str, values: list[float], at: float, speaks: bool) -> None:
        if not values:
            return
        if name not in state.series:
            state.series[name] = Series(RANK_POINTS)
        state.series[name].add(at, values)
        if speaks:
            self._run.setdefault(name, Series(POINTS)).add(at, values)
