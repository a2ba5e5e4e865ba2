"""Rows of a screen that shows ranks × time: nodes whose ranks agree are one row, what differs has its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from cockpit.core.ranks import nodes_text, ranks_text


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
        """``13``, ``0-7``."""
        return ranks_text(self.ranks)

    def with_next(self, below: Row) -> Row:
        """This row and the one below as one."""
        return Row((*self.nodes, *below.nodes), (*self.ranks, *below.ranks))


def rows(
    nodes: Mapping[str, Sequence[int]], apart: Collection[int], height: int, *, every: bool
) -> list[Row]:
    """Rows in the order of the nodes, as many as the screen has lines if that is possible.

    A node without ranks, that only has the output of a job, has no row.

    :param apart: ranks that differ from the others of their node
    :param every: a row for each rank
    """
    nodes = {node: ranks for node, ranks in nodes.items() if ranks}
    opened = {node: list(_opened(node, ranks, apart, every=every)) for node, ranks in nodes.items()}
    if every or sum(map(len, opened.values())) <= height:
        return [row for some in opened.values() for row in some]
    opened = {node: _closed(node, ranks, apart) for node, ranks in nodes.items()}
    runs, others = _runs(opened)
    fits = (most for most in range(1, len(nodes)) if _shared(runs, most) + others <= height)
    return _folded(opened, next(fits, max(1, len(nodes))))


Pair = tuple[Row, ...]
"""One row, or two that share a line."""


def pairs(nodes: Mapping[str, Sequence[int]], apart: Collection[int], height: int) -> list[Pair]:
    """A row for each rank, if there is room for that: two a line if need be; else rows of nodes, likewise.

    A rank that differs has a line of its own, unless there is no room for that either.
    """
    apart = frozenset(apart)
    single = rows(nodes, apart, height, every=True)
    if len(single) <= height:
        return [(row,) for row in single]
    for lonely in (apart, frozenset[int]()):
        if len(found := _paired(single, lonely)) <= height:
            return found
    single = rows(nodes, apart, height, every=False)
    if all(len(row.nodes) <= 1 for row in single) and len(single) <= height:
        return [(row,) for row in single]
    closed = {node: _closed(node, ranks, apart) for node, ranks in nodes.items() if ranks}
    runs, others = _runs(closed)
    alone = sum(_any(row, apart) for some in closed.values() if len(some) != 1 for row in some)
    for most in range(1, max(1, len(closed)) + 1):
        # Not even two rows in each line would fit.
        if most < len(closed) and alone + (_shared(runs, most) + others - alone + 1) // 2 > height:
            continue
        found = _paired(_folded(closed, most), apart)
        if len(found) <= height:
            break
    return found


def _paired(rows: Sequence[Row], alone: Set[int]) -> list[Pair]:
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


def _any(row: Row, ranks: Set[int]) -> bool:
    return not ranks.isdisjoint(row.ranks)


def _opened(node: str, ranks: Sequence[int], apart: Collection[int], *, every: bool) -> list[Row]:
    if not every and not any(rank in apart for rank in ranks):
        return [Row((node,), tuple(ranks))]
    return [Row((node,) if rank == ranks[0] else (), (rank,)) for rank in ranks]


def _closed(node: str, ranks: Sequence[int], apart: Collection[int]) -> list[Row]:
    """One row for the ranks that agree, and one for each that does not."""
    calm = tuple(rank for rank in ranks if rank not in apart)
    differ = [Row((), (rank,)) for rank in ranks if rank in apart]
    if calm:
        return [Row((node,), calm), *differ]
    return [Row((node,), differ[0].ranks), *differ[1:]]


def _runs(opened: Mapping[str, Sequence[Row]]) -> tuple[list[int], int]:
    """How many nodes of one row follow each other, each time, and how many rows the other nodes have."""
    runs, others = [0], 0
    for some in opened.values():
        if len(some) == 1:
            runs[-1] += 1
        else:
            others += len(some)
            runs.append(0)
    return runs, others


def _shared(runs: Sequence[int], most: int) -> int:
    """How many rows these nodes have if up to so many of a run share one."""
    return sum(-(-run // most) for run in runs)


def _folded(opened: Mapping[str, Sequence[Row]], most: int) -> list[Row]:
    """Runs of up to so many calm nodes become one row."""
    found: list[Row] = []
    run: list[Row] = []
    for some in (*opened.values(), ()):
        if run and (len(some) != 1 or len(run) == most):
            found.append(
                Row(tuple(row.nodes[0] for row in run), tuple(rank for row in run for rank in row.ranks))
            )
            run = []
        if len(some) == 1:
            run.append(some[0])
        else:
            found.extend(some)
    return found
