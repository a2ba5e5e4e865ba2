"""Work in many short steps that must not block the loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from textual.widget import Widget
from textual.worker import Worker

DRAW_S = 0.1
"""Seconds between two drawings while it runs."""


class Loader:
    """Runs one task of a widget at a time; a new one replaces the one that runs.

    :param widget: whose worker it is, so that it ends with it
    :param group: the worker's group
    :param failed: called with what a step raised, which ends its task
    """

    def __init__(self, widget: Widget, group: str, failed: Callable[[Exception], None]) -> None:
        self._widget = widget
        self._group = group
        self._failed = failed
        self._worker: Worker[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether a task is running."""
        return self._worker is not None

    def start(self, step: Callable[[], bool], done: Callable[[], None], still: Callable[[], None]) -> None:
        """Call ``step`` until it returns True, then ``done``: at once if the first step is enough.

        :param still: called now and then while it takes longer
        """
        self.cancel()
        try:
            if step():
                done()
                return
            still()
        except Exception as error:
            self._failed(error)
            return
        # Not a coroutine yet: one cancelled before it started would cause a warning.
        self._worker = self._widget.run_worker(partial(self._go_on, step, done, still), group=self._group)

    def cancel(self) -> bool:
        """Stop; False if nothing was going on."""
        if self._worker is None:
            return False
        self._worker.cancel()
        self._worker = None
        return True

    async def _go_on(
        self, step: Callable[[], bool], done: Callable[[], None], still: Callable[[], None]
    ) -> None:
        drawn = time.monotonic()
        await asyncio.sleep(0)
        try:
            while not step():
                if time.monotonic() - drawn >= DRAW_S:
                    still()
                    drawn = time.monotonic()
                await asyncio.sleep(0)
            self._worker = None
            done()
        except Exception as error:
            self._worker = None
            self._failed(error)
