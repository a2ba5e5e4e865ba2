"""Which of the samples is shown, and how far the one under way is."""

from __future__ import annotations

import time

from cockpit.core.masks import count
from cockpit.core.stacks.snapshot import Sample
from cockpit.engine.stacks.take import Stacks

PATIENCE_S = 2.0
"""Seconds after which an incomplete sample is shown and judged as it is."""


class SampleCursor:
    """The samples of a snapshot, one of which is shown.

    :param stacks: where they come from
    """

    def __init__(self, stacks: Stacks) -> None:
        self._stacks = stacks
        self.chosen: int | None = None
        """The sample that a person chose, from 0; None: always the newest."""
        self._counted: tuple[object, int] = None, 0

    @property
    def number(self) -> int:
        """The sample that is shown, from 0; -1 if there is none.

        The newest one, unless a person chose another; an unfinished one only once it is clear that some rank
        keeps us waiting, since the screen would otherwise be empty for a moment.
        """
        samples, last = self._stacks.snapshot.samples, self.last
        if self.chosen is not None:
            return min(self.chosen, last)
        return last - 1 if last > 0 and not self.judges(samples[last]) else last

    @property
    def last(self) -> int:
        """The newest sample, from 0; -1 if there is none."""
        return len(self._stacks.snapshot.samples) - 1

    def newest(self) -> None:
        """Show always the newest."""
        self.chosen = None

    def step(self, step: int) -> None:
        """Show the sample before (-1) or after (1)."""
        goal = self.number + step
        self.chosen = None if step > 0 and goal >= self.last else goal

    def under_way(self, sample: Sample) -> bool:
        """Whether answers may still come."""
        return sample.took_s is None and not self._stacks.recorded

    def judges(self, sample: Sample) -> bool:
        """Whether it is time for a verdict: not while answers are about to arrive."""
        return not self.under_way(sample) or time.time() - sample.at > PATIENCE_S

    def answered(self, sample: Sample) -> int:
        """How many ranks have answered.

        Counted once for each state of a sample: a thousand ranks must not be counted ten times a second.
        """
        state = id(sample), len(sample.dumps), sample.took_s
        if self._counted[0] != state:
            self._counted = state, count(sample.answered)
        return self._counted[1]

    def progress(self, sample: Sample) -> str:
        """How many of the ranks that were asked have answered, and for how long they have been asked."""
        age = max(0.0, time.time() - sample.at)
        if self._stacks.snapshot.asking:
            return f"asking for steps and flight recorders, {age:.1f} s"
        return f"{len(sample.dumps):,} of {self._stacks.asked:,} ranks, {age:.1f} s"
