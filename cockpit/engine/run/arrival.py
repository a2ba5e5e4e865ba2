"""Waiting for what nodes have from before: with it come the times at which it was printed."""

from __future__ import annotations

import time
from collections.abc import Callable, Set

from cockpit.engine.run.session import Session

SILENT_S = 15.0
"""How long a node that sends nothing holds up what the others have sent."""

_TICK_S = 0.1


async def arrived(session: Session, waits: Callable[[Set[str]], object] = lambda names: None) -> None:
    """Wait until every node that is still sending has sent what it had when it was first heard from.

    :param waits: called now and then with the nodes that have not
    :raises CockpitError: watching itself failed
    """
    nodes, failed = session.model.nodes, session.pool.roll.failed
    names = set(nodes)
    before = {name: node.link_since for name, node in nodes.items()}
    goals: dict[str, int] = {}
    began = time.monotonic()
    grown = {name: (session.here(name), began) for name in nodes}

    def over(name: str) -> bool:
        node, behind, here, now = nodes[name], session.behind.get(name), session.here(name), time.monotonic()
        if here != grown[name][0]:
            grown[name] = here, now
        # What a node says it has may be wrong.
        if node.done or name in session.paused or now - grown[name][1] > SILENT_S:
            return True
        if behind is None:
            return name in failed or node.link_since != before[name]
        # A run may print faster than its link carries: it is never up to date.
        return not behind or here >= goals.setdefault(name, here + behind)

    while names := {name for name in names if not over(name)}:
        waits(names)
        await session.wait(_TICK_S)
