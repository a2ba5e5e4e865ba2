"""A cockpit in this process whose one node is hostile, and whose deadlines are short."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cockpit.cli import awaiting
from cockpit.engine import collect
from cockpit.engine.links import pool
from cockpit.engine.links.link import Link, LinkTimes
from cockpit.engine.links.pool import LinkPool
from cockpit.engine.profile import taking
from cockpit.transport.base import Pipe, Transport
from cockpit.transport.local import LocalTransport
from cockpit.transport.registry import TRANSPORTS
from tests.hostile.peer import Plan
from tests.warm import warm

REPO = Path(__file__).parents[2]
BAD = "bad"
"""The name of the hostile node."""
TIMES = LinkTimes(start=15, beat=0.3, silence=4)
CALL_S = 6.0
"""Longest wait for an answer."""
HOSTILE_LINKS = 2
"""So many links to the hostile node are rewritten; then it has come to its senses."""


_peer: tuple[str, ...] = (
    sys.executable,
    "-S",
    "-c",
    f"import sys; sys.path.insert(0, {str(REPO)!r}); from tests.hostile.peer import main; main()",
)
"""The words that start a peer."""


@contextmanager
def warm_peers() -> Iterator[None]:
    """Peers of this process and its copies begin as copies of one that has imported what they need."""
    global _peer
    usual = _peer
    with warm("tests.hostile.mutations") as made:
        _peer = (made.python, str(REPO / "tests/hostile/peer.py"))
        try:
            yield
        finally:
            _peer = usual


def behind(plan: Plan, command: str) -> str:
    """The shell command that starts a peer, which starts a command."""
    return "exec " + shlex.join([*_peer, json.dumps(asdict(plan)), command])


class Hostile(LocalTransport):
    """This machine as a node whose login shell is a peer that rewrites."""

    def __init__(self, node: str, plan: Plan) -> None:
        super().__init__(node)
        self._plan = plan

    async def open(self, command: str) -> Pipe:
        """Start the peer, which starts the command."""
        return await super().open(behind(self._plan, command))


class HostileWays:
    """Ways to nodes of this machine, one of which is hostile."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._opened = 0

    async def to(self, node: str) -> Transport:
        """The way to a node."""
        if node != BAD:
            return LocalTransport(node)
        self._opened += 1
        first = self._opened == 1
        plan = replace(
            self._plan, seed=f"{self._plan.seed}.{self._opened}", skip=self._plan.skip if first else 0
        )
        return Hostile(node, plan if self._opened <= HOSTILE_LINKS else replace(self._plan, mutation=""))

    async def close(self) -> None:
        """There is nothing to close."""


def install(plan: Plan) -> None:
    """Change the cockpit of this process, for good: only a child that ends after it should call this."""
    ways = HostileWays(plan)
    made = LinkPool.__init__

    def make(self: LinkPool, *words: Any, **more: Any) -> None:
        made(self, *words, **more)
        self._times = TIMES

    called = Link.call

    async def call(self: Link, request: Any, data: bytes = b"", *, deadline_s: float = 60) -> Any:
        return await called(self, request, data, deadline_s=min(deadline_s, CALL_S))

    change: Any = setattr
    for kind, way in TRANSPORTS.items():
        TRANSPORTS[kind] = replace(way, ways=lambda options, patience_s: ways)
    change(LinkPool, "__init__", make)
    change(Link, "call", call)
    change(pool, "RETRY_S", (0.1, 0.3))
    change(pool, "SLOW_S", 0.5)
    change(collect, "_TRIES", 3)
    change(collect, "_SILENCE_S", CALL_S)
    change(awaiting, "PATIENCE_S", CALL_S)
    for name, seconds in (("SUM_S", CALL_S), ("CONFIRM_S", 2.0), ("AFTER_S", 2.0)):
        change(taking, name, seconds)
