"""Nodes over the user's own ssh program: whatever their configuration can do, as a child process's pipe.

It asks nobody: ``BatchMode``, no terminal, no ``SSH_ASKPASS``. A question for each of many nodes, and again
after each lost link, would lock people out; what a person typed once is in a ``ControlMaster`` connection, a
Kerberos ticket or the agent.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

from cockpit.transport.base import ConnectStage, LinkError, Pipe
from cockpit.transport.child import ChildTransport
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
    """

    def __init__(self, chosen: str = "", patience_s: float = 30) -> None:
        self.config = OpensshConfig(chosen, patience_s)
        self.patience_s = patience_s
        self._gates: dict[str, asyncio.Semaphore] = {}

    async def to(self, node: str) -> OpensshTransport:
        """See :meth:`cockpit.transport.base.Ways.to`."""
        return OpensshTransport(node, self)

    async def close(self) -> None:
        """There is nothing that they share."""

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
        self._words = (*await self._ways.config.words(), "-T", "--", self._node)
        asked = await self._ways.config.ask(self._node)
        gate = self._ways.gate(asked)
        for attempt in range(1, _TRIES + 1):
            self.progress.reach(ConnectStage.QUEUED)
            try:
                async with gate:
                    return await self._log_in(command, asked)
            except LinkError as error:
                if attempt == _TRIES or not dropped(error):
                    raise
                await asyncio.sleep(random.uniform(0.3, 1.0) * attempt)
        raise AssertionError("unreachable")

    async def _log_in(self, command: str, asked: Mapping[str, str]) -> Pipe:
        self.progress.reach(ConnectStage.DIALING)
        said = Said(self.progress)
        failure = Failure(self._node, said, asked, (*self._ways.config.typed, self._node))
        pipe = await self._start(command, said, failure.explain)
        opened = asyncio.create_task(said.opened.wait())
        try:
            while not (await asyncio.wait({opened}, timeout=_LOOK_S))[0]:
                if not pipe.running:
                    error = failure.explain(await pipe.status())
                    assert error is not None
                    raise error
                if self.progress.waited_s > self._ways.patience_s:
                    raise failure.stuck(self.progress.stage, self._ways.patience_s)
        except BaseException:
            await pipe.end()
            raise
        finally:
            opened.cancel()
        self.progress.reach(ConnectStage.SHELL)
        return pipe
