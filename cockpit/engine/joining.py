"""Ways back to a run that was started before."""

from __future__ import annotations

from typing import Any

from cockpit.engine.fleet import Fleet, close_all, settle
from cockpit.engine.link import Link
from cockpit.engine.runs import Manifest, NodeEntry
from cockpit.errors import CockpitError


def fleet_for(manifest: Manifest) -> Fleet:
    """A fleet that reaches the nodes as they were reached when the run was started."""
    kinds = {node.transport for node in manifest.nodes}
    return Fleet(manifest.pythons, kinds.pop() if len(kinds) == 1 else "auto", manifest.ssh_config)


async def ask_all(
    manifest: Manifest, verb: str, **fields: Any
) -> tuple[dict[str, dict[str, Any]], dict[str, CockpitError]]:
    """Ask every node of a run the same about its run folder; answers and errors by node."""
    fleet = fleet_for(manifest)

    async def one(node: NodeEntry) -> dict[str, Any]:
        link: Link = await fleet.open(node.name)
        try:
            return await link.call(verb, dir=node.dir, **fields)
        finally:
            await close_all([link])

    try:
        return await settle({node.name: one(node) for node in manifest.nodes})
    finally:
        await fleet.close()
