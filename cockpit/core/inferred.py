"""Ranks whose environment does not say which they are: how their numbers were found, in words.

Wherever such a rank is shown it has a mark and, once, the words; no verdict about it is *sure*.
"""

from __future__ import annotations

from collections.abc import Mapping

from cockpit.core.ranks import mask_within, ranks_named

MARK = "~"
"""In front of ranks of which at least one is inferred."""

WORDS = {
    "local_rank": "from the LOCAL_RANK of the processes their launcher started",
    "order": "in the order in which they were started",
    "node_order": "in the order in which they were started on each node",
    "pid": "numbered by node and pid",
    "named": "it is the program you named, and there is no sign of others",
}
"""How the number of a rank was found; a node that is newer may say something else."""

ON_NODE = "order"
"""Of a rank whose number is its place on its node."""

UNKNOWN = "pid"
"""Of a rank whose number is only a name."""


def with_mark(inferred: int, ranks: int, width: int, end: str = ",…") -> str:
    """Some ranks in at most this many columns, with :data:`MARK` before them if one is inferred.

    :param inferred: ranks that are, as a mask
    :param end: what is written instead of those that do not fit
    """
    mark = MARK if ranks & inferred else ""
    return mark + mask_within(ranks, width - len(mark), end)


def words(how: str) -> str:
    """How a number was found, in words."""
    return WORDS.get(how, "by what surrounds it")


def sentences(ranks: Mapping[int, str]) -> list[str]:
    """What is to be said about inferred ranks, if there are any.

    :param ranks: how the number of each rank was found; those that nobody inferred are left out, or empty
    """
    found: dict[str, list[int]] = {}
    for rank, how in sorted(ranks.items()):
        if how:
            found.setdefault(how, []).append(rank)
    return [_sentence(how, those) for how, those in found.items()]


def _sentence(how: str, ranks: list[int]) -> str:
    if how == UNKNOWN:
        number = f"{len(ranks)} Python processes of one job"
        return f"{MARK} {number}; their ranks are unknown, so they are numbered by node and pid"
    return f"{MARK} {ranks_named(ranks)} {'is' if len(ranks) == 1 else 'are'} inferred: {words(how)}"
