"""The stack tree as lines, for the screen and for text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import NamedTuple

from cockpit.base.stacks.dump import Frame
from cockpit.base.stacks.kinds import kind
from cockpit.core.stacks.recursion import recursion
from cockpit.core.stacks.tree import Branch, StackTree

Key = int
"""A place in the tree: the same number for the same frames down to it; 0 above all of them."""

LEVELS = 50
"""Calls that are drawn each further to the right than its caller; further calls are drawn straight down."""

FOLD = 3
"""This many frames or more are folded into one line, if they say nothing new."""

_ABOVE = Frame("as above", "", 0)
"""Ends the key of a line for frames that are shown further up."""


@dataclass(frozen=True)
class TreeRow:
    """One line of the tree.

    :param key: its place
    :param guides: the lines of the tree in front of it
    :param ranks: ranks whose stack goes through here, as a mask
    :param here: the same if ranks part above this line, else 0
    :param missing: ranks of the line above that are not here, else 0
    :param frame: the call; None for a line that stands for folded ones
    :param folded: how many frames this line can fold or unfold
    :param kind: a word of :data:`cockpit.base.stacks.kinds.KINDS`; empty for folded ones
    :param odd: whether only ranks that the verdict names are here
    :param note: anything else worth saying
    """

    key: Key
    guides: str
    ranks: int
    here: int
    missing: int
    frame: Frame | None
    folded: int
    kind: str
    odd: bool
    note: str = ""


def place(frames: Iterable[Frame]) -> Key:
    """The place of a call in a tree: where a stack of these frames ends."""
    key = 0
    for frame in frames:
        key = _below_key(key, frame)
    return key


def _below_key(key: Key, frame: Frame) -> Key:
    # A number, not the frames themselves: those would grow with the square of a stack's depth.
    return hash((key, frame))


def rows(
    tree: StackTree, opened: Set[Key] = frozenset(), odd: int = 0, *, library: bool = False
) -> list[TreeRow]:
    """The lines of a tree, parents before their children.

    What is folded: chains of library frames that the same ranks go through; deep recursion; and what the
    branches of one call have in common: the second one says "as above".

    :param opened: keys of folded lines that are shown unfolded
    :param odd: ranks that the verdict names; frames of these ranks only are never folded as common
    :param library: whether library frames are all shown
    """
    walk = _Walk(tree, opened, odd, library)
    walk.level(tree.branches(), tree.ranks, 0, "")
    # No recursion: a stack may be deeper than ours may become.
    while walk.todo:
        walk.step(walk.todo.pop())
    return walk.rows


class _Step(NamedTuple):
    """A branch to be drawn.

    :param above: ranks of the line above
    :param chain: what is left of an unfolded chain of library frames, this branch first; else empty
    :param again: whether the branches below are those of a branch before
    """

    branch: Branch
    above: int
    key: Key
    indent: str
    last: bool
    chain: tuple[Branch, ...] = ()
    again: bool = False


class _Walk:
    def __init__(self, tree: StackTree, opened: Set[Key], odd: int, library: bool) -> None:
        self.rows: list[TreeRow] = []
        self.todo: list[_Step] = []
        self._opened = opened
        self._odd = odd
        self._library = library
        self._shapes, self._sizes = _shapes(tree)

    def level(self, branches: list[Branch], above: int, key: Key, indent: str) -> None:
        """Draw these next, the first one first."""
        seen: set[int] = set()
        steps = []
        for number, branch in enumerate(branches):
            shape = self._shapes[id(branch)]
            again = shape in seen and self._sizes[id(branch)] >= FOLD and not self._only_odd(branch)
            seen.add(shape)
            last = number == len(branches) - 1
            steps.append(_Step(branch, above, key, indent, last, again=again))
        self.todo += reversed(steps)

    def step(self, step: _Step) -> None:
        """Draw one branch and note what comes below it."""
        chain = step.chain or (() if self._library else _chain(step.branch))
        if not step.chain and len(chain) >= FOLD:
            self._fold(step, chain, f"{len(chain)} library frames")
            return
        circle = None if step.chain or self._library else recursion(_frames(step.branch))
        if circle is not None:
            self._fold(step, tuple(islice(_straight(step.branch), circle.frames)), circle.text)
            return
        branch, key = step.branch, _below_key(step.key, step.branch.frame)
        self._row(step, key, branch.frame, 0, kind(branch.frame), "")
        below = _below(step)
        if len(step.chain) > 1:
            self.todo.append(_Step(step.chain[1], branch.ranks, key, below, True, step.chain[1:]))
            return
        if step.again:
            fold = _below_key(key, _ABOVE)
            size = self._sizes[id(branch)]
            child = step._replace(above=branch.ranks, indent=below, last=True, key=key)
            self._row(child, fold, None, size, "", f"as above, {size} frames")
            if fold not in self._opened:
                return
        self.level(branch.branches(), branch.ranks, key, below)

    def _fold(self, step: _Step, chain: tuple[Branch, ...], note: str) -> None:
        key = _below_key(step.key, step.branch.frame)
        self._row(step, key, None, len(chain), "", note)
        if key in self._opened:
            self.todo.append(_Step(step.branch, step.branch.ranks, step.key, _below(step), True, chain))
            return
        inner = step.key
        for one in chain:
            inner = _below_key(inner, one.frame)
        self.level(chain[-1].branches(), chain[-1].ranks, inner, _below(step))

    def _row(self, step: _Step, key: Key, frame: Frame | None, folded: int, word: str, note: str) -> None:
        ranks = step.branch.ranks
        missing = step.above & ~ranks
        guides = step.indent + ("└ " if step.last else "├ ") if step.key else ""
        here = ranks if missing else 0
        row = TreeRow(
            key, guides, ranks, here, missing, frame, folded, word, self._only_odd(step.branch), note
        )
        self.rows.append(row)

    def _only_odd(self, branch: Branch) -> bool:
        return bool(self._odd) and branch.ranks & ~self._odd == 0


def _below(step: _Step) -> str:
    if len(step.indent) > 2 * LEVELS:
        return step.indent
    return step.indent + ("  " if step.last else "│ ") if step.key else " "


def _chain(branch: Branch) -> tuple[Branch, ...]:
    """This branch and those below it, as long as they are library frames of the same ranks."""
    return tuple(takewhile(lambda one: kind(one.frame) == "library", _straight(branch)))


def _straight(branch: Branch) -> Iterator[Branch]:
    """This branch and those below it, as long as the same ranks go on to a single one."""
    yield branch
    while len(branch.below) == 1:
        (below,) = branch.below.values()
        if below.ranks != branch.ranks:
            return
        branch = below
        yield branch


def _frames(branch: Branch) -> Iterator[Frame]:
    return (one.frame for one in _straight(branch))


def _shapes(tree: StackTree) -> tuple[dict[int, int], dict[int, int]]:
    """For each branch a number, equal if everything below it is equal; and how much that is."""
    shapes: dict[int, int] = {}
    sizes: dict[int, int] = {}
    known: dict[tuple[tuple[Frame, int], ...], int] = {}
    # Children come after their parents, so backwards they come first.
    for branch in reversed([branch for _, branch in tree.walk()]):
        below = branch.branches()
        shape = tuple((one.frame, shapes[id(one)]) for one in below)
        shapes[id(branch)] = known.setdefault(shape, len(known))
        sizes[id(branch)] = len(below) + sum(sizes[id(one)] for one in below)
    return shapes, sizes
