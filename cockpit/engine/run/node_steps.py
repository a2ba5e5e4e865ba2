"""The steps that a node kept while nobody watched: asked for whenever a link to it is there again."""

from __future__ import annotations

from contextlib import suppress

from cockpit.base import verbs
from cockpit.base.progress.past import Stretch
from cockpit.engine.links.link import Link, RemoteError, streaming
from cockpit.engine.records.manifest import NodeEntry

OVERLAP_S = 10.0
"""What a node kept is asked for from so long before the newest step that is known here."""

WAIT_S = 30.0
"""For the next part of the answer."""

ROWS = 200_000
"""Rows of one node, more than it keeps."""


async def kept_steps(
    link: Link, entry: NodeEntry, known: float, offset_s: float, steps: int
) -> list[Stretch]:
    """What a node kept of its ranks' steps, oldest first; nothing if it cannot say.

    :param known: when the newest step known here ended (unix seconds, our clock); 0 if no step is known
    :param offset_s: the node's clock minus ours
    :param steps: so many of each rank come one by one, older ones many as one
    :raises LinkError: the link was lost, or sends nonsense
    """
    found: list[Stretch] = []
    since = max(0.0, known - OVERLAP_S + offset_s)
    request = verbs.Past(entry.dir, tuple(entry.ranks), since, steps)
    with suppress(RemoteError):
        async with streaming(link, request) as stream:
            while len(found) < ROWS and (part := await stream.part(WAIT_S)) is not None:
                found += part[0].rows
    return found
