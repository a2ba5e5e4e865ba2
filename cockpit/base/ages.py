"""How much is kept of what is old: the one rule for whatever grows for as long as a run lasts."""

from __future__ import annotations

from typing import Optional, Tuple

GAP_S = 3600.0
"""A longer time between two moments counts as so long: clocks are set."""


class Ages:
    """Told moments from the newest to the oldest, says which of them become one.

    They do within spans of time that are twice as long at twice the age, and the same on all nodes.

    :param older: a span is shorter than what is in it is old by this factor, at least
    :param finest_s: seconds that the shortest span takes
    """

    def __init__(self, older: float, finest_s: float) -> None:
        self._older = older
        self._grain = finest_s
        self._age = 0.0
        self._after: Optional[float] = None

    def span(self, at: float) -> Tuple[float, float]:
        """In which span a moment is: how long that is, seconds, and its place.

        :param at: unix seconds
        """
        if self._after is not None:
            self._age += min(max(0.0, self._after - at), GAP_S)
        self._after = at
        while self._age >= 2 * self._grain * self._older:
            self._grain *= 2
        return self._grain, at // self._grain


def coarser(older: int, size: int, wanted: int) -> int:
    """What to try after ``older``, which takes so many bytes where ``wanted`` are to be left."""
    return max(1, min(older // 2, older * wanted // max(1, size)))
