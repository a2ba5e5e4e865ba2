"""This machine as a node: the same pipe, without ssh."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterable

from cockpit.base import openfiles
from cockpit.transport.base import LinkError, Pipe, Progress, Stage, Tail

ENDS_S = 2.0
"""Seconds an agent has to end after its stdin closes, and again after SIGKILL: a disk may block it."""


class LocalTransport:
    """Runs commands as children of this process, each in its own session."""

    kind = "local"

    def __init__(self, node: str) -> None:
        self.progress = Progress()
        self._node = node
        self._pipes: list[_LocalPipe] = []

    async def open(self, command: str) -> Pipe:
        """Start ``command`` under ``/bin/sh``."""
        self.progress.reach(Stage.SHELL)
        try:
            process = await asyncio.create_subprocess_exec(
                "/bin/sh",
                "-c",
                command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                limit=4 << 20,
            )
        except OSError as error:
            raise LinkError(f"cannot start a shell: {error}", where=self._node) from None
        openfiles.give_back(process.pid)  # it may start a training process
        pipe = _LocalPipe(self._node, process)
        self._pipes.append(pipe)
        return pipe

    async def close(self) -> None:
        """Close every pipe."""
        pipes, self._pipes = self._pipes, []
        await asyncio.gather(*(pipe.close() for pipe in pipes))


class _LocalPipe:
    def __init__(self, node: str, process: asyncio.subprocess.Process) -> None:
        self._node = node
        self._process = process
        self._tail = Tail()
        self._stderr = asyncio.create_task(self._drain_stderr())

    async def read(self, size: int) -> bytes:
        assert self._process.stdout
        return await self._process.stdout.read(size)

    async def write(self, data: bytes) -> None:
        stdin = self._process.stdin
        assert stdin
        try:
            stdin.write(data)
            await stdin.drain()
        except (OSError, RuntimeError) as error:
            raise LinkError(f"pipe closed: {error}", where=self._node) from None

    async def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        # The agent exits at the end of its stdin; if it does not, it is our child, and we end it here.
        try:
            if not await self._ended():
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
                await self._ended()
        finally:
            self._stderr.cancel()
            # A child it left behind may hold the other ends: ours would stay open as long as it lives.
            self._process._transport.close()  # type: ignore[attr-defined]

    async def _ended(self) -> bool:
        try:
            await asyncio.wait_for(self._process.wait(), ENDS_S)
        except asyncio.TimeoutError:
            return False
        return True

    def last_words(self) -> str:
        return self._tail.text()

    async def _drain_stderr(self) -> None:
        assert self._process.stderr
        while data := await self._process.stderr.read(4096):
            self._tail.add(data)


def is_this_machine(name: str) -> bool:
    """Whether ``name`` is one of this machine's names or addresses.

    Asks the resolver, so that an alias in ``/etc/hosts`` counts too; a name it does not know is not ours.
    """
    host = name.rpartition("@")[2]
    if host in {"localhost", socket.gethostname(), socket.getfqdn()}:
        return True
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return False
    return not found.isdisjoint(_own_addresses())


def _own_addresses() -> set[str]:
    import psutil  # takes as long to load as all our code, and most names need no look at addresses

    own: Iterable[str] = (
        address.address.partition("%")[0]
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family in (socket.AF_INET, socket.AF_INET6)
    )
    return {*own, "127.0.0.1", "127.0.1.1", "::1"}
