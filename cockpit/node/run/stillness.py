"""When the ranks of one node count as standing still: decided from what their supervisor sees, without I/O.

It accuses nobody: where all ranks wait for one on another node, all of these stand still as well. What
follows from it is evidence that is kept, at most every so often.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Deque, Dict, Mapping, Optional, Tuple

BUSY = 0.05
"""Seconds of CPU a second with which a rank, with all that is below it, counts as busy."""
SWITCHES = 100.0
"""Times a second that a busy main thread goes to sleep: one that reads from a disk uses little CPU."""

_SPANS = 64
"""Steps whose length is remembered."""


@dataclass(frozen=True)
class Limits:
    """When a node's ranks stand still, in seconds.

    :param after_s: without a step, where steps are known
    :param steps: so many usual steps without one; the longer of the two counts
    :param idle_s: without a byte in any log and with no rank busy, where steps are not known
    :param quiet_s: without a byte in any log, however busy: waiting for others may keep a core busy
    :param again_s: from the first time that evidence is kept to the second: one look does not tell what moves
    :param every_s: between two times after that; while nothing moves, twice as long each time
    """

    after_s: float = 30.0
    steps: float = 6.0
    idle_s: float = 45.0
    quiet_s: float = 300.0
    again_s: float = 10.0
    every_s: float = 600.0


Work = Mapping[int, Tuple[float, int]]
"""By rank: seconds of CPU that it has used, and how often its main thread has gone to sleep, so far."""


class Stillness:
    """Watches the ranks of one node; times are of one clock that only goes forward, in seconds.

    :param limits: when they stand still
    :param now: the time
    """

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._steps: Dict[str, int] = {}
        self._spans: Deque[float] = deque(maxlen=_SPANS)
        self._sizes: Dict[str, int] = {}
        self._work: Dict[int, Tuple[float, float, int]] = {}
        self._kept_at: Optional[float] = None
        self._gap_s = 0.0
        self.kept = 0
        """How often evidence was kept since something moved."""
        self.restart(now)

    def restart(self, now: float) -> None:
        """Ranks were started: what was known of others before says nothing of them."""
        self._stepped_at: Optional[float] = None
        self._logged_at = self._busy_at = now
        self._work = {}
        self._moved()

    @property
    def counts_steps(self) -> bool:
        """Whether steps are known: then nothing else counts."""
        return self._stepped_at is not None

    @property
    def work_s(self) -> float:
        """Seconds between two looks at the CPU time of the ranks, where steps are not known."""
        return min(10.0, self._limits.idle_s / 4)

    def stepped(self, now: float, file: str, ends_ns: Tuple[int, ...]) -> None:
        """The newest steps of a ring, which may be those that were told before.

        :param ends_ns: when each ended, nanoseconds on one clock, the oldest first
        """
        before = self._steps.get(file)
        new = [end for end in ends_ns if before is None or end > before]
        if not new:
            return
        # A clock of the rank's own program: only differences are used, within bounds.
        line = new if before is None else [before, *new]
        self._spans.extend(max(0, late - early) / 1e9 for early, late in zip(line, line[1:]))
        self._steps[file] = new[-1]
        self._stepped_at = now
        self._moved()

    def logged(self, now: float, sizes: Mapping[str, int]) -> None:
        """How large the ranks' logs are."""
        if any(size != self._sizes.get(name, 0) for name, size in sizes.items()):
            self._logged_at = now
            if not self.counts_steps:
                self._moved()
        self._sizes = dict(sizes)

    def worked(self, now: float, work: Work) -> None:
        """What the ranks have used of the CPU."""
        for rank, (cpu_s, switches) in work.items():
            before = self._work.get(rank)
            if before is None or now <= before[0]:
                self._busy_at = now
                continue
            past_s = now - before[0]
            used, slept = cpu_s - before[1], switches - before[2]
            # Less than before: a process of it has ended.
            if used < 0 or used / past_s >= BUSY or slept / past_s >= SWITCHES:
                self._busy_at = now
        self._work = {rank: (now, *used) for rank, used in work.items()}

    def since(self, now: float) -> Optional[float]:
        """Since when they stand still; None: they do not, as far as this can be seen."""
        limits = self._limits
        if self._stepped_at is not None:
            return self._stepped_at if now - self._stepped_at > self.threshold_s else None
        idle_at = max(self._logged_at, self._busy_at)
        if self._work and now - idle_at > limits.idle_s:
            return idle_at
        return self._logged_at if now - self._logged_at > limits.quiet_s else None

    @property
    def threshold_s(self) -> float:
        """Seconds without a step that are too many."""
        spans = sorted(self._spans)
        usual = spans[len(spans) // 2] if spans else 0.0
        return max(self._limits.after_s, self._limits.steps * usual)

    def due(self, now: float) -> Optional[float]:
        """Since when they stand still, if evidence of that is to be kept now."""
        if self._kept_at is not None and now - self._kept_at < (self._gap_s or self._limits.every_s):
            return None
        return self.since(now)

    def keep(self, now: float) -> None:
        """Evidence is kept, now."""
        self._kept_at = now
        self._gap_s = self._limits.every_s * 2 ** (self.kept - 1) if self.kept else self._limits.again_s
        self.kept += 1

    def _moved(self) -> None:
        self.kept = 0
        self._gap_s = 0.0
