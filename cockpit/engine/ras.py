"""Asking NCCL's RAS about a job: on a few of its nodes, since each answers for all, and never for long."""

from __future__ import annotations

import asyncio
import time

from cockpit.base import verbs
from cockpit.base.ras import RasAnswer
from cockpit.base.shared_fields import Target
from cockpit.core.stacks.ras import Ras, of_answer
from cockpit.core.text import one_line
from cockpit.engine.stacks.ask import Party
from cockpit.errors import CockpitError

LIMIT_S = 2.0
"""Seconds that a look waits for RAS, whatever else it waits for."""

ASKED = 3
"""Nodes that are asked at once: RAS of any node answers for all; one may be broken.

If all were asked, each of a thousand processes would be asked by RAS so many times.
"""


async def ask_ras(party: Party) -> Ras | None:
    """What RAS says of a job; None: no rank that was asked about has it, or nobody answered in time."""
    at = time.time()
    asks = {node: asyncio.create_task(_of_node(party, node)) for node in _some(party)}
    if not asks:
        return None
    await asyncio.wait(asks.values(), timeout=LIMIT_S)
    heard: dict[str, RasAnswer] = {}
    silent: dict[str, str] = {}
    for node, task in asks.items():
        if not task.done():
            task.cancel()
            continue
        answer = task.result()
        if isinstance(answer, str):
            silent[node] = answer
        elif answer.kind:
            if answer.kind != "absent":
                silent[node] = one_line(answer.what, limit=200)
        else:
            heard[node] = answer
    if not heard and not silent:
        return None
    # The one that has heard of the most ranks.
    best = max(heard, key=lambda node: sum(row.heard for row in heard[node].rows), default="")
    pids = {
        rank: (place.node, [pid for pid in (place.pid, place.ns_pid) if pid])
        for rank, place in party.places().items()
    }
    return of_answer(heard.get(best), best, at, silent, pids)


def _some(party: Party) -> list[str]:
    """Nodes that have ranks: the first, the last, and one between them."""
    having = {place.node for place in party.places().values() if place.pid and not place.why}
    nodes = [node for node in party.nodes if node in having]
    return list(dict.fromkeys(nodes[at] for at in (0, -1, len(nodes) // 2)))[:ASKED] if nodes else []


async def _of_node(party: Party, node: str) -> RasAnswer | str:
    """What a node says, or why it says nothing: that costs no other node's answer."""
    try:
        link = await party.link(node)
        targets = tuple(Target(one.rank, one.pid, one.ticks) for one in await party.targets(node, link))
        return await link.call(verbs.Ras(targets, LIMIT_S * 0.9), deadline_s=LIMIT_S)
    except CockpitError as error:
        return one_line(error.what, limit=200)
    except Exception as error:
        # A bug of ours.
        return one_line(f"internal error: {error!r}", limit=200)
