"""What is wanted of a run's output: whose lines, and which of them; written and read as text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from cockpit.core.logs.levels import Level, level_of
from cockpit.core.logs.patterns import Pattern
from cockpit.core.logs.sources import Nccl, Source, Writer, rank_of
from cockpit.core.ranks import nodes_set, nodes_text, ranks_text, read_nodes, read_ranks
from cockpit.errors import CockpitError

_RANKS = re.compile(r"[0-9,/-]+")
_NCCL = "nccl"


@dataclass(frozen=True)
class Query:
    """Which lines of a run's logs are wanted: those that everything given here selects.

    It has two forms that a person types and that print themselves: the words of ``cockpit logs``, and the
    text of the filter bar, which begins with sets: ``@0,13-15 oom``, ``@gpu[01-04] !debug``, ``@nccl @13``.
    A lone ``@`` ends the sets, for a pattern that begins with one.

    :param ranks: of these ranks alone, without the launchers' consoles; empty: of all
    :param nodes: of these nodes alone; empty: of all
    :param pattern: a regular expression in the shown text, see :class:`~cockpit.core.logs.patterns.Pattern`;
        empty, or ``!`` alone: every line
    :param times: show when each line was there
    :param fold: show identical lines of many ranks as one
    :param nccl: all that NCCL writes to files of its own, and nothing else; otherwise of these only warnings
    :raises CockpitError: the pattern is not a regular expression; says where
    """

    ranks: frozenset[int] = frozenset()
    nodes: frozenset[str] = frozenset()
    pattern: str = ""
    times: bool = False
    fold: bool = True
    nccl: bool = False
    matcher: Pattern | None = field(init=False, compare=False, repr=False)
    """The pattern, ready for use; None if every line matches."""

    def __post_init__(self) -> None:
        made = Pattern(self.pattern) if self.pattern.removeprefix("!") else None
        object.__setattr__(self, "matcher", made)

    @classmethod
    def typed(cls, text: str) -> Query:
        """The query that a text of the filter bar is; a node named ``nccl`` is chosen by other means.

        :raises CockpitError: a set that is none, or no regular expression
        """
        ranks, nodes, pattern = leading_sets(text)
        return cls(ranks, nodes - {_NCCL}, pattern, nccl=_NCCL in nodes)

    @property
    def text(self) -> str:
        """It as a text of the filter bar, which says nothing of times and folds."""
        sets = [_NCCL] if self.nccl else []
        if self.ranks:
            sets.append(ranks_text(self.ranks))
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
        flags = {"--nccl": self.nccl, "--time": self.times, "--no-fold": not self.fold}
        return [*found, *(flag for flag, wanted in flags.items() if wanted)]

    @property
    def narrows(self) -> bool:
        """Whether it is about some ranks or nodes only."""
        return bool(self.ranks or self.nodes)

    @property
    def who(self) -> str:
        """Whose lines it is about, in a few words."""
        ranks = [f"ranks {ranks_text(self.ranks)}"] if self.ranks else []
        return " · ".join([*([nodes_text(sorted(self.nodes))] if self.nodes else []), *ranks])

    def takes(self, node: str, writer: Writer) -> bool:
        """Whether a log is wanted, or some of its lines."""
        if self.nccl and not isinstance(writer, Nccl):
            return False
        whose = not self.ranks or rank_of(writer) in self.ranks
        return whose and (not self.nodes or node in self.nodes)

    def takes_all(self, writer: Writer) -> bool:
        """Whether every line of a wanted log is."""
        return self.matcher is None and (self.nccl or not isinstance(writer, Nccl))

    def selects(self, writer: Writer, line: bytes) -> bool:
        """Whether a line of a wanted log is wanted."""
        if not self.nccl and hushed(writer, line):
            return False
        return self.matcher is None or self.matcher.matches(line)

    def check(self, sources: Iterable[Source], where: str = "") -> None:
        """Refuse ranks, nodes and files of NCCL that are not among these.

        :raises CockpitError: there is one
        """
        known = list(sources)
        ranks = {writer for _, writer in known if isinstance(writer, int)}
        if odd := self.ranks - ranks:
            raise CockpitError(f"no rank {min(odd)}", where=where, hint=f"it has {ranks_text(ranks)}")
        nodes = dict.fromkeys(node for node, _ in known)
        if unknown := self.nodes - set(nodes):
            raise CockpitError(f"no node {min(unknown)}", where=where, hint=f"it has {nodes_text(nodes)}")
        if self.nccl and not any(isinstance(writer, Nccl) for _, writer in known):
            hint = "what it says may be among the lines of ranks; cockpit run --nccl-debug keeps it apart"
            raise CockpitError("NCCL has no files of its own in this run", where=where, hint=hint)


def hushed(writer: Writer, line: bytes) -> bool:
    """Whether a line is left out unless it is asked for: what NCCL says of itself, but for warnings."""
    return isinstance(writer, Nccl) and level_of(line) is Level.PLAIN


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
