"""Rank sets and node sets in print: ``0-5,7`` and ``gpu[01-16]``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from ClusterShell.RangeSet import RangeSet

_PLAIN = re.compile(r"[A-Za-z0-9._-]+")


def ranks_text(ranks: Iterable[int]) -> str:
    """Rank numbers folded: ``0-5,7``."""
    return str(RangeSet.fromlist([str(rank) for rank in ranks]))


def nodes_text(nodes: Iterable[str]) -> str:
    """Node names folded: ``gpu[01-16]``; names that are not plain host names stay as they are."""
    names = list(nodes)
    plain = [name for name in names if _PLAIN.fullmatch(name)]
    odd = [name for name in names if not _PLAIN.fullmatch(name)]
    folded = [str(NodeSet.fromlist(plain, resolver=RESOLVER_NOGROUP))] if plain else []
    return ",".join(folded + odd)
