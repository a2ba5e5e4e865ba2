"""The stack tree: the stacks of many ranks as one prefix tree, each branch with the ranks that are on it.

Nothing here recurses: a stack may be deeper than ours may become.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cockpit.base.stacks.dump import Frame

BRANCHES = 50_000
"""Branches of one tree: nobody reads more, and each takes half a kilobyte."""

FULL = Frame("(not in the tree: it has %s calls already)" % format(BRANCHES, ","), "", 0)
"""In a full tree, replaces what is called from there on."""


class Branch:
    """A call in the tree.

    :ivar frame: the call
    :ivar ranks: ranks whose stack goes through here, as a mask
    :ivar ends: those of them whose stack ends here
    """

    __slots__ = ("below", "ends", "frame", "ranks")

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.ranks = 0
        self.ends = 0
        self.below: dict[Frame, Branch] = {}

    def branches(self) -> list[Branch]:
        """What is called from here, in the order of a program: least progress first."""
        return _in_order(self.below.values())


class StackTree:
    """A prefix tree of stacks; until it is full, the order in which they are added does not matter."""

    def __init__(self) -> None:
        self.ranks = 0
        self.below: dict[Frame, Branch] = {}
        self._room = BRANCHES

    def branches(self) -> list[Branch]:
        """The outermost calls, in the order of a program."""
        return _in_order(self.below.values())

    def add(self, rank: int, frames: tuple[Frame, ...]) -> None:
        """Add the stack of a rank, outermost frame first."""
        self.add_all(1 << rank, frames)

    def add_all(self, ranks: int, frames: tuple[Frame, ...]) -> None:
        """Add one stack that all these ranks (a mask) have."""
        if not frames:
            return
        self.ranks |= ranks
        level = self.below
        for frame in frames:
            branch = self._into(level, frame)
            branch.ranks |= ranks
            level = branch.below
            if branch.frame is FULL:
                break
        branch.ends |= ranks

    def _into(self, level: dict[Frame, Branch], frame: Frame) -> Branch:
        """The branch of this call; in a full tree, where there is none, the one that says so."""
        branch = level.get(frame)
        if branch is None:
            frame = frame if self._room > 0 else FULL
            self._room -= 1
            branch = level.get(frame) or level.setdefault(frame, Branch(frame))
        return branch

    def walk(self) -> Iterator[tuple[int, Branch]]:
        """Every branch with its depth from 0, parents before their children, in the order of a program."""
        todo = [(0, branch) for branch in reversed(self.branches())]
        while todo:
            depth, branch = todo.pop()
            yield depth, branch
            todo += [(depth + 1, below) for below in reversed(branch.branches())]


def _in_order(branches: Iterable[Branch]) -> list[Branch]:
    return sorted(
        branches, key=lambda one: (one.frame.file, one.frame.line, one.frame.name, one.frame.native)
    )
