"""Rank sets and node sets in print: ``0-5,7`` and ``gpu[01-16]``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from ClusterShell.RangeSet import RangeSet

from cockpit.core.masks import ranks_of

_PLAIN = re.compile(r"[A-Za-z0-9._-]+")
_NUMBERS = re.compile(r"[0-9]+")


def ranks_text(ranks: Iterable[int]) -> str:
    """Rank numbers, folded: ``0-5,7``."""
    return str(RangeSet.fromlist([str(rank) for rank in ranks]))


@lru_cache(maxsize=4096)
def mask_text(mask: int) -> str:
    """The ranks of a mask, folded: ``0-12,14-63``."""
    return ranks_text(ranks_of(mask))


def mask_within(mask: int, width: int, end: str = ",…") -> str:
    """The ranks of a mask in at most this many columns: if they do not fit, the first ones and ``end``."""
    text = mask_text(mask)
    if len(text) <= width:
        return text
    # Half a number would be another rank.
    head, comma, _ = text[: max(0, width - len(end) + 1)].rpartition(",")
    return head + end if comma else text[: max(0, width - 1)] + "…"


def nodes_text(nodes: Iterable[str]) -> str:
    """Node names folded, in their order: ``gpu[01-16]``, ``storage,gpu[01-16]``.

    Names that differ only in numbers are put together, where the first of them is. A name that is not a
    plain host name stays as it is.
    """
    alike: dict[str, list[str]] = {}
    for name in nodes:
        alike.setdefault(_NUMBERS.sub("0", name) if _PLAIN.fullmatch(name) else name, []).append(name)
    return ",".join(_folded(names) for names in alike.values())


def in_order(nodes: Iterable[str], order: Iterable[str]) -> list[str]:
    """Nodes in the order of the run's hostfile; those that are not in it come last."""
    places = {name: place for place, name in enumerate(order)}
    return sorted(nodes, key=lambda name: places.get(name, len(places)))


def _folded(names: list[str]) -> str:
    if len(names) == 1 or not _PLAIN.fullmatch(names[0]):
        return ",".join(names)
    return str(NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP))
