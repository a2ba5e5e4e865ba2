"""One link: an agent on a node, requests to it and its answers, and the silence after which it is lost."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, NamedTuple, get_args

from cockpit import base
from cockpit.base import answers, checkup_answers, ras, rehearsal_answers  # noqa: F401 (in the strings of Request["…"])
from cockpit.base.answers import Hello, Trouble
from cockpit.base.frames import NUMBER, Decoder, FrameError, Header, encode
from cockpit.base.gate import Malformed, plain, read
from cockpit.base.record import FORMAT
from cockpit.base.shell import join
from cockpit.base.verbs import NAMES, VERBS, Answer, Checkup, Item, Ping, Request, Samples
from cockpit.engine.links import payload
from cockpit.errors import CockpitError, Exit
from cockpit.transport.base import ConnectStage, LinkError, Pipe, Progress, Transport

_NOISE_LIMIT = 1 << 20

_QUEUED = 2
"""Parts of an answer that may queue up for the caller; beyond that we stop reading from the node."""
_QUEUED_CREDIT = 16
"""The same if credit bounds the bytes of all parts together."""

_OVERDRAFT = 8 << 20
"""Bytes a node may send beyond its credit: what is in flight while credit is given."""

_CLOSE_S = 6.0
"""For a link to close: a transport that takes longer is left to the end of this process."""


class Reply(NamedTuple):
    """The final answer to a request, and the parts before it."""

    answer: type[Any]
    item: type[Any]


def _reply(asks: Any) -> Reply:
    """What a request says by its type, in names that agents do not read."""
    (request,) = asks.__orig_bases__
    return Reply(*(attrgetter(name.__forward_arg__)(base) for name in get_args(request)))


REPLIES: dict[type[Request[Any, Any]], Reply] = {asks: _reply(asks) for asks in VERBS.values()}
"""What answers each request."""


@dataclass(frozen=True)
class LinkTimes:
    """Deadlines of a link, in seconds."""

    start: float = 30
    """From an open pipe to the agent's first frame."""
    beat: float = 3
    """Between two pings."""
    silence: float = 15
    """After this long without any frame, the link is dead, whatever TCP thinks."""


@dataclass
class Clock:
    """A node's clock against ours, from the quickest round trip so far."""

    offset_s: float = 0.0
    """Node clock minus ours: subtract it from a node's time."""
    rtt_s: float = float("inf")
    """Round trip of that measurement; the offset is accurate to half of it."""

    def measure(self, sent: float, node: float, received: float) -> None:
        """Take in one ping: our clock when it left, the node's, ours when the answer came."""
        rtt = received - sent
        # Clocks drift: the best measurement slowly loses its rank as it ages.
        if rtt <= self.rtt_s * 1.05:
            self.rtt_s = rtt
            self.offset_s = node - (sent + received) / 2
        else:
            self.rtt_s *= 1.02


class RemoteError(CockpitError):
    """The agent could not do what it was asked.

    :param kind: the agent's word for it (see ``cockpit.node.calls.NodeError``)
    """

    def __init__(self, kind: str, what: str, *, where: str, hint: str = "") -> None:
        super().__init__(what, where=where, hint=hint, code=Exit.NODE_UNFIT)
        self.kind = kind


@dataclass
class _Done:
    """The end of an answer."""

    answer: Any


@dataclass
class _Pending:
    """A request under way: parts come through the queue, then its end or an error."""

    name: str
    reply: Reply
    credit: int | None = None
    """Bytes that the node may still send; None: the queue alone is the limit."""
    lost: CockpitError | None = None
    """Why nothing more arrives, although the answer has not ended."""

    def __post_init__(self) -> None:
        """Make the queue."""
        size = _QUEUED if self.credit is None else _QUEUED_CREDIT
        self.queue: asyncio.Queue[tuple[Any, bytes] | _Done | CockpitError] = asyncio.Queue(size)

    async def next(self) -> tuple[Any, bytes] | _Done:
        """The next part, or the end.

        :raises CockpitError: the agent says no, or the link broke
        """
        if self.lost is not None and self.queue.empty():
            raise self.lost
        part = await self.queue.get()
        if isinstance(part, CockpitError):
            raise part
        return part

    def end(self, error: CockpitError) -> None:
        """Nothing more arrives: wake any waiter."""
        self.lost = error
        with suppress(asyncio.QueueFull):
            self.queue.put_nowait(error)

    def drain(self) -> None:
        """Drop what nobody will take, and release a reader that may be waiting to add more."""
        while not self.queue.empty():
            self.queue.get_nowait()


class Link:
    """A connected agent. Not reusable: after a loss, the pool opens another.

    :param node: the node's name, for messages
    :param transport: a way to it
    :param pythons: interpreters to try for the agent, in order
    :param typed: the words that a person puts before a command to run it on the node; None: ssh's
    """

    def __init__(
        self,
        node: str,
        transport: Transport,
        pythons: list[str],
        times: LinkTimes | None = None,
        typed: Sequence[str] | None = None,
    ) -> None:
        self.node = node
        self._typed = ("ssh", node) if typed is None else tuple(typed)
        self.transport = transport
        self.progress = transport.progress = Progress()
        """How far :meth:`open` has got."""
        self.times = times or LinkTimes()
        self.clock = Clock()
        self.hello: Hello
        """What the agent says about its node; set once the link is open."""
        self.heard = time.monotonic()
        """When the last valid answer arrived (monotonic seconds)."""
        self.answered = False
        """Whether its agent has ever answered, other than to pings."""
        self.lost: asyncio.Future[CockpitError] = asyncio.get_running_loop().create_future()
        """Done when the link is gone, with the reason."""
        self._pythons = pythons
        self._pipe: Pipe | None = None
        self._pending: dict[int, _Pending] = {}
        self._number = 0
        self._tasks: list[asyncio.Task[None]] = []

    def by_hand(self, *command: str) -> str:
        """What a person types to run a command on the node."""
        return join((*self._typed, *command))

    async def open(self) -> Hello:
        """Connect, start the agent, and return its hello.

        :raises LinkError: no connection, no usable python, no agent
        """
        try:
            decoder = await self._connect()
        except BaseException:
            await self.close()
            raise
        if self.hello.format != FORMAT:
            await self.close()
            raise LinkError("the agent has a different version", where=self.node, retry=False)
        halves = (lambda: self._read(decoder), self._beat)
        self._tasks = [asyncio.create_task(self._lives(half)) for half in halves]
        return self.hello

    async def _connect(self) -> Decoder:
        self._pipe = await self.transport.open(payload.COMMAND)
        self.progress.reach(ConnectStage.AGENT)
        try:
            decoder = await asyncio.wait_for(self._boot(self._pipe), self.times.start)
        except (TimeoutError, asyncio.TimeoutError):
            said = self._pipe.last_words()
            raise LinkError(
                f"no answer from the agent within {self.times.start:g} s{_quoted(said)}",
                where=self.node,
                hint=f"does its login shell wait for something? try: {self.by_hand('true')}",
            ) from None
        self.progress.reach(ConnectStage.ANSWER)
        return decoder

    async def _boot(self, pipe: Pipe) -> Decoder:
        nonce = "cockpit-" + secrets.token_hex(8)
        archive = await payload.in_thread(payload.archive)
        boot = payload.boot_line(nonce, self._pythons) + len(archive).to_bytes(4, "big") + archive
        sending = asyncio.create_task(self._try_to_send(pipe, boot))
        try:
            return await self._listen(pipe, nonce)
        finally:
            sending.cancel()

    async def _try_to_send(self, pipe: Pipe, data: bytes) -> None:
        with suppress(LinkError):  # what the other side says, or its end, tells more
            await pipe.write(data)

    async def _listen(self, pipe: Pipe, nonce: str) -> Decoder:
        noise = b""
        while True:
            data = await pipe.read(1 << 16)
            if not data:
                await asyncio.sleep(0.05)  # let stderr arrive
                raise self._ended(noise.decode(errors="replace"), pipe.last_words(), nonce)
            noise += data
            found = noise.find(nonce.encode())
            end = noise.find(b"\n", found)
            if found >= 0 and end >= 0:
                break
            if len(noise) > _NOISE_LIMIT:
                raise LinkError("the login shell prints endlessly", where=self.node, retry=False)
        self._check_python(noise[found + len(nonce) : end].decode(errors="replace").split())
        decoder = Decoder()
        data = noise[end + 1 :]
        while True:
            frame = next(iter(self._frames(decoder, data)), None)
            if frame is not None:
                self.hello = self._greeting(frame[0])
                return decoder
            data = await pipe.read(1 << 16)
            if not data:
                await asyncio.sleep(0.05)
                raise LinkError(f"the agent did not start{_quoted(pipe.last_words())}", where=self.node)

    def _ended(self, said: str, last_words: str, nonce: str) -> LinkError:
        """Why no agent has started where the shell has ended."""
        _, _, started = said.rpartition(payload.tried_mark(nonce) + " ")
        python, _, after = started.partition("\n")
        if python in self._pythons:
            what = f"its {python} ended before the agent started{_quoted(after.strip() or last_words)}"
            return LinkError(what, where=self.node, hint="give a python that works there: --python PATH")
        return LinkError(
            f"the login shell ended before the agent started{_quoted(said.strip() or last_words)}",
            where=self.node,
            hint=f"try: {self.by_hand('true')}",
        )

    def _check_python(self, answer: list[str]) -> None:
        tried = ", ".join(self._pythons)
        if answer[:1] == ["nopython"]:
            what = f"no python found (tried {tried})"
        elif answer[:1] == ["old"]:
            what = (
                f"its python is {' '.join(answer[1:2]) or 'too old'}, 3.8 or newer is needed (tried {tried})"
            )
        else:
            return
        raise LinkError(what, where=self.node, hint="give one that exists there: --python PATH", retry=False)

    def _frames(self, decoder: Decoder, data: bytes) -> list[tuple[Header, bytes]]:
        try:
            return decoder.feed(data)
        except FrameError as error:
            raise self._nonsense(str(error)) from None

    def _greeting(self, header: Header) -> Hello:
        try:
            return read(Hello, header.get("hello"))
        except Malformed as error:
            raise self._nonsense(f"hello{error}") from None

    def _nonsense(self, what: str) -> LinkError:
        """A node that sends what it must not is no longer believed."""
        return LinkError(f"sent an invalid answer: {what}", where=self.node, retry=False)

    async def call(
        self, request: Request[Answer, Item], data: bytes = b"", *, deadline_s: float = 60
    ) -> Answer:
        """Ask for something and return the answer.

        :raises RemoteError: the agent says no
        :raises LinkError: the link broke, or no answer came within ``deadline_s``
        """
        stream = await self._start(request, data)
        try:
            return await asyncio.wait_for(stream.result(), deadline_s)
        except (TimeoutError, asyncio.TimeoutError):
            verb = NAMES[type(request)]
            raise LinkError(f"no answer to {verb} within {deadline_s:g} s", where=self.node) from None
        finally:
            await stream.close()

    async def stream(self, request: Request[Answer, Item]) -> Stream[Answer, Item]:
        """Ask for something that answers in parts; its ``credit`` bounds the payload bytes in flight."""
        return await self._start(request, b"")

    async def _start(self, request: Request[Answer, Item], data: bytes) -> Stream[Answer, Item]:
        if isinstance(request, Samples) or (isinstance(request, Checkup) and "gpus" in request.parts):
            data = await payload.in_thread(payload.pynvml)
        kind = type(request)
        self._number += 1
        number = self._number
        pending = _Pending(NAMES[kind], REPLIES[kind], getattr(request, "credit", None))
        self._pending[number] = pending
        stream: Stream[Answer, Item] = Stream(self, number, pending)
        try:
            await self._send({"id": number, "do": pending.name, **plain(request)}, data)
        except BaseException:
            self._pending.pop(number, None)
            raise
        return stream

    async def _send(self, header: Header, data: bytes = b"") -> None:
        if self.lost.done() or self._pipe is None:
            raise LinkError("link is down", where=self.node)
        await self._pipe.write(encode(header, data))

    async def _lives(self, half: Callable[[], Awaitable[None]]) -> None:
        """Run one half of the link: however it ends, the link is lost, with the reason."""
        try:
            await half()
        except CockpitError as error:
            self.lose(error)
        except Exception as error:
            self.lose(LinkError(f"internal error: {error!r}", where=self.node, retry=False))

    async def _read(self, decoder: Decoder) -> None:
        assert self._pipe
        while data := await self._pipe.read(1 << 18):
            for header, body in self._frames(decoder, data):
                await self._take(header, body)
        raise LinkError(f"the agent ended{_quoted(self._pipe.last_words())}", where=self.node)

    async def _take(self, header: Header, body: bytes) -> None:
        """Check one frame; a valid one goes to the caller, anything else ends the link.

        :raises LinkError: it makes no sense
        """
        name = "frame"
        try:
            number = NUMBER.read(header.get("id"))
            pending = self._pending.get(number)
            if pending is None:
                return  # a late answer that nobody waits for any more
            name = pending.name
            part = self._part(pending, header, body)
        except Malformed as error:
            raise self._nonsense(f"{name}{error}") from None
        self.heard = time.monotonic()
        self.answered |= name != NAMES[Ping]
        if not isinstance(part, tuple):
            del self._pending[number]
        await pending.queue.put(part)

    def _part(
        self, pending: _Pending, header: Header, body: bytes
    ) -> tuple[Any, bytes] | _Done | CockpitError:
        if "item" in header:
            if pending.credit is not None:
                pending.credit -= len(body)
                if pending.credit < -_OVERDRAFT:
                    raise Malformed(": more bytes than requested")
            return read(pending.reply.item, header["item"]), body
        if "ok" in header:
            return _Done(read(pending.reply.answer, header["ok"]))
        trouble = read(Trouble, header.get("error"))
        return RemoteError(trouble.kind, trouble.what, where=self.node, hint=trouble.hint)

    async def measure_clock(self) -> None:
        """Ask for the node's clock once more; the best answer so far is in :attr:`clock`.

        :raises CockpitError: no answer
        """
        sent = time.time()
        answer = await self.call(Ping(), deadline_s=self.times.silence)
        self.clock.measure(sent, answer.t, time.time())

    async def _beat(self) -> None:
        """Ping forever.

        :raises CockpitError: the node is silent
        """
        while True:
            try:
                await self.measure_clock()
            except LinkError:
                # A busy link answers pings late, but it speaks: only silence means loss.
                if time.monotonic() - self.heard >= self.times.silence or self.lost.done():
                    raise
                # A closed pipe fails at once, while the other half still finds out why.
                await asyncio.sleep(self.times.beat / 10)
                continue
            await asyncio.sleep(self.times.beat)

    def lose(self, error: CockpitError) -> None:
        """The link is of no use any more: whoever waits for an answer gets this error."""
        if not self.lost.done():
            self.lost.set_result(error)
        for pending in self._pending.values():
            pending.end(error)
        self._pending.clear()

    def forget(self, number: int) -> bool:
        """Drop a request; return whether it was still under way."""
        return self._pending.pop(number, None) is not None

    async def close(self) -> None:
        """End the agent and the connection, within a few seconds."""
        self.lose(LinkError("link closed", where=self.node, retry=False))
        for task in self._tasks:
            task.cancel()
        # Neither a dead connection nor an unkillable process may hold anybody up.
        with suppress(CockpitError, TimeoutError, asyncio.TimeoutError):
            await asyncio.wait_for(self._close_pipe(), _CLOSE_S)

    async def _close_pipe(self) -> None:
        try:
            if self._pipe is not None:
                await self._pipe.close()
        finally:
            await self.transport.close()


class Stream(Generic[Answer, Item]):
    """The answer to one request, part by part."""

    def __init__(self, link: Link, number: int, pending: _Pending) -> None:
        self.number = number
        self._link = link
        self._pending = pending
        self._done: _Done | None = None

    async def parts(self) -> AsyncIterator[tuple[Item, bytes]]:
        """Each part with its bytes; ends with the answer.

        :raises CockpitError: the agent says no, or the link broke
        """
        while isinstance(part := await self._pending.next(), tuple):
            yield part
        self._done = part

    async def part(self, within_s: float) -> tuple[Item, bytes] | None:
        """The next part with its bytes; None if the answer arrived instead.

        :raises CockpitError: the agent says no, the link broke, or nothing came within ``within_s`` seconds
        """
        try:
            part = await asyncio.wait_for(self._pending.next(), within_s)
        except (TimeoutError, asyncio.TimeoutError):
            raise LinkError(f"no answer within {within_s:g} s", where=self._link.node) from None
        if isinstance(part, tuple):
            return part
        self._done = part
        return None

    async def result(self) -> Answer:
        """The final answer; parts are skipped.

        :raises CockpitError: the agent says no, or the link broke
        """
        while self._done is None:
            part = await self._pending.next()
            self._done = None if isinstance(part, tuple) else part
        answer: Answer = self._done.answer
        return answer

    async def credit(self, size: int) -> None:
        """Allow ``size`` more bytes."""
        if self._pending.credit is not None:
            self._pending.credit += size
        await self._link._send({"do": "credit", "to": self.number, "bytes": size})

    async def cancel(self) -> None:
        """Say that no more is wanted; what the node still has to say comes, and then its answer.

        :raises CockpitError: the link broke
        """
        await self._link._send({"do": "cancel", "to": self.number})

    async def close(self) -> None:
        """Cancel the request if it is still under way."""
        under_way = self._link.forget(self.number)
        self._pending.drain()
        if under_way:
            with suppress(CockpitError):
                await self.cancel()


@asynccontextmanager
async def streaming(link: Link, request: Request[Answer, Item]) -> AsyncIterator[Stream[Answer, Item]]:
    """Ask for something that answers in parts; it is cancelled once they are no longer taken."""
    stream = await link.stream(request)
    try:
        yield stream
    finally:
        await stream.close()


def _quoted(text: str) -> str:
    last = text.strip().splitlines()[-1:]
    return f": {last[0][:200]!r}" if last else ""
