"""A pipe to a child of this process: the whole of a transport that another program provides."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Mapping

from cockpit.base import openfiles
from cockpit.transport.base import ConnectStage, LinkError, Pipe, Progress, Tail

ENDS_S = 2.0
"""Seconds a child has to end after its stdin closes, and again after SIGKILL: a disk may block it."""

Broken = Callable[[int | None], "LinkError | Awaitable[LinkError | None] | None"]
"""What the exit status of a child says about the connection (None: it is not known), at its end."""

WORDS_S = 0.5
"""For the last words of a child that has ended: one that it left behind may hold its stderr."""


class ChildTransport:
    """Runs commands as children of this process, each in its own session.

    :param kind: name of the transport
    :param words: what starts a command on the node, which is the last word
    :param env: its environment; None: this process's
    """

    def __init__(
        self, kind: str, node: str, words: tuple[str, ...], env: Mapping[str, str] | None = None
    ) -> None:
        self.kind = kind
        self.job = ""
        self._env = env
        self.progress = Progress()
        self._node = node
        self._words = words
        self._pipes: list[ChildPipe] = []

    async def open(self, command: str) -> Pipe:
        """See :meth:`cockpit.transport.base.Transport.open`."""
        self.progress.reach(ConnectStage.SHELL)
        return await self._start(command, Tail())

    async def _start(self, command: str, tail: Tail, broken: Broken | None = None) -> ChildPipe:
        """Start a child.

        :param tail: is given what it writes to stderr
        :raises LinkError: it cannot be started
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *self._words,
                command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._env,
                start_new_session=True,
                limit=4 << 20,
            )
        except OSError as error:
            raise LinkError(f"cannot start {self._words[0]}: {error}", where=self._node) from None
        openfiles.give_back(process.pid)  # it may start a training process
        pipe = ChildPipe(self._node, process, tail, broken)
        self._pipes.append(pipe)
        return pipe

    async def close(self) -> None:
        """Close every pipe."""
        pipes, self._pipes = self._pipes, []
        await asyncio.gather(*(pipe.close() for pipe in pipes))


class ChildPipe:
    """Stdin and stdout of a child; see :class:`cockpit.transport.base.Pipe`."""

    def __init__(
        self,
        node: str,
        process: asyncio.subprocess.Process,
        tail: Tail,
        broken: Broken | None,
    ) -> None:
        self._node = node
        self._process = process
        self._tail = tail
        self._broken = broken
        self._stderr = asyncio.create_task(self._drain_stderr())
        assert process.stdin
        # asyncio logs a broken pipe that nobody asks for (Python 3.10, 3.11.2): who writes has heard of it.
        closed = process.stdin._protocol._get_close_waiter(process.stdin)  # type: ignore[attr-defined]
        closed.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.heard = asyncio.Event()
        """Set once it has written anything, or ended."""

    async def read(self, size: int) -> bytes:
        assert self._process.stdout
        data = await self._process.stdout.read(size)
        self.heard.set()
        if not data and self._broken is not None:
            error = self._broken(await self.status())
            if inspect.isawaitable(error):
                error = await error
            if error is not None:
                raise error
        return data

    async def write(self, data: bytes) -> None:
        stdin = self._process.stdin
        assert stdin
        try:
            stdin.write(data)
            await stdin.drain()
        except (OSError, RuntimeError) as error:
            raise LinkError(f"pipe closed: {error}".rstrip(": "), where=self._node) from None

    async def close(self) -> None:
        self.heard.set()
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

    @property
    def pid(self) -> int:
        """The child's."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the child has not ended."""
        return self._process.returncode is None

    async def status(self) -> int | None:
        """The exit status of a child that is ending, with its last words read; None: it takes too long."""
        await self._ended()
        await asyncio.wait({self._stderr}, timeout=WORDS_S)
        return self._process.returncode

    async def end(self) -> None:
        """Close the pipe and end the child at once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self.close()

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
