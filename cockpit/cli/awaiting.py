"""Who has answered and who is awaited, said while something is asked of many nodes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from cockpit.cli.output import say
from cockpit.cli.progress import Progress
from cockpit.engine.launching import check_started
from cockpit.engine.roll import Roll
from cockpit.engine.runs import RunFolder
from cockpit.transport.base import UnknownHostKey

FIRST_S = 1.5
"""Nothing is said of nodes that answer sooner."""

EVERY_S = 5.0
"""Between two lines where there is no terminal to draw one line again and again."""

_LOOK_S = 0.1


class Telling:
    """Says on stderr how a roll call goes on: errors as they come, and who is awaited.

    :param look: gives the roll, until :meth:`stop`
    :param failures: whether errors are said here; else somebody else does
    """

    def __init__(self, look: Callable[[], Roll], *, failures: bool = True) -> None:
        self.told: set[str] = set()
        """Errors that have been said."""
        self._look = look
        self._failures = failures
        self._progress = Progress()
        self._task = asyncio.get_running_loop().create_task(self._tell())

    async def stop(self) -> None:
        """Say no more, except errors that nobody has read yet."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._say_failures()

    async def _tell(self) -> None:
        began, at = time.monotonic(), FIRST_S
        try:
            while True:
                self._say_failures()
                roll = self._look()
                elapsed = time.monotonic() - began
                if elapsed >= FIRST_S and roll.awaited:
                    if self._progress.on:
                        self._progress.show(roll.line())
                    elif elapsed >= at:
                        say(roll.line())
                        at = EVERY_S * (elapsed // EVERY_S + 1)
                else:
                    self._progress.clear()
                await asyncio.sleep(_LOOK_S)
        finally:
            self._progress.clear()

    def _say_failures(self) -> None:
        if not self._failures:
            return
        for error in list(self._look().failed.values()):
            # Whether to trust a key is a question, and somebody else asks it.
            if str(error) not in self.told and not isinstance(error, UnknownHostKey):
                self.told.add(str(error))
                self._progress.clear()
                say(str(error))


async def started(folder: RunFolder) -> None:
    """See that there is something to watch, and say meanwhile whom that is asked.

    :raises CockpitError: see :func:`cockpit.engine.launching.check_started`
    """
    roll = Roll()
    async with telling(lambda: roll, failures=False):
        await check_started(folder, roll)


@asynccontextmanager
async def telling(look: Callable[[], Roll], *, failures: bool = True) -> AsyncIterator[Telling]:
    """Say how a roll call goes on, until the block ends (see :class:`Telling`)."""
    teller = Telling(look, failures=failures)
    try:
        yield teller
    finally:
        await teller.stop()
