"""Which ranks run the same operations: only these can be compared.

Stages of a pipeline and experts have work of their own. Ranks are alike if they have the same collectives, in
groups of the same size, and if four in five of one's longest operations are on the other, as often. Ranks
that send to each other may be stages, which differ little: they must have the very same operations.
"""

from __future__ import annotations

from collections.abc import Mapping

from cockpit.base.profile.summary import RankProfile

TOP = 50
"""Operations of a rank that are compared: those with most time."""
SHARED = 0.8
"""Part of them that two ranks of one kind have in common."""
LEAST = 0.001
"""Part of a step that such an operation takes: copying a few numbers for a rank makes it no other kind."""
AS_OFTEN = 0.1
"""How much more often one may call it."""


def kinds(profiles: Mapping[int, RankProfile]) -> list[list[int]]:
    """Ranks, with those of their kind, in the order of the first of each kind."""
    found: list[tuple[_Signs, list[int]]] = []
    for rank, profile in sorted(profiles.items()):
        signs = _Signs(profile)
        same = next((ranks for one, ranks in found if one.alike(signs)), None)
        if same is None:
            found.append((signs, [rank]))
        else:
            same.append(rank)
    return [ranks for _, ranks in found]


class _Signs:
    """What tells ranks apart."""

    def __init__(self, profile: RankProfile) -> None:
        steps = max(1, len(profile.steps))
        self.names = profile.names
        self.collectives = {(one.name.lower(), one.ranks) for one in profile.collectives}
        self.sends = any(name.endswith(("send", "recv")) for name, _ in self.collectives)
        self.whole = profile.operations_all <= len(profile.operations)
        self.calls = {one.name: one.count / steps for one in profile.operations}
        # Frames of Python come with an option, and are the caller's as much as the operation's; how often
        # a thread waits in the system is no sign of what it does.
        least = LEAST * sum(step.took for step in profile.steps)
        known = [one for one in profile.operations if one.kind not in ("python", "system", "sample")]
        torch = [one for one in known if one.own >= least] or known
        longest = sorted(torch, key=lambda one: (-one.own, one.name))
        self.top = [one.name for one in longest[:TOP]]

    def alike(self, other: _Signs) -> bool:
        """Whether two ranks can be compared."""
        if self.collectives != other.collectives:
            return False
        if (self.sends or other.sends) and self.names != other.names:
            return False
        # One that does something else besides is slow because of that, and no other kind.
        return self._has(other) or other._has(self)

    def _has(self, other: _Signs) -> bool:
        """Whether it calls what takes the other one's time."""
        known = [name for name in other.top if name in self.calls or self.whole]
        shared = sum(_as_often(self.calls.get(name, 0.0), other.calls[name]) for name in known)
        return shared >= SHARED * len(known) and 2 * len(known) >= len(other.top)


def _as_often(one: float, other: float) -> bool:
    return one > 0 and abs(one - other) <= AS_OFTEN * max(one, other)
