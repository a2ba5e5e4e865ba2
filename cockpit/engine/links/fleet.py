"""Links to many nodes: which transport, all at once, errors of all nodes together."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar
from weakref import WeakSet

from cockpit.engine.links.link import Link, LinkTimes
from cockpit.engine.links.roll import Roll
from cockpit.errors import CockpitError, ManyErrors
from cockpit.transport.base import LinkError, Progress, Reach, Stage, UnknownHostKey, Ways
from cockpit.transport.registry import TRANSPORTS

T = TypeVar("T")

PYTHONS = ("/usr/bin/python3", "python3", "python")
"""For the agent, which needs any Python from 3.8 on, if the ranks' own is missing or unknown."""

AT_ONCE = 64
"""Links that may begin to open at the same time."""

TURN_S = 3.0
"""A node that takes longer to connect gives up its turn to the next one, and keeps waiting."""

TRUTH_S = 15.0
"""After this long a start that cannot succeed any more ends, and names the nodes that have not answered."""

_LOOK_S = 0.1

_wide: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
"""Event loops that can resolve as many names at once as links are being opened."""


class InternalError(CockpitError):
    """A bug of ours, or data that got past every check: it affects one node, not all of them.

    :param error: what was raised
    """

    def __init__(self, error: BaseException, *, where: str) -> None:
        last = traceback.extract_tb(error.__traceback__)[-1:]
        place = f" ({Path(last[0].filename).name}:{last[0].lineno})" if last else ""
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        super().__init__(f"internal error: {text[:500]}{place}", where=where, hint="please report it")


class Fleet:
    """Opens links and holds what they share.

    :param pythons: interpreters to try for the agent, in order
    :param reach: how nodes are reached; None: over ssh, but for this machine's own names
    :param patience_s: seconds a node may spend on any one stage of connecting; None: the transport's own
    """

    def __init__(
        self,
        pythons: list[str],
        reach: Reach | None = None,
        times: LinkTimes | None = None,
        patience_s: float | None = None,
    ) -> None:
        self.pythons = pythons
        self.reach = reach or Reach()
        self.roll = Roll()
        """Which nodes have answered, and which are pending."""
        self._patience_s = patience_s
        self._times = times or (LinkTimes() if patience_s is None else LinkTimes(start=patience_s))
        self._ways: Ways | None = None
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def open(self, node: str) -> Link:
        """A new link to ``node``.

        :raises LinkError: with the node, the cause and what to type next
        """
        progress = Progress()
        self.roll.on_its_way(node, progress)
        try:
            async with self._turn():
                _resolve_many()
                if self._ways is None:
                    self._ways = TRANSPORTS[self.reach.kind].ways(self.reach.options, self._patience_s)
                link = Link(node, await self._ways.to(node), self.pythons, self._times)
                self.roll.on_its_way(node, link.progress)
                await link.open()
        except CockpitError as error:
            self.roll.fail(node, error)
            raise
        except Exception as error:
            # What a node sends while connecting must not end more than its own link.
            mistake = InternalError(error, where=node)
            self.roll.fail(node, mistake)
            raise mistake from error
        self.roll.answer(node)
        return link

    async def open_all(self, nodes: Iterable[str], truth_s: float = TRUTH_S) -> dict[str, Link]:
        """Links to all nodes, or none.

        Once a node has refused, there cannot be links to all: nodes that have not answered after ``truth_s``
        seconds are then not waited for any longer.

        :raises ManyErrors: one line for each node that did not answer
        """
        names = list(nodes)
        self.roll.call(names)
        tasks = {node: asyncio.create_task(self.open(node)) for node in names}
        try:
            await self._opened(tasks.values(), truth_s)
        except BaseException:
            await _drop(tasks.values())
            raise
        late = [node for node, task in tasks.items() if not task.done()]
        errors: dict[str, CockpitError] = {
            node: _late(node, self.roll.awaited[node], self.roll.elapsed_s) for node in late
        }
        done = [node for node in names if node not in errors]
        links, failed = await settle({node: tasks[node] for node in done})
        errors.update(failed)
        if errors:
            await _drop(tasks.values())
            raise ManyErrors([errors[node] for node in names if node in errors])
        return links

    async def _opened(self, tasks: Iterable[asyncio.Task[Link]], truth_s: float) -> None:
        """Wait until every link is open or has failed, or until waiting cannot help any more."""
        pending = set(tasks)
        while pending:
            _, pending = await asyncio.wait(pending, timeout=_LOOK_S)
            refused = any(not isinstance(error, UnknownHostKey) for error in self.roll.failed.values())
            if refused and self.roll.elapsed_s > truth_s:
                return

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """The turn to connect, held for a short while so that not all nodes begin at once."""
        await self._gate.acquire()
        loop = asyncio.get_running_loop()
        kept = True

        def give_back() -> None:
            nonlocal kept
            if kept:
                kept = False
                self._gate.release()

        over = loop.call_later(TURN_S, give_back)
        try:
            yield
        finally:
            over.cancel()
            give_back()

    async def close(self) -> None:
        """Close what the links shared, within a few seconds."""
        if self._ways is not None:
            await self._ways.close()


def _resolve_many() -> None:
    """Let this event loop resolve many names at once: a dead name server takes seconds for each."""
    loop = asyncio.get_running_loop()
    if loop not in _wide:
        _wide.add(loop)
        loop.set_default_executor(ThreadPoolExecutor(AT_ONCE))


def _late(node: str, progress: Progress, elapsed_s: float) -> LinkError:
    """A node that may well be healthy, but is not waited for because another one refused."""
    if progress.stage is Stage.QUEUED:
        return LinkError(f"not reached yet after {elapsed_s:.0f} s", where=node)
    what = f"no answer yet after {elapsed_s:.0f} s: still waiting for {progress.stage.value}"
    return LinkError(what, where=node, hint=f"try: ssh {node} true")


async def _drop(tasks: Iterable[asyncio.Task[Link]]) -> None:
    """Give up opening links, and close those that are open."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    await close_all(answer for answer in answers if isinstance(answer, Link))


async def settle(work: Mapping[str, Awaitable[T]]) -> tuple[dict[str, T], dict[str, CockpitError]]:
    """Run all at once; results and errors by key (a node), in the order given.

    What is not an error for people (a bug of ours, hostile data) becomes the error of its key only.
    """
    answers = await asyncio.gather(*work.values(), return_exceptions=True)
    results: dict[str, T] = {}
    errors: dict[str, CockpitError] = {}
    for key, answer in zip(work, answers, strict=True):
        if isinstance(answer, CockpitError):
            errors[key] = answer
        elif isinstance(answer, Exception | asyncio.CancelledError):
            errors[key] = InternalError(answer, where=key)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            results[key] = answer
    return results, errors


async def close_all(links: Iterable[Link]) -> None:
    """Close links all at once; one that cannot be closed does not keep the others open."""
    await asyncio.gather(*(link.close() for link in links), return_exceptions=True)
