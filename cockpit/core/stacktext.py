"""A snapshot as text: what ``cockpit stacks`` prints."""

from __future__ import annotations

from collections.abc import Iterator

from cockpit.base.kinds import WAITING
from cockpit.base.masks import count, ranks_of
from cockpit.base.stacks import Frame, Thread
from cockpit.base.tree import StackTree
from cockpit.core.classes import RankClass, classes
from cockpit.core.ranks import ranks_text
from cockpit.core.snapshot import Snapshot
from cockpit.core.stackrows import Row, rows
from cockpit.core.verdict import Verdict


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


_ASCII = str.maketrans({"├": "|", "└": "`", "│": "|", "·": "-", "…": "...", "–": "-"})


def ascii_text(text: str) -> str:
    """The same for a terminal that shows nothing but ASCII; what has no likeness there is escaped."""
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")


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
