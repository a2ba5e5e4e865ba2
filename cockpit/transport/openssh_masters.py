"""Jump hosts over the user's own ssh: one connection of ours to each, which all nodes behind it share.

Each is an ssh in the foreground with a socket (``ControlMaster``), so a jump host logs us in, and asks a
person, once. The kernel ends it with this process (:mod:`cockpit.transport.die_with_parent`), and it removes
its socket.
Where a connection of a person's own is open (their ``ControlPath``), that is used, and none is made.

Sources: OpenSSH 9.2 (``ssh.c`` on ProxyJump, ``mux.c``, ``channels.c``).
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from cockpit import paths
from cockpit.base.shell import join
from cockpit.private import private_dir, temporary_dir
from cockpit.transport import die_with_parent
from cockpit.transport.base import LinkError, Progress
from cockpit.transport.child import ChildPipe
from cockpit.transport.login_prompts import NeedsPerson
from cockpit.transport.openssh_asking import Questions
from cockpit.transport.openssh_config import PLAIN_PATH
from cockpit.transport.openssh_process import Passage, Passages, Shared, SshProcess
from cockpit.transport.openssh_words import StderrReader

_SUFFIX = "." + "x" * 16
"""What ssh adds to the name of a socket while it makes it: an address has 107 bytes."""

SHORT = ("/tmp", "/var/tmp", "/dev/shm")
"""Where there is room for its name if TMPDIR is long, too."""

_WHY_S = 1.0
"""From a node's ssh that was refused its way to the words of the shared connection about that."""

_HOP = re.compile(
    r"(?:(?P<user>.+)@)?(?:\[(?P<bracketed>[^][]+)\]|(?P<host>[^][:]+)|(?P<v6>[^][]+:[^][]*:[^][]*))"
    r"(?::(?P<port>\d+))?\Z"
)


class Hop(NamedTuple):
    """A jump host, as ``ssh -G`` prints it.

    :param user: empty: as the configuration says
    :param port: empty: as the configuration says
    """

    host: str
    user: str = ""
    port: str = ""

    @classmethod
    def of(cls, text: str) -> Hop | None:
        """Read ``[user@]host[:port]``; None: it is something else."""
        found = _HOP.match(text)
        if found is None:
            return None
        host = found["bracketed"] or found["host"] or found["v6"]
        return cls(host, found["user"] or "", found["port"] or "")

    @property
    def options(self) -> tuple[str, ...]:
        """As ssh itself hands them on."""
        return (*(("-l", self.user) if self.user else ()), *(("-p", self.port) if self.port else ()))

    @property
    def text(self) -> str:
        """As a person knows it."""
        port = f":{self.port}" if self.port not in ("", "22") else ""
        return f"{self.user}@{self.host}{port}" if self.user else f"{self.host}{port}"


_FAILED = re.compile(r"channel (\d+): (open failed: .*)")
_FREED = re.compile(r"debug1: channel (\d+): free: direct-tcpip: listening port \d+ for (\S+) port (\d+),")


class _MasterStderr(StderrReader):
    """Reads stderr of a shared connection: also which nodes the jump host could not reach, and why."""

    OPENED = re.compile(r"Entering interactive session")

    def __init__(self, progress: Progress) -> None:
        super().__init__(progress)
        self.unreached: dict[tuple[str, str], str] = {}
        """By host and port; in ssh's own words."""
        self._failed: dict[str, str] = {}

    def _hear(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip("\r")
        if found := _FAILED.match(text):
            self._failed[found[1]] = found[2]
        elif (found := _FREED.match(text)) and (why := self._failed.pop(found[1], "")):
            self.unreached[found[2], found[3]] = why
        else:
            super()._hear(line)


class Master(SshProcess):
    """The shared connection to a jump host.

    :param hops: the jump host, after those that are on the way to it
    :param wanted: for whom it is opened first
    :param path: of its socket
    """

    def __init__(
        self, hops: str, hop: Hop, wanted: SshProcess, ways: Shared, passages: Passages, path: str
    ) -> None:
        super().__init__(wanted.node, ways, passages, hops)
        self.progress.unasked = wanted.progress.unasked
        self._hop = hop
        self._before = hops.rpartition(",")[0]
        self._heard = _MasterStderr(self.progress)
        self._path = path
        self._pipe: ChildPipe | None = None

    @property
    def alive(self) -> bool:
        """Whether it is open."""
        return self._pipe is not None and self._pipe.running

    async def connect(self, at_node: Mapping[str, str]) -> bool:
        """Open it; False: a person has done so, by what their configuration says.

        :param at_node: what the configuration says about the node for which it is
        :raises LinkError: with the node, the cause and what to type next
        """
        config, hop = self._ways.config, self._hop
        options = (*self._on_the_way, *hop.options)
        asked = await config.ask(hop.host, *options)
        if await config.has_master(hop.host, asked, *options):
            return False
        questions = Questions(self._ways.desk, self._node, asked, self.typed, self.progress, hop.text)
        questions.check()
        self._pipe = await self._get_in(hop.host, asked, at_node, questions)
        return True

    async def close(self) -> None:
        """End it."""
        if self._pipe is not None and self._pipe.running:
            with suppress(ProcessLookupError):
                os.kill(self._pipe.pid, signal.SIGTERM)
        await super().close()
        with suppress(OSError):
            os.unlink(self._path)

    def passing(self, ssh: tuple[str, ...]) -> tuple[str, ...]:
        """See :meth:`cockpit.transport.openssh_process.Passage.passing`; as ProxyJump would."""
        by = (*ssh, "-S", self._path, "-W", "[%h]:%p", *self._hop.options, "--", self._hop.host)
        return ("-o", f"ProxyCommand={join(by)}")

    async def add_why(self, said: StderrReader, asked: Mapping[str, str]) -> None:
        """See :meth:`cockpit.transport.openssh_process.Passage.add_why`."""
        place = asked.get("hostname", ""), asked.get("port", "")
        for _ in range(int(_WHY_S / 0.05)):
            if "Stdio forwarding request failed" not in said.text():
                return
            if why := self._heard.unreached.pop(place, ""):
                said.add(f"channel 0: {why}\n".encode())
                return
            await asyncio.sleep(0.05)

    @property
    def _on_the_way(self) -> tuple[str, ...]:
        return ("-J", self._before) if self._before else ()

    def _said(self) -> StderrReader:
        self._heard = _MasterStderr(self.progress)
        return self._heard

    def _command(self, ssh: tuple[str, ...], through: Passage | None) -> tuple[str, ...]:
        with_us = (sys.executable, "-I", "-S", die_with_parent.__file__, str(os.getpid()))
        way = through.passing(ssh) if through else self._on_the_way
        shared = ("-M", "-S", self._path, "-o", "ControlPersist=no", "-N", "-T")
        return (*with_us, *ssh, *way, *shared, *self._hop.options, "--")


class Masters:
    """The shared connections of one cockpit, by their jump hosts."""

    def __init__(self, ways: Shared) -> None:
        self._ways = ways
        self._masters: dict[str, Master] = {}
        self._tasks: dict[str, asyncio.Task[bool]] = {}
        self._behind: dict[str, str] = {}
        """What is reached through which jump hosts."""
        self._folder: Path | None = None

    async def to(self, hops: str, wanted: SshProcess, at_node: Mapping[str, str]) -> Master | None:
        """See :meth:`cockpit.transport.openssh_process.Passages.to`."""
        hop = Hop.of(hops.rpartition(",")[2])
        if hops == "none" or "%" in hops or hop is None:
            return None
        self._check(hops, hop, wanted)
        task = self._tasks.get(hops)
        if task is None or (task.done() and not self._is_open(hops, task)):
            old = self._masters.get(hops)
            path = self._socket(wanted.node)
            new = self._masters[hops] = Master(hops, hop, wanted, self._ways, self, path)
            task = self._tasks[hops] = asyncio.create_task(_open(new, old, at_node))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        master = self._masters[hops]
        try:
            # One node giving up must not cancel it under the others.
            return master if await asyncio.shield(task) else None
        except LinkError as error:
            raise _about(error, master.node, wanted.node, hop) from None

    def _check(self, hops: str, hop: Hop, wanted: SshProcess) -> None:
        """See that nothing waits for itself.

        :raises LinkError: jump hosts in a circle
        """
        at = hops
        while at != wanted.place and at in self._behind:
            at = self._behind[at]
        if at == wanted.place:
            what = f"ssh configuration: jump host {hop.text} is reached through itself"
            raise LinkError(what, where=wanted.node, hint=f"give {hop.host} `ProxyJump none`", retry=False)
        self._behind[wanted.place] = hops

    def _socket(self, node: str) -> str:
        """A name for a socket, in a folder that is 0700.

        :raises LinkError: there is no place for it
        """
        name = secrets.token_hex(4)
        if self._folder is None:
            with suppress(OSError):
                self._folder = _fit(private_dir(paths.ssh()), name)
        # Its name is too long, or its file system has no sockets.
        folders = iter(dict.fromkeys((tempfile.gettempdir(), *SHORT)))
        trouble: OSError | None = None
        while self._folder is None:
            folder = next(folders, None)
            if folder is None:
                assert trouble
                what = f"no socket for the connection to its jump host: {trouble.strerror or trouble}"
                raise LinkError(
                    what, where=node, hint="set another folder: TMPDIR=DIR", retry=False
                ) from None
            try:
                self._folder = _new(folder, name)
            except OSError as error:
                trouble = trouble or error
        return str(self._folder / name)

    async def close(self) -> None:
        """End all of them."""
        tasks, masters = list(self._tasks.values()), list(self._masters.values())
        self._tasks.clear()
        self._masters.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(master.close() for master in masters))
        if self._folder is not None and self._folder != paths.ssh():
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def _is_open(self, hops: str, task: asyncio.Task[bool]) -> bool:
        master = self._masters.get(hops)
        return not task.cancelled() and task.exception() is None and master is not None and master.alive


async def _open(master: Master, old: Master | None, at_node: Mapping[str, str]) -> bool:
    """See :meth:`Master.connect`.

    :param old: the one in whose place it comes
    """
    if old is not None:
        await old.close()
    return await master.connect(at_node)


def _fit(folder: Path, name: str) -> Path:
    """The folder, if a socket can be made there.

    :raises OSError: it cannot
    """
    if not PLAIN_PATH.match(str(folder)):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    path = folder / f"{name}{_SUFFIX}"
    with socket.socket(socket.AF_UNIX) as tried:
        tried.bind(str(path))
    path.unlink()
    return folder


def _new(inside: str, name: str) -> Path:
    """A folder of ours in one that others use, too.

    :raises OSError: a socket cannot be made there
    """
    folder = temporary_dir(inside)
    try:
        return _fit(folder, name)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _about(error: LinkError, first: str, node: str, hop: Hop) -> LinkError:
    """The failure of a jump host, as what it is for one of the nodes behind it.

    :param first: the node for which it was opened
    """
    where = node if error.where == first else error.where
    what = error.what if "jump host" in f"{where} {error.what}" else f"{error.what} (jump host {hop.text})"
    if isinstance(error, NeedsPerson):
        return NeedsPerson(what, where=where, hint=error.hint)
    return LinkError(what, where=where, hint=error.hint, retry=error.retry, about=error.about)
