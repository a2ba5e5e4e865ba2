"""Throughput below what is usual in this run: steps of ranks' own clocks, else what the log says of speed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from statistics import median

from cockpit.base.events import NoticeStep
from cockpit.base.shell import quote
from cockpit.core.pace.finding import PROFILE
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.step import Key
from cockpit.core.run.notices.rule import About, Condition, Rule
from cockpit.core.run.states import Run
from cockpit.core.time_text import clock

WINDOW_S, FEWEST = 60.0, 5
"""A window has so many seconds and steps at least; a checkpoint or an evaluation does not move its median."""
WARM_S = 300.0
"""After a start: caches fill, kernels are compiled."""
WINDOWS, ENOUGH, LATEST = 720, 10, 3
"""Windows that are kept; that it takes to know what is usual; the last ones, all of which are slower."""
BELOW, LOWER = 0.8, 0.9
"""Slower: less than this share of the usual speed; and of that in all but the slowest windows before."""
BACK = 0.9
"""Again as usual from this share on."""
STAYS = 60
"""After so many windows the lower speed is the usual one."""
HOUR_S, HOUR = 3600.0, 12
"""What falls slowly is compared by the hour: so many seconds and windows at least."""
UNSETTLED = 2
"""Newest steps that some ranks may still be in."""
_LOGGED = ("tokens_s", "samples_s")
_SLOWLY = "slowly"


@dataclass(frozen=True)
class _Window:
    at: float
    step: int | None
    speed: float


@dataclass(frozen=True)
class _Hour:
    """About an hour.

    :param at: when it began, unix seconds
    :param low, usual, high: the speeds that a tenth, a half and nine tenths of its windows do not exceed
    """

    at: float
    low: float
    usual: float
    high: float


class _Hours:
    """Compares the last hour with the best one: what falls slowly is never much below what was before."""

    def __init__(self) -> None:
        self._recent: deque[_Window] = deque()
        self._fresh = 0  # windows since the last hour that was looked at
        self.best: _Hour | None = None
        self.now: _Hour | None = None
        self.since: float | None = None
        """When it was found to be slower, unix seconds; None: it is not."""
        self._told = 0

    def add(self, window: _Window) -> bool:
        """Take in a window; return whether a lower speed has stayed, and is the usual one from now on."""
        if self._recent and window.at < self._recent[-1].at:
            self._recent.clear()  # a clock was set back
        self._recent.append(window)
        self._fresh += 1
        while len(self._recent) > HOUR and window.at - self._recent[1].at >= HOUR_S:
            self._recent.popleft()
        if len(self._recent) < HOUR or window.at - self._recent[0].at < HOUR_S:
            return False
        speeds = sorted(each.speed for each in self._recent)
        tenth = len(speeds) // 10
        self.now = _Hour(self._recent[0].at, speeds[tenth], median(speeds), speeds[-1 - tenth])
        self._compare(window.at)
        if self._fresh >= len(self._recent):
            self._fresh = 0
            if self.best is None or self.now.low > self.best.low:
                self.best = self.now
        return self.since is not None and self._told >= STAYS

    def _compare(self, at: float) -> None:
        now, best = self.now, self.best
        if now is None or best is None:
            return
        if self.since is None:
            self.since = at if now.high < BELOW * best.low else None
            self._told = 0
        elif now.usual >= BACK * best.usual:
            self.since = None
        else:
            self._told += 1


class Throughput(Rule):
    """Compares windows of about a minute, and hours."""

    id = "throughput"

    def __init__(self, about: About) -> None:
        super().__init__(about)
        self._kept: deque[_Window] = deque(maxlen=WINDOWS)
        self._slow: list[_Window] = []
        self._usual = 0.0
        self._ended = ""
        self._last: Key = (-1, -1)
        self._unit = ""
        self._hours = _Hours()
        self._hours_ended = ""
        self._begin()

    def _begin(self) -> None:
        self._open: list[tuple[float, int | None, float]] = []
        self._began: float | None = None

    def restarted(self) -> None:
        """See :class:`Rule`."""
        self._begin()

    def interrupted(self) -> None:
        """See :class:`Rule`."""
        self._open = []

    def read(self, at: float, said: Mapping[str, float]) -> None:
        """See :class:`Rule`."""
        for name in _LOGGED:
            if self._unit in ("", name) and said.get(name, 0.0) > 0:
                self._unit = name
                step = said.get("step")
                self._add(at, None if step is None else int(step), said[name])

    def look(self, at: float, run: Run, pace: Pace) -> Iterator[Condition]:
        """See :class:`Rule`."""
        self._take(pace)
        if self._slow:
            yield self._fallen(at, pace, self._slow[0], self._slow[-1])
        elif self._hours.since is not None and self._hours.best and self._hours.now:
            yield self._falling(at, pace, self._hours.since, self._hours.best, self._hours.now)

    def _fallen(self, at: float, pace: Pace, first: _Window, now: _Window) -> Condition:
        less = 1 - median(window.speed for window in self._slow) / self._usual
        step = "" if first.step is None else f" step {first.step:,},"
        what = f"throughput is {100 * less:.0f} % below usual since{step} about {clock(first.at, at)}"
        how = f"{self._said(now.speed)}, usually {self._said(self._usual)} in this run"
        return self._seen("", what, first.at, how, pace)

    def _falling(self, at: float, pace: Pace, since: float, best: _Hour, now: _Hour) -> Condition:
        less = 1 - now.usual / best.usual
        what = (
            f"throughput has fallen slowly: it is {100 * less:.0f} % below that of the hour "
            f"from {clock(best.at, at)}"
        )
        how = f"{self._said(now.usual)} in the last hour, {self._said(best.usual)} in that one"
        return self._seen(_SLOWLY, what, since, how, pace)

    def _seen(self, of: str, what: str, since: float, how: str, pace: Pace) -> Condition:
        evidence = [how]
        if (why := pace.changed(since)) is not None:
            evidence.append(f"the median rank: {why.text}")
        slow = pace.slow()
        if slow:
            evidence.append(
                f"rank {slow[0].rank} is {100 * slow[0].excess:.0f} % slower than the median rank"
            )
        name = quote(self.about.name)
        steps: tuple[NoticeStep, ...] = (
            NoticeStep(f"cockpit ps {name}", "steps, CPU and memory of each rank"),
            NoticeStep(f"cockpit stacks {name} --samples 3", "what they are doing"),
        )
        late = pace.late()
        if late:
            evidence.append(
                f"the CPU of rank {late[0].rank} enqueues {late[0].excess:.0%} later than the median"
            )
        if pace.lags:
            steps = (*steps, NoticeStep(*PROFILE))
        ranks = tuple(each.rank for each in slow[:1])
        return Condition(of, what, since, None, tuple(evidence), "likely", ranks=ranks, steps=steps)

    def ended(self, of: str) -> str:
        """See :class:`Rule`."""
        return self._hours_ended if of == _SLOWLY and not self._slow else self._ended if of == "" else ""

    def _said(self, speed: float) -> str:
        return f"{speed:.3g} {'steps' if self._unit == 'steps' else self._unit[:-2]}/s"

    def _take(self, pace: Pace) -> None:
        """Take in steps that ranks themselves timed: nothing that this machine does touches them."""
        fresh = []
        for step in islice(pace.steps.newest(), UNSETTLED, None):
            if step.key <= self._last:
                break
            fresh.append(step)
        for step in reversed(fresh):
            self._last = step.key
            span = step.typical_span
            if not span > 0 or all(one != one for one in step.spans):
                continue  # known by when a line arrived only
            if self._unit != "steps":
                self._unit = "steps"
                self._kept.clear()
                self._slow = []
                self._hours = _Hours()
                self._begin()
            self._add(step.typical_end, step.step, 1 / span)

    def _add(self, at: float, step: int | None, speed: float) -> None:
        if self._began is None or at < self._began:
            self._began = at
        if self._open and at < self._open[-1][0]:
            self._open = []  # a clock was set back
        if at - self._began < WARM_S:
            return
        self._open.append((at, step, speed))
        if len(self._open) > FEWEST and at - self._open[0][0] >= WINDOW_S:
            window = _Window(*self._open[0][:2], median(speed for _, _, speed in self._open))
            self._open = []
            self._judge(window)

    def _judge(self, window: _Window) -> None:
        if not self._slow:
            self._kept.append(window)
            self._fall()
            self._mind_hours(window)
            return
        self._slow = [*self._slow[-2 * STAYS :], window]
        latest = [each.speed for each in self._slow[-2:]]
        if min(latest) >= BACK * self._usual:
            self._ended = f"throughput is back: {self._said(window.speed)}"
        elif len(self._slow) >= STAYS:
            self._ended = f"throughput stays at {self._said(window.speed)}, which now counts as usual"
            self._kept.clear()
            self._hours = _Hours()
        else:
            return
        self._kept.extend(self._slow if not self._kept else self._slow[-2:])
        self._slow = []

    def _mind_hours(self, window: _Window) -> None:
        since = self._hours.since
        stays = self._hours.add(window)
        if stays:
            self._hours = _Hours()
            self._hours_ended = f"throughput stays at {self._said(window.speed)}, which now counts as usual"
        elif since is not None and self._hours.since is None:
            self._hours_ended = f"throughput is back: {self._said(window.speed)}"

    def _fall(self) -> None:
        """See whether the last windows are slower than those before."""
        speeds = [window.speed for window in self._kept]
        if len(speeds) < ENOUGH + LATEST:
            return
        before, latest = speeds[:-LATEST], speeds[-LATEST:]
        usual, low = median(before), sorted(before)[len(before) // 20]
        if max(latest) < min(BELOW * usual, LOWER * low):
            self._usual = usual
            self._slow = [self._kept.pop() for _ in latest][::-1]
