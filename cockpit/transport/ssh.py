"""Nodes over ssh (asyncssh): the user's own ssh configuration, keys and agent, and strict host keys.

Timeouts, keepalives and the limit on handshakes are set here, because asyncssh has no defaults for
any of them. Sources: asyncssh 2.24 (``connection.py``); OpenSSH ``MaxStartups 10:30:100``.
"""

from __future__ import annotations

import asyncio
import errno
import getpass
import os
import random
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import asyncssh

from cockpit.base.shell import quote
from cockpit.transport.base import ConnectStage, LinkError, NoLogin, Pipe, Progress, Tail, UnknownHostKey

HANDSHAKES_PER_HOP = 6
"""Unauthenticated connections to one sshd at a time: MaxStartups starts to drop them at 10."""

_CIPHERS = "^aes128-gcm@openssh.com,aes256-gcm@openssh.com"
"""Preferred unless the user's configuration says otherwise: 1.6 times as fast as chacha20 here."""

_NO_HOSTS = b"# none\n"
"""No known host at all. Never None or empty: to asyncssh, None is "trust every key"."""

_TRIES = 4
"""Attempts if sshd drops the connection before the login."""

_LOOK_S = 0.2
"""Between two checks of how far a connection has got."""

_CLOSE_S = 3.0
"""For shared connections to close."""

_FAILURES = (OSError, asyncssh.Error, asyncssh.ConfigParseError, asyncio.TimeoutError, ValueError)

_SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
_SYSTEM_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")


@dataclass(frozen=True)
class SshOptions:
    """How to connect; times in seconds."""

    config: Path | None = None
    """An ssh configuration file instead of the user's and the system's (as ``ssh -F``)."""
    stage_timeout: float = 30
    """For each stage of a connection: a slow node takes long in total but progresses; a dead one does not."""
    keepalive_interval: float = 5
    keepalive_count: int = 3


class SshHops:
    """What the connections of one cockpit share: a gate per hop, and one connection per jump host."""

    def __init__(self, options: SshOptions | None = None) -> None:
        self.options = options or SshOptions()
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
        user, _, host = destination.rpartition("@")
        try:
            options = await self._options_for(host, user)
            jump = options.tunnel
            via = ""
            if isinstance(jump, str) and jump:
                via = jump
                progress.reach(ConnectStage.JUMP)
                tunnel = await self._jump(jump)
                options = await self._options_for(host, user, tunnel=tunnel)
            # One gate for each sshd: behind a jump host a dead node must not hold up the others.
            gate = self._gate(options.host, options.port, via)
            return await self._connect(options, gate, destination, progress)
        except _FAILURES as error:
            raise explain(error, destination) from None

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

    async def _jump(self, spec: str) -> asyncssh.SSHClientConnection:
        task = self._jumps.get(spec)
        if task is None or (
            task.done() and (task.cancelled() or task.exception() or task.result().is_closed())
        ):
            task = self._jumps[spec] = asyncio.create_task(self._open_jump(spec))
        # One node giving up must not cancel the hop under the others.
        return await asyncio.shield(task)

    async def _open_jump(self, spec: str) -> asyncssh.SSHClientConnection:
        """Open a (possibly chained) ProxyJump: ``[user@]host[:port],…``."""
        connection: asyncssh.SSHClientConnection | None = None
        for hop in spec.split(","):
            user, _, place = hop.rpartition("@")
            host, _, port = place.partition(":")
            try:
                options = await self._options_for(
                    host, user, port=int(port) if port else (), tunnel=connection
                )
                gate = self._gate(options.host, options.port)
                connection = await self._connect(options, gate, f"jump host {hop}", Progress())
            except _FAILURES as error:
                raise explain(error, f"jump host {hop}") from None
        assert connection
        return connection

    async def _connect(
        self,
        options: asyncssh.SSHClientConnectionOptions,
        gate: asyncio.Semaphore,
        name: str,
        progress: Progress,
    ) -> asyncssh.SSHClientConnection:
        """Connect; retry after a moment if sshd drops us before the login, as it does when busy."""
        for attempt in range(1, _TRIES + 1):
            client = _Client(progress)
            progress.reach(ConnectStage.QUEUED)
            try:
                async with gate:
                    return await self._dial(options, client, name)
            except asyncssh.HostKeyNotVerifiable as error:
                raise _host_key_error(options, name, str(error), client.key) from None
            except (asyncssh.ConnectionLost, ConnectionResetError):
                if attempt == _TRIES:
                    raise
                await asyncio.sleep(random.uniform(0.3, 1.0) * attempt)
        raise AssertionError("unreachable")

    async def _dial(
        self, options: asyncssh.SSHClientConnectionOptions, client: _Client, name: str
    ) -> asyncssh.SSHClientConnection:
        """One connection, given up when it makes no progress.

        :raises LinkError: it stayed in one stage for too long
        """
        client.progress.reach(ConnectStage.DIALING)
        # Pass the tunnel again: without it, asyncssh would itself open the configured jump host once more.
        dialing = asyncio.ensure_future(
            asyncssh.connect(
                options.orig_host, options=options, tunnel=options.tunnel, client_factory=lambda: client
            )
        )
        try:
            while not (await asyncio.wait({dialing}, timeout=_LOOK_S))[0]:
                client.look()
                if client.progress.waited_s > self.options.stage_timeout:
                    raise _stuck(client.progress.stage, name, self.options.stage_timeout)
            return await dialing
        finally:
            dialing.cancel()
            # Nobody waits for it any more: its further errors do not matter.
            dialing.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _options_for(
        self,
        host: str,
        user: str,
        *,
        port: int | tuple[()] = (),
        tunnel: asyncssh.SSHClientConnection | tuple[()] | None = (),
    ) -> asyncssh.SSHClientConnectionOptions:
        wanted = self.options
        if wanted.config:
            if not os.access(wanted.config, os.R_OK):
                raise LinkError("ssh configuration cannot be read", where=str(wanted.config), retry=False)
            config = [str(wanted.config)]
        else:
            files = (Path.home() / ".ssh" / "config", _SYSTEM_CONFIG)
            config = [str(file) for file in files if os.access(file, os.R_OK)]

        async def build(**more: object) -> asyncssh.SSHClientConnectionOptions:
            options: asyncssh.SSHClientConnectionOptions = (
                await asyncssh.SSHClientConnectionOptions.construct(
                    host=host,
                    port=port,
                    username=user or (),
                    config=config,
                    tunnel=tunnel,
                    agent_forwarding=False,
                    x11_forwarding=False,
                    disable_trivial_auth=True,
                    preferred_auth="gssapi-with-mic,hostbased,publickey",
                    connect_timeout=None,  # each stage has its own limit
                    login_timeout=0,
                    keepalive_interval=wanted.keepalive_interval,
                    keepalive_count_max=wanted.keepalive_count,
                    utf8_decode_errors="replace",
                    **more,
                )
            )
            return options

        options = await build()
        # asyncssh reads None (`UserKnownHostsFile none`) as "do not check host keys at all".
        hosts = _NO_HOSTS if options.known_hosts is None else options.known_hosts or _known_hosts()
        more: dict[str, object] = {"known_hosts": _read_once(hosts)}
        if not options.config.get("Ciphers"):
            more["encryption_algs"] = _CIPHERS
        return await build(**more)


def _known_hosts() -> list[str] | bytes:
    own = Path.home() / ".ssh"
    files = [str(own / "known_hosts"), str(own / "known_hosts2"), *_SYSTEM_KNOWN_HOSTS]
    return [file for file in files if os.access(file, os.R_OK)] or _NO_HOSTS


def _read_once(hosts: object) -> object:
    """Host key files, read once for all nodes and again when one has changed; anything else unchanged."""
    names = [hosts] if isinstance(hosts, str) else hosts
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return hosts
    try:
        seen = [(name, os.stat(name)) for name in names]
    except OSError:
        return hosts  # asyncssh has a message for that
    return _parsed(tuple((name, found.st_ino, found.st_mtime_ns, found.st_size) for name, found in seen))


@lru_cache(maxsize=16)
def _parsed(files: tuple[tuple[str, int, int, int], ...]) -> asyncssh.SSHKnownHosts:
    return asyncssh.read_known_hosts([name for name, *_ in files])


class _Client(asyncssh.SSHClient):
    """Reports how far a connection has got; keeps an unknown host key, and refuses it."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.key: asyncssh.SSHKey | None = None
        self._connection: asyncssh.SSHClientConnection | None = None

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self._connection = conn
        self.progress.reach(ConnectStage.BANNER)

    def look(self) -> None:
        """Check what the other side has sent: asyncssh has no callback for a banner or for new keys."""
        if self._connection is None:
            return
        if self._connection.get_extra_info("recv_cipher"):
            self.progress.reach(ConnectStage.LOGIN)
        elif self._connection.get_extra_info("server_version"):
            self.progress.reach(ConnectStage.KEYS)

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.key = key
        return False


def _stuck(stage: ConnectStage, name: str, seconds: float) -> LinkError:
    """A node that has stayed too long in one stage of a connection."""
    if stage is ConnectStage.DIALING:
        what, hint = f"no answer to the connection for {seconds:g} s", "is the node up, a firewall between?"
    else:
        what = f"connected, and then no answer for {seconds:g} s: still waiting for {stage.value}"
        hint = f"is the node overloaded, its disk gone? try: ssh {name} true"
    return LinkError(what, where=name, hint=hint)


def _host_key_error(
    options: asyncssh.SSHClientConnectionOptions, name: str, text: str, shown: asyncssh.SSHKey | None
) -> LinkError:
    """Distinguish a changed host key from an unknown one, which asyncssh does not."""
    host = options.host_key_alias or options.host
    port = None if options.port == 22 else options.port
    known = asyncssh.match_known_hosts(options.known_hosts, host, "", port)
    entry = f"[{host}]:{port}" if port else host
    if known[2]:
        what, hint = f"host key refused: {text}", "ask its admin for a new host key"
    elif known[0]:
        what = "host key changed: not the machine it was, or somebody is in between"
        hint = f"verify with its admin, then: ssh-keygen -R {quote(entry)}"
    elif shown is not None and (file := _own_known_hosts(options)):
        key, fingerprint = _public(shown), shown.get_fingerprint()
        return UnknownHostKey(where=name, entry=entry, key=key, fingerprint=fingerprint, file=file)
    elif shown is not None:
        what = "host key is not known, and the ssh configuration keeps none"
        hint = f"give {name} a UserKnownHostsFile"
    else:
        what, hint = f"host key refused: {text}", f"try: ssh {quote(name)} true"
    return LinkError(what, where=name, hint=hint, retry=False)


def _own_known_hosts(options: asyncssh.SSHClientConnectionOptions) -> str:
    """The file that ssh would write a new host key to, the first of UserKnownHostsFile; empty: none."""
    configured = options.config.get("UserKnownHostsFile")
    first = configured[0] if isinstance(configured, list) and configured else ""
    if configured == [] or first == os.devnull:  # asyncssh's reading of "none" is an empty list
        return ""
    return str(Path(first).expanduser() if first else Path.home() / ".ssh" / "known_hosts")


def _public(key: asyncssh.SSHKey) -> str:
    """``ssh-ed25519 AAAA…`` without the comment, which the other side chose."""
    return " ".join(key.export_public_key().decode().split()[:2])


class SshTransport:
    """One node over one ssh connection."""

    kind = "ssh"

    def __init__(self, node: str, hops: SshHops) -> None:
        self.progress = Progress()
        self._node = node
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
            raise _stuck(ConnectStage.SHELL, self._node, limit) from None
        except (OSError, asyncssh.Error) as error:
            raise explain(error, self._node) from None
        return _SshPipe(self._node, process)

    async def close(self) -> None:
        """Close the connection at once: a half-dead link must not hold us up."""
        if self._connection is not None:
            self._connection.abort()
            self._connection = None


class _SshPipe:
    def __init__(self, node: str, process: asyncssh.SSHClientProcess[bytes]) -> None:
        self._node = node
        self._process = process
        self._tail = Tail()
        self._stderr = asyncio.create_task(self._drain_stderr())

    async def read(self, size: int) -> bytes:
        try:
            return await self._process.stdout.read(size)
        except (OSError, asyncssh.Error) as error:
            raise explain(error, self._node) from None

    async def write(self, data: bytes) -> None:
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except (OSError, asyncssh.Error) as error:
            raise explain(error, self._node) from None

    async def close(self) -> None:
        self._process.close()
        self._stderr.cancel()

    def last_words(self) -> str:
        return self._tail.text()

    async def _drain_stderr(self) -> None:
        with suppress(OSError, asyncssh.Error):
            while data := await self._process.stderr.read(4096):
                self._tail.add(data)


def explain(error: BaseException, node: str) -> LinkError:
    """One sentence and one thing to type for whatever asyncssh or the socket layer raised."""
    if isinstance(error, LinkError):
        return error
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN):
        return LinkError("no route to it", where=node, hint="is the node up, on this network?")
    for kinds, sentence in _SENTENCES:
        if isinstance(error, kinds):
            what, hint, retry = sentence(text, node)
            if isinstance(error, _NO_LOGIN):
                refused = isinstance(error, asyncssh.PermissionDenied)
                return NoLogin(what, where=node, hint=hint, retry=retry, refused=refused)
            return LinkError(what, where=node, hint=hint, retry=retry)
    return LinkError(f"connection failed: {text}", where=node, hint=f"try: ssh {quote(node)} true")


_Sentence = tuple[str, str, bool]


def _refused_login(text: str, node: str) -> _Sentence:
    user = node.rpartition("@")[0] or getpass.getuser()
    if "too many" in text.lower():
        return (
            "too many keys offered",
            f"set IdentitiesOnly and one IdentityFile for {node} in ~/.ssh/config",
            False,
        )
    return (f"login refused: no key of {user} is accepted", f"try: ssh-copy-id {quote(node)}", False)


_NO_LOGIN = (
    asyncssh.PermissionDenied,
    asyncssh.ConfigParseError,
    asyncssh.KeyImportError,
    asyncssh.KeyEncryptionError,
    asyncssh.KeyExchangeFailed,
    asyncssh.ProtocolNotSupported,
)
"""Another client with the same configuration may be able to log in."""

_SENTENCES: tuple[tuple[tuple[type[BaseException], ...], Callable[[str, str], _Sentence]], ...] = (
    ((asyncssh.PermissionDenied,), _refused_login),
    (
        (asyncssh.ConfigParseError,),
        lambda text, node: (f"ssh configuration: {text}", "correct that line", False),
    ),
    (
        (asyncssh.KeyImportError, asyncssh.KeyEncryptionError),
        lambda text, node: (f"a key cannot be read: {text}", "load it into ssh-agent: ssh-add", False),
    ),
    (
        (asyncssh.KeyExchangeFailed, asyncssh.ProtocolNotSupported),
        lambda text, node: (f"no common ssh algorithm: {text}", f"try: ssh -v {quote(node)} true", False),
    ),
    (
        (asyncssh.ConnectionLost,),
        lambda text, node: (f"connection lost: {text}", "sshd may be dropping parallel logins", True),
    ),
    (
        (socket.gaierror,),
        lambda text, node: ("name unknown", "correct the hostfile, /etc/hosts or ~/.ssh/config", False),
    ),
    (
        (asyncio.TimeoutError, TimeoutError),
        lambda text, node: ("no answer to the connection", "is the node up, a firewall between?", True),
    ),
    (
        (ConnectionRefusedError,),
        lambda text, node: ("connection refused: no sshd listens there", "start sshd, or set its Port", True),
    ),
)
