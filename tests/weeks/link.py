"""The link to a simulated node: real verbs of the agent answer there, by the simulated clock."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from cockpit.base import verbs
from cockpit.base.answers import FollowItem, PastItem, SamplesItem, SeekAnswer, SpyAnswer, StopAnswer
from cockpit.base.events import NodeSample, Progress, RankSample, StepSample
from cockpit.base.gate import read
from cockpit.base.stacks.packing import pack
from cockpit.engine.links.link import RemoteError
from cockpit.node.calls import Call
from cockpit.node.measure.past import past
from cockpit.node.run.follow import follow
from tests.tui.stack_scenes import computes, reads, waits
from tests.weeks.clock import Loop
from tests.weeks.node import Node

LATEST_S = 600.0
"""A node says something at least so often, if only that there is nothing."""


class Cadence:
    """How often what repeats is done; see the module :mod:`tests.weeks.story`."""

    every_s = 60.0


class TimedCall(Call):
    """A request that a verb of the agent serves in a thread, which waits by the simulated clock."""

    def __init__(self, loop: Loop, node: Node, request: Any, out: asyncio.Queue[Any]) -> None:
        self._loop, self._node, self._out = loop, node, out
        self._go = threading.Event()
        self._timer: asyncio.TimerHandle | None = None
        super().__init__({**asdict(request), "id": 1}, b"", self._sent)

    def _sent(self, header: Any, payload: bytes) -> None:
        self._loop.call_soon_threadsafe(self._out.put_nowait, (header["item"], payload))

    def take_credit(self, timeout_s: float) -> int:
        """All that there is fits."""
        return 1 << 30

    def pause(self, seconds: float) -> bool:
        """Wait for news of the node; looks in between would show nothing."""
        self._go.clear()
        self._loop.call_soon_threadsafe(self._park)
        self._go.wait()
        return not self.cancelled

    def _park(self) -> None:
        if self.cancelled:
            self._go.set()
            return
        self._loop.park(self._end)
        self._timer = self._loop.call_later(LATEST_S, self._resume)
        self._node.wake_on_news(self._resume)

    def _resume(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._loop.unpark(self._end)
            self._go.set()

    def _end(self) -> None:
        super().cancel()
        self._go.set()

    def cancel(self) -> None:
        """See :meth:`Call.cancel`; on the loop."""
        super().cancel()
        self._resume()


class Stream:
    """What a node sends in answer to a request."""

    def __init__(self, node: Node, request: Any) -> None:
        self._node, self._request = node, request
        self._call: TimedCall | None = None
        self._parts = self._answer()

    def parts(self) -> AsyncIterator[tuple[Any, bytes]]:
        """See :meth:`cockpit.engine.links.link.Stream.parts`."""
        return self._parts

    async def part(self, within_s: float) -> tuple[Any, bytes] | None:
        """The next one."""
        return await anext(self._parts, None)

    async def credit(self, size: int) -> None:
        """It sends without."""

    async def close(self) -> None:
        """Nobody wants more."""
        if self._call is not None:
            self._call.cancel()

    def _answer(self) -> AsyncIterator[tuple[Any, bytes]]:
        match self._request:
            case verbs.Follow():
                return self._served(follow, FollowItem)
            case verbs.Past():
                return self._served(past, PastItem)
            case verbs.Samples():
                return self._samples()
            case verbs.Stacks():
                return self._stacks()
        raise AssertionError(f"nobody asks that: {self._request}")

    async def _served(self, verb: Callable[[Call], Any], kind: Any) -> AsyncIterator[tuple[Any, bytes]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        out: asyncio.Queue[Any] = asyncio.Queue()
        self._call = call = TimedCall(loop, self._node, self._request, out)
        served = loop.run_in_executor(None, verb, call)
        served.add_done_callback(lambda _: out.put_nowait(None))
        try:
            while (part := await out.get()) is not None:
                yield read(kind, part[0]), part[1]
            await served
        finally:
            call.cancel()

    async def _samples(self) -> AsyncIterator[tuple[SamplesItem, bytes]]:
        node, told = self._node, 0
        sample = NodeSample(8.5, 32, 300 << 30, 512 << 30, 900 << 30, 1000 << 30)
        while True:
            await asyncio.sleep(Cadence.every_s)
            progress = _progress(node, told)
            told = progress.step if progress else 0
            # They are in step: what one of them says, the others say too.
            yield (
                SamplesItem(sample, dict.fromkeys(node.ranks, RankSample(98.0, 31 << 30, 42, 4, progress))),
                b"",
            )

    async def _stacks(self) -> AsyncIterator[tuple[Any, bytes]]:
        await asyncio.sleep(0.2)
        node, now = self._node, time.time()
        for target in self._request.targets:
            if node.hung is None:
                dump = computes(target.rank, now, 60 + int(now) % 20)
            else:
                dump = reads(target.rank, now) if target.rank == node.hung else waits(target.rank, now)
            yield None, pack([dump])


def _progress(node: Node, told: int) -> Progress | None:
    """The steps of a node's ranks, those in it that are new to whom the steps up to ``told`` were told."""
    steps = node.steps
    if not steps:
        return None
    spans = [(late, (late.mono_ns - early.mono_ns) / 1e9) for early, late in pairwise(steps)]
    new = tuple(StepSample(step.step, step.wall_ns / 1e9, span) for step, span in spans if step.step > told)
    age = time.monotonic() - steps[-1].mono_ns / 1e9
    return Progress("optimizer", steps[-1].step, age, spans[-1][1] if spans else None, new)


class Line:
    """A link to a node, which may be cut."""

    def __init__(self, node: Node) -> None:
        self.node, self.clock, self.hello = node, node.clock, node.hello
        self.answered = True
        self.lost: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def lose(self, error: Any) -> None:
        """It is of no use any more."""
        if not self.lost.done():
            self.lost.set_result(error)

    async def close(self) -> None:
        """There is nothing to close."""

    async def stream(self, request: Any) -> Stream:
        """Ask."""
        return Stream(self.node, request)

    async def call(self, request: Any, **_: Any) -> Any:
        """Ask, for one answer."""
        match request:
            case verbs.Stop():
                self.node.stopped.append(request)
                return StopAnswer(True)
            case verbs.Seek():
                return SeekAnswer(())  # what the run record says of its ranks counts then
            case verbs.Spy():
                return SpyAnswer(True)
        raise RemoteError("os", f"not here: {type(request).__name__}", where=self.node.name)
