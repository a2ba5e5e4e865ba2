"""Step, loss, learning rate and speed, as training programs print them.

Understood are DeepSpeed (``logging.py``, ``timer.py`` and the pipeline engine), the dictionaries of the
Hugging Face Trainer, Megatron's iteration lines, and the bars of tqdm, which Lightning draws too; and any
other line in which such a name stands before a number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

_NUMBER = rb"[-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf)"
_NAMES: dict[bytes, str] = {
    rb"global_step|micro_step|steps?|iteration|iter": "step",
    rb"epoch": "epoch",
    rb"train_loss|training_loss|loss": "loss",
    rb"learning[_ ]rate|lr": "lr",
    rb"CurrSamplesPerSec|(?:train_)?samples_per_second|samples/s(?:ec(?:ond)?)?": "samples_s",
    rb"tokens/s(?:ec(?:ond)?)?|(?:train_)?tokens_per_second(?:_per_device)?": "tokens_s",
    rb"step_time|iter time \(s\)|time per step": "step_s",
    rb"elapsed time per iteration \(ms\)|step_time_ms": "step_ms",
}
_FIELD = re.compile(
    rb"(?<![\w.])[\'\"]?(?:"
    + b"|".join(b"(?P<%s>%s)" % (name.encode(), words) for words, name in _NAMES.items())
    + rb")[\'\"]?(?:\s*[:=]\s*|\s+)[\[(\'\"]*(?P<value>"
    + _NUMBER
    + rb")(?![\w%])(?:\s*/\s*(?P<total>\d[\d,]*))?",
    re.IGNORECASE,
)
_BAR = re.compile(
    rb"(?P<step>\d+)/(?P<total>\d+) \[[^\]<]{1,16}<[^,\]]{1,16},\s*(?P<rate>[\d.]+)\s?(?P<unit>it/s|s/it)"
)
_HINT = re.compile(rb"(?i)loss|/it|it/s|step|iter|lr=")

WINDOW = 16 << 10
"""Bytes at the end of a chunk that are looked at: enough for the newest numbers."""
LINES = 12
"""Lines with a hint that are read in one chunk."""
REST = 2048
"""Bytes of an unfinished line that are kept for the next chunk."""

POINTS, RANK_POINTS = 512, 64
"""Points of a series of the run, and of one rank."""


@dataclass(frozen=True)
class Reading:
    """Numbers of training; None: not said.

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

    def over(self, older: Reading) -> Reading:
        """These numbers, and the older ones where these say nothing."""
        said = {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}
        return replace(older, **said)


SERIES = ("loss", "lr", "samples_s", "tokens_s", "step_s")
"""Fields that are plotted."""


def read_line(line: bytes) -> Reading | None:
    """The numbers of one line; None if there are none of a training step."""
    found: dict[str, float] = {}
    for match in _FIELD.finditer(line[:4096]):
        name = str(match.lastgroup if match.lastgroup not in ("value", "total") else _group(match))
        try:
            value = float(match["value"].replace(b",", b""))
        except ValueError:
            continue
        # The first one counts: "epoch=0/micro_step=100/global_step=50" is settled below.
        if name == "step" and b"global" in match[0]:
            found[name] = value
        found.setdefault(name, value)
        if match["total"] and name == "step":
            found.setdefault("total", float(match["total"].replace(b",", b"")))
    bar = None
    for bar in _BAR.finditer(line[-4096:]):  # noqa: B007 (the last state of the bar)
        pass
    if bar is not None:
        found.setdefault("step", float(bar["step"]))
        found.setdefault("total", float(bar["total"]))
        rate = float(bar["rate"]) if bar["rate"].count(b".") < 2 else 0.0
        if rate > 0:
            found.setdefault("step_s", rate if bar["unit"] == b"s/it" else 1 / rate)
    return _reading(found)


def _group(match: re.Match[bytes]) -> str:
    return next(name for name, text in match.groupdict().items() if text and name not in ("value", "total"))


def _reading(found: dict[str, float]) -> Reading | None:
    if "step_ms" in found:
        found.setdefault("step_s", found["step_ms"] / 1000)
    if not found.keys() & {"loss", "lr", "samples_s", "tokens_s", "step_s"}:
        # A step or an epoch alone may be anything: "step 2 of the installation".
        return None
    step, total = found.get("step"), found.get("total")
    whole = step is not None and step == int(step) and step >= 0
    return Reading(
        step=int(step) if whole and step is not None else None,
        total=int(total) if whole and total else None,
        **{name: found.get(name) for name in ("epoch", *SERIES)},
    )


class _Series:
    """Values with times, thinned evenly when there are too many."""

    def __init__(self, limit: int) -> None:
        self.points: list[tuple[float, float]] = []
        self._limit = limit
        self._every = 1
        self._skipped = 0

    def add(self, at: float, value: float) -> None:
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        self.points.append((at, value))
        if len(self.points) > self._limit:
            del self.points[1::2]
            self._every *= 2


class Metrics:
    """The numbers of all ranks of a run, from their logs as they come."""

    def __init__(self) -> None:
        self._latest: dict[int, Reading] = {}
        self._rest: dict[int | None, bytes] = {}
        self._stepped: dict[int, tuple[int, float]] = {}
        self._series: dict[tuple[int, str], _Series] = {}
        self._run: dict[str, _Series] = {}
        self._leader: int | None = None

    @property
    def latest(self) -> Reading:
        """The newest numbers of the lowest rank that tells any, filled up by those of others."""
        found = Reading()
        for rank in sorted(self._latest, reverse=True):
            found = self._latest[rank].over(found)
        return found

    def latest_of(self, rank: int) -> Reading:
        """The newest numbers of one rank."""
        return self._latest.get(rank, Reading())

    def series(self, name: str, rank: int | None = None) -> Sequence[tuple[float, float]]:
        """Values of a field with their times (unix seconds), oldest first.

        :param rank: of this rank; None: of the rank that speaks for the run
        """
        found = self._run.get(name) if rank is None else self._series.get((rank, name))
        return found.points if found else []

    def feed(self, rank: int | None, data: bytes, at: float) -> bool:
        """Take the next bytes of a log; return whether there were numbers in them.

        :param at: when they came, unix seconds
        """
        if rank is None:
            return False
        rest = self._rest.get(rank, b"")
        if rest:
            data = rest + data[-WINDOW:]
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        self._rest[rank] = data[max(end, len(data) - REST) :]
        window = data[max(0, end - WINDOW) : end]
        reading: Reading | None = None
        read = 0
        for line in reversed(window.replace(b"\r", b"\n").split(b"\n")):
            if not _HINT.search(line):
                continue
            read += 1
            if read > LINES:
                break
            found = read_line(line)
            if found is not None:
                reading = found if reading is None else reading.over(found)
                if reading.step is not None and reading.loss is not None:
                    break
        if reading is None:
            return False
        self._take(rank, reading, at)
        return True

    def _take(self, rank: int, reading: Reading, at: float) -> None:
        if reading.step is not None:
            now = reading.step
            step, since = self._stepped.get(rank, (now, at))
            if reading.step_s is None and now > step and at > since:
                reading = replace(reading, step_s=(at - since) / (now - step))
            if now != step or rank not in self._stepped:
                self._stepped[rank] = (now, at)
        self._latest[rank] = reading.over(self._latest.get(rank, Reading()))
        if self._leader is None or rank < self._leader:
            self._leader = rank
        for name in SERIES:
            value = getattr(reading, name)
            if value is None:
                continue
            self._series.setdefault((rank, name), _Series(RANK_POINTS)).add(at, value)
            if rank == self._leader:
                self._run.setdefault(name, _Series(POINTS)).add(at, value)
