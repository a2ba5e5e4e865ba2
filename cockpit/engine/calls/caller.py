"""Watches a session, and calls a person: on their terminal, and by a command of theirs."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import KW_ONLY, InitVar, dataclass

from cockpit.base import secret
from cockpit.config import Config
from cockpit.core.calls.calls import Call, Calls
from cockpit.core.finding import Finding
from cockpit.engine.calls.command import LIMIT_S, run
from cockpit.engine.logs.spooled import SpooledLogs
from cockpit.engine.run.board import last_cause
from cockpit.engine.run.session import Session

LOOK_S = 0.5
"""Seconds between two looks at whether a call is due."""

PENDING = 4
"""Commands that run at a time; a call beyond that rings only."""


@dataclass(frozen=True)
class Ways:
    """How a person is called.

    :param command: gets each call on its stdin; empty: there is none
    :param shared: it is that of the settings: of several cockpits only the one that keeps the run runs it
    :param rings: whether the terminal rings
    :param limit_s: seconds that the command may take
    """

    command: str = ""
    rings: bool = True
    shared: bool = False
    limit_s: float = LIMIT_S


def ways(given: str | None, config: Config) -> Ways:
    """How a person wants to be called.

    :param given: ``--notify``; None: not given
    """
    return Ways(config.notify if given is None else given, config.bell, given is None)


@dataclass(eq=False)
class Caller:
    """Calls about one session for as long as it is open.

    :param session: it is asked twice a second, and told nothing
    :param ring: writes to the terminal that somebody is called; must not block
    :param complain: says once in a line that the command failed
    :param since: what happened before is no news: unix seconds
    :param leaves: whether to call when the session is closed although the run goes on
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
        stall = model.watch.finding if model.watch.stalled else None
        for call in self._calls.due(time.time(), model, self._cause, stall):
            self._call(call)

    def _cause(self) -> Finding | None:
        """Which rank failed first, and what the end of its log says."""
        with closing(SpooledLogs(self.session.folder)) as logs:
            return last_cause(self.session.model, self.session.folder, logs)

    def _call(self, call: Call) -> None:
        if self.ways.rings:
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
