"""Who wants to know what happens in a run."""

from __future__ import annotations

from typing import Protocol

from cockpit.core.pace.pace import Pace
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel


class Listener(Protocol):
    """Who wants to know what happens; called on the event loop, must not block."""

    def joined(self, model: RunModel, pace: Pace) -> None:
        """The model of the session, and how far its ranks are; called once, before all else."""
        return

    def log(self, node: str, rank: int | None, offset: int, data: bytes) -> None:
        """New bytes of a rank's log, or of the launcher's console (``rank`` is None), in order, once."""
        return

    def event(self, event: Event, changed: set[str | int]) -> None:
        """An event was applied to the model; ``changed`` are names of nodes and numbers of ranks."""
        return
