"""Every source of nodes: to add one, add it here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cockpit.plans.nodes import filters, hostfile
from cockpit.plans.nodes.hostfile import Host

NodeSource = Callable[[str], tuple[Host, ...]]
"""Nodes with their slots, in order, from one word; it raises CockpitError for what it cannot read."""

SOURCES: dict[str, NodeSource] = {"": hostfile.read}
"""By the option in front of that word; none: a file."""


def nodes_from(words: Sequence[str], include: str = "", exclude: str = "") -> tuple[Host, ...]:
    """The nodes that a person names.

    :param words: a source's option, if it has one, and its word
    :param include: only these, as with ``--include``; exclude: all but these
    :raises CockpitError: no nodes, or no such
    """
    *option, word = words
    return filters.apply(SOURCES["".join(option)](word), include, exclude)
