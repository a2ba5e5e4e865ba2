"""ProxyCommand: a program of the user's that carries the bytes of an ssh connection.

Run as ssh runs it, by the user's shell. asyncssh would split the command into words itself, and take what it
writes to stderr for bytes of the connection.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from contextlib import suppress

from cockpit.transport.base import LinkError, Tail


class ProxyCommand:
    """A running ProxyCommand.

    :param socket: the other end of its stdin and stdout; belongs to whoever connects over it
    """

    def __init__(self, process: asyncio.subprocess.Process, ours: socket.socket) -> None:
        self.socket = ours
        self._process = process
        self._tail = Tail()
        self._stderr = asyncio.create_task(self._drain_stderr())

    @classmethod
    async def start(cls, command: str, name: str) -> ProxyCommand:
        """Start it, without a terminal to ask on or to write to.

        :raises LinkError: there is no such shell
        """
        ours, theirs = socket.socketpair()
        shell = os.environ.get("SHELL") or "/bin/sh"
        try:
            process = await asyncio.create_subprocess_exec(
                shell,
                "-c",
                f"exec {command}",
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            what = f"ProxyCommand cannot be started: {shell}: {error.strerror}"
            raise LinkError(what, where=name, hint="correct SHELL") from None
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return cls(process, ours)

    async def last_words(self) -> str:
        """The end of what it wrote to stderr, once it has ended."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._stderr), 1)
        return " ".join(self._tail.text().split())

    def end(self) -> None:
        """End it and what it has started; a second call does nothing."""
        self._stderr.cancel()
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGHUP)
        # What ignores that is killed here.
        self._process._transport.close()  # type: ignore[attr-defined]

    async def _drain_stderr(self) -> None:
        assert self._process.stderr
        while data := await self._process.stderr.read(4096):
            self._tail.add(data)
