"""Nodes over the user's own ssh program: whatever their configuration can do, as a child process's pipe.

It has no terminal. What servers ask reaches a person by ``SSH_ASKPASS``, under the same rules as everywhere
(:mod:`cockpit.transport.asking`); where nobody can be asked, and to get a lost link back, it runs in
``BatchMode``. Passphrases and PINs are for the agent.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

from cockpit.transport.asking import DESK, VERDICT_S, Desk, NeedsPerson
from cockpit.transport.base import ConnectStage, LinkError, Pipe
from cockpit.transport.child import ChildTransport
from cockpit.transport.openssh_asking import Askpass, Questions
from cockpit.transport.openssh_config import OpensshConfig
from cockpit.transport.openssh_words import Failure, Said, dropped

HANDSHAKES_PER_HOP = 6
"""Logins over one jump host, or to one sshd, at a time: MaxStartups starts to drop them at 10."""

_TRIES = 4
"""Attempts if sshd drops the connection before the login."""

_LOOK_S = 0.2
"""Between two checks of how far a connection has got."""


class OpensshWays:
    """What the ssh processes of one cockpit share: their configuration, and a gate per hop.

    :param chosen: an ssh configuration file in place of the user's and the system's
    :param patience_s: seconds that a node may spend on any one stage of connecting
    :param desk: answers what servers ask of a person; None: that of this process
    """

    def __init__(self, chosen: str = "", patience_s: float = 30, desk: Desk | None = None) -> None:
        self.desk = desk or DESK
        self.askpass = Askpass()
        self.needed_answers: set[str] = set()
        """Nodes to which nobody gets without an answer of a person."""
        self.config = OpensshConfig(chosen, patience_s)
        self.patience_s = patience_s
        self._gates: dict[str, asyncio.Semaphore] = {}

    async def to(self, node: str) -> OpensshTransport:
        """See :meth:`cockpit.transport.base.Ways.to`."""
        return OpensshTransport(node, self)

    async def close(self) -> None:
        """No more questions."""
        await self.askpass.close()

    def gate(self, asked: Mapping[str, str]) -> asyncio.Semaphore:
        """The gate of a node, by what the configuration says about it."""
        via = [asked.get(name, "none") for name in ("proxyjump", "proxycommand")]
        hop = next((way for way in via if way != "none"), f"{asked.get('hostname')}:{asked.get('port')}")
        return self._gates.setdefault(hop, asyncio.Semaphore(HANDSHAKES_PER_HOP))


class OpensshTransport(ChildTransport):
    """One node over one ssh process a pipe."""

    def __init__(self, node: str, ways: OpensshWays) -> None:
        super().__init__("openssh", node, (), ways.config.env)
        self._ways = ways

    async def open(self, command: str) -> Pipe:
        """Log in and start ``command``; retry after a moment if sshd drops us before the login.

        :raises LinkError: with the node, the cause and what to type next
        """
        asked = await self._ways.config.ask(self._node)
        typed = (*self._ways.config.typed, self._node)
        questions = Questions(self._ways.desk, self._node, asked, typed, self.progress)
        try:
            return await self._logged_in(command, asked, questions)
        finally:
            questions.end()
            if questions.answered:
                self._ways.needed_answers.add(self._node)

    async def _logged_in(self, command: str, asked: Mapping[str, str], questions: Questions) -> Pipe:
        gate = self._ways.gate(asked)
        attempt = 0
        while True:
            attempt += 1
            self.progress.reach(ConnectStage.QUEUED)
            try:
                async with gate:
                    return await self._log_in(command, asked, questions)
            except LinkError as error:
                if (login := questions.asking) is not None and await login.heard():
                    continue
                if login := questions.blocked:
                    self.progress.reach(ConnectStage.PERSON)
                    questions.release(login)
                    await login.turn()
                    attempt = 0
                    continue
                if attempt >= _TRIES or not dropped(error) or questions.unsettled or questions.stopped:
                    questions.refused()
                    raise self._final(questions.stopped or error) from None
                await asyncio.sleep(random.uniform(0.3, 1.0) * attempt)

    def _final(self, error: LinkError) -> LinkError:
        """The error of a login that is over; one that only a person can repeat is not tried by itself."""
        if self.progress.unasked and self._node in self._ways.needed_answers and not error.retry:
            return NeedsPerson(error.what, where=self._node, hint=error.hint)
        return error

    async def _log_in(self, command: str, asked: Mapping[str, str], questions: Questions) -> Pipe:
        ways = self._ways
        asks = ways.desk.keeps or not (self.progress.unasked or ways.desk.prompter.absent)
        self._words = (*await ways.config.words(asks=asks), "-T", "--", self._node)
        self._env = {**ways.config.env, **(await ways.askpass.start() if asks else {})}
        self.progress.reach(ConnectStage.DIALING)
        said = Said(self.progress)
        said.logged_in = questions.logged_in
        failure = Failure(self._node, said, asked, (*ways.config.typed, self._node))
        questions.begin()
        pipe = await self._start(command, said, failure.explain)
        opened = asyncio.create_task(said.opened.wait())
        try:
            with ways.askpass.asked_by(pipe.pid, questions.answer):
                while not (await asyncio.wait({opened}, timeout=_LOOK_S))[0]:
                    if not pipe.running:
                        error = failure.explain(await pipe.status())
                        assert error is not None
                        raise error
                    if questions.blocked or questions.stopped:
                        raise questions.stopped or LinkError("another login comes first", where=self._node)
                    if questions.asking:
                        self.progress.reach(ConnectStage.PERSON)
                    else:
                        if self.progress.stage is ConnectStage.PERSON:
                            self.progress.reach(ConnectStage.LOGIN)  # what a person took is not its silence
                        limit = max(ways.patience_s, VERDICT_S if questions.unsettled else 0)
                        if self.progress.waited_s > limit:
                            raise failure.stuck(self.progress.stage, limit)
        except BaseException:
            await pipe.end()
            raise
        finally:
            opened.cancel()
        questions.logged_in()
        self.progress.reach(ConnectStage.SHELL)
        return pipe
