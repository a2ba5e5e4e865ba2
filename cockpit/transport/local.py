"""This machine as a node: the same pipe, without ssh."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable

from cockpit.transport.child import ChildTransport

NAMES_S = 5.0
"""For the resolver to say whether a name is this machine; a name that takes longer is not."""


class LocalTransport(ChildTransport):
    """Runs commands in a shell of this machine."""

    def __init__(self, node: str) -> None:
        super().__init__("local", node, ("/bin/sh", "-c"))


class LocalWays:
    """See :class:`cockpit.transport.base.Ways`."""

    async def to(self, node: str) -> LocalTransport:
        """See :meth:`cockpit.transport.base.Ways.to`."""
        return LocalTransport(node)

    async def close(self) -> None:
        """There is nothing that they share."""


async def is_here(name: str) -> bool:
    """Whether ``name`` is one of this machine's names or addresses.

    Asks the resolver, so that an alias in ``/etc/hosts`` counts too; a name it does not know is not ours.
    """
    try:
        return await asyncio.wait_for(asyncio.to_thread(_is_here, name), NAMES_S)
    except (TimeoutError, asyncio.TimeoutError):
        return False


def _is_here(name: str) -> bool:
    host = name.rpartition("@")[2]
    if host in {"localhost", socket.gethostname(), socket.getfqdn()}:
        return True
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return False
    return not found.isdisjoint(_own_addresses())


def _own_addresses() -> set[str]:
    import psutil  # takes as long to load as all our code, and most names need no look at addresses

    own: Iterable[str] = (
        address.address.partition("%")[0]
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family in (socket.AF_INET, socket.AF_INET6)
    )
    return {*own, "127.0.0.1", "127.0.1.1", "::1"}
