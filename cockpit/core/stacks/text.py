"""A snapshot as text: what ``cockpit stacks`` prints."""

from __future__ import annotations

from collections.abc import Iterator

from cockpit.base.stacks.dump import Thread
from cockpit.base.stacks.kinds import WAITING
from cockpit.core.finding import Finding
from cockpit.core.inferred import with_mark
from cockpit.core.masks import count, mask_of
from cockpit.core.stacks import last_calls
from cockpit.core.stacks.classes import RankClass, classes
from cockpit.core.stacks.recursion import folded
from cockpit.core.stacks.snapshot import Snapshot
from cockpit.core.stacks.tree import StackTree
from cockpit.core.stacks.tree_lines import TreeRow, rows

LIST_ROOM = 40
"""Columns of a rank set in the lists of classes and of missing ranks."""

TREE_ROOM = 24
"""The same in front of a line of the tree."""


def as_lines(snapshot: Snapshot, verdict: Finding, *, threads: str = "", command: str = "") -> list[str]:
    """Verdict, classes, tree and who is missing, as lines of text.

    :param threads: ``main``: the main thread of one rank of each class too, with its local variables where
        they were asked for, and those of its children; ``all``: every thread
    :param command: what was typed, so that the next step can be typed too; empty if nobody can be asked
        any more
    """
    lines = list(_verdict_lines(verdict, command))
    notes = snapshot.notes()
    lines += ["", *notes] if notes else []
    for one in classes(snapshot):
        lines += ["", *_class_lines(snapshot, one, threads)]
    tree = snapshot.samples[-1].tree() if snapshot.samples else StackTree()
    if tree.ranks:
        lines += ["", *_tree_lines(rows(tree, odd=verdict.ranks), snapshot.inferred)]
    missing: dict[str, list[int]] = {}
    for rank, why in snapshot.missing().items():
        missing.setdefault(why, []).append(rank)
    if missing:
        lines += ["", "without a stack:"]
        lines += [
            f"  {_mask(mask_of(ranks), LIST_ROOM, snapshot.inferred)}: {why}"
            for why, ranks in missing.items()
        ]
    return [*lines, *last_calls.lines(snapshot.calls)]


_ASCII = str.maketrans({"├": "|", "└": "`", "│": "|", "·": "-", "…": "...", "–": "-", "×": "x", "µ": "u"})


def ascii_text(text: str) -> str:
    """The same for a terminal that shows only ASCII; what has no ASCII equivalent is escaped."""
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")


def _verdict_lines(verdict: Finding, command: str) -> Iterator[str]:
    yield verdict.what
    if verdict.where:
        yield f"  at {verdict.where}"
    if verdict.detail:
        yield f"  {verdict.detail}"
    for fact in verdict.evidence:
        yield f"  - {fact}"
    yield f"  {verdict.sureness}"
    for step in filter(None, (step.in_shell(command) for step in verdict.steps)):
        yield f"  next: {step}"


def _class_lines(snapshot: Snapshot, one: RankClass, threads: str) -> Iterator[str]:
    number = count(one.ranks)
    whose = f"{number:,} ranks" if number > 1 else "rank"
    yield f"{whose} {with_mark(snapshot.inferred, one.ranks, LIST_ROOM)}: {one.facts}"
    if one.source:
        yield f"    {one.source}"
    if not threads:
        return
    for title, thread in titled_threads(snapshot, one, None if threads == "all" else 1):
        yield f"    {title}"
        for number, circle in folded(thread.frames):
            if circle is not None:
                yield f"      … {circle.text}"
                continue
            frame = thread.frames[number]
            yield f"      {frame.name}  {frame.place}"
            for name, value in (thread.locals[number] if number < len(thread.locals) else {}).items():
                yield f"          {name} = {value}"


def titled_threads(
    snapshot: Snapshot, one: RankClass, each: int | None = None
) -> Iterator[tuple[str, Thread]]:
    """The threads of one rank of a class and of the processes below it, with what to write above each.

    :param each: at most this many per process
    """
    dump = snapshot.samples[-1].dumps[one.sample_rank]
    processes = [
        (f"rank {one.sample_rank}", dump.threads),
        *((f"its child {child.pid} {child.name}", child.threads) for child in dump.children),
    ]
    for whose, threads in processes:
        for thread in threads[:each]:
            active, gil = ", active" * thread.active, ", holds the GIL" * thread.gil
            yield f"{whose}, thread {thread.name}{active}{gil}", thread


def _tree_lines(found: list[TreeRow], inferred: int) -> Iterator[str]:
    shown = tree_masks(found, inferred)
    room = max(map(len, shown.values()))
    for row in found:
        text = f"… {row.note}" if row.frame is None else f"{row.frame.name}  {row.frame.place}"
        if row.missing:
            text += f"  {count(row.here)} here, {count(row.missing)} missing"
        if row.kind in WAITING:
            text += "  waits"
        yield f"{shown[row.ranks]:<{room}}  {row.guides}{text}"


def tree_masks(found: list[TreeRow], inferred: int = 0) -> dict[int, str]:
    """What is written for the ranks of each row of a tree."""
    return {row.ranks: _mask(row.ranks, TREE_ROOM, inferred) for row in found}


def _mask(mask: int, room: int, inferred: int) -> str:
    return with_mark(inferred, mask, room, f",… ({count(mask):,})")
