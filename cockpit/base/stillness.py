"""Whether ranks make progress: the one detector, of a node's supervisor and of whoever watches a run.

Both feed it, each with what it sees. :class:`Signs` says what ranks show besides their steps,
:class:`Stillness` since when there has been no progress, whether that is too long, and when to look at them.
Times are seconds of one clock of the caller's. All constants are here; ``docs/how-it-works.md`` lists them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Deque, Iterable, NamedTuple, Optional, Tuple

AFTER_S = 30.0
"""Seconds without a step after which ranks are looked at, unless steps take long."""
STEPS = 6
"""So many usual steps are waited for as well."""
FIRST = 10
"""Before it is known how long a step takes, such as while the first one compiles: so many times as long.

Also where ranks sleep that have hardly worked yet: a slow file server may keep them from it.
"""
LONGEST = 2
"""And so many times as long as the longest step so far, such as the first one."""
ASLEEP = 4
"""Where only CPUs and logs tell that all ranks sleep: so many times as long."""
BEFORE = 2
"""So many times as long as the longest pause that the run has ended by itself, before a stall is sure."""

BACKOFF_S = (30.0, 120.0, 600.0, 1800.0)
"""Seconds from one look at ranks that stand still to the next one; the last again and again."""

BUSY = 0.1
"""Of one core: a rank that uses less sleeps; threads of libraries that only look around use some."""
SWITCHES = 100.0
"""Times a second that a busy main thread goes to sleep: one that reads from a disk uses little CPU."""
ACTIVE = 5
"""Measurements in which ranks were at work, before their sleep means anything."""
SPANS, NEEDED = 64, 3
"""Times between two steps of which the usual one is the median; so many are needed."""


class Pause(NamedTuple):
    """A time without a step that ranks have ended by themselves.

    :param step: the one that took so long; None: it is not known
    """

    seconds: float = 0.0
    step: Optional[int] = None

    def or_longer(self, other: Pause) -> Pause:
        """The longer of the two."""
        return other if other.seconds > self.seconds else self


NEVER = Pause()
"""No such time is known."""


def is_busy(share: float, switches: float = 0.0) -> bool:
    """Whether a rank is at work.

    :param share: of one core that it uses
    :param switches: times a second that its main thread goes to sleep
    """
    return share >= BUSY or switches >= SWITCHES


@dataclass(frozen=True)
class Sign:
    """The best that is known of progress at one moment.

    :param source: ``steps`` that ranks note themselves; ``log``; ``activity``: of their CPUs and logs;
        ``sleep``: the same of ranks that have hardly worked yet; empty: nothing tells
    :param mark: changes whenever there is progress
    :param age_s: seconds since the last progress; None: not known
    :param usual_s: seconds between two steps, usually; None: not known yet
    :param longest_s: the longest time to a step so far, that to the first included; 0: not known
    """

    source: str = ""
    mark: Any = None
    age_s: Optional[float] = None
    usual_s: Optional[float] = None
    longest_s: float = 0.0

    @property
    def stepless(self) -> bool:
        """Whether no step is known at all."""
        return self.source in ("", "activity", "sleep")


class Signs:
    """What ranks show of progress besides the steps that they note themselves, and how long steps take."""

    def __init__(self) -> None:
        self.spoke_at = -1.0
        """When any of them printed anything."""
        self.restarted()

    def restarted(self) -> None:
        """Ranks were started again: what was usual need not be."""
        self.said: Optional[Tuple[int, float]] = None
        """The last step that a log told of, and when."""
        self._spans: Deque[float] = deque(maxlen=SPANS)
        self._active = 0
        self._measured_at: Optional[float] = None
        """When these ranks were measured first."""
        self._active_at = 0.0
        self._came: Optional[Tuple[Any, float]] = None
        """The last step and when it ended; or that there was none, and when the ranks began."""
        self.longest_s = 0.0

    def told(self, step: int, at: float) -> None:
        """A step appeared in a log. If several appear at once, only the last is passed in."""
        if self.said is None or step != self.said[0]:
            if self.said is not None and at > self.said[1]:
                for _ in range(max(1, min(step - self.said[0], NEEDED))):
                    self.took(at - self.said[1])
            self.said = step, at

    def took(self, seconds: float) -> None:
        """A step took so long."""
        self._spans.append(seconds)

    def spoke(self, at: float) -> None:
        """A rank printed something."""
        self.spoke_at = at

    def worked(self, at: float, *, busy: bool) -> None:
        """A rank was measured; see :func:`is_busy`."""
        if self._measured_at is None:
            self._measured_at = at
        if busy:
            self._active += 1
            self._active_at = at

    def came(self, mark: Any, ended: float) -> None:
        """The last step, and when it ended; None: there was none yet, and when the ranks began.

        Steps may take so long that a few of them say nothing of what is usual for an hour.
        """
        if self._came is not None and mark is not None and mark != self._came[0]:
            self.longest_s = max(self.longest_s, ended - self._came[1])
        if self._came is None or mark != self._came[0]:
            self._came = mark, ended

    @property
    def usual_s(self) -> Optional[float]:
        """Seconds between two steps, usually; None: not known yet."""
        spans = sorted(self._spans)
        return spans[len(spans) // 2] if len(spans) >= NEEDED else None

    def activity(self, now: float) -> Sign:
        """What CPUs and logs tell, where no steps are known."""
        if self._measured_at is None:
            return Sign()
        last = max(self._measured_at, self._active_at, self.spoke_at)
        source = "sleep" if self._active < ACTIVE else "activity"
        return Sign(source, (source, last), max(0.0, now - last), None, self.longest_s)


class Stillness:
    """Since when there has been no progress, whether that is too long, and when ranks are to be looked at.

    :param after_s: see :data:`AFTER_S`
    :param asleep_s: seconds without a sign where only CPUs and logs tell; None: :data:`ASLEEP` times as long
    :param apart_s: seconds between a look at one standstill and the first one at the next
    :param most: looks in all; None: any number
    :param total: those that were taken before
    """

    def __init__(
        self,
        after_s: float = AFTER_S,
        asleep_s: Optional[float] = None,
        *,
        apart_s: float = 0.0,
        most: Optional[int] = None,
        total: int = 0,
    ) -> None:
        self.after_s = after_s
        self._asleep_s = ASLEEP * after_s if asleep_s is None else asleep_s
        self._apart_s = apart_s
        self._most = most
        self.total = total
        """Looks that have begun, in all."""
        self.looks = 0
        """Those at this standstill that have ended."""
        self.next: Optional[float] = None
        """When the next one is due; None: not by itself."""
        self.mark: Any = None
        self.moved = 0.0
        """When there was progress."""
        self.longest = NEVER
        """The longest pause that these ranks have ended by themselves."""
        self._looked: Optional[float] = None
        self._gapless = False
        """Whether it has been known all the time, since the last progress, that there was none."""

    def take(self, now: float, sign: Sign, *, begun: bool = True, step: Optional[int] = None) -> None:
        """There was progress.

        :param begun: whether there was any before
        :param step: the last one; None: it is not known
        """
        before, self.mark = self.moved, sign.mark
        if sign.age_s is not None:
            self.moved = max(before, now - sign.age_s) if begun else now - sign.age_s
        # A log that comes after a gap, and the first step, tell of no pause.
        if self._gapless and not sign.stepless:
            self.paused(Pause(self.moved - before, step))
        self._gapless = not sign.stepless

    def unknown(self) -> None:
        """For a while nothing was known, or ranks were started again: what ends now is no pause by itself."""
        self._gapless = False

    def paused(self, pause: Pause) -> None:
        """A pause was ended by itself."""
        self.longest = self.longest.or_longer(pause)

    def patience(self, sign: Sign) -> float:
        """Seconds without progress that are nothing unusual."""
        if sign.source == "activity":
            return self._asleep_s
        if sign.source == "sleep":
            return self._asleep_s * FIRST / ASLEEP
        if sign.usual_s is None:
            return max(self.after_s * FIRST, LONGEST * sign.longest_s)
        return max(self.after_s, STEPS * sign.usual_s)

    def is_overdue(self, now: float, sign: Sign) -> bool:
        """Whether there has been no progress for too long."""
        return sign.source != "" and now - self.moved > self.patience(sign)

    def is_unusual(self, now: float) -> bool:
        """Whether this standstill is much longer than those that were ended by themselves."""
        return now > self.unusual_at

    @property
    def unusual_at(self) -> float:
        """When it is, or was."""
        return self.moved + BEFORE * self.longest.seconds

    # When ranks are to be looked at

    @property
    def enough(self) -> bool:
        """Whether they were looked at as often as they may be."""
        return self._most is not None and self.total >= self._most

    def begin(self, now: float) -> None:
        """A standstill begins."""
        soonest = now if self._looked is None else max(now, self._looked + self._apart_s)
        self.looks, self.next = 0, None if self.enough else soonest

    def end(self) -> None:
        """It is over."""
        self.looks, self.next = 0, None

    def is_due(self, now: float) -> bool:
        """Whether to look now."""
        return self.next is not None and now >= self.next

    def looking(self) -> None:
        """A look begins."""
        self.total += 1

    def looked(self, now: float, wanted: Iterable[float] = ()) -> None:
        """A look at this standstill has ended.

        :param wanted: when else one would tell something new
        """
        self.looks += 1
        self._looked = now
        later = now + BACKOFF_S[min(self.looks, len(BACKOFF_S)) - 1]
        self.next = None if self.enough else min([later, *(each for each in wanted if each > now)])
