"""The stack tree as lines: for the screen, and as text."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass

from cockpit.base.kinds import WAITING, kind
from cockpit.base.masks import count, ranks_of
from cockpit.base.stacks import Frame, Thread
from cockpit.base.tree import Branch, StackTree
from cockpit.core.classes import RankClass, classes
from cockpit.core.ranks import ranks_text
from cockpit.core.snapshot import Snapshot
from cockpit.core.verdict import Verdict

Key = tuple[Frame, ...]
"""A place in the tree: the frames down to it."""

FOLD = 3
"""So many library frames in a row and more are folded into one line."""


@dataclass(frozen=True)
class Row:
    """One line of the tree.

    :param key: its place
    :param guides: the lines of the tree in front of it
    :param ranks: ranks whose stack goes through here, as a mask
    :param here: the same where ranks part above this line, else 0
    :param missing: ranks of the line above that are not here, else 0
    :param frame: the call; None for a line that stands for folded ones
    :param folded: how many frames this line can fold or unfold
    :param kind: a word of :data:`cockpit.base.kinds.KINDS`; empty for folded ones
    :param odd: whether only ranks that the verdict names are here
    :param note: what else there is to say
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


def rows(
    tree: StackTree, opened: Set[Key] = frozenset(), odd: int = 0, *, library: bool = False
) -> list[Row]:
    """The lines of a tree, parents before their children.

    :param opened: keys of folded lines that are shown unfolded
    :param odd: ranks that the verdict names
    :param library: whether library frames are all shown
    """
    return list(_level(tree.branches(), tree.ranks, (), "", opened, odd, library))


def _level(
    branches: list[Branch], above: int, key: Key, indent: str, opened: Set[Key], odd: int, library: bool
) -> Iterator[Row]:
    parted = len(branches) > 1 or any(branch.ranks != above for branch in branches)
    for number, branch in enumerate(branches):
        last = number == len(branches) - 1
        yield from _branch(branch, above if parted else 0, key, indent, last, opened, odd, library)


def _branch(
    branch: Branch, parted: int, key: Key, indent: str, last: bool, opened: Set[Key], odd: int, library: bool
) -> Iterator[Row]:
    here = (*key, branch.frame)
    guide = indent + ("└ " if last else "├ ") if key else ""
    below = indent + ("  " if last else "│ ") if key else " "
    only_odd = bool(odd) and branch.ranks & ~odd == 0
    chain = _chain(branch)
    if not library and len(chain) >= FOLD:
        opened_here = here in opened
        note = f"{len(chain)} library frames"
        yield Row(
            here, guide, branch.ranks, branch.ranks if parted else 0, parted & ~branch.ranks if parted else 0,
            None, len(chain), "", only_odd, note if not opened_here else f"{note}:",
        )  # fmt: skip
        if not opened_here:
            end = chain[-1]
            inner = (*key, *(one.frame for one in chain))
            yield from _level(end.branches(), end.ranks, inner, below, opened, odd, library)
            return
        yield from _frames(branch, 0, key, below, True, opened, odd, library, chain)
        return
    yield from _frames(branch, parted, key, indent, last, opened, odd, library, chain[:0])


def _frames(
    branch: Branch, parted: int, key: Key, indent: str, last: bool, opened: Set[Key], odd: int, library: bool,
    unfolded: list[Branch],
) -> Iterator[Row]:  # fmt: skip
    here = (*key, branch.frame)
    guide = indent + ("└ " if last else "├ ") if key else ""
    below = indent + ("  " if last else "│ ") if key else " "
    only_odd = bool(odd) and branch.ranks & ~odd == 0
    missing = parted & ~branch.ranks if parted else 0
    yield Row(
        here, guide, branch.ranks, branch.ranks if missing else 0, missing, branch.frame, 0,
        kind(branch.frame), only_odd,
    )  # fmt: skip
    if len(unfolded) > 1:
        yield from _frames(unfolded[1], 0, here, below, True, opened, odd, library, unfolded[1:])
        return
    yield from _level(branch.branches(), branch.ranks, here, below, opened, odd, library)


def _chain(branch: Branch) -> list[Branch]:
    """This branch and those below it, as long as they are library frames of the same ranks."""
    found = []
    while kind(branch.frame) == "library":
        found.append(branch)
        below = branch.branches()
        if len(below) != 1 or below[0].ranks != branch.ranks:
            break
        branch = below[0]
    return found


def as_text(snapshot: Snapshot, verdict: Verdict, *, all_threads: bool = False) -> str:
    """Verdict, classes, tree and who is missing, as text.

    :param all_threads: every thread of one rank of each class too
    """
    lines = list(_verdict_lines(verdict))
    for one in classes(snapshot):
        lines += ["", *_class_lines(snapshot, one, all_threads=all_threads)]
    tree = StackTree()
    for rank, dump in sorted(snapshot.samples[-1].dumps.items()) if snapshot.samples else ():
        tree.add(rank, dump.frames)
    if tree.ranks:
        lines += ["", *_tree_lines(rows(tree, odd=verdict.ranks))]
    missing: dict[str, list[int]] = {}
    for rank, why in snapshot.missing().items():
        missing.setdefault(why, []).append(rank)
    if missing:
        lines += ["", "without a stack:"]
        lines += [f"  {ranks_text(ranks)}: {why}" for why, ranks in missing.items()]
    return "\n".join(lines)


def _verdict_lines(verdict: Verdict) -> Iterator[str]:
    yield verdict.headline
    if verdict.where:
        yield f"  at {verdict.where}"
    if verdict.detail:
        yield f"  {verdict.detail}"
    for fact in verdict.evidence:
        yield f"  - {fact}"
    yield f"  {verdict.certainty}"
    for step in verdict.next:
        yield f"  next: {step}"


def _class_lines(snapshot: Snapshot, one: RankClass, *, all_threads: bool) -> Iterator[str]:
    state = f"state {one.state}" if one.state else ""
    facts = " · ".join(each for each in (one.doing.text, state, one.movement) if each)
    yield f"{count(one.ranks)} rank{'s' * (count(one.ranks) != 1)} {_ranks(one.ranks)}: {facts}"
    if one.source:
        yield f"    {one.source}"
    if not all_threads:
        return
    dump = snapshot.samples[-1].dumps[one.sample_rank]
    for thread in dump.threads:
        yield from _thread_lines(f"rank {one.sample_rank}", thread)
    for child in dump.process.children if dump.process is not None else ():
        for thread in child.threads:
            yield from _thread_lines(f"its child {child.pid} {child.name}", thread)


def _thread_lines(whose: str, thread: Thread) -> Iterator[str]:
    facts = "".join(
        word for word, said in ((", active", thread.active), (", holds the GIL", thread.gil)) if said
    )
    yield f"    {whose}, thread {thread.name}{facts}"
    for number, frame in enumerate(thread.frames):
        yield f"      {frame.name}  {_place(frame)}"
        for name, value in (thread.locals[number] if number < len(thread.locals) else {}).items():
            yield f"          {name} = {value}"


def _tree_lines(found: list[Row]) -> Iterator[str]:
    room = min(24, max(len(_ranks(row.ranks)) for row in found))
    for row in found:
        text = row.note if row.frame is None else f"{row.frame.name}  {_place(row.frame)}"
        if row.missing:
            text += f"  {count(row.here)} here, {count(row.missing)} missing"
        if row.kind in WAITING:
            text += "  waits"
        yield f"{_ranks(row.ranks):<{room}}  {row.guides}{text}"


def _ranks(mask: int) -> str:
    return ranks_text(ranks_of(mask))


def _place(frame: Frame) -> str:
    file = frame.file[2:] if frame.file.startswith("./") else frame.file
    return f"{file}:{frame.line}" if frame.line else file
