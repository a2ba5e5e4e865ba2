"""A clock that jumps to the next thing that happens, and an event loop that lives by it."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest import mock

T = TypeVar("T")

_THREADS = 256
"""One for each file server of a node that a cockpit follows, and some."""


class Clock:
    """What ``time.time`` and ``time.monotonic`` say while :meth:`rules`.

    :param start: unix seconds
    """

    def __init__(self, start: float) -> None:
        self.ticks = 1_000_000.0
        """Monotonic seconds."""
        self._offset = start - self.ticks

    @property
    def now(self) -> float:
        """Unix seconds, by this machine's clock, which somebody may set."""
        return self.ticks + self._offset

    def set(self, by_s: float) -> None:
        """Somebody sets the clock: it jumps, and nothing takes longer for that."""
        self._offset += by_s

    @contextmanager
    def rules(self) -> Iterator[None]:
        """All code of this process reads this clock."""
        readers: dict[str, Any] = {
            "time": lambda: self.now,
            "time_ns": lambda: round(self.now * 1e9),
            "monotonic": lambda: self.ticks,
            "monotonic_ns": lambda: round(self.ticks * 1e9),
        }
        with mock.patch.multiple(time, **readers):
            yield


class _Jumping(selectors.SelectSelector):
    """Does not wait for a timer: the clock jumps there. It waits only for what threads are about to say."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.threads = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.threads:
            # A thread takes no time by this clock.
            return super().select(0 if timeout == 0 else 60.0)
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("nothing will ever happen: everybody waits")
        if not ready and timeout:
            self._clock.ticks += timeout
        return ready


class Loop(asyncio.SelectorEventLoop):
    """An event loop by that clock."""

    def __init__(self, clock: Clock) -> None:
        self._jumping = _Jumping(clock)
        super().__init__(self._jumping)
        self.set_default_executor(ThreadPoolExecutor(_THREADS))
        self.waiting: set[Callable[[], None]] = set()
        """What ends the waiting of each thread that waits for this clock."""

    def park(self, end: Callable[[], None]) -> None:
        """A thread waits for this clock, until somebody calls ``end``."""
        self._jumping.threads -= 1
        self.waiting.add(end)

    def unpark(self, end: Callable[[], None]) -> None:
        """It goes on."""
        self._jumping.threads += 1
        self.waiting.discard(end)

    def run_in_executor(  # type: ignore[override]  # any function, where mypy knows better
        self, executor: Executor | None, func: Any, *args: Any
    ) -> asyncio.Future[Any]:
        """See :class:`asyncio.AbstractEventLoop`; the clock stands still until it is done."""
        self._jumping.threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._returned)
        return future

    def _returned(self, _: Future[Any] | asyncio.Future[Any]) -> None:
        self._jumping.threads -= 1


def live(clock: Clock, work: Coroutine[Any, Any, T]) -> T:
    """Do this by that clock."""
    with clock.rules():
        loop = Loop(clock)
        try:
            asyncio.set_event_loop(loop)
            return loop.run_until_complete(work)
        finally:
            for end in loop.waiting:
                end()
            asyncio.set_event_loop(None)
            loop.close()
