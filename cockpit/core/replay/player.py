"""The clock of a replay: it stands, or goes so many times as fast as ours, between the ends of a run."""

from __future__ import annotations

SPEEDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""So many seconds of the run in one of ours."""


class Player:
    """Where a replay is, and how fast it goes; nothing here looks at a clock.

    :param begin: the first moment of the run, unix seconds
    :param end: the last one that is known
    """

    def __init__(self, begin: float, end: float, speed: int = 1) -> None:
        self.begin, self.end = begin, max(begin, end)
        self.at = begin
        """The moment that is shown, unix seconds."""
        self.speed = speed
        self.plays = False
        self._then = 0.0  # what our clock showed when it was asked last

    @property
    def at_end(self) -> bool:
        """Whether all that is known is shown."""
        return self.at >= self.end

    def seek(self, at: float) -> None:
        """Go to a moment, or to the end that is nearer."""
        self.at = min(max(at, self.begin), self.end)

    def play(self, now: float) -> None:
        """Begin to play, at the end from the beginning.

        :param now: what any clock that only goes forward shows, seconds
        """
        if self.at_end:
            self.at = self.begin
        self.plays, self._then = True, now

    def pause(self) -> None:
        """Stand still."""
        self.plays = False

    def hold(self, now: float) -> None:
        """The time until now does not count."""
        self._then = now

    def tick(self, now: float) -> None:
        """Go on as far as that clock has since it was last told; at the end it stands still."""
        if self.plays:
            self.seek(self.at + max(0.0, now - self._then) * self.speed)
            self._then = now
            self.plays = not self.at_end

    def faster(self, step: int) -> int:
        """Go to the next (1) or previous (-1) speed, as far as there is one; return it."""
        beyond = [speed for speed in SPEEDS if (speed > self.speed if step > 0 else speed < self.speed)]
        if beyond:
            self.speed = beyond[0] if step > 0 else beyond[-1]
        return self.speed
