"""An ssh server in this process, which runs what it is asked to under ``/bin/sh``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh

from cockpit.transport.login_prompts import Desk
from cockpit.transport.ssh import SshHops, SshOptions
from tests.waiting import soon


@dataclass
class Counts:
    """What a server has seen."""

    connections: int = 0
    handshakes: int = 0
    """Connections that have not logged in yet, now."""
    most_handshakes: int = 0
    commands: list[str] = field(default_factory=list)


@dataclass
class Wants:
    """What a login to a server takes besides a key.

    :param password: by the method ``password``; empty: that is not offered
    :param rounds: by keyboard-interactive: prompts with whether they echo, and their right answers
    :param told: what it says before the first round
    """

    password: str = ""
    rounds: list[tuple[list[tuple[str, bool]], list[str]]] = field(default_factory=list)
    told: str = ""
    tried: list[str] = field(default_factory=list)
    """All answers that it got."""
    begun: int = 0
    """How often keyboard-interactive was begun."""


class _Server(asyncssh.SSHServer):
    def __init__(
        self,
        counts: Counts,
        login_s: float,
        connections: set[asyncssh.SSHServerConnection],
        asks: bool,
        wants: Wants,
    ) -> None:
        self._wants = wants
        self._round = 0
        self._asks = asks
        self._connections = connections
        self._counts = counts
        self._login_s = login_s
        self._unauthenticated = False

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connections.add(conn)
        self._counts.connections += 1
        self._counts.handshakes += 1
        self._unauthenticated = True
        self._counts.most_handshakes = max(self._counts.most_handshakes, self._counts.handshakes)

    async def begin_auth(self, username: str) -> bool:
        await asyncio.sleep(self._login_s)
        return self._asks

    def password_auth_supported(self) -> bool:
        return bool(self._wants.password)

    def validate_password(self, username: str, password: str) -> bool:
        self._wants.tried.append(password)
        return password == self._wants.password

    def kbdint_auth_supported(self) -> bool:
        return bool(self._wants.rounds)

    def get_kbdint_challenge(
        self, username: str, lang: str, submethods: str
    ) -> tuple[str, str, str, list[tuple[str, bool]]]:
        self._wants.begun += 1
        self._round = 0
        return "", self._wants.told, "", self._wants.rounds[0][0]

    def validate_kbdint_response(self, username: str, responses: Sequence[str]) -> Any:
        self._wants.tried += responses
        if list(responses) != self._wants.rounds[self._round][1]:
            return False
        self._round += 1
        if self._round == len(self._wants.rounds):
            return True
        return "", "", "", self._wants.rounds[self._round][0]

    def auth_completed(self) -> None:
        self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._settle()

    def connection_requested(self, *_: object) -> bool:
        return True  # a jump host forwards

    def _settle(self) -> None:
        if self._unauthenticated:
            self._unauthenticated = False
            self._counts.handshakes -= 1


Serve = Callable[[asyncssh.SSHServerProcess[bytes]], Awaitable[None]]


async def run_it(process: asyncssh.SSHServerProcess[bytes], command: str = "") -> None:
    """Run the command of a session under ``/bin/sh``, or another in its place."""
    assert process.command
    pipe = asyncio.subprocess.PIPE
    asked = command or process.command
    shell = await asyncio.create_subprocess_shell(asked, stdin=pipe, stdout=pipe, stderr=pipe)
    if process.is_closing():  # the client is gone again, and asyncssh redirects nothing any more
        await shell.communicate()
        return
    await process.redirect(shell.stdin, shell.stdout, shell.stderr)
    process.exit(await shell.wait())
    await process.wait_closed()  # asyncssh's own coroutines wait for that


def _certificate(authority: asyncssh.SSHKey, key: asyncssh.SSHKey) -> asyncssh.SSHCertificate:
    return authority.generate_host_certificate(key, "host", principals=["127.0.0.1"])


class Place:
    """Keys, known_hosts and an ssh configuration in a folder; servers are added to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known_hosts = folder / "known_hosts"
        self.config = folder / "config"
        self.known_hosts.write_text("")
        self.connections: set[asyncssh.SSHServerConnection] = set()
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(folder / "id")
        (folder / "id").chmod(0o600)
        self._authorized = asyncssh.import_authorized_keys(key.export_public_key().decode())
        self.config.write_text(
            f"Host *\n  User tester\n  IdentityFile {folder / 'id'}\n"
            f"  UserKnownHostsFile {self.known_hosts}\n  IdentityAgent none\n"
        )

    def knows(self, name: str, port: int, *options: str, host_key: asyncssh.SSHKey | None = None) -> None:
        """Put a port of this machine into the configuration, and its host key into known_hosts.

        :param options: more lines of its Host block
        """
        block = [f"Host {name}", "  HostName 127.0.0.1", f"  Port {port}", *(f"  {line}" for line in options)]
        self.config.write_text("\n".join(block) + "\n" + self.config.read_text())
        if host_key is not None:
            line = f"[127.0.0.1]:{port} {host_key.export_public_key().decode()}"
            self.known_hosts.write_text(self.known_hosts.read_text() + line)

    def hops(self, desk: Desk | None = None) -> SshHops:
        """Connections by this folder's configuration.

        :param desk: answers what servers ask; None: nobody does
        """
        return SshHops(SshOptions(config=self.config), desk or Desk())

    def hang_up(self) -> None:
        """Close the connections to the newest server."""
        for connection in list(self.connections):
            connection.abort()

    @asynccontextmanager
    async def master(self, name: str, socket: Path) -> AsyncIterator[None]:
        """A ControlMaster connection of the ssh program to a server whose ControlPath is ``socket``."""
        process = await asyncio.create_subprocess_exec("ssh", "-F", str(self.config), "-NM", name)
        try:
            await soon(socket.exists, "the master is open")
            yield
        finally:
            # Not SIGTERM: before OpenSSH 9.5, one that comes just ahead of its poll() is noticed after that
            # only (clientloop.c), which may be never.
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    @asynccontextmanager
    async def server(
        self,
        name: str,
        *options: str,
        trusted: bool = True,
        admits: bool = True,
        login_s: float = 0.0,
        serve: Serve | None = None,
        authority: asyncssh.SSHKey | None = None,
        asks: bool = True,
        wants: Wants | None = None,
    ) -> AsyncIterator[Counts]:
        """A server on a free loopback port, called ``name`` in the configuration.

        :param options: more lines of its Host block
        :param trusted: whether its host key is in known_hosts
        :param admits: whether it accepts our key
        :param login_s: how long a login takes
        :param serve: what it does with a command, in place of running it
        :param asks: whether a login needs anything
        :param wants: what a login takes without a key
        :param authority: signs a certificate for its host key
        """
        counts = Counts()
        host_key = asyncssh.generate_private_key("ssh-ed25519")

        connections: set[asyncssh.SSHServerConnection] = set()
        self.connections = connections
        serving: set[asyncio.Task[None]] = set()

        async def handle(process: asyncssh.SSHServerProcess[bytes]) -> None:
            task = asyncio.current_task()
            assert task
            serving.add(task)
            task.add_done_callback(serving.discard)
            assert process.command
            counts.commands.append(process.command)
            await (serve or run_it)(process)

        server = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_factory=lambda: _Server(counts, login_s, connections, asks, wants or Wants()),
            server_host_keys=[
                host_key if authority is None else (host_key, _certificate(authority, host_key))
            ],
            authorized_client_keys=self._authorized if admits else None,
            process_factory=handle,
            encoding=None,
        )
        port = server.get_port()
        self.knows(name, port, *options, host_key=host_key if trusted else None)
        self.port = port
        try:
            yield counts
        finally:
            server.close()
            await server.wait_closed()
            # What still runs would outlive the event loop: it ends with its connection, or is ended.
            for connection in connections:
                connection.abort()
            if serving:
                _, left = await asyncio.wait(serving, timeout=5)
                for task in left:
                    task.cancel()
                await asyncio.gather(*left, return_exceptions=True)
