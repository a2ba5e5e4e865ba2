"""The watch over one run: from its progress, second by second, and the answers of looks to its state.

====================  ==================================================================================
state                 until
====================  ==================================================================================
``going``             no step for too long: ``quiet``, and a look is due
``quiet``             progress: ``going``; a look that shows who stands still: ``stalled``
``stalled``           progress: ``going``; a look that shows that ranks move: ``quiet``
``blind``             steps become known: ``going``; all ranks fall asleep: ``quiet``
====================  ==================================================================================

What is too long says :mod:`cockpit.base.stillness`. Time is counted on a clock that nobody sets. After a gap
in what is known (a lost link, a machine that slept, a clock that was set) it waits until nodes have told.

A look belongs to the standstill it was begun for: what it has seen says nothing of a later one.

Whom the others wait for, and whether it is stuck, are two questions. The verdict of a look answers the first,
with its certainty. The second is sure by a proof alone; all else is a matter of time: likely once the run has
stood still for much longer than it ever did and went on by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cockpit.base.events import Watched
from cockpit.base.stillness import AFTER_S, FIRST, Pause, Stillness
from cockpit.core.finding import Finding
from cockpit.core.gaps import Gaps
from cockpit.core.masks import ranks_of
from cockpit.core.run.watch_messages import packed
from cockpit.core.watch.judge import Inspection, judge
from cockpit.core.watch.progress import Progress

FOREIGN_LOOKS = 2
"""Jobs that others started are looked at unasked so often."""
BLIND = 10
"""So many times as long as ranks may make no step without any sign of steps: said once."""

GRACE_S = 8.0
"""Seconds after a gap in what is known until what is known counts again."""
TOLD_S = 1.0
"""A node that was measured so long after a look has told of all steps until the end of that look."""

UNSTEPPED = (
    "can't track steps (no probe, no step numbers in the log); a stall is detected only if every rank "
    "goes idle"
)


@dataclass(frozen=True)
class Terms:
    """How the watch is kept.

    :param hang_after_s: see :data:`cockpit.base.stillness.AFTER_S`
    :param most: looks in all; None: any number
    :param stop_after_s: seconds without a step and without movement after which the run may be stopped; None:
        however long that lasts
    """

    hang_after_s: float = AFTER_S
    most: int | None = None
    stop_after_s: float | None = None


_NOTHING = object()
"""How far a run was, if that is no matter."""


class StallWatch:
    """The state of one run's progress. Nothing here reads a clock.

    :param total: looks that were taken at this run before
    """

    def __init__(self, terms: Terms, total: int = 0) -> None:
        self._after_s, self._stop_after_s = terms.hang_after_s, terms.stop_after_s
        self._still = Stillness(terms.hang_after_s, most=terms.most, total=total)
        self.state = ""
        self._seen = Progress()
        self._clock: tuple[float, float] | None = None
        self._gaps = Gaps()
        self._held_until = 0.0
        self._lost: tuple[str, ...] = ()
        self._standstill = 0
        """Which one it is, or which time between two."""
        self._stuck = False
        """Whether it has taken long since the start, and ranks that will note their steps have made none."""
        self._looking: int | None = None
        """Which standstill the look under way is for."""
        self._begun: Any = None
        """How far the run was when the last look began."""
        self._begun_at = self._shown_at = self._moving_at = -math.inf
        """When that was, when the last one that has ended began, and when one saw ranks move, in ticks."""
        self._looked: float | None = None
        self._behind = 0
        self._found: Finding | None = None
        self._waiting = 0
        self._snapshot = ""
        self._why = ""

    # What is told to it

    def tick(self, at: float, ticks: float, seen: Progress) -> Iterator[Watched]:
        """A second has passed; the events that follow from it.

        :param at: unix seconds
        :param ticks: seconds of a clock that nobody sets
        """
        self._mind_clocks(at, ticks)
        if not seen.runs:
            self._held_until = ticks + GRACE_S
            return
        if not seen.known or set(self._lost) - set(seen.lost):
            self._held_until = max(self._held_until, ticks + GRACE_S)
            self._still.unknown()
        self._lost = seen.lost
        if not seen.known:
            return
        before, self._seen = self._seen, seen
        self._still.paused(seen.longest)
        if seen.mark != self._still.mark or before.source == "":
            yield from self._take_progress(at, ticks, seen)
        if ticks < self._held_until:
            return
        stepless = seen.stepless
        self._stuck = stepless and seen.noting and seen.age_of_start_s > self._after_s * FIRST
        if self._stuck:
            self._still.moved = ticks - seen.age_of_start_s
        overdue = self._stuck or self._still.is_overdue(ticks, seen)
        if self.state in ("", "going", "blind") and overdue and not self._behind:
            self._begin(ticks)
            yield self._event(at, ticks)
        elif stepless:
            if not self.state and seen.age_of_start_s > self._after_s * BLIND:
                self.state, self._why = "blind", UNSTEPPED
                yield self._event(at, ticks)
        elif self.state == "going" or self._behind:
            yield from self._mind_behind(at, ticks, seen)

    @property
    def due(self) -> bool:
        """Whether ranks are to be looked at now; ask after each tick."""
        if self._looking is not None or self._clock is None or not (self._seen.known and self._seen.runs):
            return False
        return self._clock[1] >= self._held_until and self._still.is_due(self._clock[1])

    @property
    def _next(self) -> float | None:
        """When the next look is due, in ticks."""
        return self._still.next

    def begin(self, at: float, ticks: float) -> Iterator[Watched]:
        """A look begins."""
        self._looking, self._begun, self._begun_at = self._standstill, self._still.mark, ticks
        self._still.looking()
        if self._still.looks and self.state in ("quiet", "stalled"):
            yield self._event(at, ticks)

    def looked(self, at: float, ticks: float, looked: Inspection | None) -> Iterator[Watched]:
        """What a look has seen; None: it saw nothing, since nobody answered."""
        begun, self._looking = self._looking, None
        if begun != self._standstill or self.state in ("", "blind"):
            return  # it went on meanwhile
        self._shown_at = self._begun_at
        if looked is not None and looked.moving:
            self._moving_at = ticks
        wanted = [] if self._behind else [self._still.unusual_at]
        if self._stop_after_s is not None:
            wanted.append(self._stirred + self._stop_after_s)
        self._still.looked(ticks, wanted)
        self._looked = at
        if looked is None:
            self._why = "no rank could be inspected"
            self._begun = _NOTHING
            if not self._behind:
                yield self._event(at, ticks)
            return
        self._waiting, self._snapshot, self._why = looked.waiting, looked.snapshot, looked.why
        # Who is behind others is judged although these go on.
        state, self._found = judge(looked, steps=not self._seen.stepless, front=not self._behind)
        if not self._behind or (state == "stalled" and self._found.ranks & self._behind):
            self.state = state
            yield self._event(at, ticks)
        elif self.state == "stalled":
            yield from self._go_on(at, ticks, 0.0)

    def restarted(self, at: float, ticks: float) -> Iterator[Watched]:
        """Ranks were started again: what stood still is over, and not by itself."""
        self._still.unknown()
        if self.state in ("quiet", "stalled"):
            yield from self._go_on(at, ticks, 0.0, "its ranks were started again")

    def paused(self, pause: Pause) -> None:
        """The run has ended a pause by itself."""
        self._still.paused(pause)

    @property
    def proven(self) -> bool:
        """Whether a fact says that the run does not go on by itself, by what was known at the last tick."""
        return self._stuck_for(self._seen_at) == "sure" and self._holds

    @property
    def overstayed_s(self) -> float | None:
        """Seconds without a step and without movement, if a person has named less; None: not, or unknown."""
        most = self._stop_after_s
        if most is None or self.state not in ("quiet", "stalled") or self._shown_at < self._stirred + most:
            return None
        return self._seen_at - self._stirred if self._holds else None

    @property
    def _holds(self) -> bool:
        """Whether what the newest look has seen is so still.

        Its stacks are kept, and all nodes have told since it ended that there has been no progress since it
        began.
        """
        if self._behind or self._clock is None or self._looked is None or not self._snapshot:
            return False
        (at, ticks), seen = self._clock, self._seen
        fresh = seen.runs and seen.known and not seen.lost and ticks >= self._held_until
        return fresh and self._looked + TOLD_S < seen.heard_at <= at and self._still.mark == self._begun

    @property
    def _stirred(self) -> float:
        """When there was a step, or a look that saw ranks move, in ticks."""
        return max(self._still.moved, self._moving_at)

    @property
    def _seen_at(self) -> float:
        return 0.0 if self._clock is None else self._clock[1]

    # Within

    def _stuck_for(self, ticks: float) -> str:
        """How sure it is that the run is stuck: a word of :attr:`Watching.stuck`."""
        if self.state != "stalled":
            return ""
        if self._behind:
            return "likely"
        if not self._still.is_unusual(ticks):
            return "waiting"
        return "sure" if self._found is not None and self._found.proof else "likely"

    def _mind_clocks(self, at: float, ticks: float) -> None:
        if self._clock is None:
            self._held_until = self._still.moved = ticks
        self._clock = at, ticks
        if self._gaps.since_last(at, ticks):
            self._held_until = ticks + GRACE_S
            self._still.unknown()
            self._standstill += 1  # a look under way has seen what was before, if anything

    def _take_progress(self, at: float, ticks: float, seen: Progress) -> Iterator[Watched]:
        still_s = ticks - self._still.moved
        self._still.take(ticks, seen, begun=bool(self.state), step=seen.step)
        if (
            self._behind
            or self.state == "going"
            or (seen.stepless and (self._stuck or self.state != "quiet"))
        ):
            return  # others went on all the time; or it is no news, or no step
        yield from self._go_on(at, ticks, still_s)

    def _go_on(self, at: float, ticks: float, still_s: float, why: str = "") -> Iterator[Watched]:
        still_s = still_s if self.state in ("quiet", "stalled") and not self._behind else 0.0
        self._still.paused(Pause(still_s, self._seen.step))
        self._start_anew("going")
        self._still.end()
        self._why = why
        yield self._event(at, ticks, still_s)

    def _mind_behind(self, at: float, ticks: float, seen: Progress) -> Iterator[Watched]:
        """Ranks that stand still while others go on; nothing is said until a look has shown it."""
        if seen.behind and not self._behind:
            self._start_anew(self.state)
            self._still.begin(ticks)
            self._behind = seen.behind
        elif not seen.behind and self._behind:
            yield from self._go_on(at, ticks, 0.0)

    def _begin(self, ticks: float) -> None:
        self._start_anew("quiet")
        self._still.begin(ticks)
        if self._still.enough:
            total = self._still.total
            self._why = f"external job: the limit of {total} automatic inspections is reached"

    def _start_anew(self, state: str) -> None:
        """A standstill begins, or is over: what looks have seen so far says nothing of what is now."""
        self.state = state
        self._standstill += 1
        self._behind = 0
        self._found, self._waiting, self._snapshot, self._why = None, 0, "", ""

    def _event(self, at: float, ticks: float, still_s: float | None = None) -> Watched:
        stands = ticks - self._still.moved if still_s is None else still_s
        if self.state == "stalled" and self._behind:
            stands = self._seen.behind_s
        due = None if self._next is None else at + max(0.0, self._next - ticks)
        return Watched(
            self.state,
            max(0.0, at - (stands if self.state in ("quiet", "stalled") else ticks - self._still.moved)),
            max(0.0, stands),
            self._seen.step,
            self._looking is not None
            or (self.state == "quiet" and not self._still.looks and due is not None),
            self._still.looks,
            self._still.total,
            self._looked,
            due,
            None if self._found is None else packed(self._found),
            tuple(ranks_of(self._waiting)),
            self._snapshot,
            self._why,
            self._stuck_for(ticks),
            *self._still.longest,
            ending=self._seen.final and self.state in ("quiet", "stalled"),
        )
