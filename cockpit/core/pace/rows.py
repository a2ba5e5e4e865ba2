"""Rows of a screen that shows ranks × time: nodes whose ranks agree are one row, what differs has its own.

Where there is no room for that, ranks of a node that differ alike share a row, and so do nodes that follow
each other and are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from cockpit.core.ranks import nodes_text, ranks_text

LONG = 9
"""Characters of the ranks of a row beyond which only the first and the last one are named."""

APART, JUMP = 0.05, 1.5
"""Slow ranks are alike up to this much more than the least slow of them, and this multiple of its excess."""

Kinds = Mapping[int, Hashable]
"""Ranks that differ from the others of their node, and in what; those that differ alike may share a row."""


@dataclass(frozen=True)
class Row:
    """Ranks that share a row.

    :param nodes: their nodes, in order; empty for a row that goes on with the node above it
    :param ranks: in order
    """

    nodes: tuple[str, ...]
    ranks: tuple[int, ...]

    @cached_property
    def name(self) -> str:
        """``gpu01``, ``gpu[02-09]``; empty if it stands above."""
        return nodes_text(self.nodes) if self.nodes else ""

    @cached_property
    def ranks_text(self) -> str:
        """``13``, ``0-7``; of many with a few others between them ``496-503``, with more ``0…14``."""
        text = ranks_text(self.ranks)
        if len(text) <= LONG or "," not in text:
            return text
        first, last = self.ranks[0], self.ranks[-1]
        most = 3 * len(self.ranks) >= 2 * (last - first + 1)
        return f"{first}{'-' if most else '…'}{last}"

    def with_next(self, below: Row) -> Row:
        """This row and the one below as one."""
        return Row((*self.nodes, *below.nodes), (*self.ranks, *below.ranks))


def alike(excesses: Mapping[int, float]) -> dict[int, int]:
    """Ranks that are slow by about as much, as the number of their group, the least slow first.

    :param excesses: by how much each slow rank is slower than the median rank: 0.5 is half as long again
    """
    found: dict[int, int] = {}
    group, least = -1, 0.0
    for rank, excess in sorted(excesses.items(), key=lambda one: one[1]):
        if group < 0 or excess > least * JUMP + APART:
            group, least = group + 1, excess
        found[rank] = group
    return found


def rows(nodes: Mapping[str, Sequence[int]], apart: Kinds, height: int, *, every: bool) -> list[Row]:
    """Rows in the order of the nodes, as many as the screen has lines if that is possible.

    A node without ranks, that only has the output of a job, has no row. Those of a node are in the order of
    their first ranks.

    :param apart: ranks that differ from the others of their node
    :param every: a row for each rank
    """
    nodes = {node: ranks for node, ranks in nodes.items() if ranks}
    opened = [row for node, ranks in nodes.items() for row in _opened(node, ranks, apart, every=every)]
    if every or len(opened) <= height:
        return opened
    closed = [row for node, ranks in nodes.items() for row in _sorted(node, ranks, apart, _own)]
    if len(closed) <= height:
        return closed
    found = closed
    for some in _foldings(nodes, apart, lambda least: least <= height):
        found = some
        if len(found) <= height:
            break
    return found


Pair = tuple[Row, ...]
"""One row, or two that share a line."""


def pairs(nodes: Mapping[str, Sequence[int]], apart: Kinds, height: int) -> list[Pair]:
    """A row for each rank, if there is room for that: two a line if need be; else rows of nodes, likewise.

    A rank that differs has a line of its own, unless there is no room for that either.
    """
    nodes = {node: ranks for node, ranks in nodes.items() if ranks}
    single = rows(nodes, apart, height, every=True)
    if len(single) <= height:
        return [(row,) for row in single]
    for lonely in (apart, {}):
        if len(found := _paired(single, lonely)) <= height:
            return found
    single = rows(nodes, apart, height, every=False)
    if all(len(row.nodes) <= 1 for row in single) and len(single) <= height:
        return [(row,) for row in single]
    found = _paired(single, apart)
    for some in _foldings(nodes, apart, lambda least: least <= 2 * height):
        found = _paired(some, apart)
        if len(found) <= height:
            break
    return found


def _paired(rows: Sequence[Row], alone: Kinds) -> list[Pair]:
    found: list[Pair] = []
    for row in rows:
        above = found[-1] if found else ()
        if len(above) == 1 and _agree(above[0], row) and not _any(above[0], alone) and not _any(row, alone):
            found[-1] = (*above, row)
        else:
            found.append((row,))
    return found


def _agree(above: Row, row: Row) -> bool:
    """Whether rows may share a line: ranks of one node, or whole nodes."""
    return not row.nodes or bool(above.nodes)


def _any(row: Row, ranks: Kinds) -> bool:
    return not ranks.keys().isdisjoint(row.ranks)


def _opened(node: str, ranks: Sequence[int], apart: Kinds, *, every: bool) -> list[Row]:
    if not every and not any(rank in apart for rank in ranks):
        return [Row((node,), tuple(ranks))]
    return [Row((node,) if rank == ranks[0] else (), (rank,)) for rank in ranks]


Kind = Callable[[int, Kinds], Hashable]
"""The kind of a rank: those of one kind and one node share a row."""


def _own(rank: int, apart: Kinds) -> Hashable:
    return rank if rank in apart else None


def _same(rank: int, apart: Kinds) -> Hashable:
    return apart.get(rank)


def _any_kind(rank: int, apart: Kinds) -> Hashable:
    return rank in apart


def _sorted(node: str, ranks: Iterable[int], apart: Kinds, kind: Kind) -> list[Row]:
    """One row for the ranks of each kind."""
    found: dict[Hashable, list[int]] = {}
    for rank in ranks:
        found.setdefault(kind(rank, apart), []).append(rank)
    return [Row(() if at else (node,), tuple(some)) for at, some in enumerate(found.values())]


def _foldings(
    nodes: Mapping[str, Sequence[int]], apart: Kinds, may: Callable[[int], bool]
) -> Iterator[list[Row]]:
    """Ever fewer rows: runs of alike nodes become one block, of ever more of them; then of any nodes.

    :param may: whether so many rows may be few enough; what has more is not made
    """
    for kind, mixed in ((_same, False), (_any_kind, False), (_any_kind, True)):
        patterns = {node: frozenset(kind(rank, apart) for rank in ranks) for node, ranks in nodes.items()}
        runs: list[list[str]] = []
        for node in nodes:
            if runs and (mixed or patterns[node] == patterns[runs[-1][0]]):
                runs[-1].append(node)
            else:
                runs.append([node])
        # Of nodes of any pattern it is only known that a block has a row at least.
        sizes = [(len(run), 1 if mixed else len(patterns[run[0]])) for run in runs]
        for most in sorted({-(-many // parts) for many, _ in set(sizes) for parts in range(1, many + 1)}):
            if may(sum(-(-many // most) * kinds for many, kinds in sizes)):
                yield [row for run in runs for row in _blocks(run, most, nodes, apart, kind)]


def _blocks(
    run: Sequence[str], most: int, nodes: Mapping[str, Sequence[int]], apart: Kinds, kind: Kind
) -> Iterator[Row]:
    """The rows of nodes that follow each other, up to so many of them together."""
    for at in range(0, len(run), most):
        names = tuple(run[at : at + most])
        first, *others = _sorted("", (rank for name in names for rank in nodes[name]), apart, kind)
        yield Row(names, first.ranks)
        yield from others
