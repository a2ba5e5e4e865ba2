"""Which ranks are in which process group: told by torch, or learned from the traces of all ranks."""

from __future__ import annotations

from cockpit.base.recorder.trace import Group, Trace
from cockpit.core.masks import mask_of


class Memberships:
    """What is known of the groups of one job; it is kept from look to look.

    For gloo torch tells of no group who is in it. The group of all ranks is known anyway. Of any other one
    those are, in whose recorder it has been seen: a rank that never entered it stays unknown.

    :param world: how many ranks the job has
    """

    def __init__(self, world: int) -> None:
        self._everybody = (1 << world) - 1
        self._told: dict[str, int] = {}
        self._seen: dict[Group, int] = {}
        self._disputed: set[str] = set()

    def grow(self, world: int) -> None:
        """The job has this many ranks, as far as is known now."""
        self._everybody |= (1 << world) - 1

    def learn(self, rank: int, trace: Trace) -> None:
        """Take in what the recorder of one rank says."""
        for group in trace.lows:
            self._seen[group] = self._seen.get(group, 0) | 1 << rank
        for name, ranks in trace.members.items():
            mask = mask_of(ranks)
            # A rank speaks for its own groups only.
            if not mask >> rank & 1 or mask & ~self._everybody:
                continue
            if self._told.setdefault(name, mask) != mask:
                self._disputed.add(name)

    def of(self, group: Group) -> int:
        """The ranks of a group as far as they are known, as a mask."""
        if group.everybody:
            return self._everybody
        return self._told_of(group) or self._seen.get(group, 0)

    def sure(self, group: Group) -> bool:
        """Whether these are all of them."""
        return group.everybody or bool(self._told_of(group))

    def _told_of(self, group: Group) -> int:
        told = 0 if group.name in self._disputed else self._told.get(group.name, 0)
        # Two groups may have had one name, one after the other.
        return told if not self._seen.get(group, 0) & ~told else 0
