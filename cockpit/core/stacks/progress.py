"""How far the ranks were when a snapshot was taken, and who was slow: what a verdict needs of the pace."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

from cockpit.base.gate import (
    COUNT,
    FLAG,
    RANK,
    RANK_LIMIT,
    TIME,
    Digits,
    ListOf,
    MapOf,
    Maybe,
    Number,
    Of,
    bound,
    maybe,
    plain,
)
from cockpit.core.masks import mask_of
from cockpit.core.pace.pace import Pace

GRACE = 3.0
"""Steps take up to so many times as long as usual while nothing is wrong."""

GRACE_S = 2.0
"""A step is not late before this, however short steps usually are."""

SURE_S = 4.0
"""No step for less than this is no standstill for sure, however short steps usually are."""

LONGEST = 1.5
"""Nor less than so many times the longest of the last steps: a rank may be slow in each.

If the last two have taken long, the next one is not late before this.
"""

UNKNOWN_S = 10.0
"""The same where it is not known how long a step usually takes."""

_SECONDS = Number(0, 1 << 36)


@dataclass(frozen=True)
class SlowRank:
    """A rank that is slow while steps go on.

    :param work_s: seconds of a step in which it did not wait for others, or seconds of a step
    :param usual_s: the same of the median rank
    :param waits: the share of a step that the others wait, 0 to 1; None: not known
    :param work: whether these are seconds of work, and not of whole steps
    :param lag: whether it is the lag of a CPU that enqueues for a GPU
    :param steps: in so many steps, the last ones, which are too few to be sure; None: it is known to be slow
    """

    rank: int = bound(RANK)
    work_s: float = bound(_SECONDS)
    usual_s: float = bound(_SECONDS)
    waits: float | None = maybe(Number(0, 1))
    work: bool = bound(FLAG, True)
    lag: bool = bound(FLAG, False)
    steps: int | None = maybe(COUNT)


@dataclass(frozen=True)
class Done:
    """The last step that a rank has finished.

    :param at: when, unix seconds on our clock
    """

    step: int = bound(COUNT)
    at: float = bound(TIME)


@dataclass(frozen=True)
class Progress:
    """How far the ranks are. Times are unix seconds on our clock.

    :param at: when that was so
    :param usual_s: seconds of a step; None: not known
    :param exact: whether ranks note their steps themselves; else they are read from logs
    :param ranks: the last step of each rank of which one is known
    :param before: the furthest step when the snapshot was begun; None: not known
    :param longest_s: seconds of the longest of the last steps; None: not known
    :param lately_s: seconds of the shorter one of the last two steps, or from one line about a step to the
        next; None: not known
    """

    at: float = bound(TIME)
    usual_s: float | None = bound(Maybe(_SECONDS), None)
    exact: bool = bound(FLAG, True)
    ranks: dict[int, Done] = bound(MapOf(Digits(RANK), Of(Done), RANK_LIMIT), {})
    slow: tuple[SlowRank, ...] = bound(ListOf(Of(SlowRank), 1000), ())
    before: int | None = maybe(COUNT)
    longest_s: float | None = maybe(_SECONDS)
    lately_s: float | None = maybe(_SECONDS)

    @property
    def front(self) -> int | None:
        """The furthest step; None: no step is known."""
        return max((done.step for done in self.ranks.values()), default=None)

    @property
    def last_at(self) -> float | None:
        """When any rank finished a step last."""
        return max((done.at for done in self.ranks.values()), default=None)

    @property
    def age_s(self) -> float | None:
        """Seconds since then, when this was looked at."""
        return None if self.last_at is None else max(0.0, self.at - self.last_at)

    @property
    def patience_s(self) -> float:
        """A step that takes longer than this is late."""
        if self.usual_s is None:
            return UNKNOWN_S
        return max(GRACE_S, GRACE * self.usual_s, LONGEST * (self.lately_s or 0.0))

    @property
    def goes_on(self) -> bool | None:
        """Whether steps continue; None: no step is known."""
        age, front = self.age_s, self.front
        if age is None or front is None:
            return None
        return age <= self.patience_s

    @property
    def slowest_s(self) -> float:
        """No slow step takes longer than this."""
        return max(SURE_S, self.patience_s, LONGEST * (self.longest_s or 0.0))

    @property
    def lasts(self) -> bool:
        """Whether there has been no step for longer than any slow one would take."""
        return self.age_s is not None and self.age_s > self.slowest_s

    @property
    def left_behind(self) -> int:
        """Ranks that have made no step for so long, though others have, as a mask."""
        behind = self.behind if self.exact else 0
        late = (rank for rank, done in self.ranks.items() if self.at - done.at > self.slowest_s)
        return mask_of(late) & behind

    @property
    def behind(self) -> int:
        """Ranks whose last step is before the furthest one, as a mask."""
        front = self.front
        return mask_of(rank for rank, done in self.ranks.items() if front is not None and done.step < front)

    def as_json(self) -> dict[str, Any]:
        """The same as JSON values; :func:`cockpit.base.gate.read` is the reverse."""
        told: dict[str, Any] = plain(self)
        return told


def of_pace(pace: Pace, now: float, before: int | None = None) -> Progress:
    """What a run's pace says.

    :param now: unix seconds on our clock
    :param before: the furthest step when the snapshot was begun
    """
    ranks = {}
    for rank in pace.steps.ranks:
        known = pace.of(rank)
        if known.step is not None and known.at is not None:
            ranks[rank] = Done(known.step, known.at)
    slow = tuple(_slow(pace) or _slow_lately(pace))
    return Progress(now, pace.usual(), pace.exact, ranks, slow, before, pace.longest(), pace.lately())


def _slow(pace: Pace) -> list[SlowRank]:
    slow = pace.slow()
    if not slow:
        return []
    paces = {rank: pace.of(rank) for rank in pace.steps.ranks}
    own = {rank: one.work if pace.works else one.span for rank, one in paces.items()}
    known = {rank: seconds for rank, seconds in own.items() if seconds is not None}
    those = {one.rank for one in slow}
    rest = [seconds for rank, seconds in known.items() if rank not in those]
    if not rest:
        return []
    usual = median(rest)
    step = pace.usual()
    waits = max(0.0, min(1.0, 1 - usual / step)) if step and pace.works else None
    return [
        SlowRank(one.rank, known[one.rank], usual, waits, pace.works, pace.lag)
        for one in slow
        if one.rank in known
    ]


def _slow_lately(pace: Pace) -> list[SlowRank]:
    return [
        SlowRank(
            one.rank,
            one.took_s,
            max(0.0, one.usual_s),
            max(0.0, min(1.0, 1 - one.usual_s / one.step_s)) if one.step_s > 0 and pace.works else None,
            pace.works,
            steps=one.steps,
        )
        for one in pace.slow_lately()
    ]
