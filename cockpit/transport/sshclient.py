"""One attempt to connect by ssh: how far it has got, whether its host key is trusted, why it failed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import asyncssh
from asyncssh.packet import SSHPacket

from cockpit.base.shell import join
from cockpit.core.text import one_line
from cockpit.errors import CockpitError
from cockpit.transport import hostkeys
from cockpit.transport.adopt import barred
from cockpit.transport.base import ConnectStage, LinkError, Progress, UnknownHostKey
from cockpit.transport.knownhosts import Trust
from cockpit.transport.login_prompts import Login
from cockpit.transport.proxycommand import ProxyCommand
from cockpit.transport.sshfaults import Target, stuck


class Client(asyncssh.SSHClient):
    """Reports how far a connection has got, and decides about host keys that asyncssh does not know.

    :param progress: kept up to date
    :param login: answers what the server asks
    :param instead: whether there is a way to log in that needs no person
    :param accept_new: whether unknown host keys are kept and trusted
    """

    def __init__(
        self,
        progress: Progress,
        target: Target,
        trust: Trust,
        login: Login,
        *,
        accept_new: bool,
        instead: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self.progress = progress
        self.login = login
        self._instead = instead
        self.target = target
        self.proxy: ProxyCommand | None = None
        self.connected = False
        self.barred: LinkError | None = None
        """Why no login is any use, if the other side has said that."""
        self._trust = trust
        self._accepts_new = accept_new or target.config.strict == "accept-new"
        self._key: asyncssh.SSHKey | None = None
        self._objection = ""
        self._unkept: CockpitError | None = None
        self._connection: asyncssh.SSHClientConnection | None = None

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        """See :class:`asyncssh.SSHClient`."""
        self._connection = conn
        self.progress.reach(ConnectStage.BANNER)
        validate, send = conn.validate_server_host_key, conn.send_userauth_request

        def validated(key_data: bytes) -> asyncssh.SSHKey:
            key_data = self._trust.plain(key_data, *self._trust.place)
            self._objection = self._trust.objection(key_data)
            if self._objection:
                raise asyncssh.HostKeyNotVerifiable(self._objection)
            return validate(key_data)

        async def sent(method: bytes, *args: bytes, key: Any = None, trivial: bool = True) -> None:
            # asyncssh counts host-based login as trivial, which it refuses; but a signature proves something.
            await send(method, *args, key=key, trivial=trivial and key is None)

        conn.validate_server_host_key = validated  # type: ignore[method-assign]
        conn.send_userauth_request = sent  # type: ignore[method-assign]

    def connection_lost(self, exc: Exception | None) -> None:
        """See :class:`asyncssh.SSHClient`."""
        if self.proxy and self.connected:
            self.proxy.end()

    def auth_banner_received(self, msg: str, lang: str) -> None:
        """See :class:`asyncssh.SSHClient`."""
        self.barred = self.barred or barred(msg, self.target.name)

    def look(self) -> None:
        """Check what the other side has sent: asyncssh has no callback for a banner or for new keys."""
        if self._connection is None:
            return
        if self._connection.get_extra_info("recv_cipher"):
            self.progress.reach(ConnectStage.PERSON if self.login.asking else ConnectStage.LOGIN)
        elif self._connection.get_extra_info("server_version"):
            self.progress.reach(ConnectStage.KEYS)

    def stuck(self, seconds: float) -> LinkError:
        """It has made no progress for so long."""
        return stuck(self.progress.stage, self.target.name, self.target.by_hand, seconds)

    def settle(self) -> None:
        """After an attempt: without a connection, nothing of it may stay."""
        if self.proxy and not self.connected:
            self.proxy.end()

    def check_host_keys(self) -> None:
        """After a connection was lost: sshd hangs up, without a word, where none of its host keys is wanted.

        :raises asyncssh.KeyExchangeFailed: that is what happened
        """
        said = self._connection._server_kexinit if self._connection else b""
        if not said:
            return
        packet = SSHPacket(said)
        packet.get_bytes(17)  # its type and a cookie
        packet.get_namelist()  # of key exchanges
        has = [each.decode(errors="replace") for each in packet.get_namelist()]
        if set(has).isdisjoint(wanted := self._trust.algorithms()):
            these = one_line(", ".join(has), limit=200)
            wants = f"HostKeyAlgorithms wants {', '.join(wanted)}"
            raise asyncssh.KeyExchangeFailed(f"{wants}, but its host keys are for {these}")

    async def lost(self, error: Exception) -> Exception:
        """Why a connection was lost before the login: its ProxyCommand may know."""
        words = await self.proxy.last_words() if self.proxy else ""
        if not words:
            return error
        return LinkError(f"ProxyCommand ended: {words}", where=self.target.name, hint=f"try: {self._by_hand}")

    async def password_auth_requested(self) -> str | None:
        """See :class:`asyncssh.SSHClient`."""
        if not await self.login.may_begin(self._instead):
            return None
        given = await self._answered([("password:", False)])
        return given[0] if given else None

    def password_change_requested(self, prompt: str, lang: str) -> Any:
        """See :class:`asyncssh.SSHClient`."""
        self.login.expired()
        return NotImplemented

    async def kbdint_auth_requested(self) -> str | None:
        """See :class:`asyncssh.SSHClient`."""
        return "" if await self.login.may_begin(self._instead) else None

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> Sequence[str] | None:
        """See :class:`asyncssh.SSHClient`."""
        self.login.hear(f"{name}\n{instructions}")
        return await self._answered(prompts) if prompts else []

    async def _answered(self, prompts: Sequence[tuple[str, bool]]) -> Sequence[str] | None:
        auth = self._connection.auth if self._connection else None
        given = await self.login.answers(prompts)
        if auth is not None and given is not None:
            # asyncssh has no callback for what a server makes of an answer.
            auth.auth_failed = lambda: self.login.verdict(False)  # type: ignore[attr-defined]
            auth.auth_succeeded = lambda: self.login.verdict(True)  # type: ignore[attr-defined]
        return given

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """See :class:`asyncssh.SSHClient`."""
        self._key = key
        if not self._accepts_new or not isinstance(unknown := self.host_key_error(""), UnknownHostKey):
            return False
        try:
            hostkeys.trust([unknown])
        except CockpitError as error:
            self._unkept = error
            return False
        return True

    def host_key_error(self, text: str) -> LinkError:
        """Distinguish a changed host key from an unknown one, which asyncssh does not."""
        config, target = self.target.config, self.target
        host, port = self._trust.place
        entry = f"[{host}]:{port}" if port else host
        known, authorities, revoked, *_ = self._trust(host, "", port)
        file = config.user_known_hosts[0] if config.user_known_hosts else ""
        about = ""
        if self._objection:
            what, hint = f"host key refused: {self._objection}", "ask its admin for a new host key"
        elif self._unkept:
            what, hint = f"host key cannot be saved: {self._unkept}", "make that file writable"
        elif revoked and (self._key is None or self._key in revoked):
            what, hint = f"host key refused: {text}", "ask its admin for a new host key"
        elif known and self._key and self._key.algorithm not in (kinds := {key.algorithm for key in known}):
            has = ", ".join(sorted(kind.decode() for kind in kinds))
            what = f"its {self._key.get_algorithm()} host key is not known, but only {has}"
            hint = f"verify with its admin, then accept it with: {self._by_hand}"
        elif known:
            default = file == str(Path.home() / ".ssh" / "known_hosts")
            remove = ["ssh-keygen", "-R", entry, *([] if default or not file else ["-f", file])]
            what = "host key changed: a different machine, or somebody in between"
            hint = f"verify with its admin, then: {join(remove)}"
            about = "changed-key"
        elif self._key is None:
            what, hint = f"host key refused: {text}", f"try: {self._by_hand}"
        elif not file or file == "/dev/null":
            what = "host key is not known, and the ssh configuration stores none"
            hint = f"give {target.name} a UserKnownHostsFile"
            about = "host-key"
        elif config.strict == "yes" and not self._accepts_new:
            what = "host key is not known, and StrictHostKeyChecking is yes"
            hint = f"get it from its admin and add it to {file}, or try --accept-new-host-keys"
            about = "host-key"
        else:
            return UnknownHostKey(
                where=target.name,
                entry=entry,
                key=_public(self._key),
                fingerprint=self._key.get_fingerprint(),
                file=file,
                hashed=config.hash_known_hosts,
                by_hand=target.by_hand,
                certified=bool(authorities),
            )
        return LinkError(what, where=target.name, hint=hint, retry=False, about=about)

    @property
    def _by_hand(self) -> str:
        return f"{self.target.by_hand} true"


def _public(key: asyncssh.SSHKey) -> str:
    """``ssh-ed25519 AAAA…`` without the comment, which the other side chose."""
    return " ".join(key.export_public_key().decode().split()[:2])
