"""Nodes that are bad in every way that is known, on loopback: real TCP, and ssh wherever they get so far."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import asyncssh

from tests.transport.sshserver import Place

KINDS = {
    "refused": r"connection refused: no sshd listens there",
    "blackhole": r"no answer to the connection",
    "silent": r"waiting for sshd's banner",
    "banner": r"waiting for the key exchange",
    "nokey": r"login refused: no key of .* is accepted",
    "changed": r"host key changed",
    "dropped": r"connection lost|connection failed|ended before the agent started|connection closed",
    "hangs": r"no answer from the agent|waiting for the agent",
    "busy": r"sshd may be dropping parallel logins|connection lost|reset",
    "garbage": r"sent an invalid answer",
    "nopython": r"no python found",
}
"""Every kind, and what must be said of it."""

NONCE = re.compile(rb"cockpit-[0-9a-f]{16}")


@asynccontextmanager
async def bad_node(place: Place, kind: str, name: str) -> AsyncIterator[None]:
    """A node of one of :data:`KINDS`, called ``name`` in the configuration of ``place``."""
    async with AsyncExitStack() as stack:
        await _MAKERS[kind](place, name, stack)
        yield


@asynccontextmanager
async def far_away(place: Place, name: str, one_way_s: float) -> AsyncIterator[None]:
    """The server that was added to ``place`` last, as ``name`` over a long way: all comes late."""
    target = place.port
    known = place.known_hosts.read_text()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", target)
        try:
            await asyncio.gather(
                _late(reader, other_writer, one_way_s), _late(other_reader, writer, one_way_s)
            )
        finally:
            await _closed(other_writer)

    async with _serving(meet) as port:
        place.knows(name, port)
        key = next(line for line in known.splitlines() if line.startswith(f"[127.0.0.1]:{target} "))
        place.known_hosts.write_text(known + key.replace(f":{target} ", f":{port} ") + "\n")
        yield


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def _serving(talk: Talk) -> AsyncIterator[int]:
    """A server on a free port; at the end nothing of it is left in the event loop."""
    meetings: set[asyncio.Task[None]] = set()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        meetings.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):
                await talk(reader, writer)
        finally:
            await _closed(writer)
            meetings.discard(task)

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        left = list(meetings)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def _late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
    """Pass bytes on in order, each ``seconds`` after it came."""
    loop = asyncio.get_running_loop()
    while data := await reader.read(1 << 16):
        loop.call_later(seconds, writer.write, data)
    await asyncio.sleep(seconds + 0.1)
    writer.close()


async def _refused(place: Place, name: str, stack: AsyncExitStack) -> None:
    holder = stack.enter_context(socket.socket())
    holder.bind(("127.0.0.1", 0))
    place.knows(name, holder.getsockname()[1])


async def _blackhole(place: Place, name: str, stack: AsyncExitStack) -> None:
    """A listener with a full queue: the kernel drops every SYN, as a firewall does."""
    holder = stack.enter_context(socket.socket())
    holder.bind(("127.0.0.1", 0))
    holder.listen(0)
    for _ in range(4):
        filler = stack.enter_context(socket.socket())
        filler.setblocking(False)
        filler.connect_ex(holder.getsockname())
    place.knows(name, holder.getsockname()[1])


async def _listens(place: Place, name: str, stack: AsyncExitStack, talk: Talk) -> None:
    place.knows(name, await stack.enter_async_context(_serving(talk)))


async def _silent(place: Place, name: str, stack: AsyncExitStack) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            pass

    await _listens(place, name, stack, talk)


async def _banner(place: Place, name: str, stack: AsyncExitStack) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2p1\r\n")
        while await reader.read(1 << 16):
            pass

    await _listens(place, name, stack, talk)


async def _busy(place: Place, name: str, stack: AsyncExitStack) -> None:
    """MaxStartups for ever: each connection is closed before a word."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Not a word."""

    await _listens(place, name, stack, talk)


async def _nokey(place: Place, name: str, stack: AsyncExitStack) -> None:
    await stack.enter_async_context(place.server(name, admits=False))


async def _changed(place: Place, name: str, stack: AsyncExitStack) -> None:
    await stack.enter_async_context(place.server(name, trusted=False))
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    place.known_hosts.write_text(place.known_hosts.read_text() + f"[127.0.0.1]:{place.port} {other}")


async def _dropped(place: Place, name: str, stack: AsyncExitStack) -> None:
    async def serve(process: asyncssh.SSHServerProcess[bytes]) -> None:
        process.get_extra_info("connection").abort()

    await stack.enter_async_context(place.server(name, serve=serve))


async def _hangs(place: Place, name: str, stack: AsyncExitStack) -> None:
    async def serve(process: asyncssh.SSHServerProcess[bytes]) -> None:
        await process.stdin.read()

    await stack.enter_async_context(place.server(name, serve=serve))


async def _garbage(place: Place, name: str, stack: AsyncExitStack) -> None:
    async def serve(process: asyncssh.SSHServerProcess[bytes]) -> None:
        found = NONCE.search(await process.stdin.readline())
        assert found
        process.stdout.write(found[0] + b" ok 3.11\n" + os.urandom(1 << 16))
        await process.stdin.read()

    await stack.enter_async_context(place.server(name, serve=serve))


async def _nopython(place: Place, name: str, stack: AsyncExitStack) -> None:
    async def serve(process: asyncssh.SSHServerProcess[bytes]) -> None:
        line = (await process.stdin.readline()).replace(sys.executable.encode(), b"/nowhere/python3")
        pipe = asyncio.subprocess.PIPE
        shell = await asyncio.create_subprocess_exec("/bin/sh", stdin=pipe, stdout=pipe, env={"PATH": "/no"})
        out, _ = await shell.communicate(line)
        process.stdout.write(out)
        process.exit(0)

    await stack.enter_async_context(place.server(name, serve=serve))


_MAKERS: dict[str, Callable[[Place, str, AsyncExitStack], Awaitable[None]]] = {
    "refused": _refused,
    "blackhole": _blackhole,
    "silent": _silent,
    "banner": _banner,
    "nokey": _nokey,
    "changed": _changed,
    "dropped": _dropped,
    "hangs": _hangs,
    "busy": _busy,
    "garbage": _garbage,
    "nopython": _nopython,
}
