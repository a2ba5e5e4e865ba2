"""Profiles of Python stacks: those of all ranks in one tree, a rank against the others, speedscope.

Ranks are weights: each counts as much as any other, however many samples there are of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cockpit.core.ranks import mask_text
from cockpit.core.stacks.flamegraph import file_of, sampled
from cockpit.core.text import one_line

THREAD = "thread: "
"""What the first frame begins with of stacks that are not the main thread's."""

MOST_STACKS, MOST_DEPTH = 20_000, 300
_PLACE = re.compile(r"(.*) \(([^()]*?)(?::(\d{1,9}))?\)")

Stack = tuple[str, ...]
Samples = Mapping[Stack, int]
"""How often each stack was seen, outermost frame first."""


def parsed(text: str) -> dict[Stack, int]:
    """Folded stacks, ``outer;inner N`` a line; lines that are none are left out, and what exceeds bounds."""
    found: Counter[Stack] = Counter()
    known: dict[str, str] = {}
    for line in text.split("\n"):
        stack, _, many = line.rpartition(" ")
        if stack and many.isascii() and many.isdigit() and len(many) <= 12:
            frames = stack.split(";", MOST_DEPTH)[:MOST_DEPTH]
            for frame in frames:
                if frame not in known:
                    known[frame] = one_line(frame, limit=300)
            found[tuple(known[frame] for frame in frames)] += int(many)
            if len(found) >= MOST_STACKS:
                break
    return dict(found)


def main_thread(samples: Samples) -> dict[Stack, int]:
    """Without the stacks of other threads."""
    return {stack: many for stack, many in samples.items() if not stack[0].startswith(THREAD)}


@dataclass
class Node:
    """A frame in the tree of all ranks.

    :param share: of the time of these ranks, 0 to their number; ``own``: in it, and nothing that it calls
    :param ranks: that were seen in it, as a mask
    """

    frame: str
    share: float = 0.0
    own: float = 0.0
    ranks: int = 0
    children: dict[str, Node] = field(default_factory=dict)


def tree(of: Mapping[int, Samples]) -> Node:
    """The tree of the main threads of some ranks."""
    root = Node("")
    for rank, samples in of.items():
        mine = main_thread(samples)
        total = sum(mine.values())
        for stack, many in mine.items() if total else ():
            node, part = root, many / total
            for frame in ("", *stack):
                node = node.children.setdefault(frame, Node(frame)) if frame else root
                node.share += part
                node.ranks |= 1 << rank
            node.own += part
    return root


@dataclass(frozen=True)
class Differs:
    """A frame at which a rank is for longer than the others.

    :param share: of its own time, 0 to 1, in it or what it calls; ``others``: the mean of the others
    """

    frame: str
    share: float
    others: float

    @property
    def more(self) -> float:
        """How much of its time that is."""
        return self.share - self.others


def differences(of: Mapping[int, Samples], rank: int) -> list[Differs]:
    """The frames in which a rank is more than the mean of the others, by how much, most first.

    Of frames that call each other and differ alike only the innermost is there.
    """
    return _differences(_all_shares(of), rank)


def differing(of: Mapping[int, Samples]) -> dict[int, list[Differs]]:
    """The ranks that are somewhere for longer than the others, those that differ most first."""
    shares = _all_shares(of)
    found = {rank: [one for one in _differences(shares, rank) if one.more >= DIFFERENT] for rank in of}
    odd = {rank: some[:NAMED] for rank, some in found.items() if some}
    # Of few ranks an odd one alone makes the mean of the others odd.
    least = max((some[0].more for some in odd.values()), default=0.0) / 2
    named = ((rank, some) for rank, some in odd.items() if some[0].more >= least)
    return dict(sorted(named, key=lambda each: -each[1][0].more)[:NAMED])


DIFFERENT = 0.05
"""Part of its time that a rank is somewhere for longer than the others, at least, to be named."""
NAMED = 3


def _differences(shares: _Shares, rank: int) -> list[Differs]:
    others = [shares[each] for each in shares if each != rank and shares[each]]
    mine = shares.get(rank)
    if not mine or not others:
        return []
    found = []
    for frame, (share, depth) in mine.items():
        usual = sum(one.get(frame, (0.0, 0))[0] for one in others) / len(others)
        found.append((depth, Differs(frame, share, usual)))
    found.sort(key=lambda each: (-round(each[1].more, 3), -each[0], each[1].frame))
    kept: list[Differs] = []
    for _, one in found:
        if one.more > 0 and all(abs(one.more - other.more) > _ALIKE for other in kept):
            kept.append(one)
    return kept


def top(samples: Samples) -> tuple[str, float] | None:
    """The frame that the main thread is itself in most, calls left out, and its share; None: no sample."""
    mine = main_thread(samples)
    own: Counter[str] = Counter()
    for stack, many in mine.items():
        own[stack[-1]] += many
    if not own:
        return None
    frame, many = own.most_common(1)[0]
    return frame, many / sum(mine.values())


_ALIKE = 0.01


_Shares = Mapping[int, Mapping[str, tuple[float, int]]]
"""By rank what :func:`_shares` says."""


def _all_shares(of: Mapping[int, Samples]) -> _Shares:
    return {rank: _shares(main_thread(samples)) for rank, samples in of.items()}


def _shares(samples: Samples) -> dict[str, tuple[float, int]]:
    """Of each frame the part of all samples that it is in, and how deep at most."""
    total = sum(samples.values())
    found: dict[str, tuple[float, int]] = {}
    for stack, many in samples.items():
        for frame, depth in {frame: depth for depth, frame in enumerate(stack)}.items():
            before, deepest = found.get(frame, (0.0, 0))
            found[frame] = before + many / total, max(deepest, depth)
    return found


def to_folded(of: Mapping[int, Samples]) -> str:
    """All ranks as folded stacks, ``rank N;outer;inner`` and how often it was seen."""
    return "".join(
        f"{';'.join([f'rank {rank}', *(frame.replace(';', ',') for frame in stack)])} {many}\n"
        for rank, samples in sorted(of.items())
        for stack, many in sorted(samples.items())
    )


def to_speedscope(of: Mapping[int, Samples], title: str) -> dict[str, Any]:
    """A file of speedscope's: one profile a rank, the frames shared."""
    frames: dict[str, int] = {}
    profiles = []
    for rank, samples in sorted(of.items()):
        stacks = [[frames.setdefault(frame, len(frames)) for frame in stack] for stack in samples]
        profiles.append(sampled(f"rank {rank}", stacks, list(samples.values())))
    return file_of(title, list(map(_speedscope, frames)), profiles)


def _speedscope(frame: str) -> dict[str, Any]:
    fits = _PLACE.fullmatch(frame)
    if fits is None:
        return {"name": frame}
    name, file, line = fits.groups()
    return {"name": name, "file": file, **({"line": int(line)} if line else {})}


def ranks_text(node: Node) -> str:
    """Whose it is."""
    return mask_text(node.ranks)
