"""The loss: no number any more, or far above all that it was, and it stays there."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import median

from cockpit.base.events import NoticeStep
from cockpit.base.shell import quote
from cockpit.core.pace.pace import Pace
from cockpit.core.run.notices.rule import About, Condition, Rule
from cockpit.core.run.states import Run

IN_A_ROW = 3
"""So many losses that are no numbers, or again numbers: scaling in half precision gives one at times."""

KEPT, LEAST, RECENT = 300, 100, 5
"""Losses that are kept; that it takes to know what is usual; the last ones, which have to be higher."""

HELD_S, LONGER = 60.0, 2.0
"""A jump is reported once it has lasted this many seconds, and this many times as long as an earlier one that
recovered: by then most spikes have passed, and so have evaluations that print losses as training does."""

HIGHER, SPREADS = 0.5, 10.0
"""A jump is up by this share of the usual loss, and by so many times its usual spread."""

SMALL, SMALL_S = 0.25, 900.0
"""One by this smaller share has to last so many seconds: a learning rate that begins anew causes such."""

FEW, FEW_S, FEW_HIGHER = 20, 1200.0, 1.0
"""Losses that are enough if they were printed over so many seconds; a jump is then by this share."""


@dataclass(frozen=True)
class _Jump:
    since: float
    step: int | None
    usual: float
    level: float
    before: int
    held_s: float = HELD_S


class Loss(Rule):
    """Reads the losses that a run prints, as they come."""

    id = "loss"
    lasting = True

    def __init__(self, about: About) -> None:
        super().__init__(about)
        self._begin()

    def _begin(self) -> None:
        self._losses: deque[float] = deque(maxlen=KEPT)
        self._first_at: float | None = None
        self._last: tuple[float | None, float] | None = None
        self._odd = self._even = 0
        self._nan: tuple[float, int | None, float] | None = None
        self._told_nan = False
        self._jump: _Jump | None = None
        self._timed = False
        self._longest_s = 0.0

    def restarted(self) -> None:
        """See :class:`Rule`."""
        self._begin()

    def interrupted(self) -> None:
        """See :class:`Rule`."""
        self._timed = False  # how long a jump lasts cannot be told

    def read(self, at: float, said: Mapping[str, float]) -> None:
        """See :class:`Rule`."""
        if "loss" not in said:
            return
        loss, step = said["loss"], said.get("step")
        if step is not None and self._last is not None and self._last[0] == step:
            return  # a bar that is drawn again
        self._last = step, loss
        whole = None if step is None else int(step)
        if math.isfinite(loss):
            self._finite(at, whole, loss)
            return
        if not self._odd:
            self._nan = (at, whole, loss) if not self._told_nan else self._nan
        self._odd, self._even = self._odd + 1, 0
        self._told_nan = self._told_nan or self._odd >= IN_A_ROW

    def _finite(self, at: float, step: int | None, loss: float) -> None:
        self._odd, self._even = 0, self._even + 1
        if self._told_nan and self._even >= IN_A_ROW:
            self._told_nan = False
        self._losses.append(loss)
        self._first_at = at if self._first_at is None or at < self._first_at else self._first_at
        recent = list(islice(reversed(self._losses), RECENT))
        if self._jump is None:
            self._jump, self._timed = self._jumped(at, step, recent), True
        elif median(recent) < (self._jump.usual + self._jump.level) / 2:
            if self._timed:
                self._longest_s = max(self._longest_s, at - self._jump.since)
            self._jump = None
        elif self._jump.held_s > HELD_S and median(recent) - self._jump.usual >= HIGHER * abs(
            self._jump.usual
        ):
            self._jump = replace(self._jump, since=at, step=step, level=median(recent), held_s=HELD_S)

    def _jumped(self, at: float, step: int | None, recent: Sequence[float]) -> _Jump | None:
        before = list(self._losses)[:-RECENT]
        few = len(before) < LEAST
        if few and (len(before) < FEW or self._first_at is None or at - self._first_at < FEW_S):
            return None
        # Most losses fall: this is quick, and most often enough.
        if min(recent) <= max(before[-LEAST:]):
            return None
        usual, level = median(before[-LEAST:]), median(recent)
        spread = 1.4826 * median(abs(loss - usual) for loss in before[-LEAST:])
        rise = level - usual
        if min(recent) <= max(before) or rise < SPREADS * spread:
            return None
        if rise < (FEW_HIGHER if few else SMALL) * abs(usual):
            return None
        held_s = HELD_S if few or rise >= HIGHER * abs(usual) else SMALL_S
        return _Jump(at, step, usual, level, len(before), held_s)

    def look(self, at: float, run: Run, pace: Pace) -> Iterator[Condition]:
        """See :class:`Rule`."""
        held_s = LONGER * self._longest_s
        logs = NoticeStep(f"cockpit logs {quote(self.about.name)}", "what was printed then")
        if self._told_nan and self._nan is not None:
            since, step, loss = self._nan
            kind = "NaN" if math.isnan(loss) else "infinite"
            usual = (
                f"median of the 100 before: {median(list(self._losses)[-LEAST:]):.4g}" if self._losses else ""
            )
            evidence = tuple(
                filter(None, (f"not a number in {max(self._odd, IN_A_ROW)} readings in a row", usual))
            )
            steps = (
                logs,
                NoticeStep(f"cockpit stop {quote(self.about.name)}", "training from here on is wasted"),
            )
            what = f"the loss is {kind}{_from(step)}"
            yield Condition("nan", what, since, None, evidence, "sure", "error", steps=steps)
        elif self._jump is not None and not 0 <= at - self._jump.since < max(held_s, self._jump.held_s):
            jump = self._jump
            what = f"the loss has jumped to {jump.level:.4g}{_from(jump.step)}, from {jump.usual:.4g}"
            evidence = (f"the last {RECENT} are all above the {jump.before} before them",)
            yield Condition("jump", what, jump.since, None, evidence, steps=(logs,))

    def ended(self, of: str) -> str:
        """See :class:`Rule`."""
        return f"the loss is back: {self._losses[-1]:.4g}" if self._losses else "the loss is watched again"


def _from(step: int | None) -> str:
    return "" if step is None else f" since step {step:,}"
