"""Which ranks a text means that is typed into the filter of a pane of ranks: one language for all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from cockpit.core.expressions import Expression
from cockpit.core.logs.query import leading_sets
from cockpit.core.masks import mask_of
from cockpit.core.ranks import read_nodes

_RANKS = re.compile(r"(?:ranks? )?\s*(\d+\s*(-\s*\d+\s*)?(,\s*\d+\s*(-\s*\d+\s*)?)*)")

# Names with a range or more than one; a name alone is looked for in all that is said of a rank.
_RANGE = r"(?:\[[\d,/-]*[,-][\d,/-]*\][\w.:@/-]*)"
_PLAIN = r"[\w.:@/-]*"
_SET = re.compile(rf"{_PLAIN}{_RANGE}+|{_PLAIN}{_RANGE}*(?:,{_PLAIN}{_RANGE}*)+")

Search = Callable[[str], object]


class Narrowing:
    """The ranks that a text means.

    Numbers (``13``, ``rank 13``, ``0-3,7``), a set of nodes (``gpu[01-04]``), else a regular expression in
    what is said of a rank; small letters match capitals too; a leading ``!`` inverts. Sets may stand in
    front, as in the filter of a log: ``@gpu[01-04] failed``.

    :param text: as typed; empty: all ranks
    :raises CockpitError: it is no regular expression, or a set in front is none
    """

    def __init__(self, text: str) -> None:
        ranks, self._nodes, rest = leading_sets(text.strip())
        self._ranks = mask_of(ranks)
        rest = rest.strip()
        self._inverted = rest.startswith("!")
        self._text = rest[self._inverted :].rstrip(",")
        self._numbers: int | None = None
        self._names: frozenset[str] | None = None
        self._search: Search | None = None
        if numbers := _RANKS.fullmatch(self._text):
            self._numbers = _numbers(numbers[1])
        elif _SET.fullmatch(self._text):
            self._names = read_nodes(self._text)
        elif self._text:
            self._search = Expression(self._text, fold=self._text.islower()).search

    def ranks(self, nodes: Mapping[str, int], about: Callable[[Search], int]) -> int:
        """Those of a run.

        :param nodes: the ranks of each node
        :param about: the ranks of which a search finds something in what is said of them
        """
        world = 0
        for mask in nodes.values():
            world |= mask
        inside = world & self._ranks if self._ranks else world
        if self._nodes:
            inside &= _of_nodes(self._nodes, nodes)
        if not self._text:
            return inside
        return inside & (~self._meant(nodes, about) if self._inverted else self._meant(nodes, about))

    def _meant(self, nodes: Mapping[str, int], about: Callable[[Search], int]) -> int:
        if self._numbers is not None:
            return self._numbers
        if self._names is not None:
            return _of_nodes(self._names, nodes)
        return 0 if self._search is None else about(self._search)


def _of_nodes(names: frozenset[str], nodes: Mapping[str, int]) -> int:
    mask = 0
    for name in names:
        mask |= nodes.get(name, 0)
    return mask


def _numbers(text: str) -> int:
    mask = 0
    for part in text.replace(" ", "").strip(",").split(","):
        first, _, last = part.partition("-")
        begin, end = sorted((int(first[:6]), int((last or first)[:6])))
        mask |= ((1 << (end - begin + 1)) - 1) << begin
    return mask
