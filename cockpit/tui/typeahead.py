"""Keys one at a time: the effect of a key is complete before the next one is looked at.

Textual hands all waiting keys to the widget with the focus when they are read. In a burst (a paste, a slow
link, a screen that takes long to draw) the text meant for a search would be commands of the screen below it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from textual import events
from textual._time import get_time
from textual.app import App
from textual.message_pump import MessagePump

PATIENCE_S = 10.0
"""Seconds that a key may take. After that, what was typed meanwhile is dropped: its meaning is unclear."""

ROUNDS = 12
"""How often everybody is asked at most; each time takes a message one step further."""

CLOSED_S = 0.05
"""Seconds between two checks whether a part that is waited for has closed meanwhile."""


@dataclass(eq=False)
class Typeahead:
    """The queue of keys and pastes.

    :param app: whose keys they are
    :param handle: what the app does with one
    :param dropped: called with how many were dropped because the one before them took too long
    """

    app: App[Any]
    handle: Callable[[events.Event], Awaitable[None]]
    dropped: Callable[[int], None]

    def __post_init__(self) -> None:
        self._waiting: asyncio.Queue[events.Event] = asyncio.Queue()
        self._under_way = False
        self._late = 0.0  # what was typed before is dropped
        self._count = 0

    @property
    def idle(self) -> bool:
        """Whether no key waits or is being handled."""
        return self._waiting.empty() and not self._under_way

    def put(self, event: events.Event) -> None:
        """Take a key or a paste; its turn comes once all before it are done."""
        self._waiting.put_nowait(event)

    async def serve(self) -> None:
        """Handle them for as long as the app runs."""
        while True:
            event = await self._waiting.get()
            self._under_way = True
            # Nobody can have seen what it would do.
            if event.time < self._late or not self.app.screen.is_mounted:
                self._drop()
            else:
                await self._do(event)
            self._under_way = False

    async def _do(self, event: events.Event) -> None:
        target = self._target()
        await self.handle(event)
        try:
            await asyncio.wait_for(self._settled(target), PATIENCE_S)
        except asyncio.TimeoutError:
            # Some may still be on their way to us: it is their own time that counts.
            self._late = get_time()

    def _drop(self) -> None:
        self._count += 1
        if self._waiting.empty():
            self.dropped(self._count)
            self._count = 0

    def _target(self) -> MessagePump:
        return self.app.focused or self.app.screen

    async def _settled(self, target: MessagePump) -> None:
        """Wait until a key has no effects pending: no message on its way up, no screen that is opening."""
        quiet = 0
        before: list[MessagePump] = []
        for _ in range(ROUNDS):
            concerned = _chain(target)
            for pump in concerned:
                await _turn(pump)
            target = self._target()
            # Twice: a message that was just taken from one queue is in none until it is in the next one.
            quiet = quiet + 1 if concerned == before and not any(map(_busy, concerned)) else 0
            if quiet == 2:
                return
            before = concerned


def _chain(target: MessagePump) -> list[MessagePump]:
    """The parts that a key passes, in order."""
    found: list[MessagePump] = []
    each: MessagePump | None = target
    while each is not None:
        found.append(each)
        each = each._parent
    return found


async def _turn(pump: MessagePump) -> None:
    """Wait until a part of the app has handled what it has now; one that opens is waited for."""
    done = asyncio.Event()
    if not pump.call_later(done.set):
        return
    while not (done.is_set() or pump._closing or pump._closed):
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(done.wait(), CLOSED_S)


def _busy(pump: MessagePump) -> bool:
    return pump.message_queue_size > 0 or bool(pump._next_callbacks)
