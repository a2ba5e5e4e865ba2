"""Whether a node was booted anew since a run was started on it: its run folder may be gone with its /tmp.

A pod shares the boot of its machine, and its place may have another container, on this machine or another.
"""

from __future__ import annotations

import posixpath
import time

from cockpit.base.events import NodeLost
from cockpit.core.time_text import clock
from cockpit.engine.links.link import Link
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.transport.registry import TRANSPORTS

SLACK_S = 60.0
"""Clocks are set at boot: a first process may seem to have begun this much earlier than it did."""


def lost(link: Link | None, manifest: Manifest, entry: NodeEntry, what: str) -> NodeLost:
    """That nothing more comes from a node whose run folder is gone; ``what``: see :func:`why_lost`."""
    if link is None:
        return NodeLost(what)
    return NodeLost(why_lost(link, manifest, entry, what), booted(link, manifest, entry))


def booted(link: Link | None, manifest: Manifest, entry: NodeEntry) -> bool:
    """Whether the machine that ran the ranks of a node was booted anew since: none of them runs any more.

    Where it cannot be seen when that was, such as with ``hidepid``, it may be another machine. Of a pod it is
    never known: one that was deleted by force may run on where nobody looks any more.
    """
    if TRANSPORTS[entry.transport].of_containers:
        return False
    before = entry.facts.get("boot_id")
    if link is None or not before or not link.hello.boot_id or before == link.hello.boot_id:
        return False
    at = _booted_at(link)
    return at is not None and at >= manifest.created - SLACK_S


def _booted_at(link: Link) -> float | None:
    """When a node was booted, unix seconds on our clock; None: it cannot say."""
    at = None if link.hello.booted is None else link.hello.booted - link.clock.offset_s
    return None if at is None or at > time.time() + SLACK_S else at


def why_lost(link: Link, manifest: Manifest, entry: NodeEntry, what: str) -> str:
    """Why nothing more comes from a node whose run folder is gone.

    :param what: the node's own words
    """
    news = rebooted(link, manifest, entry)
    if not news:
        return what
    # Which of them it is in: everybody looks for it there.
    place = "/tmp" if entry.dir.startswith("/tmp/") else posixpath.dirname(posixpath.dirname(entry.dir))
    return f"{news}; its run folder in {place} is gone"


def rebooted(link: Link, manifest: Manifest, entry: NodeEntry) -> str:
    """That the node was booted anew since the run was started there, and when; empty: it was not."""
    if TRANSPORTS[entry.transport].of_containers:
        return _another_container(link, manifest, entry)
    before, now = entry.facts.get("boot_id"), link.hello.boot_id
    if not before or not now or before == now:
        return ""
    at = _booted_at(link)
    if at is None:
        return f"{entry.name} was rebooted since the run was started, or is a different machine now"
    if at < manifest.created - SLACK_S:
        return f"{entry.name} is a different machine now, which was booted at {clock(at, time.time())}"
    return f"{entry.name} was rebooted at {clock(at, time.time())}"


def _another_container(link: Link, manifest: Manifest, entry: NodeEntry) -> str:
    """That the place of a pod has another container now; empty: that cannot be seen."""
    at = _booted_at(link)  # when the container's first process began
    if at is None or at <= manifest.created:
        return ""
    return f"{entry.name} is a new container, started at {clock(at, time.time())}"
