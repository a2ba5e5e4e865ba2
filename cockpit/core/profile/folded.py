"""Profiles of Python stacks: those of all ranks in one tree, a rank against the others, speedscope.

Ranks are weights: each counts as much as any other, however many samples there are of it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median_high
from typing import Any

from cockpit.base.shared_fields import THREAD
from cockpit.base.stacks.dump import Frame
from cockpit.base.stacks.kinds import WAITING, kind
from cockpit.core.ranks import mask_text
from cockpit.core.stacks.flamegraph import file_of, sampled, speedscope
from cockpit.core.text import one_line

MOST_STACKS, MOST_DEPTH, MOST_FRAMES = 20_000, 300, 100_000
_LINE = re.compile(r"[^\n]+")
_PLACE = re.compile(r"(.*) \(([^()]*?)(?::(\d{1,9}))?\)")

Stack = tuple[str, ...]
Samples = Mapping[Stack, int]
"""How often each stack was seen, outermost frame first."""


def parsed(text: str) -> dict[Stack, int]:
    """Folded stacks, ``outer;inner N`` a line; lines that are none are left out, and what exceeds bounds."""
    found: Counter[Stack] = Counter()
    known: dict[str, str] = {}
    for line in _LINE.finditer(text):
        stack, _, many = line.group().rpartition(" ")
        if stack and many.isascii() and many.isdigit() and len(many) <= 12 and int(many):
            frames = stack.split(";", MOST_DEPTH)[:MOST_DEPTH]
            for frame in frames:
                if frame not in known:
                    known[frame] = one_line(frame, limit=300)
            found[tuple(known[frame] for frame in frames)] += int(many)
            if len(found) >= MOST_STACKS or len(known) >= MOST_FRAMES:
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
    """A frame in which a rank is for longer than the others.

    :param share: of its time, 0 to 1, in it or what it calls
    :param others: the same of the median of the others, of two the higher
    """

    frame: str
    share: float
    others: float

    @property
    def more(self) -> float:
        """How much of its time that is."""
        return self.share - self.others


LEAST, ERRORS = 0.1, 3.0
"""What counts: so much more of its time, and so many standard errors of both shares."""

_ALIKE = 0.01


def differences(of: Mapping[int, Samples], rank: int) -> list[Differs]:
    """The frames in which a rank is for longer than the median of the others, most first.

    Of frames that call each other and differ alike only the innermost is there. None is one in which ranks
    wait for others: who waits is not to blame.
    """
    return Compared(of).differences(rank)


class Compared:
    """The stacks of all ranks, to compare each with the others."""

    def __init__(self, of: Mapping[int, Samples]) -> None:
        mine = {rank: main_thread(samples) for rank, samples in of.items()}
        self._shares = {rank: _shares(samples) for rank, samples in mine.items()}
        self._many = {rank: sum(samples.values()) for rank, samples in mine.items()}

    def odd_ranks(self) -> dict[int, list[Differs]]:
        """See :func:`odd_ranks`."""
        found = {rank: some for rank in self._shares if (some := self.differences(rank))}
        return dict(sorted(found.items(), key=lambda each: -each[1][0].more))

    def differences(self, rank: int) -> list[Differs]:
        """See :func:`differences`."""
        shares, many = self._shares, self._many
        others = [each for each in shares if each != rank and shares[each]]
        mine = shares.get(rank)
        if not mine or not others:
            return []
        fewest, found = min(many[each] for each in others), []
        for frame, (share, depth) in mine.items():
            if share < LEAST:
                continue
            one = Differs(frame, share, median_high(shares[each].get(frame, (0.0, 0))[0] for each in others))
            error = math.sqrt(_variance(share, many[rank]) + _variance(one.others, fewest))
            if one.more >= max(LEAST, ERRORS * error) and kind(_frame(frame)) not in WAITING:
                found.append((depth, one))
        found.sort(key=lambda each: (-round(each[1].more, 3), -each[0], each[1].frame))
        kept: list[Differs] = []
        for _, one in found:
            if all(abs(one.more - other.more) > _ALIKE for other in kept):
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


def odd_ranks(of: Mapping[int, Samples]) -> dict[int, list[Differs]]:
    """The ranks that are somewhere for longer than the others, those that differ most first."""
    return Compared(of).odd_ranks()


def _variance(share: float, many: int) -> float:
    """Of a share that so many samples gave; none of a few is no proof of none."""
    likely = (share * many + 1) / (many + 2)
    return likely * (1 - likely) / (many + 2)


def least_shown(many: int) -> float:
    """The least difference that so many samples of each of two ranks prove, wherever they are."""
    return min(1.0, max(LEAST, ERRORS * math.sqrt(2 * _variance(0.5, many))))


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
    return file_of(title, [speedscope(_frame(frame)) for frame in frames], profiles)


def _frame(text: str) -> Frame:
    fits = _PLACE.fullmatch(text)
    return Frame(fits[1], fits[2], int(fits[3] or 0)) if fits else Frame(text, "", 0)


def ranks_text(node: Node) -> str:
    """Whose it is."""
    return mask_text(node.ranks)
