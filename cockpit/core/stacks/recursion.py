"""Deep recursion: calls of the same functions, again and again, as one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from cockpit.base.stacks.dump import Frame

PERIOD = 8
"""At most so many functions call each other in a circle."""

TIMES = 5
"""A circle that is gone through less often is shown call by call."""


class Recursion(NamedTuple):
    """Calls that repeat.

    :param frames: how many calls that are, the last one of all left out: it says where it stands
    :param circle: the first calls of each function of it
    """

    frames: int
    circle: tuple[Frame, ...]

    @property
    def text(self) -> str:
        """What is written for it: ``walk  tree.py:31  recurse ×812``."""
        times = self.frames // len(self.circle)
        if len(self.circle) == 1:
            (only,) = self.circle
            return f"{only.name}  {only.place}  recurse ×{times:,}"
        return f"{', '.join(frame.name for frame in self.circle)} recurse ×{times:,}"


def recursion(calls: Iterable[Frame]) -> Recursion | None:
    """The recursion with which a chain of calls begins, on whichever of their lines; None: with none."""
    seen: list[Frame] = []
    lasts = dict.fromkeys(range(1, PERIOD + 1), 0)
    alive = set(lasts)
    for frame in calls:
        seen.append(frame)
        alive -= {one for one in alive if len(seen) > one and seen[-1 - one][:2] != frame[:2]}
        if not alive:
            break
        lasts.update(dict.fromkeys(alive, len(seen)))
    enough = [one for one, last in lasts.items() if last - 1 >= TIMES * one]
    if not enough:
        return None
    period = max(enough, key=lambda one: (lasts[one], -one))
    return Recursion(lasts[period] - 1, tuple(seen[:period]))


def folded(frames: Sequence[Frame]) -> Iterator[tuple[int, Recursion | None]]:
    """The places in a stack that are shown, and the recursion that begins there, if one does."""
    place = 0
    while place < len(frames):
        found = recursion(frames[number] for number in range(place, len(frames)))
        yield place, found
        place += found.frames if found is not None else 1
