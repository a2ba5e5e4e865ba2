"""How fast nsys writes while it records, and when there is no room left for that and for its report.

Facts are those of 2022.4.2: what it records is in the folder for temporary files, and grows until the end of
its window. Then its report is written beside it, up to about as large, and moved to the run folder.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from cockpit.base.events import NoticeStep
from cockpit.base.shell import quote
from cockpit.core.pace.pace import Pace

LOOKS = 25
"""Looks, one each 5 s, by which it is judged how fast it grows."""
GROWING = 4
"""Looks at which it must have grown: 20 s."""
STOPPED_S = 20.0
"""If it has not grown for so long, nothing is recorded any more."""
HIGHER = 1.3
"""What comes up to so many times what was recorded before is no news: there was room for that."""
WHOLE_S, WINDOW_S = 12 * 3600.0, 600.0
"""If nobody knows when it ends, it is told if there is no room left within so long: of a whole run, and of a
window of one that was launched ready, which is short."""


class Recording:
    """What is recorded on one node.

    :ivar rate: bytes a second; 0: nothing is recorded, or it is not known yet
    :ivar bytes: recorded so far
    :ivar since: when it began, unix seconds
    """

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque(maxlen=LOOKS)
        self._before = 0
        self.rate = 0.0
        self.bytes = 0
        self.since = 0.0

    def interrupted(self) -> None:
        """Nobody was looking for a while, or our clock was set."""
        self._points.clear()
        self.rate = 0.0

    def add(self, at: float, recorded: int | None) -> None:
        """Take in what was measured.

        :param at: unix seconds
        :param recorded: bytes; None: too many files to look at, so that it is taken to go on as before
        """
        if self._points and at <= self._points[-1][0]:
            self.interrupted()
        if recorded is None:
            if not self._points:
                return
            then, had = self._points[-1]
            recorded = had + int(self.rate * (at - then))
        elif self._points and recorded < self._points[-1][1]:
            self._before = max(self._before, self._points[-1][1])
            self._points.clear()
        self._points.append((at, recorded))
        self.bytes = recorded
        grown = [later for earlier, later in pairwise(self._points) if later[1] > earlier[1]]
        goes_on = len(grown) >= GROWING and at - grown[-1][0] < STOPPED_S
        if not goes_on or recorded <= HIGHER * self._before:
            self.rate = 0.0
            return
        if not self.rate:
            self.since = grown[0][0]
        # At first it grows faster.
        begins = grown[0], grown[len(grown) // 2 - 1]
        self.rate = min((recorded - had) / (at - then) for then, had in begins)

    def left(self, free: int, *, there: bool) -> float:
        """Seconds until a disk has no room for its report any more; 0: it has none now.

        :param free: bytes
        :param there: whether it is the one that it records on, which has to take both
        """
        return max(0.0, free - self.bytes) / (self.rate * (2 if there else 1))


def ends_in(profile: Mapping[str, Any], ran_s: float, pace: Pace, total: int | None) -> float | None:
    """Seconds until the window is over; not above 0: it is; None: nobody knows.

    :param profile: see :attr:`cockpit.core.run.notices.rule.About.profile`
    :param ran_s: for how long the ranks have been running
    :param total: how many steps the run will have; None: not known
    """
    range_ = str(profile.get("range", ""))
    steps = re.fullmatch(r"steps [0-9]{1,12}-([0-9]{1,12})", range_)
    seconds = re.fullmatch(r"[0-9]{1,9}", str(profile.get("seconds", "")))
    if seconds and not range_:
        return int(seconds[0]) - ran_s
    last = int(steps[1]) if steps else total
    front, usual = pace.front, pace.usual()
    if last is None or profile.get("ready") or front is None or not usual:
        return None
    return (last - front[0]) * usual


def horizon(profile: Mapping[str, Any]) -> float:
    """Seconds that are looked ahead, if nobody knows when it ends."""
    return WINDOW_S if profile.get("ready") else WHOLE_S


def advice(profile: Mapping[str, Any], name: str, *, there: bool) -> Iterator[NoticeStep]:
    """What to type, so that there is room.

    :param name: the run's
    :param there: whether it lacks where nsys records, and not where its report goes
    """
    if profile.get("ready"):
        yield NoticeStep(
            f"cockpit profile {quote(name)} --kind nsys --seconds S", "next time: a shorter window"
        )
    else:
        yield NoticeStep(
            f"cockpit stop {quote(name)}", "ends the run now; its report is written, and fetched"
        )
        if not profile.get("range"):
            yield NoticeStep("--duration S", "next time: for so many seconds; the job continues")
            yield NoticeStep("--profile-steps A-B", "next time: only these steps")
        yield NoticeStep("--profile nsys-ready", "next time: record when you ask for it")
    yield (
        NoticeStep("--env TMPDIR=DIR", "next time: nsys writes there, on a larger disk")
        if there
        else NoticeStep("--node-dir DIR", "next time: run folder and reports there, on a larger disk")
    )
