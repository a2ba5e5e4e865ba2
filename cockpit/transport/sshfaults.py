"""What to say when ssh fails, and what to type next: commands that work as they stand."""

from __future__ import annotations

import asyncio
import errno
import socket
from dataclasses import dataclass

import asyncssh

from cockpit.base.shell import join
from cockpit.transport.base import ConnectStage, LinkError, NoLogin, NotBySsh
from cockpit.transport.sshconfig import Asked, HostConfig


@dataclass(frozen=True)
class Target:
    """A node or a jump host.

    :param asked: host, user and port as they were named
    :param config: what its ssh configuration says
    :param by_hand: the ssh command that a person types for it
    :param file: the words of that command that name a configuration
    :param before: the jump hosts that lead to it, when it is one itself
    """

    asked: Asked
    config: HostConfig
    by_hand: str
    file: tuple[str, ...] = ()
    before: str = ""

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.asked.name

    def copy_id(self) -> str:
        """The command that makes it accept a key."""
        way = ("-o", f"ProxyJump={self.before}") if self.before else ()
        return _command("ssh-copy-id", self.asked, (*self.file, *way))


def named(node: str) -> Asked:
    """A node: ``host`` or ``user@host``."""
    user, _, host = node.rpartition("@")
    return Asked(host, user, None, node)


def jump_host(hop: str, name: str) -> Asked:
    """A part of ProxyJump: ``[user@]host[:port]`` or ``ssh://[user@]host[:port]``.

    :raises LinkError: its port is no number
    """
    user, _, place = hop.strip().removeprefix("ssh://").rstrip("/").rpartition("@")
    host, colon, port = place.rpartition(":") if place.count(":") == 1 or "]:" in place else (place, "", "")
    if colon and not port.isdigit():
        raise LinkError(f"ssh configuration: ProxyJump {hop}: bad port", where=name, retry=False)
    return Asked(host.strip("[]"), user, int(port) if port else None, f"jump host {hop}")


def typed(asked: Asked, options: tuple[str, ...] = ()) -> str:
    """The ssh command that a person types for a host; a command may follow."""
    return _command("ssh", asked, options)


def _command(program: str, asked: Asked, options: tuple[str, ...]) -> str:
    port = ("-p", str(asked.port)) if asked.port is not None else ()
    return join([program, *options, *port, f"{asked.user}@{asked.host}" if asked.user else asked.host])


def stuck(stage: ConnectStage, node: str, by_hand: str, seconds: float) -> LinkError:
    """A node that has stayed too long in one stage of a connection."""
    if stage is ConnectStage.DIALING:
        what, hint = f"no answer to the connection for {seconds:g} s", "is the node up, a firewall between?"
        return NotBySsh(what, where=node, hint=hint)
    what = f"connected, and then no answer for {seconds:g} s: still waiting for {stage.value}"
    hint = f"is the node overloaded, its disk gone? try: {by_hand} true"
    return LinkError(what, where=node, hint=hint)


def refused_login(error: asyncssh.PermissionDenied, target: Target, missing: list[str]) -> LinkError:
    """Whom sshd has refused, and what may be missing."""
    user, text, about = target.config.user, str(error).lower(), ""
    if "trivial" in text:
        what, hint = "login refused: its sshd accepts anyone without authentication", "ask its admin"
    elif "too many" in text:
        what = f"too many keys offered as {user}"
        about = "many-keys"
        hint = f"set IdentitiesOnly and one IdentityFile in {join(target.file[1:]) or '~/.ssh/config'}"
    else:
        what = "; ".join([f"login refused: no key of {user} is accepted", *missing])
        hint = f"try: {target.copy_id()}"
        about = "login"
    return NoLogin(what, where=target.name, hint=hint, refused=True, about=about)


def explain(error: BaseException, node: str, by_hand: str) -> LinkError:
    """One sentence and one thing to type for whatever asyncssh or the socket layer raised.

    :param by_hand: the ssh command that a person types for that node
    """
    if isinstance(error, LinkError):
        return error
    said = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN):
        return NotBySsh("no route to it", where=node, hint="is the node up, on this network?")
    for raised, kind, what, hint, retry in _FAULTS:
        if isinstance(error, raised):
            found = kind(what.format(said=said), where=node, hint=hint.format(ssh=by_hand), retry=retry)
            found.about = _ABOUT.get(raised, "")
            return found
    return LinkError(f"connection failed: {said}", where=node, hint=f"try: {by_hand} true")


_BAD_KEY = (asyncssh.KeyImportError, asyncssh.KeyEncryptionError)
_NOT_SPOKEN = (asyncssh.KeyExchangeFailed, asyncssh.ProtocolNotSupported)
_LOST = (asyncssh.ConnectionLost,)
_UNKNOWN = (socket.gaierror,)
_ABOUT: dict[tuple[type[BaseException], ...], str] = {_LOST: "dropped", _UNKNOWN: "name"}
_SILENT = (asyncio.TimeoutError, TimeoutError)
_REFUSED = (ConnectionRefusedError,)

_FAULTS: tuple[tuple[tuple[type[BaseException], ...], type[LinkError], str, str, bool], ...] = (
    # The ssh program with the same configuration may be able to log in.
    (_BAD_KEY, NoLogin, "a key cannot be read: {said}", "load it into ssh-agent: ssh-add", False),
    (_NOT_SPOKEN, NoLogin, "no common ssh algorithm: {said}", "try: {ssh} -v true", False),
    (_LOST, LinkError, "connection lost: {said}", "sshd may be dropping parallel logins", True),
    (_UNKNOWN, LinkError, "name unknown", "correct the hostfile, /etc/hosts or ~/.ssh/config", False),
    (_SILENT, NotBySsh, "no answer to the connection", "is the node up, a firewall between?", True),
    (_REFUSED, NotBySsh, "connection refused: no sshd listens there", "start sshd, or set its Port", True),
)
"""What was raised, what that is to us, and what to say: ``{said}`` is its text, ``{ssh}`` the command."""
