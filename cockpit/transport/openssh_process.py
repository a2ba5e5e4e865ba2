"""One ssh process that logs in somewhere: at a node, or at a jump host on the way to it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Protocol

from cockpit.transport.base import ConnectStage, Dropped, LinkError
from cockpit.transport.child import ChildPipe, ChildTransport
from cockpit.transport.login_prompts import VERDICT_S, Desk, NeedsPerson
from cockpit.transport.openssh_asking import Askpass, Questions
from cockpit.transport.openssh_config import OpensshConfig
from cockpit.transport.openssh_words import Failure, StderrReader

HANDSHAKES_PER_HOP = 6
"""Logins over one jump host, or to one sshd, at a time: MaxStartups starts to drop them at 10."""

_TRIES = 4
"""Attempts if sshd drops the connection before the login."""

_LOOK_S = 0.2
"""Between two checks of how far a connection has got."""


class Shared:
    """What the ssh processes of one cockpit share.

    :param config: what they are started with
    :param patience_s: seconds that each may spend on any one stage of connecting
    :param desk: answers what servers ask of a person
    """

    def __init__(self, config: OpensshConfig, patience_s: float, desk: Desk) -> None:
        self.config = config
        self.patience_s = patience_s
        self.desk = desk
        self.askpass = Askpass()
        self.needed_answers: set[str] = set()
        """Where nobody gets in without an answer of a person: nodes and jump hosts."""
        self._gates: dict[str, asyncio.Semaphore] = {}

    def gate(self, asked: Mapping[str, str]) -> asyncio.Semaphore:
        """The gate of a machine, by what the configuration says about it."""
        via = [asked.get(name, "none") for name in ("proxyjump", "proxycommand")]
        hop = next((way for way in via if way != "none"), f"{asked.get('hostname')}:{asked.get('port')}")
        return self._gates.setdefault(hop, asyncio.Semaphore(HANDSHAKES_PER_HOP))


class Passage(Protocol):
    """A connection to a jump host that others go through."""

    def passing(self, ssh: tuple[str, ...]) -> tuple[str, ...]:
        """The options that take an ssh through it.

        :param ssh: the program with its configuration
        """

    async def add_why(self, said: StderrReader, asked: Mapping[str, str]) -> None:
        """Have an ssh say why it was refused its way: only the connection was told.

        :param asked: what the configuration says about where it was to go
        """


class Passages(Protocol):
    """The connections to jump hosts that others go through."""

    async def to(self, hops: str, wanted: SshProcess, at_node: Mapping[str, str]) -> Passage | None:
        """The connection to the last of some jump hosts; None: ssh goes there by itself.

        :param hops: as ``ssh -G`` prints them: ``[user@]host[:port],…``, or ``none``
        :param wanted: what is to go through it
        :param at_node: what the configuration says about the node for which that is
        :raises LinkError: it cannot be opened
        """


class SshProcess(ChildTransport):
    """An ssh that logs in, under the rules of :mod:`cockpit.transport.login_prompts`.

    :param node: the node for which it does; errors are about it
    :param place: where it logs in: the node, or a jump host after those that are on the way to it
    """

    def __init__(self, node: str, ways: Shared, passages: Passages, place: str) -> None:
        super().__init__("openssh", node, (), ways.config.env)
        self.place = place
        """Where it logs in: the node, or ``[user@]host[:port],…``."""
        self._ways = ways
        self._passages = passages
        self.typed = (*ways.config.typed, node)
        """What a person types to get to the node."""

    @property
    def node(self) -> str:
        """The node for which it logs in."""
        return self._node

    def _said(self) -> StderrReader:
        return StderrReader(self.progress)

    def _command(self, ssh: tuple[str, ...], through: Passage | None) -> tuple[str, ...]:
        """The words of the process, up to what it is started for.

        :param ssh: the program with its configuration
        :param through: the connection to its jump host
        """
        raise NotImplementedError

    async def _get_in(
        self, last: str, asked: Mapping[str, str], at_node: Mapping[str, str], questions: Questions
    ) -> ChildPipe:
        """Start it, and retry after a moment if sshd drops us before the login.

        :param last: the last word of its command line
        :param asked: what the configuration says about where it logs in
        :param at_node: and about the node
        :raises LinkError: with the node, the cause and what to type next
        """
        try:
            return await self._logged_in(last, asked, at_node, questions)
        finally:
            questions.end()
            if questions.answered:
                self._ways.needed_answers.add(self.place)

    async def _logged_in(
        self, last: str, asked: Mapping[str, str], at_node: Mapping[str, str], questions: Questions
    ) -> ChildPipe:
        gate = self._ways.gate(asked)
        attempt = 0
        while True:
            attempt += 1
            self.progress.reach(ConnectStage.JUMP)
            through = await self._passages.to(asked.get("proxyjump", "none"), self, at_node)
            self.progress.reach(ConnectStage.QUEUED)
            try:
                async with gate:
                    return await self._log_in(last, at_node, through, questions)
            except LinkError as error:
                if (login := questions.asking) is not None and await login.heard():
                    continue
                if login := questions.blocked:
                    self.progress.reach(ConnectStage.PERSON)
                    questions.release(login)
                    await login.turn()
                    attempt = 0
                    continue
                if (
                    attempt >= _TRIES
                    or not isinstance(error, Dropped)
                    or questions.unsettled
                    or questions.stopped
                ):
                    questions.refused()
                    raise self._final(questions.stopped or error) from None
                await asyncio.sleep(random.uniform(0.3, 1.0) * attempt)

    def _final(self, error: LinkError) -> LinkError:
        """The error of a login that is over; one that only a person can repeat is not tried by itself."""
        if self.progress.unasked and self.place in self._ways.needed_answers and not error.retry:
            return NeedsPerson(error.what, where=self._node, hint=error.hint)
        return error

    async def _log_in(
        self, last: str, at_node: Mapping[str, str], through: Passage | None, questions: Questions
    ) -> ChildPipe:
        ways = self._ways
        asks = ways.desk.keeps or not (self.progress.unasked or ways.desk.prompter.absent)
        self._words = self._command(await ways.config.words(asks=asks), through)
        self._env = {**ways.config.env, **(await ways.askpass.start() if asks else {})}
        self.progress.reach(ConnectStage.DIALING)
        said = self._said()
        said.logged_in = questions.logged_in
        failure = Failure(self._node, said, at_node, self.typed)
        questions.begin()
        pipe = await self._start(last, said, failure.explain)
        opened = asyncio.create_task(said.opened.wait())
        try:
            with ways.askpass.asked_by(pipe.pid, questions.answer):
                while not (await asyncio.wait({opened}, timeout=_LOOK_S))[0]:
                    if not pipe.running:
                        status = await pipe.status()
                        if said.opened.is_set():
                            break  # its last words: it had logged in, and whoever reads learns how it ended
                        if through is not None:
                            await through.add_why(said, at_node)
                        error = failure.explain(status)
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
