"""A pool whose nodes are made up: the policy is the real one, and each link is what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

from cockpit.engine.links.link import Link
from cockpit.engine.links.pool import LinkPool
from cockpit.errors import CockpitError


class MadeUp:
    """What every made-up link has."""

    lost: asyncio.Future[CockpitError]
    answered = True
    hello: Any = SimpleNamespace(host="")

    def lose(self, error: CockpitError) -> None:
        """It is of no use any more."""
        if not self.lost.done():
            self.lost.set_result(error)

    async def close(self) -> None:
        """There is nothing to close."""


class Sent:
    """What a made-up node sends in answer to a request.

    :param parts: one after the other; it ends with the answer
    """

    def __init__(self, parts: AsyncIterator[tuple[Any, bytes]]) -> None:
        self._parts = parts

    async def part(self, within_s: float) -> tuple[Any, bytes] | None:
        """The next one; it is there at once."""
        return await anext(self._parts, None)

    async def credit(self, size: int) -> None:
        """It sends without."""

    async def close(self) -> None:
        """There is nothing to close."""


class Fakes(LinkPool):
    """A pool of made-up nodes; opening one whose link is an exception raises that."""

    def __init__(self, links: Mapping[str, Any]) -> None:
        super().__init__(["python3"])
        self.links = links
        self.opened: list[str] = []
        """Nodes to which links were opened, in order."""

    async def _connect(self, node: str) -> Link:
        self.opened.append(node)
        link = self.links[node]
        if isinstance(link, Exception):
            raise link
        link.lost = asyncio.Future()
        return cast(Link, link)
