"""The operations of a rank beside those of the ranks that it is compared with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import median

from cockpit.base.profile.summary import RankProfile
from cockpit.core.profile.reading import OperationRow, Operations
from cockpit.core.text import one_line

APART = 0.02
"""Part of a step by which a rank differs in an operation that is shown first."""


def operations(profiles: Mapping[int, RankProfile], rank: int, peers: Iterable[int]) -> Operations:
    """The operations of one rank: those first in which it differs much, then those that take most.

    :param peers: the ranks of its kind
    """
    others = [_Calls(profiles[peer]) for peer in sorted(peers) if peer != rank and peer in profiles]
    profile, mine = profiles[rank], _Calls(profiles[rank])
    kinds = {one.name: one.kind for one in profile.operations}
    found = []
    for name, (own, count) in mine.of.items():
        theirs = [each for other in others if (each := other.get(name)) is not None]
        owns, counts = zip(*theirs, strict=True) if theirs else ((), ())
        found.append(
            OperationRow(
                one_line(name),
                one_line(kinds[name]),
                own,
                median(owns) if owns else None,
                count,
                median(counts) if counts else None,
            )
        )
    least = APART * sum(step.took for step in profile.steps) / 1e9 / max(1, len(profile.steps))
    found.sort(key=lambda row: (-row.more if row.more and row.more > least else 0.0, -row.own, row.name))
    left_out = max(0, profile.operations_all - len(profile.operations))
    return Operations(rank, len(others), tuple(found), left_out)


class _Calls:
    """Seconds and calls of a step, by operation."""

    def __init__(self, profile: RankProfile) -> None:
        steps = max(1, len(profile.steps))
        sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for one in profile.operations:
            if one.kind == "communication":
                continue  # what is in it is mostly waiting; the table of collectives tells
            sums[one.name][0] += one.own / 1e9 / steps
            sums[one.name][1] += one.count / steps
        self.of = {name: (own, count) for name, (own, count) in sums.items()}
        self._whole = profile.operations_all <= len(profile.operations)

    def get(self, name: str) -> tuple[float, float] | None:
        """None: not known."""
        return self.of.get(name, (0.0, 0.0) if self._whole else None)
