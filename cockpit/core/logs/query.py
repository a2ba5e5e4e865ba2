"""What is wanted of a run's output: whose lines, and which of them; written and read as text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from cockpit.core.logs.folding import Source
from cockpit.core.logs.patterns import Pattern
from cockpit.core.ranks import nodes_set, nodes_text, ranks_text, read_nodes, read_ranks
from cockpit.errors import CockpitError

_RANKS = re.compile(r"[0-9,/-]+")


@dataclass(frozen=True)
class Query:
    """Which lines of a run's logs are wanted: those that everything given here selects.

    It has two forms that a person types and that print themselves: the words of ``cockpit logs``, and the
    text of the filter bar, which begins with sets: ``@0,13-15 oom``, ``@gpu[01-04] !debug``. A lone ``@``
    ends the sets, for a pattern that begins with one.

    :param ranks: of these ranks alone, without the launchers' consoles; empty: of all
    :param nodes: of these nodes alone; empty: of all
    :param pattern: a regular expression in the shown text, see :class:`~cockpit.core.logs.patterns.Pattern`;
        empty, or ``!`` alone: every line
    :param times: show when each line was there
    :param fold: show identical lines of many ranks as one
    :raises CockpitError: the pattern is not a regular expression; says where
    """

    ranks: frozenset[int] = frozenset()
    nodes: frozenset[str] = frozenset()
    pattern: str = ""
    times: bool = False
    fold: bool = True
    matcher: Pattern | None = field(init=False, compare=False, repr=False)
    """The pattern, ready for use; None if every line matches."""

    def __post_init__(self) -> None:
        made = Pattern(self.pattern) if self.pattern.removeprefix("!") else None
        object.__setattr__(self, "matcher", made)

    @classmethod
    def typed(cls, text: str) -> Query:
        """The query that a text of the filter bar is.

        :raises CockpitError: a set that is none, or no regular expression
        """
        return cls(*leading_sets(text))

    @property
    def text(self) -> str:
        """It as a text of the filter bar, which says nothing of times and folds."""
        sets = [ranks_text(self.ranks)] if self.ranks else []
        if self.nodes:
            names = nodes_set(self.nodes)
            # A name of digits would be a rank; in brackets it is a range of one.
            sets.append(f"[{names[0]}]{names[1:]}" if _RANKS.fullmatch(names) else names)
        if self.pattern.startswith("@"):
            sets.append("")
        rest = [self.pattern] if self.pattern else []
        return " ".join([*(f"@{each}" for each in sets), *rest])

    @property
    def words(self) -> list[str]:
        """It as words of ``cockpit logs RUN``."""
        found = ["--rank", ranks_text(self.ranks)] if self.ranks else []
        for option, value in (("--node", nodes_set(self.nodes)), ("--grep", self.pattern)):
            if value:
                found += [f"{option}={value}"] if value.startswith("-") else [option, value]
        return [*found, *(["--time"] if self.times else []), *([] if self.fold else ["--no-fold"])]

    @property
    def narrows(self) -> bool:
        """Whether it is about some logs only."""
        return bool(self.ranks or self.nodes)

    @property
    def who(self) -> str:
        """Whose lines it is about, in a few words."""
        ranks = [f"ranks {ranks_text(self.ranks)}"] if self.ranks else []
        return " · ".join([*([nodes_text(sorted(self.nodes))] if self.nodes else []), *ranks])

    def takes(self, node: str, rank: int | None) -> bool:
        """Whether a log is wanted.

        :param rank: global; None: the launcher's console on that node
        """
        return (not self.ranks or rank in self.ranks) and (not self.nodes or node in self.nodes)

    def check(self, sources: Iterable[Source], where: str = "") -> None:
        """Refuse ranks and nodes that are not among these.

        :raises CockpitError: there is one
        """
        known = list(sources)
        ranks = {rank for _, rank in known if rank is not None}
        if odd := self.ranks - ranks:
            raise CockpitError(f"no rank {min(odd)}", where=where, hint=f"it has {ranks_text(ranks)}")
        nodes = dict.fromkeys(node for node, _ in known)
        if unknown := self.nodes - set(nodes):
            raise CockpitError(f"no node {min(unknown)}", where=where, hint=f"it has {nodes_text(nodes)}")


def leading_sets(text: str) -> tuple[frozenset[int], frozenset[str], str]:
    """Ranks and nodes of the sets in front of a text, and the rest of it.

    :raises CockpitError: a set that is none
    """
    ranks: frozenset[int] = frozenset()
    nodes: frozenset[str] = frozenset()
    while text.startswith("@"):
        word, _, text = text[1:].partition(" ")
        if not word:
            break
        if _RANKS.fullmatch(word):
            ranks |= read_ranks(word)
        else:
            nodes |= read_nodes(word)
    return ranks, nodes, text
