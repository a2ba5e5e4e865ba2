"""Step, loss, learning rate and speed, as training programs print them.

Known are the lines of DeepSpeed (``_report_progress`` in runtime/engine.py, utils/timer.py, the pipeline
engine), the dictionaries of the Hugging Face Trainer, the iteration lines of Megatron-LM and NeMo, the bars
of tqdm, which Lightning draws too; and any other line in which such a name stands before a number.

What is measured in validation, and means over a whole training, are left out.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

from cockpit.core.lines import last_state

WINDOW = 16 << 10
"""Bytes at the end of a chunk that are looked at: enough for the newest numbers."""
LINES = 8
"""Lines that are read in one chunk at most; usually the second one tells nothing new."""
LINE = 1024
"""Bytes at either end of a line that are read."""
REST = 4096
"""Bytes of an unfinished line that are kept for the next chunk; a longer one is not read."""

POINTS, RANK_POINTS = 512, 64
"""Points of a series of the run, and of one rank."""
STALE = 60.0
"""Seconds without a word after which a rank no longer speaks for the run where another one does."""

SERIES = ("loss", "lr", "samples_s", "tokens_s", "step_s")
"""Fields of which there are series."""

# Every line with numbers holds one of these.
_HINTS = (b"oss", b"lr", b"it/s", b"s/it", b"s/s", b"rSec")

# Of lines in small letters.
_NUMBER = rb"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?|nan|inf)"
_FIELD = re.compile(
    rb"(?<![a-z\d.-])(?P<name>loss(?:_step)?|(?<!_)(?<!\bs/)(?:"
    rb"step[_ ]time(?:[_ ]\(?ms\)?)?|global[_ ]steps?|num_updates|steps?|iteration|epoch|lr|learning[_ ]rate"
    rb"|(?:curr)?samplespersec|samples(?:/s|/sec|/second|[_ ]per[_ ]second)"
    rb"|tps|tokens(?:/s|/sec|/second|[_ ]per[_ ]sec(?:ond)?)"
    rb"|elapsed time per iteration \(m?s\)|train_step_timing in s|iter(?: time \(s\))?))"
    rb"['\"]?(?:\s*[:=]|(?=[\s\[(]))[\s\[('\"]*(?P<value>" + _NUMBER + rb")"
    rb"(?:\s?(?P<unit>ms)\b)?(?![\w%]|\.\d)(?:\s*/\s*(?P<total>\d+))?"
)
_SPEED = re.compile(
    rb"(?<![\w.,-])(?P<value>" + _NUMBER + rb")\s?"
    rb"(?:(?P<samples_s>samples)|(?P<tokens_s>tok(?:en)?s?))/s(?:ec)?\b"
)
_DIGITS = b"0123456789.,+-e "
_UNIT = rb"(?:it|ba|batch(?:es)?|steps?|iters?)"
_BAR = re.compile(
    rb"(?P<step>\d{1,15})(?:/(?P<total>\d{1,15})|it) \[[\d:]{1,12}(?:<[\d:?]{1,12})?,\s*"
    rb"(?:\?|(?P<value>\d{1,9}(?:\.\d{1,9})?))\s?(?P<unit>" + _UNIT + rb"/s|s/" + _UNIT + rb")"
)
_STYLE = re.compile(rb"\x1b\[[\d;:?]*[A-Za-z]")

# Bars, and losses, that are not of training.
_OTHER_BAR = re.compile(
    rb"\b(?:val|eval|test|sanity|predict|infer|generat|load|fetch|download|upload|sav|map|filter|token"
    rb"|running tok|cach|convert|prepar|preprocess|pack|group|captur|compil|sampl|warm)"
)
_BEFORE_LOSS = re.compile(rb"(?:([a-z]+)[ _/])?([a-z]+)([ _/])\Z")
_OTHER_LOSS = frozenset(
    b"val valid validation eval evaluation test dev best min max aux auxiliary balancing router kl z".split()
)
_TRAIN_LOSS = frozenset(
    b"train training tr lm total reduced avg average mean running global batch ce mlm".split()
)


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
    """

    step: int | None = None
    total: int | None = None
    epoch: float | None = None
    loss: float | None = None
    lr: float | None = None
    samples_s: float | None = None
    tokens_s: float | None = None
    step_s: float | None = None

    def said(self) -> dict[str, float]:
        """The fields that say something."""
        return {name: value for name in _FIELDS if (value := getattr(self, name)) is not None}

    def over(self, older: Reading) -> Reading:
        """These numbers, and the older ones where these say nothing."""
        merged = replace(older, **self.said())  # type: ignore[arg-type]  # step and total stay whole
        if merged.step is not None and merged.total is not None and merged.step > merged.total:
            return replace(merged, total=self.total)
        return merged


_FIELDS = tuple(field.name for field in fields(Reading))


def read_line(line: bytes) -> Reading | None:
    """The numbers of one line, None if there are none of training.

    A step or an epoch alone is none: it may be anything.
    """
    if b"\r" in line:
        line = last_state(line)
    if len(line) > 2 * LINE:
        line = line[:LINE] + b" " + line[-LINE:]
    if b"\x1b" in line:
        line = _STYLE.sub(b"", line)
    if b"train_runtime" in line:
        return None  # the Trainer's last words: means over the whole training
    line = line.lower()
    bar = None
    for bar in _BAR.finditer(line):  # noqa: B007  (the last one is the newest)
        pass
    if bar is not None and _OTHER_BAR.search(line, 0, bar.start()):
        return None
    found: dict[str, float] = {}
    steps: list[tuple[float, float | None]] = []
    for match in _FIELD.finditer(line):
        _take_field(line, match, found, steps)
    if b"/s" in line:
        for match in _SPEED.finditer(line):
            found.setdefault(str(match.lastgroup), _number(match["value"]))
    if bar is not None:
        steps.append((float(bar["step"]), float(bar["total"]) if bar["total"] else None))
        if bar["value"] and float(bar["value"]) > 0:
            rate = float(bar["value"])
            found.setdefault("step_s", rate if bar["unit"].startswith(b"s/") else 1 / rate)
    elif not found.keys() & set(SERIES):
        return None
    # A step that knows the total is the one to show.
    step, total = next((each for each in steps if each[1]), steps[0] if steps else (None, None))
    return Reading(
        step=_whole(step),
        total=_whole(total),
        **{name: found.get(name) for name in ("epoch", *SERIES)},
    )


def _take_field(
    line: bytes, match: re.Match[bytes], found: dict[str, float], steps: list[tuple[float, float | None]]
) -> None:
    name, value = match["name"], _number(match["value"])
    if name.startswith(b"loss"):
        if _of_training(line, match.start()):
            found.setdefault("loss", value)
    elif name.startswith((b"lr", b"learning")):
        found.setdefault("lr", value)
    elif name == b"epoch":
        found.setdefault("epoch", value)
    elif b"sample" in name:
        found.setdefault("samples_s", value)
    elif name.startswith((b"tokens", b"tps")):
        found.setdefault("tokens_s", value)
    elif b"tim" in name:
        found.setdefault("step_s", value / 1000 if match["unit"] or b"ms" in name else value)
    elif match["unit"] is None:
        step = value, float(match["total"][:18]) if match["total"] else None
        steps.insert(0 if name.startswith(b"global") else len(steps), step)


def _of_training(line: bytes, at: int) -> bool:
    """Whether the loss whose name goes on at ``at`` is the one of training: "val_loss" is not."""
    before = _BEFORE_LOSS.search(line[max(0, at - 32) : at])
    if before is None:
        return True
    if any(word and word in _OTHER_LOSS for word in before.groups()[:2]):
        return False
    return before[3] == b" " or before[2] in _TRAIN_LOSS


def _number(text: bytes) -> float:
    return float(text.replace(b",", b""))


def _whole(value: float | None) -> int | None:
    return int(value) if value is not None and 0 <= value < 1e15 and value == int(value) else None


class _Series:
    """Values with their times: evenly thinned when there are too many, the newest one always there."""

    __slots__ = ("_at", "_every", "_limit", "_newest", "_skipped", "_values")

    def __init__(self, limit: int) -> None:
        self._at = array("d")
        self._values = array("d")
        self._limit = limit - 1
        self._every = 1
        self._skipped = 0
        self._newest: tuple[float, float] | None = None  # not among the others yet

    def add(self, at: float, value: float) -> None:
        self._skipped += 1
        if self._skipped < self._every:
            self._newest = at, value
            return
        self._skipped = 0
        self._newest = None
        self._at.append(at)
        self._values.append(value)
        if len(self._at) > self._limit:
            del self._at[1::2], self._values[1::2]
            if self._at[-1] != at:
                self._newest = at, value
                self._skipped = self._every
            self._every *= 2

    def points(self) -> list[tuple[float, float]]:
        points = list(zip(self._at, self._values, strict=True))
        if self._newest is not None and points[-1:] != [self._newest]:
            points.append(self._newest)
        return points


class _Rank:
    """What is known of one rank."""

    __slots__ = ("cut", "last", "latest", "rest", "series", "stepped")

    def __init__(self) -> None:
        self.rest = b""  # the line that is not finished yet
        self.cut = False  # it was too long to be kept
        self.last: Reading | None = None
        self.latest = Reading()
        self.stepped: tuple[int, float] | None = None  # a step and when it was new
        self.series: dict[str, _Series] = {}


class Metrics:
    """The numbers of all ranks of a run, from their logs as they come.

    Where ranks differ, the lowest one that tells a number speaks for the run.
    """

    def __init__(self) -> None:
        self.latest = Reading()
        """The newest value of every field over the run."""
        self._ranks: dict[int | None, _Rank] = {}
        self._run: dict[str, _Series] = {}
        self._speakers: dict[str, tuple[float, float]] = {}  # field: (rank, when it last said it)

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
        reading = self._read(state, window)
        if reading is None or reading == state.last:
            return False
        state.last = reading
        self._take(rank, state, reading, at)
        return True

    def _read(self, state: _Rank, window: bytes) -> Reading | None:
        """The newest numbers in finished lines."""
        reading: Reading | None = None
        shapes: dict[bytes, bool] = {}  # of lines without their numbers: whether they told anything
        for line in _newest_lines(window):
            shape = line[-LINE:].translate(None, _DIGITS)
            if shape in shapes:
                if shapes[shape]:
                    break  # of an older step: so is all that is before
                continue
            found = read_line(line)
            shapes[shape] = found is not None
            if found is None or _is_aside(found, state.latest):
                continue
            if reading is None:
                reading = found
                continue
            if found.said().keys() <= reading.said().keys():
                break
            reading = reading.over(found)
        return reading

    def _take(self, rank: int | None, state: _Rank, reading: Reading, at: float) -> None:
        step = reading.step
        if step is not None:
            before, since = state.stepped or (step, at)
            if reading.step_s is None and step > before and at > since:
                reading = replace(reading, step_s=(at - since) / (step - before))
            if step != before or state.stepped is None:
                state.stepped = step, at
        state.latest = reading.over(state.latest)
        order = math.inf if rank is None else rank
        spoken: dict[str, float] = {}
        for name, value in reading.said().items():
            speaker, when = self._speakers.get(name, (order, at))
            speaks = order <= speaker or at - when > STALE
            if speaks:
                self._speakers[name] = order, at
                spoken[name] = value
            if name in SERIES and math.isfinite(value):
                if name not in state.series:
                    state.series[name] = _Series(RANK_POINTS)
                state.series[name].add(at, value)
                if speaks:
                    self._run.setdefault(name, _Series(POINTS)).add(at, value)
        self.latest = Reading(**spoken).over(self.latest)  # type: ignore[arg-type]  # as they were in `reading`


def _window(state: _Rank, data: bytes) -> bytes:
    r"""The last finished lines, whole, each ended by a newline; what is unfinished is kept in ``state``."""
    whole = not state.cut and len(data) <= WINDOW
    data = state.rest + data if whole else data[-WINDOW:]
    if b"\r" in data:
        data = data.replace(b"\r", b"\n")
    start = 0 if whole else data.find(b"\n") + 1
    end = data.rfind(b"\n") + 1
    state.rest = data[end:]
    state.cut = (not whole and not end) or len(state.rest) > REST
    if state.cut:
        state.rest = b""
    elif state.rest.endswith(b"]") and (whole or end):
        return data[start:] + b"\n"  # a bar that waits for the next step
    return data[start:end]


def _newest_lines(window: bytes) -> Iterator[bytes]:
    """Lines with a hint, the last one first, not too many."""
    spots = [window.rfind(hint) for hint in _HINTS]
    for _ in range(LINES):
        spot = max(spots)
        if spot < 0:
            return
        start = window.rfind(b"\n", 0, spot) + 1
        yield window[start : window.find(b"\n", spot)]
        spots = [
            window.rfind(hint, 0, start) if at >= start else at
            for hint, at in zip(_HINTS, spots, strict=True)
        ]


def _is_aside(found: Reading, latest: Reading) -> bool:
    """Whether this is a shorter bar that is drawn amid a longer one: an evaluation between steps."""
    if found.total is None or latest.step is None or latest.total is None:
        return False
    only_bar = found.loss is None and found.lr is None and found.samples_s is None and found.tokens_s is None
    return only_bar and latest.step < latest.total and found.total < latest.total
