"""Waiting for nodes for as long as any of them gets on: a slow one among many is not a dead one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from cockpit.engine.links.roll import Roll
from cockpit.transport.base import ConnectStage, Progress

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

_ELSEWHERE = frozenset({ConnectStage.QUEUED, ConnectStage.JUMP, ConnectStage.PERSON})
"""Stages in which a node waits for something else than itself."""

_LOOK_S = 0.1
_MOST_S = 0.5
"""What counts of the time between two looks: this machine may have been busy, or asleep."""


class Late(Exception):
    """A node is not waited for any longer.

    :param progress: how far it has got
    """

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self.progress = progress


class Patience:
    """Gives up nodes once none of those asked has got on for a while.

    What all of them wait for together, as for this machine's own processor, does not count against one. A
    shared jump host and a person have limits of their own.

    :param roll: tells how far each node has got
    :param limit_s: seconds without any progress
    """

    def __init__(self, roll: Roll, limit_s: float) -> None:
        self._roll = roll
        self._limit_s = limit_s
        self._waiting: dict[asyncio.Future[Any], str] = {}
        self._late: dict[asyncio.Future[Any], Progress] = {}

    async def __aenter__(self) -> Self:
        self._watch = asyncio.create_task(self._look())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watch.cancel()
        with suppress(asyncio.CancelledError):
            await self._watch

    async def of(self, node: str, work: Awaitable[T]) -> T:
        """What a node answers.

        :raises Late: it is given up
        """
        task = asyncio.ensure_future(work)
        self._waiting[task] = node
        try:
            await asyncio.wait({task})
        finally:
            del self._waiting[task]
            task.cancel()
        if (progress := self._late.pop(task, None)) is not None:
            raise Late(progress)
        return task.result()

    async def _look(self) -> None:
        quiet_s, at = 0.0, time.monotonic()
        before: tuple[int, float] = (0, 0.0)
        while True:
            await asyncio.sleep(_LOOK_S)
            last, at = at, time.monotonic()
            quiet_s += min(at - last, _MOST_S)
            newest = max((each.since for each in self._roll.awaited.values()), default=0.0)
            if before != (now := (len(self._roll.answered), newest)):
                before, quiet_s = now, 0.0
            elif quiet_s > self._limit_s:
                self._give_up()

    def _give_up(self) -> None:
        found = {task: self._roll.awaited.get(node) or Progress() for task, node in self._waiting.items()}
        own = {task: each for task, each in found.items() if each.stage not in _ELSEWHERE}
        if not own and all(each.stage is ConnectStage.QUEUED for each in found.values()):
            own = found  # what is in front of them does not end
        for task, progress in own.items():
            if not task.done():
                self._late[task] = progress
                task.cancel()
