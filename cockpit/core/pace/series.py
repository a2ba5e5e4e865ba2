"""A run's numbers as rows, one a step: what its ranks noted, and what its log says, brought together."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from statistics import median, median_low
from typing import Any

from cockpit.core.pace.past import PastStep
from cockpit.core.pace.phases import NAMES
from cockpit.core.pace.step import Key
from cockpit.core.ranks import read_ranks
from cockpit.errors import CockpitError

SAMPLE = 64
"""Steps of a log from which it is learned which steps of the ranks they are."""

AGREE = 0.8
"""The share of them that must say the same."""

CLOSE_S = 1.0
"""So late a line may be and still count as told at the end of its step: time indexes are written five times a
second, and of quick steps one in half a second is kept."""


@dataclass
class LoggedStep:
    """What a log says of one step.

    :param at: when its first line was there, unix seconds on our clock; None: not known
    :param step: as the log counts; None: it does not say
    """

    at: float | None = None
    step: int | None = None
    loss: float | None = None
    lr: float | None = None
    samples_s: float | None = None
    tokens_s: float | None = None


COLUMNS = {
    "step": "as counted by the ranks, else by the log",
    "t": "when the median rank finished it, otherwise when the log reported it: unix seconds, our clock",
    "restarts": "how many times the run had restarted, or begun to count steps again",
    "steps": "how many steps this row stands for; of several short steps the one in which ranks differed "
    "most is kept, and the others have 0 and only what the log says",
    "ranks": "how many ranks finished it",
    "step_s": "seconds that the median rank took",
    "compared": "what ranks are compared by: work; enqueue (when CPUs enqueued, not GPU time); step",
    "work_s": "seconds of it in which the median rank did not wait for others",
    "slowest_s": "the compared value of the slowest rank",
    "slowest_rank": "the slowest rank",
    "slow": "ranks at least 15 % slower than the median rank, slowest first, at most 64",
    **{
        f"{name}_s": f"seconds of it in which the median rank {does}"
        for name, does in {
            "input": "waited for its next batches",
            "forward": "ran forward",
            "backward": "ran backward",
            "update": "updated its parameters",
            "wait": "waited for others",
            "other": "did anything else",
        }.items()
    },
    "estimated": "whether times are those of log lines",
    "log_step": "as counted by the log",
    "loss": "from the log, as are the next three",
    "lr": "learning rate",
    "samples_s": "samples per second",
    "tokens_s": "tokens per second",
}
"""The fields of a row, and what they mean."""

Row = dict[str, Any]
"""One step, with the fields of :data:`COLUMNS` in their order; None is not known. ``slow`` is a tuple of
:class:`cockpit.core.pace.past.Apart`."""


class Ends:
    """When which step ended: 24 bytes a step, so that a whole run fits.

    Steps whose whether times are those of log lines count only if no rank noted any.
    """

    def __init__(self, steps: Iterable[PastStep]) -> None:
        self.exact = False
        """Whether ranks noted the times themselves."""
        self._begin()
        spans = array("d")
        for step in steps:
            if step.exact and not self.exact:
                self.exact, spans = True, array("d")
                self._begin()
            if step.exact or not self.exact:
                self._at.append(step.at)
                self._step.append(step.step)
                self._restarts.append(step.restarts)
                spans.append(step.span)
        self.usual = median(spans) if spans else 0.0
        """Seconds of a step."""

    def _begin(self) -> None:
        self._at, self._step, self._restarts = array("d"), array("q"), array("l")

    def at(self, time: float) -> Key | None:
        """The newest step that had ended by then; None: it had ended long before, or there is none."""
        place = bisect_right(self._at, time) - 1
        if place < 0 or time - self._at[place] > max(CLOSE_S, 3 * self.usual):
            return None
        return self._restarts[place], self._step[place]


def rows(steps: Iterable[PastStep], ends: Ends, said: Iterable[LoggedStep], ranks: int) -> Iterator[Row]:
    """Rows in the order of the steps; a step of which only one source knows has a row too.

    :param steps: rising
    :param ends: of the same steps
    :param said: as the log has it
    :param ranks: of the run
    """
    told = _keyed(said, ends)
    key, words = next(told, (None, None))
    last = -math.inf
    for step in steps:
        own = (step.restarts, step.step)
        while words is not None and (key is None or key < own):
            # A step 0 of a log is before, or is, the first of those that ranks count.
            zero = ends.exact and key is not None and not key[1]
            counted = zero or (key is not None and key > (step.restarts, step.step - step.count))
            row = _told(words, key, ranks, last, step.at) | ({"steps": 0} if counted else {})
            last = last if row["t"] is None else row["t"]
            yield row
            key, words = next(told, (None, None))
        last = max(last, step.at)
        if words is not None and key == own:
            yield _row(step, words, own, ranks)
            key, words = next(told, (None, None))
        else:
            yield _row(step, None, own, ranks)
    while words is not None:
        row = _told(words, key, ranks, last, math.inf)
        last = last if row["t"] is None else row["t"]
        yield row
        key, words = next(told, (None, None))


def _told(said: LoggedStep, key: Key | None, ranks: int, least: float, most: float) -> Row:
    """The row of what only the log tells: a line may be read after the end of the next step."""
    row = _row(None, said, key, ranks)
    if row["t"] is not None:
        row["t"] = max(least, min(row["t"], most))
    return row


def _keyed(said: Iterable[LoggedStep], ends: Ends) -> Iterator[tuple[Key | None, LoggedStep]]:
    """What a log says, with the step of the ranks that it is about; None: it names no step."""
    stretch: list[LoggedStep] = []
    found: Key | None = None
    last = -1
    for one in chain(said, [None]):
        again = one is not None and one.step is not None and one.step <= last
        if stretch and (one is None or again or len(stretch) == SAMPLE):
            found = found or _counted(stretch, ends)
            restarts, ahead = found or (0, 0)
            for each in stretch:
                yield None if each.step is None else (restarts, max(0, each.step - ahead)), each
            stretch = []
        if one is None:
            return
        if again:
            found = None  # it counts from the start again: a restart, an epoch
        stretch.append(one)
        last = last if one.step is None else one.step


def _counted(stretch: Iterable[LoggedStep], ends: Ends) -> Key | None:
    """How often the run had been restarted, and how far ahead of the ranks' the log's numbers are.

    The hook of an optimizer counts from the start of the program; a log may count from 0, and in each epoch
    anew.
    """
    pairs = [
        (found, one.step)
        for one in stretch
        if one.step is not None and one.at is not None and (found := ends.at(one.at)) is not None
    ]
    if not pairs:
        return None
    restarts = median_low(found[0] for found, _ in pairs)
    if not ends.exact:  # read from this log, or from one like it
        return restarts, 0
    aheads = [step - found[1] for found, step in pairs if found[0] == restarts]
    ahead = median_low(aheads)
    near = max(1.0, CLOSE_S / ends.usual) if ends.usual > 0 else math.inf
    agree = sum(abs(each - ahead) <= near for each in aheads)
    # Ranks that do not wait for each other drift apart: then numbers are all that can be compared.
    if abs(ahead) * ends.usual > CLOSE_S and agree >= AGREE * len(aheads):
        return restarts, ahead
    # Of quick steps only this is certain: what a step tells that is called 0 was there after the first one.
    from_zero = any(step == 0 and found[1] > 0 for found, step in pairs)
    return restarts, -1 if from_zero else 0


def _row(step: PastStep | None, said: LoggedStep | None, key: Key | None, ranks: int) -> Row:
    row: Row = dict.fromkeys(COLUMNS)
    row.update(restarts=key[0] if key else 0, step=key and key[1], steps=1, slow=(), estimated=True)
    if said is not None:
        row.update(t=said.at, log_step=said.step, loss=said.loss, lr=said.lr)
        row.update(samples_s=said.samples_s, tokens_s=said.tokens_s)
    if step is not None:
        row.update(t=step.at, steps=step.count, step_s=step.span, estimated=not step.exact)
        if step.exact:
            row.update(compared="enqueue" if step.lag else "work" if step.work else "step")
        for name, took in zip(NAMES, step.seconds or (), strict=bool(step.phases)):
            row[f"{name}_s"] = None if math.isnan(took) else round(took, 6)
        if step.work and not step.lag:
            row.update(work_s=step.median)
        if step.exact:  # lines of logs say when a step went by, but not whose it was
            row.update(ranks=_finished(step, ranks), slowest_s=step.greatest, slowest_rank=step.slowest)
            row.update(slow=step.apart)
    return row


def _finished(step: PastStep, ranks: int) -> int:
    try:
        return max(0, ranks - len(read_ranks(step.missing))) if step.missing else ranks
    except CockpitError:
        return ranks
