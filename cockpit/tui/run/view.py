"""A place on the run's screen, which ``-`` goes back to; and whose lines the log shows there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from cockpit.core.logs.query import Query
from cockpit.core.ranks import ranks_text
from cockpit.tui.commands import Id
from cockpit.tui.run.grid_lines import Mark

TABS: tuple[Id, ...] = ("log", "detail", "events", "commands", "pace")
"""Panes on the right, each with the name of the command that shows it."""


@dataclass(frozen=True)
class View:
    """A pane and what it is narrowed to.

    :param chosen: a node, and a rank on it or None for all of them; None: the whole run
    """

    tab: str = "log"
    chosen: Mark | None = None


def narrowed(
    chosen: Mark | None, marks: Collection[Mark], nodes: Mapping[str, Sequence[int]]
) -> tuple[Query, str]:
    """Whose lines the log shows, and what that is called.

    :param marks: if there are any, they count, not what is chosen
    :param nodes: the ranks of each
    """
    if marks:
        ranks = (nodes[node] if rank is None else [rank] for node, rank in marks)
        wanted = frozenset(chain.from_iterable(ranks))
        # Nodes have consoles, ranks have not: a set is of the ones or the others.
        whole = all(rank is None for _, rank in marks)
        query = Query(nodes=frozenset(node for node, _ in marks)) if whole else Query(wanted)
        return query, f"marked: ranks {ranks_text(wanted)}"
    if chosen is None:
        return Query(), "all ranks, merged by time"
    node, rank = chosen
    if rank is not None:
        return Query(frozenset({rank})), f"rank {rank} · {node}"
    return Query(nodes=frozenset({node})), f"{node} · ranks {ranks_text(nodes[node])}"


def stepped(chosen: Mark | None, step: int, nodes: Mapping[str, Sequence[int]]) -> Mark:
    """The rank after what is chosen, or before it (``step`` -1); after the last comes the first."""
    homes = {rank: node for node, ranks in nodes.items() for rank in ranks}
    ranks = sorted(homes)
    if chosen is not None and chosen[1] is not None:
        number = ranks[(ranks.index(chosen[1]) + step) % len(ranks)]
    else:
        # A node may have none: a login node with the output of a job.
        among = (chosen and nodes[chosen[0]]) or ranks
        number = among[0 if step > 0 else -1]
    return homes[number], number
