"""Values over time, thinned evenly so that any number of them fits."""

from __future__ import annotations

from array import array
from collections.abc import Sequence


class Series:
    """Values with their times: evenly thinned when there are too many, always with the newest one.

    :param limit: points that are kept at most
    """

    __slots__ = ("_at", "_every", "_limit", "_newest", "_skipped", "_values")

    def __init__(self, limit: int) -> None:
        self._at = array("d")
        self._values = array("d")
        self._limit = limit - 1
        self._every = 1
        self._skipped = 0
        self._newest: tuple[float, float] | None = None  # not among the others yet

    def add(self, at: float, values: Sequence[float]) -> None:
        """Add values that arrived at one time, unix seconds."""
        if not values:
            return
        start = 0
        while start < len(values):
            # How often a value is kept; half as often once there are too many.
            room = (self._limit + 1 - len(self._at)) * self._every - self._skipped
            part = values[start : start + room]
            kept = part[self._every - 1 - self._skipped :: self._every]
            self._skipped = (self._skipped + len(part)) % self._every
            self._values.extend(kept)
            self._at.extend([at] * len(kept))
            start += len(part)
            if len(self._at) > self._limit:
                self._thin()
        self._newest = (at, values[-1]) if self._skipped else None

    def _thin(self) -> None:
        """Drop every second value."""
        if len(self._at) % 2 == 0:
            self._skipped = self._every  # the newest is among them
        del self._at[1::2], self._values[1::2]
        self._every *= 2

    def points(self) -> list[tuple[float, float]]:
        """Times and values, oldest first."""
        points = list(zip(self._at, self._values, strict=True))
        return points if self._newest is None else [*points, self._newest]
