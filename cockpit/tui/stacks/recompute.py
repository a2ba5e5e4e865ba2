"""Works out what the stack screen shows, again whenever something has arrived."""

from __future__ import annotations

import asyncio
import time

from cockpit.core.narrowing import Narrowing
from cockpit.engine.stacks.take import Stacks
from cockpit.errors import CockpitError
from cockpit.tui.stacks.samples import SampleCursor
from cockpit.tui.stacks.view_model import Folding, Sight, look


class Lookout:
    """Has the newest sight of the sample that is shown.

    :param stacks: what has arrived
    :param samples: which of it is shown
    """

    def __init__(self, stacks: Stacks, samples: SampleCursor) -> None:
        self._stacks = stacks
        self._samples = samples
        self.now = Sight(stacks.snapshot)
        """The newest sight."""
        self.pattern = ""
        """What it is narrowed to."""
        self.working = False
        self._made_from: object = None
        self._not_before = 0.0

    @property
    def ready(self) -> bool:
        """Whether one was worked out so far."""
        return self._made_from is not None

    @property
    def settled(self) -> bool:
        """Whether it shows everything that has arrived."""
        return not self.working and self._made_from == self._wanted()

    def _wanted(self) -> object:
        """What a sight depends on."""
        number, snapshot = self._samples.number, self._stacks.snapshot
        if number < 0:
            return number, len(snapshot.ranks)
        sample = snapshot.samples[number]
        told = len(sample.dumps), len(sample.silent), sample.took_s, self._samples.judges(sample)
        # Each of these is replaced as a whole when more is known.
        known = snapshot.progress, snapshot.collectives, snapshot.ras
        more = snapshot.asking, *known, snapshot.problems, snapshot.twice, snapshot.stood
        places = tuple(snapshot.ranks.values())
        return number, told, more, len(snapshot.closer), places, self.pattern

    def narrow(self, pattern: str) -> None:
        """Narrow it to what matches a pattern.

        :raises CockpitError: it is not a regular expression
        """
        Narrowing(pattern)
        self.pattern = pattern
        self._not_before = 0.0

    def begin(self) -> bool:
        """Whether it is time for :meth:`work_out`; not again before that has ended."""
        if self.working or self._made_from == self._wanted() or time.monotonic() < self._not_before:
            return False
        self.working = True
        return True

    async def work_out(self, folding: Folding) -> None:
        """Make the newest sight, in a thread: thousands of ranks take longer than a frame.

        :raises CockpitError: the pattern does not work; it is cleared
        """
        began, wanted = time.monotonic(), self._wanted()
        snapshot, number, pattern = self._stacks.snapshot.copy(), self._samples.number, self.pattern
        judged = number >= 0 and self._samples.judges(snapshot.samples[number])
        try:
            self.now = await asyncio.to_thread(look, snapshot, number, pattern, folding, judge=judged)
        except CockpitError:
            self.pattern = ""
            raise
        finally:
            self.working = False
            # A third of the time at most, however many ranks there are.
            self._not_before = time.monotonic() + 2 * (time.monotonic() - began)
        self._made_from = wanted
