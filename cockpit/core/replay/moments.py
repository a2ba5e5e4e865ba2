"""The model of a run at any moment: keyframes of it, and the events since the nearest one."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cockpit.core.replay.order import Timed
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel

EVERY = 1000
"""Events from one keyframe to the next, at least: so many are applied to get to any moment."""


class Moments:
    """Moves a model to any moment of a run.

    A keyframe has the states of all nodes and ranks, which do not change and are shared. Of a run with many
    of them there are so many more events between two that keyframes take less room than events.

    :param model: as it was before the first event; it is the one that is moved
    :param told: the events, the earliest first, with their moments
    """

    def __init__(self, model: RunModel, told: Sequence[Timed]) -> None:
        self.model = model
        self.times = array("d", (at for at, _ in told))
        """When each event happened, unix seconds on our clock."""
        self._told = told
        self._every = max(EVERY, 2 * (len(model.nodes) + len(model.ranks)))
        self._frames: list[Mapping[str, Any]] = [model.kept()]
        self._done = 0

    @property
    def done(self) -> int:
        """How many events the model has taken in."""
        return self._done

    def count(self, at: float) -> int:
        """How many events had happened by a moment, unix seconds on our clock."""
        return bisect_right(self.times, at)

    def show(self, count: int, tell: Callable[[Event, set[str | int]], object] = lambda *_: None) -> bool:
        """Move the model to where it had taken in so many events; return whether it had to go back.

        :param tell: is called with each event that is applied on the way, and what it changed
        """
        back = count < self._done
        frame = min(count // self._every, len(self._frames) - 1)
        if back or frame * self._every > self._done:
            self.model.become(self._frames[frame])
            self._done = frame * self._every
        while self._done < count:
            event = self._told[self._done][1]
            tell(event, self.model.apply(event))
            self._done += 1
            if self._done == len(self._frames) * self._every:
                self._frames.append(self.model.kept())
        return back
