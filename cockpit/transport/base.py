"""The interface of every transport, and its errors."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from cockpit.base.shell import quote
from cockpit.errors import CockpitError, Exit


class LinkError(CockpitError):
    """A host cannot be reached, refused us, or a pipe to it broke.

    :param retry: whether trying again later can help (a refused key or a changed host key cannot)
    :param about: see :class:`cockpit.errors.CockpitError`
    """

    def __init__(self, what: str, *, where: str, hint: str = "", retry: bool = True, about: str = "") -> None:
        super().__init__(what, where=where, hint=hint, code=Exit.NODE_UNFIT)
        self.retry = retry
        self.about = about


class Reclaimed(LinkError):
    """The node was lent to us and has been taken back: nothing that we started there can be running."""


class NoLogin(LinkError):
    """This client cannot log in with what it understands of the configuration; another one might.

    :param refused: whether a login was tried and refused: each refusal may count towards a lock-out
    """

    def __init__(
        self,
        what: str,
        *,
        where: str,
        hint: str = "",
        retry: bool = False,
        refused: bool = False,
        about: str = "",
    ) -> None:
        super().__init__(what, where=where, hint=hint, retry=retry, about=about)
        self.refused = refused


class NotBySsh(LinkError):
    """No sshd lets us in there: none listens or answers, or it wants a SLURM job of ours on that node."""


class Dropped(LinkError):
    """The other side closed the connection, as a busy sshd does before the login."""


class UnknownHostKey(LinkError):
    """A host that is in no known_hosts file: a person may look at its key and trust it.

    :param entry: the host as known_hosts names it: ``gpu01``, ``[gpu01]:2222``
    :param key: its public key in OpenSSH's form: ``ssh-ed25519 AAAA…``
    :param fingerprint: ``SHA256:…``
    :param file: the known_hosts file for it
    :param hashed: whether that file is to hold a hash of the name
    :param by_hand: the ssh command that a person types for it
    :param certified: whether a certificate of an authority in known_hosts was to be expected
    """

    def __init__(
        self,
        *,
        where: str,
        entry: str,
        key: str,
        fingerprint: str,
        file: str,
        hashed: bool = False,
        by_hand: str = "",
        certified: bool = False,
    ) -> None:
        hint = f"check it and accept it with: {by_hand or 'ssh ' + quote(where)} true"
        why = ": it has no certificate of the @cert-authority in known_hosts" if certified else ""
        super().__init__(f"host key is not known{why}", where=where, hint=hint, retry=False, about="host-key")
        self.entry = entry
        self.key = key
        self.fingerprint = fingerprint
        self.file = file
        self.hashed = hashed


class ConnectStage(Enum):
    """How far a connection to a node has got; the value says what it is waiting for."""

    QUEUED = "its turn to connect"
    JUMP = "its jump host"
    DIALING = "the connection"
    BANNER = "sshd's banner"
    KEYS = "the key exchange"
    LOGIN = "the login"
    PERSON = "your answer"
    SHELL = "a shell"
    AGENT = "the agent"
    ANSWER = "an answer from the agent"


class Progress:
    """Where the connection to one node is now, and since when."""

    def __init__(self) -> None:
        self.stage = ConnectStage.QUEUED
        self.since = time.monotonic()
        """When it got there (monotonic seconds)."""
        self.remark = ""
        """Why the node is not reached the way one might expect, for a person."""
        self.unasked = False
        """Whether no person has asked for it: it gets a lost link back, and disturbs nobody."""

    def reach(self, stage: ConnectStage) -> None:
        """It has reached ``stage``; staying there changes nothing."""
        if stage is not self.stage:
            self.stage = stage
            self.since = time.monotonic()

    @property
    def waited_s(self) -> float:
        """Seconds without any progress."""
        return time.monotonic() - self.since


class Pipe(Protocol):
    """Stdin and stdout of one command on a host."""

    async def read(self, size: int) -> bytes:
        """Up to ``size`` bytes of stdout; empty at its end.

        :raises LinkError: the connection under the pipe broke
        """

    async def write(self, data: bytes) -> None:
        """Send ``data`` to stdin, waiting while the other side is slow.

        :raises LinkError: the pipe is closed
        """

    async def close(self) -> None:
        """Close the pipe, within a few seconds; the command sees the end of its stdin."""

    def last_words(self) -> str:
        """The end of what the command wrote to stderr, at most 4 KiB."""


class Transport(Protocol):
    """A way to one host."""

    progress: Progress
    """Kept up to date by :meth:`open`; a caller that wants to watch it may put its own here."""

    @property
    def kind(self) -> str:
        """Its name among :data:`cockpit.transport.registry.TRANSPORTS`."""

    @property
    def job(self) -> str:
        """The number of the SLURM job of which its commands are steps; empty: of none."""

    async def open(self, command: str) -> Pipe:
        """Start a shell command on the host.

        :raises LinkError: host unreachable, login refused, command not started
        """

    async def close(self) -> None:
        """Close the connection and every pipe on it, within a few seconds, whatever the other side does."""


class Ways(Protocol):
    """The ways to nodes by one kind of transport, and what they share."""

    async def to(self, node: str) -> Transport:
        """A transport to ``node`` (``host`` or ``user@host``), not connected yet."""

    async def close(self) -> None:
        """Close what the transports share, within a few seconds."""


_FOR_ONE_COMMAND = frozenset({"accept_new"})


@dataclass(frozen=True)
class Reach:
    """How nodes are reached.

    :param kind: a name of :data:`cockpit.transport.registry.TRANSPORTS`
    :param options: that kind's own, by name; others are ignored
    """

    kind: str = "auto"
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def lasting(self) -> dict[str, str]:
        """The options that a run keeps; the others are wanted for one command."""
        return {name: value for name, value in self.options.items() if name not in _FOR_ONE_COMMAND}


@dataclass(frozen=True)
class HeldCommand:
    """A process here that runs something on many nodes for as long as it lives itself.

    :param words: its command line
    :param env: its environment
    :param kill_wait_s: from SIGTERM to SIGKILL, when whoever lent us the nodes takes them back
    """

    words: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    kill_wait_s: float


class Tail:
    """The last bytes of a stream that nobody reads line by line."""

    LIMIT = 4096

    def __init__(self) -> None:
        self._data = b""

    def add(self, data: bytes) -> None:
        """Append, dropping the oldest bytes over the limit."""
        self._data = (self._data + data)[-self.LIMIT :]

    def text(self) -> str:
        """What is kept, decoded; invalid bytes are replaced."""
        return self._data.decode(errors="replace").strip()
