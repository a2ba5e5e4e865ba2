"""One rank's log: chunks of any size in, numbers out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from cockpit.core.logs.progress.durations import time_left
from cockpit.core.logs.progress.epochs import Epochs
from cockpit.core.logs.progress.plan import Plan, Trust
from cockpit.core.logs.progress.reading import Reading
from cockpit.core.logs.progress.series import Series

WINDOW = 16 << 10
"""Bytes at the end of a chunk that are read."""
REST = 4096
"""Bytes of an unfinished line kept for the next chunk; a longer one is not read."""
STALE = 60.0
"""After this many silent seconds, what a rank said is old."""
SILENT = 3.0
"""After this many times the usual gap between two steps, the time left is unknown."""
FASTEST = 0.1
"""Seconds per step: until a loss is printed, a bare bar with quicker steps does not count as training."""
OF_RUN = 1.5
"""A program that says so many times what is left of its epoch means the run."""
RECENT = 9
"""Times of steps from which the time left is estimated."""
HEADED = 64
"""Lines with numbers below a heading that may belong to it."""
ALONE = 16
"""Wordings with only a loss that are remembered."""


@dataclass
class News:
    """What one chunk says: the newest of each field, all losses, the last line with the time left."""

    said: dict[str, float] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    timed: bytes = b""

    def add(self, said: dict[str, float], losses: list[float]) -> None:
        """Add newer numbers; a step beyond the total drops the total."""
        if "total" not in said and said.get("step", 0.0) > self.said.get("total", math.inf):
            del self.said["total"]
        self.said.update(said)
        self.losses += losses


class RankLog:
    """What is known about one rank, and the part of its log that is not complete yet."""

    __slots__ = (
        *("_alone", "_bar", "_cut", "_heading", "_held", "_lossy", "_plain", "_rest", "_shown", "_told"),
        *("_trained", "_trains"),
        *("_epoch_count", "_epochs", "last", "latest", "series", "stepped", "timed"),
    )

    def __init__(self) -> None:
        self.last: dict[str, float] = {}
        """What the last chunk with numbers said."""
        self.latest = Reading()
        self.series: dict[str, Series] = {}
        self.stepped: tuple[int, float, float] | None = None
        """A step, when it was new (unix seconds), and how long after the previous one."""
        self.timed: tuple[float, float] | None = None
        """The time left as printed, and when."""
        self._rest = b""  # the line that is not finished yet
        self._shown = False  # it was given out already
        self._cut = False  # it was too long to be kept
        self._told = 0  # lines with numbers so far
        self._heading: tuple[dict[str, float], int] = {}, 0  # and which line it was
        self._alone: dict[Plan, float] = {}  # losses that may be settings; NaN: they are not
        self._plain = -HEADED  # which line had a loss and nothing else
        self._trains = False  # a loss was printed
        self._trained: float | None = None  # the total when it was; infinite: there is none
        self._lossy = -1.0  # the step at which it was
        self._bar: float | None = None  # the total of the last bar of training
        self._epochs = Epochs()
        self._epoch_count: int | None = None  # as the heading says
        self._held: dict[str, float] = {}  # a bar since then that may be of an evaluation

    def window(self, data: bytes) -> bytes:
        r"""The last finished lines, whole, each ended by a newline; what is unfinished waits."""
        whole = not self._cut and len(data) <= WINDOW
        shown = len(self._rest) if self._shown else -1
        data = self._rest + data if whole else data[-WINDOW:]
        if b"\r" in data:
            data = data.replace(b"\r", b"\n")
        start = 0 if whole else data.find(b"\n") + 1
        if whole and data[shown : shown + 1] == b"\n":
            start = shown + 1
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        self._cut = (not whole and not end) or len(self._rest) > REST
        self._shown = not self._cut and _is_bar(self._rest) and (whole or end > 0)
        if self._cut:
            self._rest = b""
        # A bar waits for the next step before it ends its line.
        return data[start:] + b"\n" if self._shown else data[start:end]

    def tell(self, plan: Plan, lines: Sequence[bytes], news: News) -> None:
        """Take consecutive lines of one wording."""
        said = plan.read(lines[-1])
        if not said:
            if plan.eta and not plan.places and ("step" in news.said or self.latest.step is not None):
                news.timed = lines[-1]
            return
        self._told += len(lines)
        if plan.kind is Trust.HEADING:
            self._heading = {**said, **_left(plan, lines[-1])}, self._told
            self._epoch_count = plan.epoch_count(lines[-1])
            return
        if plan.kind is Trust.SPEED and not self._is_training(said):
            return
        if plan.kind is Trust.BARE and self._is_aside(said):
            self._held = {**said, **_left(plan, lines[-1])}
            return
        losses = plan.losses(lines) if len(lines) > 1 else [said["loss"]] if "loss" in said else []
        if plan.kind is Trust.ALONE and losses:
            if plan.plain:
                self._plain = self._told
            elif self._told - self._plain < HEADED:
                return  # a part of the plain loss that was printed with it
        above = self._above(said)
        if not above and plan.kind is Trust.ALONE and not (losses := self._confirmed(plan, losses)):
            return
        if (count := plan.epoch_count(lines[-1])) is None and above:
            count = self._epoch_count
        self._count(said, losses)
        self._epochs.take({**above, **said}, count)
        news.add({**above, **said}, losses)
        if plan.eta or "eta_s" in said:
            news.timed = lines[-1] if plan.eta else b""

    def _above(self, said: dict[str, float]) -> dict[str, float]:
        """What the heading above these numbers says."""
        heading, line = self._heading
        if not heading or self._told - line > HEADED:
            return {}
        return {"epoch": heading["epoch"]} if "step" in said and "epoch" in heading else heading

    def _count(self, said: dict[str, float], losses: list[float]) -> None:
        """Note what the training counts to."""
        held = self._held
        if losses and "total" not in said and said.get("step", -1.0) == held.get("step"):
            said.update({**held, **said})  # "step 300: loss …" below a bar that is at 300
        if "step" in said:
            self._heading = {}, 0
            self._bar = said.get("total")
        elif losses and self._held:
            said.update({**self._held, **said})  # not an evaluation: there are losses below its bar
            self._bar = self._held.get("total")
        elif not losses:
            return
        self._held = {}
        if losses:
            self._trains, self._lossy = True, said.get("step", self._lossy)
            self._trained = said.get("total", math.inf) if "step" in said else self._bar

    def _is_training(self, said: dict[str, float]) -> bool:
        """Whether a speed is that of the steps at which losses are printed."""
        return self._trains and ("step" not in said or said.get("total", math.inf) == self._trained)

    def _is_aside(self, said: dict[str, float]) -> bool:
        """Whether a bar without a word is not that of training, but of an evaluation between steps, say."""
        total, latest = said.get("total"), self.latest
        if self._trained is not None:
            if math.isinf(self._trained) and total is not None and said["step"] == self._lossy:
                self._trained = total  # the bar below "step 300: loss …"
            return total != self._trained
        if said.get("step_s", 0.0) < FASTEST:
            return True
        if total is None or latest.step is None or latest.total is None:
            return False
        return latest.step < latest.total and total < latest.total

    def _confirmed(self, plan: Plan, losses: list[float]) -> list[float]:
        """Losses alone in their lines: one seen once may be a setting; one that changes is measured."""
        if not losses:
            return []
        before = self._alone.get(plan)
        if before is not None and math.isnan(before):
            return losses
        found = losses if before is None else [before, *losses]
        changes = any(loss != found[0] for loss in found)
        if len(self._alone) >= ALONE:
            self._alone.clear()
        self._alone[plan] = math.nan if changes else found[0]
        return found if changes else []

    def time_left(self, now: float) -> float | None:
        """Seconds until the last step: as the rank says, or else from its steps and their usual time.

        None: unknown, or what is known is too old.
        """
        if self.stepped is None:
            return None
        step, since, gap = self.stepped
        usual = (usual_step(self.series["step_s"].points()) if "step_s" in self.series else None) or 0.0
        if now - since > max(STALE, SILENT * max(gap, usual)):
            return None
        left = self._said_left(step, usual, now)
        if left is None and (place := self.place) is not None:
            left = (place[1] - place[0]) * usual - (now - since)
        return left if left is not None and left > 0 else None

    @property
    def place(self) -> tuple[int, int] | None:
        """The last step, and how many there will be, of the run and not of an epoch; None: not known."""
        step, total = self.latest.step, self.latest.total
        return None if step is None or total is None else self._epochs.of_run(step, total)

    def _said_left(self, step: int, usual: float, now: float) -> float | None:
        """The time left as the rank says, unless that is what is left of an epoch."""
        if self.timed is None or self.stepped is None or self.timed[1] < self.stepped[1]:
            return None
        said, at = self.timed
        of_one, place = (self.latest.total or 0) - step, self.place
        last = place is not None and place[1] - place[0] == of_one
        if self._epochs.several and not last and said <= OF_RUN * of_one * usual:
            return None
        return said - (now - at)


def usual_step(points: Sequence[tuple[float, float]]) -> float | None:
    """Seconds that a step usually takes: the median of the newest; None: no time of a step is known.

    Lines of a log arrive in portions: the time between two of them is not that of a step.

    :param points: times of steps, oldest first, each behind its moment
    """
    newest = points[-RECENT:]
    return median(seconds for _, seconds in newest) if newest else None


def _is_bar(rest: bytes) -> bool:
    """Whether an unfinished line ends in the time and speed of a bar: "[00:34<01:08, 9.71it/s]"."""
    times = rest[rest.rfind(b"[") :] if rest.endswith(b"]") else b""
    return b"/s" in times or b"s/" in times


def _left(plan: Plan, line: bytes) -> dict[str, float]:
    """The time left that a line says, if it does."""
    left = time_left(line) if plan.eta else None
    return {} if left is None else {"eta_s": left}


def newest_states(told: list[tuple[Plan, bytes]]) -> list[tuple[Plan, bytes]]:
    """Lines with numbers; of bars without a word, the first state and the newest one of each.

    Of several bars, those before other lines as well: which bar these belong to is to be known.
    """
    bars = [index for index, (plan, _) in enumerate(told) if plan.kind is Trust.BARE]
    totals = [_total(told[index][1]) for index in bars]
    if len(set(totals)) > 1:
        passed = {
            index
            for index, after, total, newer in zip(bars[1:], bars[2:], totals[1:], totals[2:], strict=False)
            if after == index + 1 and total == newer
        }
    else:
        passed = set(bars[1:-1])
    return [pair for index, pair in enumerate(told) if index not in passed] if passed else told


def _total(line: bytes) -> bytes:
    """What a bar counts to."""
    end = line.find(b" [")
    return line[line.rfind(b"/", 0, end) + 1 : end]
