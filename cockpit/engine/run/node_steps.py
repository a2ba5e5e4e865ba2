"""The steps that a node kept while nobody watched: asked for whenever a link to it is there again."""

from __future__ import annotations

from contextlib import suppress

from cockpit.base import verbs
from cockpit.base.progress.past import Stretch
from cockpit.engine.links.link import Link, RemoteError, streaming
from cockpit.engine.records.manifest import NodeEntry

WAIT_S = 30.0
"""For the next part of the answer."""

ROWS = 200_000
"""Rows of one node, more than it keeps."""


async def kept_steps(link: Link, entry: NodeEntry, since: float, steps: int) -> list[Stretch]:
    """What a node kept of its ranks' steps, oldest first; nothing if it cannot say.

    :param since: unix seconds on the node's clock
    :param steps: so many of each rank come one by one, older ones many as one
    :raises LinkError: the link was lost, or sends nonsense
    """
    found: list[Stretch] = []
    request = verbs.Past(entry.dir, tuple(entry.ranks), max(0.0, since), steps)
    with suppress(RemoteError):
        async with streaming(link, request) as stream:
            while len(found) < ROWS and (part := await stream.part(WAIT_S)) is not None:
                found += part[0].rows
    return found
