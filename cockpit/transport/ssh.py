"""Nodes over ssh (asyncssh): the user's own ssh configuration, keys and agent, and strict host keys.

Timeouts, keepalives and the limit on handshakes are set here, because asyncssh has no defaults for
any of them. Sources: asyncssh 2.24 (``connection.py``); OpenSSH ``MaxStartups 10:30:100``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import asyncssh

from cockpit.transport.base import ConnectStage, LinkError, Pipe, Progress, Tail
from cockpit.transport.identities import host_keys, login_keys
from cockpit.transport.knownhosts import Trust
from cockpit.transport.login_prompts import DESK, VERDICT_S, Desk, Login
from cockpit.transport.proxycommand import ProxyCommand
from cockpit.transport.sshclient import Client
from cockpit.transport.sshconfig import Asked, HostConfig, read_config
from cockpit.transport.sshfaults import Target, explain, jump_host, named, refused_login, stuck, typed

HANDSHAKES_PER_HOP = 6
"""Unauthenticated connections to one sshd at a time: MaxStartups starts to drop them at 10."""

_CIPHERS = "^aes128-gcm@openssh.com,aes256-gcm@openssh.com"
"""Preferred unless the user's configuration says otherwise: 1.6 times as fast as chacha20 here."""

_METHODS = ("gssapi-with-mic", "hostbased", "publickey", "keyboard-interactive", "password")
"""Ways to log in; the last two ask a person."""

_TRIES = 4
"""Attempts if sshd drops the connection before the login."""

_LOOK_S = 0.2
"""Between two checks of how far a connection has got."""

_CLOSE_S = 3.0
"""For shared connections to close."""

_FAILURES = (OSError, asyncssh.Error, asyncssh.ConfigParseError, asyncio.TimeoutError, ValueError)


@dataclass(frozen=True)
class SshOptions:
    """How to connect; times in seconds."""

    config: Path | None = None
    """An ssh configuration file instead of the user's and the system's (as ``ssh -F``)."""
    stage_timeout: float = 30
    """For each stage of a connection: a slow node takes long in total but progresses; a dead one does not."""
    keepalive_interval: float = 5
    keepalive_count: int = 3
    accept_new: bool = False
    """Whether unknown host keys are kept without a question, as ``StrictHostKeyChecking accept-new``."""


class SshHops:
    """What the connections of one cockpit share: a gate per hop, and one connection per jump host.

    :param desk: answers what servers ask of a person; None: that of this process
    """

    def __init__(self, options: SshOptions | None = None, desk: Desk | None = None) -> None:
        self.options = options or SshOptions()
        self.instead: Callable[[str], Awaitable[bool]] | None = None
        """Whether a node can be reached in another way, without a person: asked before a person is."""
        self._desk = desk or DESK
        self._gates: dict[tuple[str, int, str], asyncio.Semaphore] = {}
        self._jumps: dict[str, asyncio.Task[asyncssh.SSHClientConnection]] = {}

    async def to(self, node: str) -> SshTransport:
        """See :meth:`cockpit.transport.base.Ways.to`."""
        return SshTransport(node, self)

    async def connect(
        self, destination: str, progress: Progress | None = None
    ) -> asyncssh.SSHClientConnection:
        """Open an authenticated connection; jump hosts of the user's configuration are shared.

        :param progress: updated with how far it has got
        :raises LinkError: with the node, the cause and what to type next
        """
        progress = progress or Progress()
        asked = named(destination)
        try:
            target = await self._target(asked)
            tunnel = None
            if target.config.jump:
                progress.reach(ConnectStage.JUMP)
                tunnel = await self._jump(target.config.jump, destination, progress)
            login = self._login(target, destination, progress)
            return await self._connect(target, tunnel, target.config.jump, progress, login)
        except _FAILURES as error:
            raise explain(error, asked.name, self.by_hand(asked)) from None

    async def close(self) -> None:
        """Close the shared connections to jump hosts."""
        tasks = list(self._jumps.values())
        self._jumps.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_S)
        for task in tasks:
            if task.done() and not task.cancelled() and task.exception() is None:
                task.result().abort()

    def _gate(self, host: str, port: int, via: str = "") -> asyncio.Semaphore:
        return self._gates.setdefault((host, port, via), asyncio.Semaphore(HANDSHAKES_PER_HOP))

    async def _jump(self, hops: str, name: str, wanted: Progress) -> asyncssh.SSHClientConnection:
        """The connection to the last of these jump hosts, ``[user@]host[:port],…``, by way of the others.

        :param name: who wants it
        :param wanted: for what
        """
        task = self._jumps.get(hops)
        if task is None or (
            task.done() and (task.cancelled() or task.exception() or task.result().is_closed())
        ):
            task = self._jumps[hops] = asyncio.create_task(self._open_jump(hops, name, wanted))
        # One node giving up must not cancel the hop under the others.
        return await asyncio.shield(task)

    async def _open_jump(self, hops: str, name: str, wanted: Progress) -> asyncssh.SSHClientConnection:
        route = await self._route(hops, name)
        if route != hops:
            return await self._jump(route, name, wanted)
        before, _, last = hops.rpartition(",")
        asked = jump_host(last, name)
        try:
            target = await self._target(asked, before)
            login = self._login(target, name, wanted)
            login.check()
            tunnel = await self._jump(before, name, wanted) if before else None
            return await self._connect(target, tunnel, before, Progress(), login)
        except _FAILURES as error:
            raise explain(error, asked.name, self.by_hand(asked, before)) from None

    async def _route(self, hops: str, name: str) -> str:
        """All jump hosts on the way: the first one may be behind others by its own configuration.

        :raises LinkError: it is behind itself
        """
        while True:
            first = hops.partition(",")[0]
            earlier = (await self._target(jump_host(first, name))).config.jump
            if not earlier:
                return hops
            if not set(earlier.split(",")).isdisjoint(hops.split(",")):
                hint = f"give {first} `ProxyJump none`, above the line that is for all hosts"
                what = f"ssh configuration: jump host {first} is reached through itself"
                raise LinkError(what, where=name, hint=hint, retry=False)
            hops = f"{earlier},{hops}"

    def _login(self, target: Target, node: str, wanted: Progress) -> Login:
        """The login at a node or, on the way to it, at a jump host."""
        config, asked = target.config, target.asked
        port = f":{config.port}" if config.port != 22 else ""
        return Login(
            self._desk,
            f"{config.user}@{asked.host}{port}",
            where=target.name,
            node=node,
            shared=config.user if target.name == node else "",
            tries=config.prompts,
            unasked=wanted.unasked,
            by_hand=target.by_hand,
        )

    async def _target(self, asked: Asked, before: str = "") -> Target:
        """:raises LinkError: its configuration cannot be followed"""
        wanted = self.options
        config = await asyncio.to_thread(read_config, asked, wanted.config, wanted.stage_timeout)
        return Target(asked, config, self.by_hand(asked, before), self._file, before)

    def by_hand(self, asked: Asked, before: str = "") -> str:
        """The ssh command that a person types for a host.

        :param before: the jump hosts that lead to it, when it is one itself
        """
        return typed(asked, (*self._file, *(("-J", before) if before else ())))

    @property
    def _file(self) -> tuple[str, ...]:
        return ("-F", str(self.options.config)) if self.options.config else ()

    async def _connect(
        self,
        target: Target,
        tunnel: asyncssh.SSHClientConnection | None,
        via: str,
        progress: Progress,
        login: Login,
    ) -> asyncssh.SSHClientConnection:
        """Connect; retry after a moment if sshd drops us before the login, as it does when busy.

        :param via: the jump hosts that ``tunnel`` passes
        """
        try:
            return await self._logged_in(target, tunnel, via, progress, login)
        except (OSError, asyncssh.Error):
            if not login.sent:
                raise
            login.end()  # whatever it was that ended it, the answer may have been counted
            assert login.stopped
            raise login.stopped from None
        finally:
            login.end()

    async def _logged_in(
        self,
        target: Target,
        tunnel: asyncssh.SSHClientConnection | None,
        via: str,
        progress: Progress,
        login: Login,
    ) -> asyncssh.SSHClientConnection:
        trust = await asyncio.to_thread(Trust, target.config, target.name)
        options, missing = await self._options(target.config, trust, tunnel)
        # One gate for each sshd: behind a jump host a dead node must not hold up the others.
        gate = self._gate(target.config.host, target.config.port, via)
        instead = partial(self.instead, login.node) if self.instead is not None else None
        attempt = 0
        while True:
            attempt += 1
            client = Client(
                progress, target, trust, login, accept_new=self.options.accept_new, instead=instead
            )
            progress.reach(ConnectStage.QUEUED)
            try:
                async with gate:
                    return await self._dial(options, client, tunnel)
            except asyncssh.HostKeyNotVerifiable as error:
                raise client.host_key_error(str(error)) from None
            except asyncssh.PermissionDenied as error:
                if client.barred or not login.blocked:
                    raise client.barred or login.stopped or refused_login(error, target, missing) from None
            except (asyncssh.ConnectionLost, ConnectionResetError, BrokenPipeError) as error:
                if client.barred:
                    raise client.barred from None
                client.check_host_keys()
                if await login.heard():
                    continue
                if login.stopped is not None:
                    raise login.stopped from None
                if login.sent or attempt >= _TRIES:
                    raise await client.lost(error) from None
                await asyncio.sleep(random.uniform(0.3, 1.0) * attempt)
            finally:
                client.settle()
            if login.blocked:
                progress.reach(ConnectStage.PERSON)
                await login.turn()
                attempt = 0

    async def _dial(
        self,
        options: asyncssh.SSHClientConnectionOptions,
        client: Client,
        tunnel: asyncssh.SSHClientConnection | None,
    ) -> asyncssh.SSHClientConnection:
        """One connection, given up when it makes no progress.

        :raises LinkError: it stayed in one stage for too long
        """
        client.progress.reach(ConnectStage.DIALING)
        config = client.target.config
        if config.proxy_command and tunnel is None:
            client.proxy = await ProxyCommand.start(config.proxy_command, client.target.name)
        # Pass the tunnel again: without it, asyncssh would itself open the configured jump host once more.
        dialing = asyncio.ensure_future(
            asyncssh.connect(
                options.orig_host,
                options=options,
                config=None,  # else it reads ~/.ssh/config, whatever -F says
                tunnel=tunnel,
                sock=client.proxy.socket if client.proxy else None,
                client_factory=lambda: client,
            )
        )
        try:
            while not (await asyncio.wait({dialing}, timeout=_LOOK_S))[0]:
                client.look()
                login, limit = client.login, self.options.stage_timeout
                limit = max(limit, VERDICT_S) if login.begun else limit
                if client.progress.waited_s > limit and not login.asking:
                    raise client.stuck(limit)
            connection = await dialing
            client.connected = True
            return connection
        finally:
            dialing.cancel()
            # Nobody waits for it any more: its further errors do not matter.
            dialing.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _options(
        self, config: HostConfig, trust: Trust, tunnel: asyncssh.SSHClientConnection | None
    ) -> tuple[asyncssh.SSHClientConnectionOptions, list[str]]:
        """asyncssh's options, and a sentence about each configured key that is missing."""
        keys, missing = await asyncio.to_thread(login_keys, config)
        # ssh-keysign looks at the TCP connection that it signs for.
        own = host_keys(config) if tunnel is None and not config.proxy_command else {}
        if config.host_based and not own:
            missing.append("host-based login needs ssh-keysign here, and no jump host")
        keys |= own
        if not config.has_ciphers:
            keys["encryption_algs"] = _CIPHERS
        if config.options.get("PKCS11Provider", "none") != "none" and find_spec("pkcs11") is None:
            keys["pkcs11_provider"] = None  # asyncssh would raise an error, whatever else may let us in
            missing.append("PKCS11Provider needs ssh-add -s, or the package python-pkcs11")
        ways = _METHODS if config.prompts else _METHODS[:-2]
        methods = [method for method in config.methods or ways if method in ways]
        options: asyncssh.SSHClientConnectionOptions = await asyncssh.SSHClientConnectionOptions.construct(
            _Evaluated(config),
            config=None,
            host=config.host,
            tunnel=tunnel,
            known_hosts=trust,
            server_host_key_algs=trust.algorithms(),
            agent_forwarding=False,
            x11_forwarding=False,
            request_pty=False,
            canonicalize_hostname=False,  # ssh -G has done it
            disable_trivial_auth=True,
            preferred_auth=methods or ["none"],
            gss_kex=False,  # it checks no host key
            connect_timeout=None,  # each stage has its own limit
            login_timeout=0,
            keepalive_interval=self.options.keepalive_interval,
            keepalive_count_max=self.options.keepalive_count,
            utf8_decode_errors="replace",
            **keys,
        )
        return options, missing


class _Evaluated(asyncssh.SSHClientConnectionOptions):
    """A configuration that is read already, where asyncssh looks for one that options are based on."""

    def __init__(self, config: HostConfig) -> None:
        self.config = config.options
        self.kwargs = {}


class SshTransport:
    """One node over one ssh connection."""

    kind = "ssh"
    job = ""

    def __init__(self, node: str, hops: SshHops) -> None:
        self.progress = Progress()
        self._node = node
        self._by_hand = hops.by_hand(named(node))
        self._hops = hops
        self._connection: asyncssh.SSHClientConnection | None = None

    async def open(self, command: str) -> Pipe:
        """Connect if there is no connection yet, and start ``command``."""
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._hops.connect(self._node, self.progress)
        self.progress.reach(ConnectStage.SHELL)
        limit = self._hops.options.stage_timeout
        try:
            process = await asyncio.wait_for(self._connection.create_process(command, encoding=None), limit)
        except (TimeoutError, asyncio.TimeoutError):
            raise stuck(ConnectStage.SHELL, self._node, self._by_hand, limit) from None
        except (OSError, asyncssh.Error) as error:
            raise explain(error, self._node, self._by_hand) from None
        return _SshPipe(self._node, self._by_hand, process)

    async def close(self) -> None:
        """Close the connection at once: a half-dead link must not hold us up."""
        if self._connection is not None:
            self._connection.abort()
            self._connection = None


class _SshPipe:
    def __init__(self, node: str, by_hand: str, process: asyncssh.SSHClientProcess[bytes]) -> None:
        self._node = node
        self._by_hand = by_hand
        self._process = process
        self._tail = Tail()
        self._stderr = asyncio.create_task(self._drain_stderr())

    async def read(self, size: int) -> bytes:
        try:
            return await self._process.stdout.read(size)
        except (OSError, asyncssh.Error) as error:
            raise explain(error, self._node, self._by_hand) from None

    async def write(self, data: bytes) -> None:
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except (OSError, asyncssh.Error) as error:
            raise explain(error, self._node, self._by_hand) from None

    async def close(self) -> None:
        self._process.close()
        self._stderr.cancel()

    def last_words(self) -> str:
        return self._tail.text()

    async def _drain_stderr(self) -> None:
        with suppress(OSError, asyncssh.Error):
            while data := await self._process.stderr.read(4096):
                self._tail.add(data)
