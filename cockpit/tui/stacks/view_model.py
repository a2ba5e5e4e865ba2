"""What the stack screen shows, computed from a snapshot: nothing here knows about a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cockpit.base.stacks.dump import Dump
from cockpit.base.stacks.kinds import Doing
from cockpit.core.finding import Finding
from cockpit.core.masks import mask_of
from cockpit.core.narrowing import Narrowing, Search
from cockpit.core.stacks.classes import RankClass, classes
from cockpit.core.stacks.snapshot import Sample, Snapshot
from cockpit.core.stacks.tree import StackTree
from cockpit.core.stacks.tree_lines import Key, TreeRow, rows
from cockpit.core.stacks.verdict import verdict

Folding = tuple[frozenset[Key], bool]


@dataclass(frozen=True)
class Sight:
    """One look at a snapshot, as it was when this was computed.

    :param snapshot: with the samples up to the one shown
    :param classes: of that sample, the odd ones first
    :param tree: of that sample
    :param shown: the ranks that the filter lets through
    :param moved: ranks that are elsewhere than in the previous sample
    :param folding: how :attr:`rows` were folded: the keys of the unfolded ones, and whether all frames of
        libraries are shown; None: there are none yet
    :param rows: the tree as lines
    """

    snapshot: Snapshot
    verdict: Finding | None = None
    classes: Sequence[RankClass] = ()
    tree: StackTree = field(default_factory=StackTree)
    shown: int = 0
    moved: int = 0
    folding: Folding | None = None
    rows: Sequence[TreeRow] = ()

    @property
    def sample(self) -> Sample | None:
        """The sample that is shown."""
        return self.snapshot.samples[-1] if self.snapshot.samples else None

    @property
    def odd(self) -> int:
        """Ranks that the verdict names."""
        return self.verdict.ranks if self.verdict is not None else 0

    def folded(self, folding: Folding) -> Sight:
        """The same with its rows folded this way."""
        if folding == self.folding:
            return self
        unfolded, library = folding
        return replace(self, folding=folding, rows=rows(self.tree, unfolded, self.odd, library=library))

    def dump(self, rank: int) -> Dump | None:
        """What a rank answered in the sample shown."""
        return None if self.sample is None else self.sample.dumps.get(rank)

    def class_of(self, rank: int) -> RankClass | None:
        """The class that a rank is in."""
        return next((each for each in self.classes if each.ranks >> rank & 1), None)


def look(snapshot: Snapshot, at: int, pattern: str, folding: Folding, *, judge: bool) -> Sight:
    """Compute a sight.

    :param snapshot: must not change any more
    :param at: the sample to show, from 0
    :param pattern: see :func:`filtered`
    :param folding: how the rows are to be folded
    :param judge: whether to give a verdict
    :raises CockpitError: the pattern is invalid
    """
    if not snapshot.samples:
        return Sight(snapshot)
    seen = replace(snapshot, samples=snapshot.samples[: at + 1])
    every = [*classes(seen)]
    every += _unheard(seen, every)
    shown = filtered(pattern, seen, every)
    found = verdict(seen) if judge else None
    odd = found.ranks if found is not None else 0
    left = [narrowed(each, shown) for each in every if each.ranks & shown]
    left.sort(key=lambda each: not each.ranks & odd)
    tree = StackTree()
    for each in left:
        tree.add_all(each.ranks, each.frames)
    return Sight(seen, found, left, tree, shown, _moved(seen)).folded(folding)


def _unheard(snapshot: Snapshot, every: Sequence[RankClass]) -> list[RankClass]:
    """Ranks without an answer, by reason; those that may still answer come last."""
    heard = 0
    for each in every:
        heard |= each.ranks
    reasons: dict[str, int] = {}
    for rank, why in snapshot.missing().items():
        if not heard >> rank & 1:
            reasons[why] = reasons.get(why, 0) | 1 << rank
    return [
        RankClass(ranks, (), Doing("", "", None, why), sample_rank=(ranks & -ranks).bit_length() - 1)
        for why, ranks in reasons.items()
    ]


def narrowed(found: RankClass, shown: int) -> RankClass:
    """A class with only those of its ranks that are shown."""
    ranks = found.ranks & shown
    if ranks == found.ranks:
        return found
    sample_rank = found.sample_rank if ranks >> found.sample_rank & 1 else (ranks & -ranks).bit_length() - 1
    return replace(found, ranks=ranks, sample_rank=sample_rank)


def filtered(pattern: str, snapshot: Snapshot, every: Sequence[RankClass]) -> int:
    """The ranks that match a pattern: see :class:`Narrowing`; of each are said its node and its stacks.

    :raises CockpitError: it is not a regular expression
    """
    nodes: dict[str, int] = {}
    for rank, place in snapshot.ranks.items():
        nodes[place.node] = nodes.get(place.node, 0) | 1 << rank

    def about(search: Search) -> int:
        mask = 0
        for node, ranks in nodes.items():
            mask |= ranks if search(node) else 0
        for each in every:
            mask |= each.ranks if _is_about(each, search) else 0
        return mask

    return Narrowing(pattern).ranks(nodes, about)


def _is_about(found: RankClass, search: Search) -> bool:
    words = (f"{frame.name} {frame.file}:{frame.line}" for frame in found.frames)
    return bool(search(found.doing.text)) or any(search(text) for text in words)


def _moved(snapshot: Snapshot) -> int:
    if len(snapshot.samples) < 2:
        return 0
    before, now = snapshot.samples[-2].dumps, snapshot.samples[-1].dumps
    return mask_of(
        rank
        for rank, dump in now.items()
        if dump.threads and rank in before and before[rank].threads and before[rank].frames != dump.frames
    )
