"""Whether a node was booted anew since a run was started on it: its run folder may be gone with its /tmp."""

from __future__ import annotations

import posixpath
import time

from cockpit.engine.links.link import Link
from cockpit.engine.records.folder import Manifest, NodeEntry

SLACK_S = 60.0
"""Clocks are set at boot: a first process may seem to have begun this much earlier than it did."""
_DAY_S = 86400


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
    before, now = entry.facts.get("boot_id"), link.hello.boot_id
    if not before or not now or before == now:
        return ""
    booted = link.hello.booted
    at = None if booted is None else booted - link.clock.offset_s
    if at is None or at > time.time() + SLACK_S:
        return f"{entry.name} was rebooted since the run was started"
    if at < manifest.created - SLACK_S:
        return f"{entry.name} is another machine now, which was booted at {_clock(at)}"
    return f"{entry.name} was rebooted at {_clock(at)}"


def _clock(at: float) -> str:
    """The time of day; with its date if that is long ago."""
    shape = "%H:%M:%S" if abs(time.time() - at) < _DAY_S else "%Y-%m-%d %H:%M"
    return time.strftime(shape, time.localtime(at))
