"""One link: an agent on a node, requests to it and what it answers."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from cockpit.base.frames import Decoder, FrameError, Header, encode
from cockpit.base.record import FORMAT
from cockpit.engine import payload
from cockpit.errors import CockpitError, Exit
from cockpit.transport.base import LinkError, Pipe, Transport

_NOISE_LIMIT = 1 << 20

_WITH_PSUTIL = frozenset({"samples", "resolve", "port"})
"""Requests before which the agent gets psutil, if it has none yet."""


@dataclass(frozen=True)
class LinkTimes:
    """Deadlines of a link, in seconds."""

    start: float = 30
    """From an open pipe to the agent's first frame."""
    beat: float = 3
    """Between two pings."""
    silence: float = 15
    """Without any frame for so long, the link is dead, whatever TCP thinks."""


@dataclass
class Clock:
    """A node's clock against ours, from the quickest round trip so far."""

    offset_s: float = 0.0
    """Node clock minus ours: subtract it from a node's time."""
    rtt_s: float = float("inf")
    """Round trip of that measurement; the offset is right to half of it."""

    def measure(self, sent: float, node: float, received: float) -> None:
        """Take in one ping: our clock when it left, the node's, ours when the answer came."""
        rtt = received - sent
        # Clocks drift: an old best measurement slowly loses its rank.
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
class _Pending:
    """A request under way: items come through the queue, the end as None or an error."""

    queue: asyncio.Queue[tuple[Header, bytes] | Header | Exception] = field(default_factory=asyncio.Queue)


class Link:
    """A connected agent. Not reusable: after a loss, open another.

    :param node: the node's name, for messages
    :param transport: a way to it
    :param pythons: interpreters to try for the agent, in order
    """

    def __init__(
        self, node: str, transport: Transport, pythons: list[str], times: LinkTimes | None = None
    ) -> None:
        self.node = node
        self.transport = transport
        self.times = times or LinkTimes()
        self.clock = Clock()
        self.hello: dict[str, Any] = {}
        self.heard = time.monotonic()
        """When the last frame came (monotonic seconds)."""
        self.lost: asyncio.Future[CockpitError] = asyncio.get_running_loop().create_future()
        """Done when the link is gone, with the reason."""
        self._pythons = pythons
        self._equipping: asyncio.Task[dict[str, Any]] | None = None
        self._pipe: Pipe | None = None
        self._pending: dict[int, _Pending] = {}
        self._number = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> dict[str, Any]:
        """Connect, start the agent, and return its hello.

        :raises LinkError: no connection, no usable python, no agent
        """
        self._pipe = await self.transport.open(payload.COMMAND)
        try:
            decoder = await asyncio.wait_for(self._boot(self._pipe), self.times.start)
        except (TimeoutError, asyncio.TimeoutError):
            await self.close()
            said = self._pipe.last_words()
            raise LinkError(
                f"no answer from the node within {self.times.start:g} s{_quoted(said)}",
                where=self.node,
                hint=f"does its login shell wait for something? try: ssh {self.node} true",
            ) from None
        except CockpitError:
            await self.close()
            raise
        if self.hello.get("format") != FORMAT:
            await self.close()
            raise LinkError("the agent speaks another version", where=self.node, retry=False)
        self._tasks = [asyncio.create_task(self._read(decoder)), asyncio.create_task(self._beat())]
        return self.hello

    async def _boot(self, pipe: Pipe) -> Decoder:
        nonce = "cockpit-" + secrets.token_hex(8)
        archive = payload.archive()
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
                text = noise.decode(errors="replace").strip() or pipe.last_words()
                raise LinkError(
                    f"the login shell ended before the agent started{_quoted(text)}",
                    where=self.node,
                    hint=f"try: ssh {self.node} true",
                )
            noise += data
            found = noise.find(nonce.encode())
            end = noise.find(b"\n", found)
            if found >= 0 and end >= 0:
                break
            if len(noise) > _NOISE_LIMIT:
                raise LinkError("the login shell prints without end", where=self.node, retry=False)
        self._check_python(noise[found + len(nonce) : end].decode(errors="replace").split())
        decoder = Decoder()
        data = noise[end + 1 :]
        while True:
            frame = next(iter(self._frames(decoder, data)), None)
            if frame is not None:
                self.hello = frame[0]["hello"]
                return decoder
            data = await pipe.read(1 << 16)
            if not data:
                await asyncio.sleep(0.05)
                raise LinkError(f"the agent did not start{_quoted(pipe.last_words())}", where=self.node)

    def _check_python(self, answer: list[str]) -> None:
        tried = ", ".join(self._pythons)
        if answer[:1] == ["nopython"]:
            what = f"no python found (tried {tried})"
        elif answer[:1] == ["old"]:
            what = f"its python is {answer[1]}, 3.8 or newer is needed (tried {tried})"
        else:
            return
        raise LinkError(what, where=self.node, hint="give one that exists there: --python PATH", retry=False)

    def _frames(self, decoder: Decoder, data: bytes) -> list[tuple[Header, bytes]]:
        try:
            return list(decoder.feed(data))
        except FrameError as error:
            raise LinkError(f"the agent's answer is garbled: {error}", where=self.node) from None

    async def call(
        self, verb: str, data: bytes = b"", *, deadline_s: float = 60, **fields: Any
    ) -> dict[str, Any]:
        """Ask for something and return the answer.

        :raises RemoteError: the agent says no
        :raises LinkError: the link broke, or no answer came within ``deadline_s``
        """
        stream = await self._start(verb, data, fields)
        try:
            return await asyncio.wait_for(stream.result(), deadline_s)
        except (TimeoutError, asyncio.TimeoutError):
            await stream.close()
            raise LinkError(f"no answer to {verb} within {deadline_s:g} s", where=self.node) from None

    async def stream(self, verb: str, *, credit: int = 0, **fields: Any) -> Stream:
        """Ask for something that answers in parts; ``credit`` bounds the payload bytes in flight."""
        return await self._start(verb, b"", {**fields, "credit": credit})

    async def _start(self, verb: str, data: bytes, fields: dict[str, Any]) -> Stream:
        if verb in _WITH_PSUTIL:
            if self._equipping is None:
                self._equipping = asyncio.create_task(self.call("equip", payload.extras()))
                # Who waited for it may be gone when it fails; whoever asks again is told.
                self._equipping.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.shield(self._equipping)  # others may wait for it too
        self._number += 1
        pending = self._pending[self._number] = _Pending()
        stream = Stream(self, self._number, pending)
        try:
            await self._send({"id": self._number, "do": verb, **fields}, data)
        except BaseException:
            self._pending.pop(stream.number, None)
            raise
        return stream

    async def _send(self, header: Header, data: bytes = b"") -> None:
        if self.lost.done() or self._pipe is None:
            raise LinkError("link is down", where=self.node)
        await self._pipe.write(encode(header, data))

    async def _read(self, decoder: Decoder) -> None:
        assert self._pipe
        try:
            while data := await self._pipe.read(1 << 18):
                for header, body in self._frames(decoder, data):
                    self._take(header, body)
                self.heard = time.monotonic()
            self._lose(LinkError(f"the agent ended{_quoted(self._pipe.last_words())}", where=self.node))
        except CockpitError as error:
            self._lose(error)

    def _take(self, header: Header, body: bytes) -> None:
        pending = self._pending.get(header.get("id", -1))
        if pending is None:
            return  # a late answer to something nobody waits for any more
        if "item" in header:
            pending.queue.put_nowait((header["item"], body))
            return
        del self._pending[header["id"]]
        if "ok" in header:
            pending.queue.put_nowait(header["ok"])
        else:
            error = header.get("error", {})
            where = self.node
            pending.queue.put_nowait(
                RemoteError(
                    str(error.get("kind")),
                    str(error.get("what")),
                    where=where,
                    hint=str(error.get("hint", "")),
                )
            )

    async def measure_clock(self) -> None:
        """Ask for the node's clock once more; the best answer so far is in :attr:`clock`.

        :raises CockpitError: no answer
        """
        sent = time.time()
        answer = await self.call("ping", deadline_s=self.times.silence)
        self.clock.measure(sent, float(answer["t"]), time.time())

    async def _beat(self) -> None:
        try:
            while True:
                await self.measure_clock()
                await asyncio.sleep(self.times.beat)
        except CockpitError as error:
            # A busy link answers pings late, but it speaks: only silence means loss.
            if time.monotonic() - self.heard < self.times.silence and not self.lost.done():
                self._tasks.append(asyncio.create_task(self._beat()))
            else:
                self._lose(error)

    def _lose(self, error: CockpitError) -> None:
        if not self.lost.done():
            self.lost.set_result(error)
        for pending in self._pending.values():
            pending.queue.put_nowait(error)
        self._pending.clear()

    def forget(self, number: int) -> bool:
        """Drop a request; return whether it was still under way."""
        return self._pending.pop(number, None) is not None

    async def close(self) -> None:
        """End the agent and the connection."""
        self._lose(LinkError("link closed", where=self.node, retry=False))
        for task in self._tasks:
            task.cancel()
        if self._pipe is not None:
            with suppress(CockpitError):
                await self._pipe.close()
        await self.transport.close()


class Stream:
    """The answer to one request, part by part."""

    def __init__(self, link: Link, number: int, pending: _Pending) -> None:
        self.number = number
        self._link = link
        self._pending = pending

    async def parts(self) -> AsyncIterator[tuple[Header, bytes]]:
        """Each part with its bytes; ends with the answer.

        :raises CockpitError: the agent says no, or the link broke
        """
        while True:
            part = await self._pending.queue.get()
            if isinstance(part, Exception):
                raise part
            if isinstance(part, dict):
                return
            yield part

    async def result(self) -> dict[str, Any]:
        """The final answer; parts are passed over."""
        while True:
            part = await self._pending.queue.get()
            if isinstance(part, Exception):
                raise part
            if isinstance(part, dict):
                return part

    async def credit(self, size: int) -> None:
        """Allow ``size`` more bytes."""
        await self._link._send({"do": "credit", "to": self.number, "bytes": size})

    async def close(self) -> None:
        """Cancel the request if it is still under way."""
        if self._link.forget(self.number):
            with suppress(CockpitError):
                await self._link._send({"do": "cancel", "to": self.number})


def _quoted(text: str) -> str:
    last = text.strip().splitlines()[-1:]
    return f": {last[0][:200]!r}" if last else ""
