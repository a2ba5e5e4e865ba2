"""Bringing the spool of a live run up to date, for verbs that then read it."""

from __future__ import annotations

import time

from cockpit.cli.awaiting import telling
from cockpit.cli.output import say
from cockpit.cli.plain import TICK_S
from cockpit.engine.run.session import Session

PATIENCE_S = 15.0
"""How long a node may take to send what is missing here, before what we have is shown without it."""


async def catch_up(session: Session) -> None:
    """Wait until what nodes have is here; those that take too long, or do not answer, are said."""
    deadline = time.monotonic() + PATIENCE_S
    names = set(session.model.nodes)
    async with telling(lambda: session.pool.roll, failures=False):
        while names and time.monotonic() < deadline:
            await session.wait(TICK_S)
            names = {
                name
                for name, node in session.model.nodes.items()
                if session.behind.get(name) != 0 and not node.done and node.link != "gone"
                if name not in session.paused
            }
    for name, node in session.model.nodes.items():
        if name in names or (node.link in ("gone", "stale") and not node.done):
            say(f"{name}: no answer, its output may be incomplete here: {node.link_why}")
    for name, why in session.paused.items():
        say(f"{name}: its output is incomplete here: {why}")
