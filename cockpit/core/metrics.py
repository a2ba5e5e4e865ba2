"""The numbers of training over a run, from its logs as they come, in chunks of any size.

What a line says is read in :mod:`cockpit.core.readings`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from statistics import median

from cockpit.core.durations import time_left
from cockpit.core.lines import last_state
from cockpit.core.readings import FASTEST, Kind, Plan, plan_of
from cockpit.core.series import Series

WINDOW = 16 << 10
"""Bytes at the end of a chunk that are looked at: enough for the newest numbers."""
LINE = 1024
"""Bytes at either end of a line that are read."""
REST = 4096
"""Bytes of an unfinished line that are kept for the next chunk; a longer one is not read."""

POINTS, RANK_POINTS = 512, 64
"""Points of a series of the run, and of one rank."""
STALE = 60.0
"""Seconds without a word after which a rank no longer speaks for the run where another one does."""
SILENT = 3.0
"""Times of the usual gap between two steps after which the time left is not known any more."""
RECENT = 9
"""Times of steps by which the time left is reckoned."""
HEADED = 64
"""Lines below a heading that may belong to it."""
ALONE = 16
"""Shapes of lines with nothing but a loss that are kept in mind."""
PLANS, NEW_PLANS, SHAPE = 1024, 64, 256
"""Shapes of lines that are known; that are looked into in one chunk; bytes at either end of one."""

SERIES = ("loss", "lr", "samples_s", "tokens_s", "step_s")
"""Fields of which there are series."""

# Every line with numbers holds one of these.
_HINTS: tuple[bytes, ...] = (
    *(
        b"loss",
        b"Loss",
        b"LOSS",
        b"step",
        b"Step",
        b"poch",
        b"iter",
        b"Iter",
        b"atch",
        b"lr",
        b"LR",
        b"rning",
    ),
    *(b"it/s", b"s/it", b"er_sec", b"rSec", b"tps", b"TPS"),
)
_HINTED = re.compile(b"|".join(sorted({re.escape(hint.lower()) for hint in _HINTS})))
# What does not change the shape of a line: numbers, blanks, and how far a bar is drawn.
_FILLING = b"0123456789 ,\t\b" + bytes(range(0x80, 0xC0)) + b"\xe2"
_DRAWN = bytes(range(0x80, 0xC0)) + b"\xe2\b"
_STYLE = re.compile(rb"\x1b\[[\d;:?]*[A-Za-z]")


@dataclass(frozen=True)
class Reading:
    """Numbers of training; None: not said.

    :param step: of the run or, where only that is said, of the epoch
    :param total: steps there will be
    :param epoch: which may be a fraction
    :param loss: of training; may be NaN or infinite
    :param lr: learning rate
    :param samples_s: samples a second
    :param tokens_s: tokens a second
    :param step_s: seconds a step
    :param eta_s: seconds that are left, of what ``total`` counts
    """

    step: int | None = None
    total: int | None = None
    epoch: float | None = None
    loss: float | None = None
    lr: float | None = None
    samples_s: float | None = None
    tokens_s: float | None = None
    step_s: float | None = None
    eta_s: float | None = None

    def said(self) -> dict[str, float]:
        """The fields that say something."""
        return {name: value for name in FIELDS if (value := getattr(self, name)) is not None}

    def over(self, older: Reading) -> Reading:
        """These numbers, and the older ones where these say nothing."""
        merged = replace(older, **self.said())  # type: ignore[arg-type]  # step and total stay whole
        if merged.step is not None and merged.total is not None and merged.step > merged.total:
            return replace(merged, total=self.total)
        return merged


FIELDS = tuple(each.name for each in fields(Reading))
"""What a reading may say."""


def read_line(line: bytes) -> Reading | None:
    """The numbers of one line, None if there are none of training."""
    line = _bounded(last_state(_clean(line)))
    plan = plan_of(line)
    if (
        plan is None
        or plan.kind in (Kind.HEADING, Kind.SPEED)
        or (plan.kind is Kind.ALONE and plan.loss is None)
    ):
        return None
    said = plan.read(line)
    if not said:
        return None
    left = time_left(line)
    return _reading(said if left is None else {**said, "eta_s": left})


def _clean(text: bytes) -> bytes:
    if b"\x1b" in text:
        text = _STYLE.sub(b"", text)
    if not text.isascii() or b"\b" in text:
        text = text.translate(None, _DRAWN)
    return text.lower()


def _bounded(line: bytes, size: int = LINE) -> bytes:
    """Both ends of a long line, without the halves of words where it was cut."""
    if len(line) <= 2 * size:
        return line
    return line[:size].rpartition(b" ")[0] + b" | " + line[-size:].partition(b" ")[2]


def _reading(said: dict[str, float]) -> Reading:
    whole = {name: int(value) if name in ("step", "total") else value for name, value in said.items()}
    return Reading(**whole)  # type: ignore[arg-type]  # step and total are whole


class _Rank:
    """What is known of one rank."""

    __slots__ = (
        *("alone", "bar", "cut", "heading", "held", "last", "latest", "lines"),
        *("rest", "series", "shown", "stepped", "trained"),
    )

    def __init__(self) -> None:
        self.rest = b""  # the line that is not finished yet
        self.shown = False  # it was read already
        self.cut = False  # it was too long to be kept
        self.lines = 0  # that were looked at
        self.last: dict[str, float] = {}
        self.latest = Reading()
        self.stepped: tuple[int, float, float] | None = None  # a step, since when, after how long
        self.series: dict[str, Series] = {}
        self.heading: tuple[dict[str, float], int] = {}, 0  # and in which line it stood
        self.alone: dict[Plan, float] = {}  # losses that may be settings
        self.bar: float | None = None  # the total of the bar that was drawn last
        self.trained: float | None = None  # the total at which losses were told
        self.held: dict[str, float] = {}  # a bar that may be of an evaluation


@dataclass
class _News:
    """What one chunk tells."""

    said: dict[str, float] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    timed: bytes = b""  # the last line that says how long it will take


class Metrics:
    """The numbers of all ranks of a run, from their logs as they come.

    Where ranks differ, the lowest one that tells a number speaks for the run.
    """

    def __init__(self) -> None:
        self.latest = Reading()
        """The newest value of every field over the run."""
        self._ranks: dict[int | None, _Rank] = {}
        self._run: dict[str, Series] = {}
        self._speakers: dict[str, tuple[float, float]] = {}  # field: (rank, when it last said it)
        self._plans: dict[bytes, Plan | None] = {}

    def latest_of(self, rank: int) -> Reading:
        """The newest value of every field that this rank told."""
        return self._ranks[rank].latest if rank in self._ranks else Reading()

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
        """Take the next bytes of a log; return whether they tell new numbers.

        :param rank: None: the console of a launcher, which counts only where no rank tells a number itself
        :param data: any piece of it; only the last :data:`WINDOW` bytes are looked at
        :param at: when they came, unix seconds
        """
        state = self._ranks.get(rank)
        if state is None:
            state = self._ranks[rank] = _Rank()
        window = _window(state, data)
        if not window:
            return False
        news = self._read(state, window)
        if not news.said or (news.said == state.last and len(news.losses) < 2):
            return False
        state.last = news.said
        self._take(rank, state, news, at)
        return True

    def time_left(self, now: float) -> float | None:
        """Seconds until the last of the steps; None: nobody knows, or what is known is too old.

        :param now: unix seconds
        """
        if "step" not in self._speakers:
            return None
        speaker = self._speakers["step"][0]
        state = self._ranks[None if math.isinf(speaker) else int(speaker)]
        if state.stepped is None:
            return None
        step, since, gap = state.stepped
        times = [value for _, value in self.series("step_s")[-RECENT:]]
        usual = median(times) if times else gap
        if now - since > max(STALE, SILENT * gap, SILENT * usual):
            return None
        said, total = self.latest.eta_s, self.latest.total
        when = self._speakers.get("eta_s", (0.0, 0.0))[1]
        if said is not None and when >= since:
            left = said - (now - when)
        elif total is not None and times:
            left = (total - step) * usual - (now - since)
        else:
            return None
        return left if left > 0 else None

    # Reading

    def _read(self, state: _Rank, window: bytes) -> _News:
        news = _News()
        # From the end, which is quick: the last line often is one of numbers.
        if all(window.rfind(hint) < 0 for hint in _HINTS):
            return news
        window = _clean(window)
        lines, shapes = window.split(b"\n"), window.translate(None, _FILLING).split(b"\n")
        if max(map(len, shapes)) > 2 * SHAPE:
            lines, shapes = list(map(_bounded, lines)), [_bounded(shape, SHAPE) for shape in shapes]
        for shape in islice(set(shapes) - self._plans.keys(), NEW_PLANS):
            self._learn(lines[shapes.index(shape)], shape)
        plans = list(map(self._plans.get, shapes))
        run: list[bytes] = []
        current: Plan | None = None
        bar = b""
        for number, plan in enumerate(plans, state.lines):
            if plan is None:
                continue
            line = lines[number - state.lines]
            if plan is not current or (plan.bare and bar != (bar := _total(line))):
                if current is not None:
                    _tell(state, current, run, news, number)
                run, current = [], plan
                bar = _total(line) if plan.bare else b""
            run.append(line)
        state.lines += len(lines)
        if current is not None:
            _tell(state, current, run, news, state.lines)
        if news.timed and (left := time_left(news.timed)) is not None:
            news.said["eta_s"] = left
        return news

    def _learn(self, line: bytes, shape: bytes) -> None:
        """Work out how lines of this shape are read from now on."""
        if len(self._plans) >= PLANS:
            self._plans.clear()
        self._plans[shape] = plan_of(line) if _HINTED.search(line) else None

    # Taking

    def _take(self, rank: int | None, state: _Rank, news: _News, at: float) -> None:
        reading = _reading(news.said)
        step = reading.step
        if step is not None:
            before, since, _ = state.stepped or (step, at, 0.0)
            if reading.step_s is None and step > before and at > since:
                reading = replace(reading, step_s=(at - since) / (step - before))
            if step != before or state.stepped is None:
                state.stepped = step, at, at - since
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
                self._plot(state, name, [value for value in values if math.isfinite(value)], at, speaks)
        self.latest = Reading(**spoken).over(self.latest)  # type: ignore[arg-type]  # as they were in `reading`

    def _plot(self, state: _Rank, name: str, values: list[float], at: float, speaks: bool) -> None:
        if not values:
            return
        if name not in state.series:
            state.series[name] = Series(RANK_POINTS)
        state.series[name].add(at, values)
        if speaks:
            self._run.setdefault(name, Series(POINTS)).add(at, values)


def _total(line: bytes) -> bytes:
    """What a bar counts to."""
    end = line.find(b" [")
    return line[line.rfind(b"/", 0, end) + 1 : end]


def _tell(state: _Rank, plan: Plan, run: list[bytes], news: _News, number: int) -> None:
    """Take what lines of one shape say, one below the other.

    :param number: of the line after them
    """
    said = plan.read(run[-1])
    if not said:
        return
    if plan.kind is Kind.HEADING:
        state.heading = said, number
        return
    if plan.kind is Kind.BARE and _is_aside(state, said):
        state.held = said
        return
    if plan.kind is Kind.SPEED and state.trained is None and not news.losses:
        return
    losses = plan.losses(run) if len(run) > 1 else [said["loss"]] if "loss" in said else []
    counts = "step" in said
    headed, line = state.heading
    if headed and number - line <= HEADED:
        said = {**{name: value for name, value in headed.items() if not (counts and name == "total")}, **said}
    elif plan.kind is Kind.ALONE:
        losses = _confirmed(state, plan, losses)
        if not losses:
            return
    if counts:
        state.heading = {}, 0
    if losses:
        if state.held and not counts:
            said = {**state.held, **said}
            state.bar = state.held.get("total")
        state.trained = said.get("total", math.inf) if counts else state.bar
    elif counts and plan.kind in (Kind.BARE, Kind.TOLD):
        state.bar = said.get("total")
    if counts:
        state.held = {}
    if counts and "total" not in said and said["step"] > news.said.get("total", math.inf):
        del news.said["total"]
    if plan.eta:
        news.timed = run[-1]
    news.said.update(said)
    news.losses += losses


def _is_aside(state: _Rank, said: dict[str, float]) -> bool:
    """Whether a bar without a word is another one than that of training: an evaluation between steps."""
    total, latest = said.get("total"), state.latest
    if state.trained is not None:
        return total != state.trained
    if said.get("step_s", 0.0) < FASTEST:
        return True
    if total is None or latest.step is None or latest.total is None:
        return False
    return latest.step < latest.total and total < latest.total


def _confirmed(state: _Rank, plan: Plan, losses: list[float]) -> list[float]:
    """The losses that stand alone in their lines: said once, it may be a setting."""
    if not losses:
        return []
    before = state.alone.get(plan)
    if before is not None and math.isnan(before):
        return losses
    found = losses if before is None else [before, *losses]
    changes = any(loss != found[0] for loss in found)
    if len(state.alone) >= ALONE:
        state.alone.clear()
    state.alone[plan] = math.nan if changes else found[0]
    return found if changes else []


def _window(state: _Rank, data: bytes) -> bytes:
    r"""The last finished lines, whole, each ended by a newline; what is unfinished is kept in ``state``."""
    whole = not state.cut and len(data) <= WINDOW
    shown = len(state.rest) if state.shown else 0
    state.shown = False
    data = state.rest + data if whole else data[-WINDOW:]
    if b"\r" in data:
        data = data.replace(b"\r", b"\n")
    start = 0 if whole else data.find(b"\n") + 1
    if whole and shown and data[shown : shown + 1] == b"\n":
        start = shown + 1
    end = data.rfind(b"\n") + 1
    state.rest = data[end:]
    state.cut = (not whole and not end) or len(state.rest) > REST
    if state.cut:
        state.rest = b""
    elif state.rest.endswith(b"]") and (whole or end):
        state.shown = True
        return data[start:] + b"\n"  # a bar that waits for the next step
    return data[start:end]
