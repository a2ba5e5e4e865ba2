"""Long work on the event loop, in slices: others have their turn in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

_TURN_S = 0.005
"""Seconds of work before others get their turn."""


class Turn:
    """Gives others their turn on the event loop now and then, and tells how far the work is.

    :param total: how much there is to do, in any unit
    :param progress: is told the share that is done, 0 to 1
    """

    def __init__(self, total: int = 0, progress: Callable[[float], None] | None = None) -> None:
        self.total = total
        self.done = 0
        self._progress = progress
        self._until = time.perf_counter() + _TURN_S

    def tell(self) -> None:
        """Tell how far it is."""
        if self._progress is not None:
            self._progress(min(1.0, self.done / self.total) if self.total else 1.0)

    async def pause(self) -> None:
        """Give the others their turn if it is time."""
        if time.perf_counter() >= self._until:
            self.tell()
            await asyncio.sleep(0)
            self._until = time.perf_counter() + _TURN_S


async def by_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """Each item; a node's record may hold a hundred thousand."""
    turn = Turn()
    for item in items:
        yield item
        await turn.pause()
