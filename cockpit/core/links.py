"""Which links to nodes are slow."""

from __future__ import annotations

from statistics import median

from cockpit.core.model import RunModel

SLOW_S = 1.0
"""Seconds of a round trip from which on a link is slow, however slow the others are."""

NOTICED_S = 0.1
"""Seconds of a round trip below which nobody notices it."""

OUTLIER = 3
"""How many times the usual round trip makes a link stand out."""


def slow_from(model: RunModel) -> float:
    """The round trip, in seconds, from which on a link of this run is slow beside the others."""
    times = [node.rtt_s for node in model.nodes.values() if node.rtt_s is not None]
    usual = median(times) if times else 0.0
    return min(SLOW_S, max(NOTICED_S, OUTLIER * usual))
