"""When all ranks of one node stand still: what their supervisor sees, for the one detector, without I/O."""

from __future__ import annotations

from typing import Dict, Mapping, Optional, Tuple

from cockpit.base.stillness import FIRST, Sign, Signs, Stillness, is_busy

APART_S = 600.0
"""Seconds between evidence of one standstill and that of the next: a run may pause each few minutes."""


class Standing:
    """Whether all ranks of a node stand still, by what their supervisor sees; times are monotonic seconds.

    It accuses nobody: where all ranks wait for one on another node, all of these stand still as well. What
    follows from it is evidence that is kept.

    :param after_s: without a step, where steps are known
    :param idle_s: without a sign of them, where they are not
    :param apart_s: from evidence of one standstill to that of the next
    """

    def __init__(self, after_s: float, idle_s: float, apart_s: float, now: float) -> None:
        self._silent_s = FIRST * after_s
        self._signs = Signs()
        self._still = Stillness(after_s, idle_s, apart_s=apart_s)
        self._ends: Dict[str, int] = {}
        self._steps = 0
        self._sizes: Dict[str, int] = {}
        self._work: Dict[int, Tuple[float, float, int]] = {}
        self.restart(now)

    def restart(self, now: float) -> None:
        """Ranks were started: what was known of others before says nothing of them."""
        self._signs.restarted()
        self._signs.spoke(now)
        self._stepped_at: Optional[float] = None
        self._work = {}
        self._began = False
        self._still.unknown()
        self._still.end()

    @property
    def counts_steps(self) -> bool:
        """Whether steps are known: then nothing else counts."""
        return self._stepped_at is not None

    def stepped(self, now: float, file: str, ends_ns: Tuple[int, ...]) -> None:
        """The newest steps of a ring, which may be those that were told before.

        :param ends_ns: when each ended, nanoseconds on one clock, the oldest first
        """
        before = self._ends.get(file)
        new = [end for end in ends_ns if before is None or end > before]
        if not new:
            return
        # A clock of the rank's own program: only differences are used, within bounds.
        line = new if before is None else [before, *new]
        for early, late in zip(line, line[1:]):
            self._signs.took(max(0, late - early) / 1e9)
        self._ends[file] = new[-1]
        self._steps += 1
        self._stepped_at = now

    def logged(self, now: float, sizes: Mapping[str, int]) -> None:
        """How large the ranks' logs are."""
        if any(size != self._sizes.get(name, 0) for name, size in sizes.items()):
            self._signs.spoke(now)
        self._sizes = dict(sizes)

    def worked(self, now: float, work: Mapping[int, Tuple[float, int]]) -> None:
        """What ranks have used so far: seconds of CPU, and how often the main thread has gone to sleep."""
        for rank, (cpu_s, switches) in work.items():
            before = self._work.get(rank)
            if before is None or now <= before[0]:
                self._signs.worked(now, busy=False)
                continue
            past_s, used = now - before[0], cpu_s - before[1]
            # Less than before: a process of it has ended.
            busy = used < 0 or is_busy(used / past_s, (switches - before[2]) / past_s)
            self._signs.worked(now, busy=busy)
        self._work = {rank: (now, *used) for rank, used in work.items()}

    def since(self, now: float) -> Optional[float]:
        """Since when they stand still; None: they do not, as far as this can be seen."""
        sign = self._sign(now)
        if sign.mark != self._still.mark:
            self._still.take(now, sign, begun=False)
        since: Optional[float] = self._still.moved if self._still.is_overdue(now, sign) else None
        # Waiting for others may keep a core busy.
        if since is None and sign.stepless and now - self._signs.spoke_at > self._silent_s:
            since = self._signs.spoke_at
        if since is None and self._began:
            self._still.end()
        elif since is not None and not self._began:
            self._still.begin(now)
        self._began = since is not None
        return since

    def _sign(self, now: float) -> Sign:
        if self._stepped_at is None:
            return self._signs.activity(now)
        mark, age_s = ("steps", self._steps), now - self._stepped_at
        return Sign("steps", mark, age_s, self._signs.usual_s, self._signs.longest_s)

    def is_due(self, now: float) -> bool:
        """Whether evidence of it is to be kept now; ask for :meth:`since` before."""
        return self._still.is_due(now)

    def keep(self, now: float) -> None:
        """Evidence is kept, now."""
        self._still.looking()
        self._still.looked(now)
