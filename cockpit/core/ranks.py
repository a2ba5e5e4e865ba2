"""Rank sets and node sets in print: ``0-5,7`` and ``gpu[01-16]``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from ClusterShell.RangeSet import RangeSet

from cockpit.base.masks import ranks_of

_PLAIN = re.compile(r"[A-Za-z0-9._-]+")


def ranks_text(ranks: Iterable[int]) -> str:
    """Rank numbers folded: ``0-5,7``."""
    return str(RangeSet.fromlist([str(rank) for rank in ranks]))


@lru_cache(maxsize=4096)
def mask_text(mask: int) -> str:
    """The ranks of a mask, folded: ``0-12,14-63``."""
    return ranks_text(ranks_of(mask))


def mask_within(mask: int, width: int, end: str = ",…") -> str:
    """The ranks of a mask in at most so many columns: where there is no room the first ones, and ``end``."""
    text = mask_text(mask)
    if len(text) <= width:
        return text
    # Half a number would be another rank.
    head, comma, _ = text[: max(0, width - len(end) + 1)].rpartition(",")
    return head + end if comma else text[: max(0, width - 1)] + "…"


def nodes_text(nodes: Iterable[str]) -> str:
    """Node names folded: ``gpu[01-16]``; names that are not plain host names stay as they are."""
    names = list(nodes)
    plain = [name for name in names if _PLAIN.fullmatch(name)]
    odd = [name for name in names if not _PLAIN.fullmatch(name)]
    folded = [str(NodeSet.fromlist(plain, resolver=RESOLVER_NOGROUP))] if plain else []
    return ",".join(folded + odd)
