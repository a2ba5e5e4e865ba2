"""What the ssh program asks, by ``SSH_ASKPASS``: who asks is read from the processes, never from the text.

A server can write any prompt; only which ssh put the question says which machine is going to see the answer.
Sources: OpenSSH 9.2 (``readpass.c``, ``sshconnect2.c``); 7.4 knows no ``SSH_ASKPASS_REQUIRE`` and wants
``DISPLAY`` and no terminal, which a session of its own provides.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import socket
import struct
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from cockpit import paths
from cockpit.base.shell import join
from cockpit.private import private_dir
from cockpit.transport import askpass
from cockpit.transport.base import LinkError, Progress
from cockpit.transport.login_prompts import Desk, Login

Question = Callable[[str, Sequence[str]], Awaitable["str | None"]]

_LIMIT = 1 << 16
"""Bytes of one question."""

_REGISTERED_S = 2.0
"""For an ssh that asks to be known to whoever has started it."""

_NOT_FOR_A_PERSON = re.compile(
    r"\(yes/no|^Enter (?:passphrase for|PIN for) |^Allow use of key ", re.IGNORECASE
)
"""Host keys are checked, not asked about; keys and tokens are for the agent."""

_NAMED = re.compile(r"^\((?P<who>[^()\s]+)\) (?P<text>.*)\Z", re.DOTALL)
"""Newer versions put the login before a prompt of keyboard-interactive."""


_WITH_VALUE = frozenset("BbcDEeFIiJLlmOoPpQRSWw")
"""Options of ssh that take a value."""


class Askpass:
    """Answers the questions of every ssh that this cockpit has started."""

    def __init__(self) -> None:
        self._name = f"cockpit-askpass-{os.getpid()}-{secrets.token_hex(8)}"
        self._questions: dict[int, Question] = {}
        self._serving: dict[int, set[asyncio.Task[None]]] = {}
        self._server: asyncio.AbstractServer | None = None
        self._starting = asyncio.Lock()

    async def start(self) -> Mapping[str, str]:
        """The variables for an ssh that may ask.

        :raises LinkError: the program that it is to run cannot be written
        """
        async with self._starting:
            if self._server is None:
                listener = socket.socket(socket.AF_UNIX)
                # No file: there is nothing to find, to guess, or to be left behind.
                listener.bind("\0" + self._name)
                self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=_LIMIT)
        return {
            "SSH_ASKPASS": str(_program()),
            "SSH_ASKPASS_REQUIRE": "force",
            "DISPLAY": os.environ.get("DISPLAY") or ":0",
            askpass.SOCKET: self._name,
        }

    async def close(self) -> None:
        """No more questions."""
        if self._server is not None:
            self._server.close()
            self._server = None

    @contextmanager
    def asked_by(self, pid: int, question: Question) -> Iterator[None]:
        """Questions of this process, and of those that it starts.

        :param question: gets the text, and the words of the ssh that asks; None: no answer
        """
        self._questions[pid] = question
        self._serving[pid] = set()
        try:
            yield
        finally:
            del self._questions[pid]
            for task in self._serving.pop(pid):
                task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = writer.get_extra_info("socket")
        pid, uid, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        try:
            if uid == os.getuid():
                with suppress(asyncio.CancelledError):
                    await self._take(pid, reader, writer)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass  # not a question, or whoever asked is gone
        finally:
            writer.close()

    async def _take(self, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = json.loads(await reader.readline())
        prompt = str(asked["prompt"])
        asker, *above = _ancestors(pid)
        words = _words(asker)
        for _ in range(int(_REGISTERED_S / 0.05)):
            owner = next((each for each in (asker, *above) if each in self._questions), None)
            if owner is not None:
                break
            await asyncio.sleep(0.05)
        else:
            return
        task = asyncio.current_task()
        assert task
        self._serving[owner].add(task)
        try:
            if asked["kind"] or _NOT_FOR_A_PERSON.search(prompt):
                return
            answer = await self._questions[owner](prompt, () if asker == owner else words)
        finally:
            self._serving.get(owner, set()).discard(task)
        if answer is not None:
            writer.write(askpass.ANSWERED + answer.encode())
            await writer.drain()


class Questions:
    """What one node's ssh asks on its way, machine by machine.

    :param asked: what the configuration says about the node, by option
    :param typed: what a person types to get to the node
    :param hop: the jump host at which this ssh logs in, ``[user@]host[:port]``; empty: it is the node
    """

    def __init__(
        self,
        desk: Desk,
        node: str,
        asked: Mapping[str, str],
        typed: Sequence[str],
        progress: Progress,
        hop: str = "",
    ) -> None:
        self.answered = False
        """Whether there was any answer."""
        self._desk = desk
        self._node = node
        self._hop = hop
        self._asked = asked
        self._typed = tuple(typed)
        self._progress = progress
        self._logins: dict[str, Login] = {}
        self._seen: set[tuple[str, str]] = set()
        self._last: Login | None = None

    def _at_node(self) -> Login:
        user, port = self._asked.get("user", ""), self._asked.get("port", "22")
        host = self._node.rpartition("@")[2]
        return self._login(f"{user}@{host}" + (f":{port}" if port != "22" else ""), user)

    @property
    def asking(self) -> Login | None:
        """The login for which a person is being asked."""
        return next((each for each in self._logins.values() if each.asking), None)

    @property
    def blocked(self) -> Login | None:
        """The login that has to wait for another one."""
        return next((each for each in self._logins.values() if each.blocked), None)

    @property
    def stopped(self) -> LinkError | None:
        """Why there are no answers any more."""
        return next((each.stopped for each in self._logins.values() if each.stopped), None)

    @property
    def unsettled(self) -> bool:
        """Whether there is an answer that was neither accepted nor refused."""
        return self._last is not None

    def check(self) -> None:
        """Before an ssh starts.

        :raises NeedsPerson: the jump host has refused answers, and nobody has asked for another try
        """
        self._at(()).check()

    def begin(self) -> None:
        """Another ssh starts."""
        self._seen.clear()
        self._last = None

    async def answer(self, prompt: str, words: Sequence[str]) -> str | None:
        """The answer to one prompt; it waits forever if there is none: ssh would go on with an empty one.

        :param words: of the ssh that asks, if that is one on the way to a jump host
        """
        login = self._at(words)
        if not words:
            self.logged_in(login)
        named = _NAMED.match(prompt)
        text = named["text"] if named else prompt
        if (login.hop, text) in self._seen:
            login.verdict(accepted=False)  # it asks again
            self._seen = {each for each in self._seen if each[0] != login.hop}
        given = await login.answers([(text, False)]) if await login.may_begin() else None
        if given is None:
            await asyncio.get_running_loop().create_future()
            raise AssertionError("unreachable")
        self._seen.add((login.hop, text))
        self._last = login
        self.answered = True
        return given[0]

    def logged_in(self, beyond: Login | None = None) -> None:
        """The login that was answered last is done.

        :param beyond: the one that asks now; it is not done itself
        """
        if self._last is not None and self._last is not beyond:
            self._last.verdict(accepted=True)
            self._last = None

    def release(self, waits: Login) -> None:
        """Let others log in at the machines before the one where it is not this login's turn."""
        for login in self._logins.values():
            if login is not waits:
                login.end()

    def refused(self) -> None:
        """The ssh has ended without getting in: whatever it was told last may have been counted."""
        if self._last is not None:
            self._last.end()

    def end(self) -> None:
        """The node is reached, or is not."""
        for login in self._logins.values():
            login.end()

    def _at(self, words: Sequence[str]) -> Login:
        if words or self._hop:
            return self._login(destination(words) if words else self._hop, "")
        return self._at_node()

    def _login(self, hop: str, shared: str) -> Login:
        if hop not in self._logins:
            host = hop if hop.count(":") > 1 else hop.partition(":")[0]  # of IPv6
            by_hand = join(self._typed) if shared else join((*self._typed[:-1], host))
            self._logins[hop] = Login(
                self._desk,
                hop,
                where=self._node if shared else f"jump host {hop}",
                node=self._node,
                shared=shared,
                tries=int(self._asked.get("numberofpasswordprompts", "3")),
                unasked=self._progress.unasked,
                by_hand=by_hand,
            )
        return self._logins[hop]


def destination(words: Sequence[str]) -> str:
    """Where an ssh goes, by its command line: ``[user@]host[:port]``."""
    given = {"l": "", "p": "22"}
    rest = iter(words[1:])
    place = ""
    for word in rest:
        if word == "--":
            place = next(rest, "")
        elif not word.startswith("-"):
            place = word
        else:
            takes = next((at for at, letter in enumerate(word) if letter in _WITH_VALUE), None)
            if takes is not None:
                given[word[takes]] = word[takes + 1 :] or next(rest, "")
            continue
        break
    user, _, host = place.rpartition("@")
    user = given["l"] or user
    port = "" if given["p"] == "22" else f":{given['p']}"
    return f"{user}@{host}{port}" if user else f"{host}{port}"


def _program() -> Path:
    """The program that ssh runs; it holds no secret.

    :raises LinkError: it cannot be written
    """
    path = paths.ssh() / "askpass"
    text = f'#!/bin/sh\nexec {join((sys.executable, "-I", "-S", askpass.__file__))} "$@"\n'
    try:
        private_dir(path.parent)
        if not path.exists() or path.read_text() != text:
            new = path.with_name(f"askpass-{os.getpid()}")
            new.write_text(text)
            new.chmod(0o700)
            new.replace(path)
    except OSError as error:
        raise LinkError(f"cannot write it: {error.strerror}", where=str(path), retry=False) from None
    return path


def _ancestors(pid: int) -> list[int]:
    """The parent of a process, its parent, and so on."""
    found: list[int] = []
    while pid > 1 and len(found) < 20:
        stat = Path(f"/proc/{pid}/stat").read_text()
        pid = int(stat.rpartition(")")[2].split()[1])
        found.append(pid)
    return found


def _words(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
