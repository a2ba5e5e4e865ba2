"""Which links to nodes are slow."""

from __future__ import annotations

from statistics import median

from cockpit.core.run.model import RunModel

SLOW_S = 1.0
"""A link with a round trip of this many seconds is slow, however slow the others are."""

NOTICED_S = 0.1
"""Seconds of a round trip that nobody notices."""

OUTLIER = 3
"""A link is an outlier if its round trip is this many times the usual one."""


def slow_from(model: RunModel) -> float:
    """The round trip, in seconds, from which a link of this run counts as slow compared to the others."""
    times = [node.rtt_s for node in model.nodes.values() if node.rtt_s is not None]
    usual = median(times) if times else 0.0
    return min(SLOW_S, max(NOTICED_S, OUTLIER * usual))
