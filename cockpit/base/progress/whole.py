"""Which steps of a rank a recorded window holds from their beginning to their end."""

from __future__ import annotations

from typing import Optional, Sequence, Tuple

from cockpit.base.progress import ring
from cockpit.base.progress.ring import Step


class WholeSteps:
    """Those of one window. Times are monotonic nanoseconds.

    :param began_ns: when it began
    :param waiting: a step that may have waited for that: then it is whole, although it began before; 0: none
    :param waits_ns: for how long at most
    """

    def __init__(self, began_ns: int, waiting: int = 0, waits_ns: float = 0) -> None:
        self._began_ns = began_ns
        self._waiting = waiting
        self._waits_ns = waits_ns
        self.first: Optional[Tuple[int, int]] = None
        """The first one, and when it began."""

    def look(self, steps: Sequence[Step]) -> None:
        """Take in what the ring holds now; in time, as it forgets."""
        if self.first is None:
            spans = zip(steps, ring.spans(steps))
            found = ((one.step, span[0]) for one, span in spans if span and self._begins(one.step, span[0]))
            self.first = next(found, None)

    def _begins(self, step: int, at_ns: int) -> bool:
        early_ns = self._began_ns - at_ns
        return early_ns < self._waits_ns if step == self._waiting else early_ns <= 0

    def last(self, steps: Sequence[Step], ended_ns: int) -> Optional[int]:
        """The last one of a window that ended then; None: there is none."""
        until = max((one.step for one in steps if one.mono_ns <= ended_ns), default=-1)
        return until if self.first is not None and until >= self.first[0] else None
