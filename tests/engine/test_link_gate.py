"""A link to an agent that does not keep to the wire: it is lost, with a reason, and nothing else happens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Any

import pytest

from cockpit.base import verbs
from cockpit.base.frames import Decoder, encode
from cockpit.engine.links.link import Link, LinkTimes
from cockpit.errors import CockpitError
from cockpit.transport.base import LinkError, Progress
from tests.waiting import PATIENCE_S, soon

HELLO: dict[str, Any] = {
    "version": "0",
    "format": 1,
    "pid": 1,
    "uid": 0,
    "host": "h",
    "machine": "x86_64",
    "python": "3.8.0",
    "boot_id": "b",
    "t": 1.0,
    "base": "/tmp",
}


class Peer:
    """An agent's end of a pipe, played by the test.

    :param hello: its first frame; None: a good one
    """

    kind = "played"
    job = ""
    progress: Progress

    def __init__(self, answer: Callable[[Peer, dict[str, Any]], None], hello: object = None) -> None:
        self._answer = answer
        self._hello = {"id": 0, "hello": HELLO} if hello is None else hello
        self._out: asyncio.Queue[bytes] = asyncio.Queue()
        self._decoder: Decoder | None = None
        self.reads = 0
        """Chunks that were taken from us."""

    async def open(self, command: str) -> Peer:
        return self

    def send(self, header: object, payload: bytes = b"") -> None:
        """One frame, whatever is in it."""
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        self.raw(len(text).to_bytes(4, "big") + len(payload).to_bytes(4, "big") + text + payload)

    def raw(self, data: bytes) -> None:
        self._out.put_nowait(data)

    async def read(self, size: int) -> bytes:
        self.reads += 1
        return await self._out.get()

    async def write(self, data: bytes) -> None:
        if self._decoder is None:
            nonce = data.partition(b'os.write(1, (\\"')[2].split(b" ")[0].decode()
            self.raw(f"{nonce} ok 3.8\n".encode())
            self.send(self._hello)
            self._decoder = Decoder()
            return
        for header, _ in self._decoder.feed(data):
            self._answer(self, header)

    async def close(self) -> None:
        """There is nothing to close."""

    def last_words(self) -> str:
        return ""


def pong(peer: Peer, header: dict[str, Any]) -> None:
    """What an honest agent says to a ping."""
    if header["do"] == "ping":
        peer.send({"id": header["id"], "ok": {"t": 5.0}})


def lost(
    answer: Callable[[Peer, dict[str, Any]], None],
    use: Callable[[Link], Awaitable[Any]] | None = None,
    times: LinkTimes | None = None,
) -> str:
    """Why the link to such a peer is lost."""

    async def main() -> str:
        peer = Peer(answer)
        link = Link("bad", peer, ["python3"], times or LinkTimes(beat=0.01))
        await link.open()
        try:
            if use is not None:
                with pytest.raises(CockpitError):
                    await use(link)
            return str(await asyncio.wait_for(asyncio.shield(link.lost), PATIENCE_S))
        finally:
            await link.close()

    return asyncio.run(main())


@pytest.mark.parametrize(
    "hello",
    [
        {"id": 0},
        {"id": 0, "hello": {}},
        {"id": 0, "hello": []},
        {"id": 0, "hello": {**HELLO, "base": "../../x"}},
        {"id": 0, "hello": {**HELLO, "uid": "0"}},
        {"id": 0, "hello": {**HELLO, "boot_id": 10**400}},
        b"[" * 100_000,
        b"no json",
        [],
    ],
)
def test_a_hello_that_makes_no_sense_refuses_the_node(hello: object) -> None:
    async def main() -> None:
        link = Link("bad", Peer(pong, hello), ["python3"])
        with pytest.raises(LinkError, match="bad: sent an invalid answer"):
            await link.open()

    asyncio.run(main())


@pytest.mark.parametrize(
    "ok", [{}, {"t": "now"}, {"t": None}, {"t": 1e300}, {"t": -1}, {"t": 10**400}, [1, 2, 3], None, "x"]
)
def test_a_ping_answered_with_nonsense_loses_the_link(ok: object) -> None:
    def answer(peer: Peer, header: dict[str, Any]) -> None:
        peer.send({"id": header["id"], "ok": ok})

    assert lost(answer).startswith("bad: sent an invalid answer: ping")


def test_silence_after_nonsense_is_noticed() -> None:
    asked = 0

    def answer(peer: Peer, header: dict[str, Any]) -> None:
        nonlocal asked
        asked += 1
        # Frames that answer nothing are no sign of life.
        peer.send({"id": 77, "ok": {"t": 1.0}})

    said = lost(answer, times=LinkTimes(beat=0.01, silence=0.2))
    assert asked
    assert said == "bad: no answer to ping within 0.2 s"


@pytest.mark.parametrize(
    "frame",
    [
        {"id": 2, "ok": [1, 2, 3]},
        {"id": 2, "item": {"parts": 5, "sizes": {}, "t": 1.0}},
        {"id": 2, "item": {"parts": [], "sizes": {"../../x": 1}, "t": 1.0}},
        {"id": 2, "item": {"parts": [["rank-0.log", 10**30, 1]], "sizes": {}, "t": 1.0}},
        {"id": 2, "error": "x"},
        {"id": 2, "error": {}},
        {"id": 2},
        {"id": None, "ok": {}},
        {"id": [], "ok": {}},
        {"ok": {}},
    ],
)
def test_an_answer_to_follow_that_makes_no_sense_loses_the_link(frame: dict[str, Any]) -> None:
    def answer(peer: Peer, header: dict[str, Any]) -> None:
        pong(peer, header)
        if header["do"] == "follow":
            peer.send({**frame, "id": header["id"]} if frame.get("id") == 2 else frame)

    async def use(link: Link) -> None:
        stream = await link.stream(verbs.Follow("/x", credit=1))
        async for _ in stream.parts():
            pass

    assert lost(answer, use).startswith("bad: sent an invalid answer: ")


def test_bytes_beyond_the_credit_lose_the_link() -> None:
    item = {"parts": [], "sizes": {}, "t": 1.0}

    def answer(peer: Peer, header: dict[str, Any]) -> None:
        pong(peer, header)
        if header["do"] == "follow":
            for _ in range(5):
                peer.send({"id": header["id"], "item": item}, bytes(4 << 20))

    async def use(link: Link) -> None:
        stream = await link.stream(verbs.Follow("/x", credit=1000))
        async for _ in stream.parts():
            pass

    assert "more bytes than requested" in lost(answer, use)


def test_a_node_is_not_read_from_while_its_answers_wait() -> None:
    async def main() -> None:
        def answer(peer: Peer, header: dict[str, Any]) -> None:
            pong(peer, header)
            if header["do"] == "stacks":
                for _ in range(1000):
                    peer.send({"id": header["id"], "item": {}}, b"x")

        peer = Peer(answer)
        link = Link("bad", peer, ["python3"], LinkTimes(beat=100))
        await link.open()
        stream = await link.stream(verbs.Stacks(()))
        await soon(lambda: peer.reads > 3)
        for _ in range(100):
            await asyncio.sleep(0)
        assert peer.reads < 100
        await stream.close()
        # Nobody waits for them any more: the rest is thrown away, and the link is in use again.
        assert (await link.call(verbs.Ping())).t == 5.0
        await link.close()

    asyncio.run(main())


def test_encode_is_what_the_peer_speaks() -> None:
    assert list(Decoder().feed(encode({"id": 1}, b"x"))) == [({"id": 1}, b"x")]


def test_no_request_has_a_field_of_the_frame_that_carries_it() -> None:
    for name, asks in verbs.VERBS.items():
        assert {each.name for each in fields(asks)}.isdisjoint({"id", "do", "to"}), name
