"""Many nodes are asked: which have answered, which are pending, and how long they are waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from cockpit.cli.output import StatusLine, say
from cockpit.core.run.model import Node
from cockpit.engine.launch.all_or_none import check_started
from cockpit.engine.links.roll import Roll
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.join import check_ours, pool_for
from cockpit.engine.run.session import Session
from cockpit.errors import CockpitError
from cockpit.transport.base import UnknownHostKey
from cockpit.transport.login_prompts import DESK

FIRST_S = 1.5
"""Nothing is said about nodes that answer sooner."""

EVERY_S = 5.0
"""Between two lines, if there is no terminal on which to redraw one line."""

PATIENCE_S = 15.0
"""How long a node may take to answer a quick look, or to send what is missing here, before we do without."""

_LOOK_S = 0.1


class Telling:
    """Reports a roll call on stderr: errors as they arrive, and which nodes are pending.

    :param look: returns the roll, until :meth:`stop`
    :param failures: whether errors are reported here; else somebody else reports them
    """

    def __init__(self, look: Callable[[], Roll], *, failures: bool = True) -> None:
        self.told: set[str] = set()
        """Errors that have been reported."""
        self._look = look
        self._failures = failures
        self._progress = StatusLine()
        self._task = asyncio.get_running_loop().create_task(self._tell())

    async def stop(self) -> None:
        """Report nothing more, except what nobody has read yet."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._say_failures()
        for line in self._look().take_remarks():
            say(line)

    async def _tell(self) -> None:
        began, at = time.monotonic(), FIRST_S
        try:
            while True:
                if DESK.asking:  # a person is typing on that line
                    self._progress.forget()
                    await asyncio.sleep(_LOOK_S)
                    continue
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
            # Whether to trust a key is a question that somebody else asks.
            if str(error) not in self.told and not isinstance(error, UnknownHostKey):
                self.told.add(str(error))
                self._progress.clear()
                say(str(error))


async def started(folder: RunFolder) -> None:
    """Check that there is something to watch, and meanwhile report which nodes are asked.

    :raises CockpitError: see :func:`cockpit.engine.launch.all_or_none.check_started`
    """
    async with pool_for(folder.manifest) as pool, telling(lambda: pool.roll, failures=False):
        await check_started(folder, pool)


def may_ask(folder: RunFolder) -> bool:
    """Whether the nodes of a run may be asked; says why not, if others may have written its folder."""
    try:
        check_ours(folder.manifest)
    except CockpitError as error:
        say(str(error))
        return False
    return True


@asynccontextmanager
async def telling(look: Callable[[], Roll], *, failures: bool = True) -> AsyncIterator[Telling]:
    """Report a roll call until the block ends (see :class:`Telling`)."""
    teller = Telling(look, failures=failures)
    try:
        yield teller
    finally:
        await teller.stop()


async def catch_up(session: Session) -> set[str]:
    """Wait until what nodes have is here; those that take too long, or do not answer, are said.

    :return: the nodes whose output is not known to be all here
    """
    deadline = time.monotonic() + PATIENCE_S
    names = set(session.model.nodes)
    async with telling(lambda: session.pool.roll, failures=False):
        while names and time.monotonic() < deadline:
            await session.wait(_LOOK_S)
            names = {
                name
                for name, node in session.model.nodes.items()
                if session.behind.get(name) != 0 and not node.done and node.link != "gone"
                if name not in session.paused
            }
    for name, node in session.model.nodes.items():
        if name not in session.paused and (name in names or _unheard(node)):
            names.add(name)
            why = f": {node.link_why}" if node.link_why else ""
            if node.link == "ok":
                say(f"{name}: more to fetch after {PATIENCE_S:g} s; its output here may be incomplete")
            else:
                say(f"{name}: no answer; its output here may be incomplete{why}")
    for name, full in session.paused.items():
        say(f"{name}: its output here is incomplete: {full}")
    return names | session.paused.keys()


def _unheard(node: Node) -> bool:
    return node.link in ("gone", "stale") and not node.done
