"""A part of a file on a node, by its path there; bounded, whatever the node sends."""

from __future__ import annotations

from cockpit.base import verbs
from cockpit.engine.links.link import Link, RemoteError, streaming

_CREDIT = 1 << 20
_SILENCE_S = 20.0


async def read_part(link: Link, place: str, name: str, offset: int, size: int) -> bytes:
    """The bytes of a file from an offset on, up to its first ``size`` bytes.

    :param place: its folder
    :raises CockpitError: the node cannot read it, is silent, or sends something else
    """
    data = bytearray()
    async with streaming(link, verbs.Read(place, name, offset, _CREDIT, named=True, size=size)) as stream:
        while (part := await stream.part(_SILENCE_S)) is not None:
            item, more = part
            if item.offset != offset + len(data) or item.offset + len(more) > size:
                raise RemoteError(
                    "protocol", f"sent a different part of {name} than requested", where=link.node
                )
            data += more
            await stream.credit(len(more))
        return bytes(data)
