"""Links to many nodes: which transport, all at once, errors of all nodes together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cockpit.engine.link import Link, LinkTimes
from cockpit.errors import CockpitError, ManyErrors
from cockpit.transport.base import Transport
from cockpit.transport.local import LocalTransport, is_this_machine

if TYPE_CHECKING:
    from cockpit.transport.ssh import SshHops

T = TypeVar("T")

PYTHONS = ("/usr/bin/python3", "python3", "python")
"""For the agent, which needs any Python from 3.8 on, where the ranks' own is not there or not known."""

AT_ONCE = 64
"""Links opened at the same time over all hops."""


class Fleet:
    """Opens links and keeps what they share.

    :param pythons: interpreters to try for the agent, in order
    :param transport: ``ssh``, ``local``, or ``auto``: local for this machine's own names
    :param ssh_config: an ssh configuration file in place of the user's and the system's
    """

    def __init__(
        self,
        pythons: list[str],
        transport: str = "auto",
        ssh_config: str = "",
        times: LinkTimes | None = None,
    ) -> None:
        self.pythons = pythons
        self._transport = transport
        self._ssh_config = ssh_config
        self._times = times
        self._hops: SshHops | None = None

    async def open(self, node: str) -> Link:
        """A new link to ``node``.

        :raises LinkError: with the node, the cause and what to type next
        """
        link = Link(node, await self._choose(node), self.pythons, self._times)
        await link.open()
        return link

    async def open_all(
        self, nodes: Iterable[str], done: Callable[[str], None] = lambda node: None
    ) -> dict[str, Link]:
        """Links to all nodes, or none.

        :param done: called with each node that answered
        :raises ManyErrors: one line for each node that did not
        """
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(node: str) -> Link:
            async with gate:
                link = await self.open(node)
            done(node)
            return link

        links, errors = await settle({node: one(node) for node in nodes})
        if errors:
            await close_all(links.values())
            raise ManyErrors(list(errors.values()))
        return links

    async def _choose(self, node: str) -> Transport:
        kind = self._transport
        if kind == "auto":
            # Asks the resolver, which may be slow: not on the event loop.
            kind = "local" if await asyncio.to_thread(is_this_machine, node) else "ssh"
        if kind == "local":
            return LocalTransport(node)
        if self._hops is None:
            from cockpit.transport.ssh import SshHops, SshOptions  # a fifth of a second that local runs save

            self._hops = SshHops(SshOptions(config=Path(self._ssh_config) if self._ssh_config else None))
        return self._hops.transport(node)

    async def close(self) -> None:
        """Close what the links shared."""
        if self._hops is not None:
            await self._hops.close()


async def settle(work: Mapping[str, Awaitable[T]]) -> tuple[dict[str, T], dict[str, CockpitError]]:
    """Run all at once; results and people's errors by key, in the order given. Other errors are raised."""
    answers = await asyncio.gather(*work.values(), return_exceptions=True)
    results: dict[str, T] = {}
    errors: dict[str, CockpitError] = {}
    for key, answer in zip(work, answers, strict=True):
        if isinstance(answer, CockpitError):
            errors[key] = answer
        elif isinstance(answer, BaseException):
            raise answer
        else:
            results[key] = answer
    return results, errors


async def close_all(links: Iterable[Link]) -> None:
    """Close links at once."""
    await asyncio.gather(*(link.close() for link in links))
