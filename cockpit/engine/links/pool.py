"""The one owner of links: opens them, reconnects after a pause, lends them to everybody, closes them."""

from __future__ import annotations

import asyncio
import math
import os
import random
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakSet

from cockpit.base.shell import join
from cockpit.engine.links.link import Link, LinkTimes
from cockpit.engine.links.roll import Roll
from cockpit.errors import CockpitError, ManyErrors
from cockpit.private import DEMO
from cockpit.transport.base import ConnectStage, LinkError, Progress, Reach, Reclaimed, UnknownHostKey, Ways
from cockpit.transport.login_prompts import DESK, NeedsPerson
from cockpit.transport.registry import TRANSPORTS

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

PYTHONS = ("/usr/bin/python3", "python3", "python")
"""For the agent, which needs any Python from 3.8 on, if the ranks' own is missing or unknown."""

RETRY_S = (0.5, 1, 2, 4, 8, 15)
"""Pauses between tries to get a lost link back; the last one repeats."""

SLOW_S = 60.0
"""The pause if trying again hardly helps: a refused key, nonsense from the node."""

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


def retried(error: BaseException) -> bool:
    """Whether trying again soon may help; if not, it is tried every :data:`SLOW_S`."""
    return isinstance(error, LinkError) and error.retry


def pause_s(error: BaseException, tries: int = 0) -> float:
    """Seconds until the next try.

    :param tries: how many in a row have failed before
    """
    seconds = RETRY_S[min(tries, len(RETRY_S) - 1)] if retried(error) else SLOW_S
    return seconds * random.uniform(0.7, 1.3)


def link_state(error: BaseException) -> str:
    """What a link that failed with this is: ``stale``, while it may come back, or ``gone``."""
    return "stale" if retried(error) or isinstance(error, NeedsPerson) else "gone"


@dataclass
class _Way:
    """The way to one node."""

    link: Link | None = None
    """The newest link; it may be lost."""
    opening: asyncio.Task[Link] | None = None
    tries: int = 0
    """How many in a row have failed."""
    due: float = 0.0
    """No try before (monotonic seconds)."""
    error: CockpitError | None = None
    """Why nobody in a hurry should wait for the next try."""
    least_s: float = 0.0
    """No pause between two tries is shorter."""
    asked: bool = True
    """Whether a person wants the next try, and can be asked for a password."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Ends a pause."""

    @property
    def open_link(self) -> Link | None:
        """The link, if it can be used."""
        return None if self.link is None or self.link.lost.done() else self.link

    def fail(self, error: CockpitError) -> None:
        """A try has failed."""
        pause = math.inf if isinstance(error, NeedsPerson) else pause_s(error, self.tries)
        self.due = time.monotonic() + max(self.least_s, pause)
        self.tries += 1
        self.error = error

    def lose(self, link: Link) -> None:
        """The link was lost: a failed try, if its agent has never answered."""
        if link.answered:
            self.tries = 0
        error = link.lost.result()
        self.fail(error)
        if link.answered and retried(error):
            self.error = None


class LinkPool:
    """The links to some nodes; whoever needs one borrows it, and only the pool opens and closes them.

    :param pythons: interpreters to try for the agent, in order
    :param reach: how nodes are reached; None: over ssh, but for this machine's own names
    :param roll: told who has answered and who is awaited
    :param patience_s: seconds a node may spend on any one stage of connecting; None: the transport's own
    """

    def __init__(
        self,
        pythons: list[str],
        reach: Reach | None = None,
        roll: Roll | None = None,
        patience_s: float | None = None,
    ) -> None:
        self.pythons = pythons
        self.reach = reach or Reach()
        self.hosts: dict[str, str] = {}
        """The machine that must answer to a node's name, where that is known."""
        self.roll = roll or Roll()
        """Which nodes have answered, and which are pending."""
        self._patience_s = patience_s
        self._times = LinkTimes() if patience_s is None else LinkTimes(start=patience_s)
        self._transports: Ways | None = None
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._ways: dict[str, _Way] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def lend(self, node: str, *, patient: bool = False, now: bool = False) -> Link:
        """The link to a node: the open one, or one that is opened now.

        If the last try has failed, that failure is the answer, and the next try happens in the background.

        :param patient: wait for that try instead
        :param now: the next try is due now, whatever has happened before
        :raises LinkError: with the node, the cause and what to type next
        """
        opening = self._opening(node, now=now)
        error = self._ways[node].error
        if error is not None and not patient:
            raise error
        return await asyncio.shield(opening)

    async def at_hand(self, node: str) -> Link:
        """The link to a node if it is open, without any waiting.

        :raises LinkError: it is not
        """
        way = self._ways.get(node)
        link = None if way is None else way.open_link
        if link is None:
            raise LinkError("no link now", where=node)
        return link

    @property
    def waiting(self) -> list[str]:
        """Nodes that are not tried again before a person wants it: see :meth:`again`."""
        return [node for node, way in self._ways.items() if isinstance(way.error, NeedsPerson)]

    def again(self) -> None:
        """A person wants to log in to the nodes that wait for that."""
        DESK.reopen()
        for node in self.waiting:
            self._opening(node, now=True)

    def has_lost(self, nodes: Iterable[str]) -> bool:
        """Whether a link to one of these nodes was open, and is lost."""
        links = [self._ways[node].link for node in nodes if node in self._ways]
        return any(link.lost.done() for link in links if link is not None)

    def leads_to(self, hosts: Mapping[str, str]) -> bool:
        """Whether these machines may be behind the names of its nodes; an empty one is not known."""
        links = {node: way.open_link for node, way in self._ways.items()}
        return all(
            self.hosts.get(node, host) == host
            and (not host or (link := links.get(node)) is None or link.hello.host == host)
            for node, host in hosts.items()
        )

    def _opening(self, node: str, *, now: bool) -> asyncio.Task[Link]:
        """The try that opened, or may yet open, the link to a node."""
        way = self._ways.setdefault(node, _Way(least_s=TRANSPORTS[self.reach.kind].retry_s))
        if way.open_link is not None:
            self.roll.answer(node)
        elif way.opening is None or way.opening.done():
            if way.link is not None:
                way.lose(way.link)
            way.opening = asyncio.create_task(self._open(node, way))
            # Nobody may be waiting any longer when it fails; the next caller gets the error.
            way.opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        if now:
            way.due, way.error, way.asked = 0.0, None, True
            way.wake.set()
        assert way.opening is not None
        return way.opening

    async def _open(self, node: str, way: _Way) -> Link:
        if way.link is not None:
            await close_all([way.link])
            way.link = None
        while (pause := way.due - time.monotonic()) > 0:
            way.wake.clear()
            with suppress(TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(way.wake.wait(), None if pause == math.inf else pause)
        try:
            way.link = await self._recognised(node, await self._connect(node))
        except CockpitError as error:
            over = self._demo_over(node)
            way.fail(over or error)
            self.roll.fail(node, over or error)
            if over is not None:
                raise over from error
            raise
        except Exception as error:
            # What a node sends while connecting must not end more than its own link.
            mistake = InternalError(error, where=node)
            way.fail(mistake)
            self.roll.fail(node, mistake)
            raise mistake from error
        way.error = None
        self.roll.answer(node)
        return way.link

    async def _connect(self, node: str) -> Link:
        self.roll.on_its_way(node, Progress())
        async with self._turn():
            _resolve_many()
            if self._transports is None:
                self._transports = TRANSPORTS[self.reach.kind].ways(self.reach.options, self._patience_s)
            transport = await self._transports.to(node)
            link = Link(node, transport, self.pythons, self._times, self._typed(node))
            way = self._ways[node]
            link.progress.unasked, way.asked = not way.asked, False
            self.roll.on_its_way(node, link.progress)
            try:
                await link.open()
            finally:
                if link.transport.job:  # which nobody may have asked for
                    way.least_s = TRANSPORTS[link.transport.kind].retry_s
        if link.progress.remark:
            self.roll.remarks[node] = link.progress.remark
        return link

    def _demo_over(self, node: str) -> Reclaimed | None:
        """That a node was a demo's on this machine whose folder is gone; None: it was not, or that is there.

        The folder goes last: whatever the demo had started has ended by then.
        """
        folder = Path(self.reach.options.get("config", "")).parent
        here = folder.name.startswith(DEMO) and self.hosts.get(node) == os.uname().nodename
        if not here or os.path.lexists(folder) or not folder.parent.is_dir():
            return None
        return Reclaimed("the demo has ended", where=node, retry=False)

    def _typed(self, node: str) -> tuple[str, ...]:
        return TRANSPORTS[self.reach.kind].typed(self.reach.options, node)

    def to_try(self, node: str) -> str:
        """What to type where a node does not answer, as a hint."""
        return f"try: {join((*self._typed(node), 'true'))}"

    def _late(self, node: str) -> LinkError:
        """A node that may well be healthy, but is not waited for because another one refused."""
        stage, elapsed_s = self.roll.awaited[node].stage, self.roll.elapsed_s
        if stage is ConnectStage.QUEUED:
            return LinkError(f"not reached yet after {elapsed_s:.0f} s", where=node)
        what = f"no answer yet after {elapsed_s:.0f} s: still waiting for {stage.value}"
        return LinkError(what, where=node, hint=self.to_try(node))

    async def _recognised(self, node: str, link: Link) -> Link:
        """The link, if it leads to the machine that is meant."""
        host, meant = link.hello.host, self.hosts.get(node)
        if meant and host != meant:
            await close_all([link])
            what = f"is {host} from here, but the run is on {meant}"
            raise LinkError(what, where=node, hint="use the machine that started it", retry=False)
        return link

    async def open_all(self, nodes: Iterable[str], truth_s: float = TRUTH_S) -> dict[str, Link]:
        """Links to all nodes; what has failed before is tried at once.

        Once a node has refused, there cannot be links to all: nodes that have not answered after ``truth_s``
        seconds are then not waited for any longer.

        :raises ManyErrors: one line for each node that did not answer
        """
        names = list(nodes)
        self.roll.call(names)
        tasks = {node: self._opening(node, now=True) for node in names}
        await self._opened(tasks.values(), truth_s)
        late = [node for node, task in tasks.items() if not task.done()]
        links, errors = await settle({node: tasks[node] for node in names if node not in late})
        errors.update({node: self._late(node) for node in late})
        if errors:
            raise ManyErrors([errors[node] for node in names if node in errors])
        return links

    async def _opened(self, tasks: Iterable[asyncio.Task[Link]], truth_s: float) -> None:
        """Wait until every link is open or has failed, or until waiting cannot help any more."""
        pending = set(tasks)
        while pending:
            _, pending = await asyncio.wait(pending, timeout=_LOOK_S)
            refused = any(not isinstance(error, UnknownHostKey) for error in self.roll.failed.values())
            # What a person is typing just now is not to end up in a shell.
            if refused and self.roll.elapsed_s > truth_s and not DESK.asking:
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

    async def change(self, reach: Reach) -> None:
        """Close all links; those that follow go another way."""
        await self.close()
        self._ways.clear()
        self._transports, self.reach = None, reach

    async def let_go(self) -> None:
        """Close the links that are open; the next one who needs one gets a new one."""
        await close_all([link for way in self._ways.values() if (link := way.open_link) is not None])

    async def close(self) -> None:
        """Close all links and what they share, within a few seconds."""
        openings = [way.opening for way in self._ways.values() if way.opening is not None]
        for opening in openings:
            opening.cancel()
        await asyncio.gather(*openings, return_exceptions=True)
        await close_all(way.link for way in self._ways.values() if way.link is not None)
        if self._transports is not None:
            await self._transports.close()


def _resolve_many() -> None:
    """Let this event loop resolve many names at once: a dead name server takes seconds for each."""
    loop = asyncio.get_running_loop()
    if loop not in _wide:
        _wide.add(loop)
        loop.set_default_executor(ThreadPoolExecutor(AT_ONCE))


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
