"""By which address the ranks of several pods find the first one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cockpit.engine.launch.prepare import master_address


class Roll:
    """Waits for everybody."""

    async def heard(self, node: str, answer: Awaitable[Any]) -> Any:
        """What a node answers."""
        return await answer


def link(kind: str) -> Any:
    """A node on the one machine that there is, whose name nobody resolves."""

    async def call(request: object) -> Any:
        return SimpleNamespace(addresses=[], own=["127.0.0.1", "10.1.2.3"])

    transport, hello = SimpleNamespace(kind=kind), SimpleNamespace(boot_id="one")
    return SimpleNamespace(call=call, transport=transport, hello=hello)


@pytest.mark.parametrize(
    ("kind", "nodes", "address"),
    [("kubectl", 2, "10.1.2.3"), ("kubectl", 1, "127.0.0.1"), ("local", 2, "127.0.0.1")],
)
def test_pods_on_one_machine_have_no_loopback_in_common(kind: str, nodes: int, address: str) -> None:
    links = {f"train-{index}": link(kind) for index in range(nodes)}
    assert asyncio.run(master_address("train-0", links, cast(Any, Roll()))) == address
