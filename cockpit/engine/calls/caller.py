"""Watches a session, and calls a person: on their terminal, and by a command of theirs.

The command gets a call as JSON on its stdin; no word from a node is in its words.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, InitVar, dataclass

from cockpit.base import secret
from cockpit.config import Config
from cockpit.core.calls.calls import Call, Calls
from cockpit.core.finding import Finding
from cockpit.core.run.states import signal_name
from cockpit.core.text import one_line
from cockpit.engine.logs.last_words import last_cause
from cockpit.engine.run.session import Session

LIMIT_S = 10.0
"""Seconds for the command; then it is killed, with what it has started."""

SAID = 2048
"""Bytes of what it writes to stderr that are kept: the last ones."""

_POLL_S = 0.05


def run(command: str, call: Call, limit_s: float = LIMIT_S) -> str:
    """Run it with /bin/sh and wait for its end; give why it failed, in a line; empty: it did not.

    It has a session of its own: it gets no Ctrl-C of ours, and has no way to this terminal.

    :param limit_s: seconds until it is killed
    """
    try:
        return _run(command, json.dumps(call.as_json()).encode() + b"\n", limit_s)
    except OSError as error:
        return f"cannot be started: {error.strerror}"
    except ValueError as error:  # it has a NUL, or characters that this locale has not
        return one_line(f"cannot be started: {error}", limit=200)


def _run(command: str, data: bytes, limit_s: float) -> str:
    read, write = os.pipe()
    os.set_blocking(read, False)
    try:
        try:
            # A file, not a pipe: a command that does not read it must not hold anything up.
            with tempfile.TemporaryFile() as stdin:
                stdin.write(data)
                stdin.seek(0)
                process = subprocess.Popen(
                    ["/bin/sh", "-c", command],
                    stdin=stdin,
                    stdout=subprocess.DEVNULL,
                    stderr=write,
                    start_new_session=True,
                )
        finally:
            os.close(write)
        said, in_time = _followed(process, read, limit_s)
    finally:
        os.close(read)
    words = one_line(said.strip().rpartition(b"\n")[2], limit=200)
    why = f": {words}" if words else ""
    if not in_time:
        return f"killed after {limit_s:g} s{why}"
    code = process.returncode
    if code < 0:
        return f"killed by {signal_name(-code)}{why}"
    return f"exited {code}{why}" if code else ""


def _followed(process: subprocess.Popen[bytes], read: int, limit_s: float) -> tuple[bytes, bool]:
    """The end of what it said, and whether it ended in time; children that it left do not matter."""
    deadline = time.monotonic() + limit_s
    said, heard = b"", True
    while process.poll() is None:
        if time.monotonic() >= deadline:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return said, False
        if heard and select.select([read], [], [], _POLL_S)[0]:
            data = os.read(read, 1 << 16)
            said, heard = (said + data)[-SAID:], bool(data)
        elif not heard:
            time.sleep(_POLL_S)
    with suppress(BlockingIOError):
        said = (said + os.read(read, 1 << 16))[-SAID:]
    return said, True


LOOK_S = 0.5
"""Seconds between two looks at whether a call is due."""

PENDING = 4
"""Commands that run at a time; a call beyond that rings only."""


@dataclass(frozen=True)
class Ways:
    """How a person is called.

    :param command: gets each call on its stdin; empty: there is none
    :param shared: it is that of the settings: of several cockpits only the one that keeps the run runs it
    :param limit_s: seconds that the command may take
    """

    command: str = ""
    shared: bool = False
    limit_s: float = LIMIT_S


def ways(given: str | None, config: Config) -> Ways:
    """How a person wants to be called.

    :param given: ``--notify``; None: not given
    """
    return Ways(config.notify if given is None else given, given is None)


@dataclass(eq=False)
class Caller:
    """Calls about one session for as long as it is open.

    :param session: it is asked twice a second, and told nothing
    :param ring: tells the terminal that somebody is called, if it is to ring; must not block
    :param complain: says once in a line that the command failed
    :param since: what happened before is no news: unix seconds
    :param leaves: whether to call when the session is closed although the run continues
    """

    session: Session
    ways: Ways
    ring: Callable[[Call], None]
    complain: Callable[[str], None]
    _: KW_ONLY
    since: InitVar[float]
    leaves: bool = False

    def __post_init__(self, since: float) -> None:
        self._failed = False
        self._running: set[asyncio.Task[None]] = set()
        known = secret.values({**os.environ, **self.session.secrets})
        by = f"cockpit, pid {os.getpid()} on {socket.gethostname()}"
        self._calls = Calls(self.session.folder.name, since, by, known)

    def start(self) -> None:
        """Begin, once the session knows what is known here."""
        self._calls.joined(self.session.model)
        self.session.accompany(self._watch(), "calls")

    async def _watch(self) -> None:
        try:
            while not self.session.model.over:
                self._look()
                await asyncio.sleep(LOOK_S)
        finally:
            self._look()
            model = self.session.model
            if self.leaves and not model.over:
                self._call(self._calls.left(time.time(), model))
            if self._running:
                # Each ends by itself, within its time.
                await asyncio.wait(self._running)

    def _look(self) -> None:
        model = self.session.model
        if model.watch.state == "going":
            self._calls.goes_on()
        for call in self._calls.due(time.time(), model, self._cause, model.watch.alarm):
            self._call(call)

    def _cause(self) -> Finding | None:
        """Which rank failed first, and what the end of its log says."""
        return last_cause(self.session.model, self.session.folder)

    def _call(self, call: Call) -> None:
        self.ring(call)
        ours = self.session.writer or not self.ways.shared
        if self.ways.command and ours and len(self._running) < PENDING:
            task = asyncio.create_task(self._run(call))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _run(self, call: Call) -> None:
        why = await asyncio.to_thread(run, self.ways.command, call, self.ways.limit_s)
        if why and not self._failed:
            self._failed = True
            self.complain(f"--notify: {why}")
