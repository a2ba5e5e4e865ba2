"""What ranks were started with, asked once beside the launch: their environment, what is installed."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from cockpit import paths
from cockpit.base import gate, verbs
from cockpit.base.gate import Definition, ListOf, Malformed, MapOf, bound, parsed, read
from cockpit.base.shared_fields import PACKAGE, PACKAGES_TOLD
from cockpit.core.variables import matter
from cockpit.engine.files import SMALL_LIMIT, read_small, replace
from cockpit.engine.links.pool import settle
from cockpit.errors import CockpitError
from cockpit.private import private_dir

if TYPE_CHECKING:
    from cockpit.engine.records.folder import RunFolder
    from cockpit.engine.records.manifest import Manifest, NodeEntry
    from cockpit.engine.run.session import Session

FILE = "environ.json"
NODES = 64
"""Nodes whose ranks are asked, the first ones: enough to see what differs."""
_LOOK_S = 0.5
_NAMES = ListOf(PACKAGE, PACKAGES_TOLD)
_DIGEST = re.compile(r"[0-9a-f]{16}")
STARTS_S = 600.0
"""Seconds in which a rank must have started."""


class Environments(Definition):
    """Variables that matter, of the first rank of each node, without secrets: by node."""

    nodes: Mapping[str, Mapping[str, str]] = bound(MapOf(gate.NODE_NAME, gate.VARIABLES, NODES))


async def keep_beside(session: Session) -> None:
    """Ask for both, and write it down; what nobody answers is not known."""
    folder, manifest = session.folder, session.manifest
    await settle({digest: _keep_packages(session, node, digest) for digest, node in _hashes(manifest)})
    first = [node for node in manifest.nodes if node.ranks][:NODES]
    asked = {node.name: asyncio.wait_for(_environment(session, node), STARTS_S) for node in first}
    answers, _ = await settle(asked)
    if answers:
        with suppress(CockpitError):  # a full disk is said by what needs the room
            replace(folder.path / FILE, json.dumps(asdict(Environments(answers))).encode())


async def _environment(session: Session, node: NodeEntry) -> Mapping[str, str]:
    """Variables of the node's first rank, once that has started."""
    rank = min(node.ranks)
    while session.model.ranks[rank].started_at is None:  # noqa: ASYNC110 (on another machine)
        await asyncio.sleep(_LOOK_S)
    link = await session.pool.lend(node.name, patient=True)
    answer = await link.call(verbs.Environ(node.dir, rank))
    given = {name for plan in session.manifest.plans for name in (plan.get("env") or ())}
    return {name: text for name, text in answer.environ.items() if name in given or matter(name)}


def kept_environments(folder: RunFolder) -> Mapping[str, Mapping[str, str]]:
    """What a run's folder has of them, by node; nothing, if it has none, or they are damaged."""
    with suppress(OSError, Malformed):
        return read(Environments, parsed(read_small(folder.path / FILE, SMALL_LIMIT))).nodes
    return {}


# What is installed


def _hashes(manifest: Manifest) -> Iterable[tuple[str, NodeEntry]]:
    """Each hash whose list is not known here, and a node that has it."""
    found: dict[str, NodeEntry] = {}
    for node in manifest.nodes:
        digest = node.facts.get("installed_hash")
        if isinstance(digest, str) and _DIGEST.fullmatch(digest) and not _file(digest).exists():
            found.setdefault(digest, node)
    return found.items()


async def _keep_packages(session: Session, node: NodeEntry, digest: str) -> None:
    link = await session.pool.lend(node.name, patient=True)
    names = list((await link.call(verbs.Packages(digest))).names)
    if names and digest_of(names) == digest:
        with suppress(OSError, CockpitError):
            private_dir(paths.packages())
            replace(_file(digest), json.dumps(names).encode())


def packages(digest: str) -> list[str]:
    """Folders of what is installed, like ``numpy-2.1.0.dist-info``, by their hash; nothing: not known."""
    with suppress(OSError, Malformed):
        names = list(_NAMES.read(parsed(read_small(_file(digest), SMALL_LIMIT))))
        return names if digest_of(names) == digest else []
    return []


def digest_of(names: list[str]) -> str:
    """The hash by which nodes are compared."""
    return hashlib.sha256(ascii(names).encode()).hexdigest()[:16]


def _file(digest: str) -> Path:
    return paths.packages() / f"{digest}.json"
