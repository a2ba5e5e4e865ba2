"""A node over asyncssh; over the ssh program where only that can log in; by a SLURM step where no sshd helps.

A login that was refused is not tried again unless the configuration shows what the ssh program has and
asyncssh lacks for this node: each refusal may count towards a lock-out.
"""

from __future__ import annotations

import asyncio
import re
import textwrap
from collections.abc import Callable, Mapping
from importlib.util import find_spec

from cockpit.transport.base import LinkError, NoLogin, NotBySsh, Pipe, Progress, Transport, Ways
from cockpit.transport.jobs import Jobs
from cockpit.transport.openssh import OpensshWays
from cockpit.transport.openssh_config import OpensshConfig

_HOP = re.compile(r"(?:ssh://)?(?P<name>.*?)(?::(?P<port>\d+))?/?\Z")

_REASON_CHARS = 160
"""Of a reason: asyncssh lists all algorithms that it did not find."""

_TICKET_S = 5.0
"""For ``klist`` to say whether there is a Kerberos ticket."""


class FallbackWays:
    """Ways by asyncssh; by the ssh program where that cannot log in; by a SLURM step where no sshd lets in.

    :param first: the ways by asyncssh
    :param second: the ways by the ssh program
    :param steps: makes the ways by steps of a job from its number
    :param known: nodes that are reached by the ssh program, from the beginning
    """

    def __init__(
        self,
        first: Ways,
        second: OpensshWays,
        steps: Callable[[str], Ways],
        known: frozenset[str] = frozenset(),
    ) -> None:
        self.second = second
        self.by_program = set(known)
        """The nodes that are reached by the ssh program."""
        self.by_step: dict[str, str] = {}
        """The job of each node that is reached by steps of one."""
        self.jobs = Jobs()
        self._first = first
        self._make_steps = steps
        self._steps: dict[str, Ways] = {}

    async def to(self, node: str) -> Transport:
        """See :meth:`cockpit.transport.base.Ways.to`."""
        if node in self.by_step:
            return await self.step(node)
        ways = self.second if node in self.by_program else self._first
        return FallbackTransport(node, await ways.to(node), self)

    async def step(self, node: str) -> Transport:
        """A transport to a node whose job is known."""
        job = self.by_step[node]
        if job not in self._steps:
            self._steps[job] = self._make_steps(job)
        return await self._steps[job].to(node)

    async def asks_nobody(self, node: str) -> bool:
        """Whether the ssh program may be able to log in to a node without a question, as asyncssh is not."""
        return bool(await lacking(NoLogin("", where=node, refused=True), node, self.second.config))

    async def close(self) -> None:
        """See :meth:`cockpit.transport.base.Ways.close`."""
        for ways in (self._first, self.second, *self._steps.values()):
            await ways.close()


class FallbackTransport:
    """A transport whose kind is decided when it is opened."""

    def __init__(self, node: str, first: Transport, ways: FallbackWays) -> None:
        self._node = node
        self._way = first
        self._ways = ways

    @property
    def kind(self) -> str:
        """See :attr:`cockpit.transport.base.Transport.kind`."""
        return self._way.kind

    @property
    def job(self) -> str:
        """See :attr:`cockpit.transport.base.Transport.job`."""
        return self._way.job

    @property
    def progress(self) -> Progress:
        """See :attr:`cockpit.transport.base.Transport.progress`."""
        return self._way.progress

    @progress.setter
    def progress(self, value: Progress) -> None:
        self._way.progress = value

    async def open(self, command: str) -> Pipe:
        """See :meth:`cockpit.transport.base.Transport.open`; its failure is that of the last way tried."""
        try:
            return await self._by_ssh(command)
        except NotBySsh as error:
            job = await self._ways.jobs.holding(self._node, error)
            remark = f"reached by steps of SLURM job {job}: {error.what}"
        # Kept for the links that follow, as below: they need no second refusal to know.
        self._ways.by_step[self._node] = job
        await self._turn_to(await self._ways.step(self._node), remark)
        return await self._way.open(command)

    async def _by_ssh(self, command: str) -> Pipe:
        try:
            return await self._way.open(command)
        except NoLogin as error:
            reason = await lacking(error, self._node, self._ways.second.config)
            if not reason:
                raise
        self._ways.by_program.add(self._node)
        await self._turn_to(await self._ways.second.to(self._node), f"reached by the ssh program: {reason}")
        return await self._way.open(command)

    async def _turn_to(self, way: Transport, remark: str) -> None:
        progress = self.progress
        await self._way.close()
        self._way = way
        way.progress = progress
        progress.remark = remark

    async def close(self) -> None:
        """See :meth:`cockpit.transport.base.Transport.close`."""
        await self._way.close()


async def lacking(error: NoLogin, node: str, config: OpensshConfig) -> str:
    """Why the ssh program may be able to log in where asyncssh was not; empty: nothing says so."""
    try:
        asked = await config.ask(node)
        if not error.refused:
            return textwrap.shorten(error.what, _REASON_CHARS, placeholder=" …")
        hops = [hop for hop in asked.get("proxyjump", "none").split(",") if hop != "none"]
        found = await _shown(node, (), asked, config)
        for hop in hops:
            place = _HOP.match(hop)
            assert place
            options = ("-p", place["port"]) if place["port"] else ()
            found = found or await _shown(
                place["name"], options, await config.ask(place["name"], *options), config
            )
        return found
    except LinkError:
        return ""


async def _shown(node: str, options: tuple[str, ...], asked: Mapping[str, str], config: OpensshConfig) -> str:
    """What the configuration shows for one machine that asyncssh lacks here."""
    if await config.has_master(node, asked, *options):
        return "a ControlMaster connection is open"
    if asked.get("pkcs11provider", "none") != "none" and find_spec("pkcs11") is None:
        return "PKCS11Provider, for which asyncssh needs the package python-pkcs11"
    if asked.get("gssapiauthentication") == "yes" and find_spec("gssapi") is None and await _has_ticket():
        return "GSSAPIAuthentication with a Kerberos ticket, for which asyncssh needs the package gssapi"
    return ""


async def _has_ticket() -> bool:
    """Whether there is a Kerberos ticket: without one, GSSAPI in the system's configuration says nothing."""
    nothing = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            "klist", "-s", stdin=nothing, stdout=nothing, stderr=nothing
        )
        return await asyncio.wait_for(process.wait(), _TICKET_S) == 0
    except (OSError, TimeoutError, asyncio.TimeoutError):
        return False
