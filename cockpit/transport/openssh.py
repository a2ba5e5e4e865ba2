"""Nodes over the user's own ssh program: whatever their configuration can do, as a child process's pipe.

It has no terminal. What servers ask reaches a person by ``SSH_ASKPASS``, under the same rules as everywhere
(:mod:`cockpit.transport.login_prompts`); where nobody can be asked, and to get a lost link back, it runs in
``BatchMode``. Passphrases and PINs are for the agent.
"""

from __future__ import annotations

from cockpit.transport.base import Pipe
from cockpit.transport.login_prompts import DESK, Desk
from cockpit.transport.openssh_asking import Questions
from cockpit.transport.openssh_config import OpensshConfig
from cockpit.transport.openssh_masters import Masters
from cockpit.transport.openssh_process import Passage, Shared, SshProcess


class OpensshWays(Shared):
    """The ways to nodes by the ssh processes of one cockpit.

    :param chosen: an ssh configuration file in place of the user's and the system's
    :param patience_s: seconds that a node may spend on any one stage of connecting
    :param desk: answers what servers ask of a person; None: that of this process
    """

    def __init__(self, chosen: str = "", patience_s: float = 30, desk: Desk | None = None) -> None:
        super().__init__(OpensshConfig(chosen, patience_s), patience_s, desk or DESK)
        self._masters = Masters(self)

    async def to(self, node: str) -> OpensshTransport:
        """See :meth:`cockpit.transport.base.Ways.to`."""
        return OpensshTransport(node, self, self._masters)

    async def close(self) -> None:
        """No more questions, and no shared connections."""
        await self._masters.close()
        await self.askpass.close()


class OpensshTransport(SshProcess):
    """One node over one ssh process a pipe."""

    def __init__(self, node: str, ways: Shared, masters: Masters) -> None:
        super().__init__(node, ways, masters, node)

    async def open(self, command: str) -> Pipe:
        """Log in and start ``command``; retry after a moment if sshd drops us before the login.

        :raises LinkError: with the node, the cause and what to type next
        """
        asked = await self._ways.config.ask(self._node)
        if await self._ways.config.has_master(self._node, asked):
            asked = {**asked, "proxyjump": "none"}  # its jump hosts are passed already
        questions = Questions(self._ways.desk, self._node, asked, self.typed, self.progress)
        return await self._get_in(command, asked, asked, questions)

    def _command(self, ssh: tuple[str, ...], through: Passage | None) -> tuple[str, ...]:
        return (*ssh, *(through.passing(ssh) if through else ()), "-T", "--", self._node)
