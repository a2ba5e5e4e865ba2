"""What differs between two stacks: of one rank in two samples, or of two ranks."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from cockpit.base.stacks.dump import Dump, Frame, Thread
from cockpit.base.stacks.kinds import kind
from cockpit.core.cutting import cut_middle
from cockpit.core.inferred import MARK
from cockpit.core.masks import count
from cockpit.core.stacks.snapshot import Snapshot
from cockpit.core.stacks.words import STATES
from cockpit.core.time_text import span_text
from cockpit.tui.look.units import clock_text
from cockpit.tui.panes.meanings import MEANINGS
from cockpit.tui.panes.text_pane import Line, Piece, TextPane
from cockpit.tui.stacks.labels import cut
from cockpit.tui.stacks.view_model import Sight

FOLD = 3
"""This many library frames in a row or more become one line."""

AROUND = 2
"""Common frames that are shown on either side of a difference."""


@dataclass(frozen=True)
class Side:
    """One of the two.

    :param name: ``rank 13, sample 2``
    """

    name: str
    dump: Dump | None
    why: str = ""


def counterpart(sight: Sight, number: int, rank: int, marked: int | None) -> tuple[int, int] | None:
    """What a rank is compared with: a rank and a sample; None: there is nothing.

    :param number: the sample that is shown, from 0
    :param marked: the rank that a person marked
    """
    if marked is not None and marked != rank:
        return marked, number
    before = (rank, number - 1) if has_stack(sight.snapshot, rank, number - 1) else None
    others = [each for each in sight.classes if not each.ranks >> rank & 1 and each.frames]
    if before is not None and (sight.moved >> rank & 1 or not others):
        return before
    if not others:
        return None
    return max(others, key=lambda each: (count(each.ranks), -each.sample_rank)).sample_rank, number


def has_stack(snapshot: Snapshot, rank: int, number: int) -> bool:
    """Whether a rank's stack is in a sample."""
    dump = snapshot.samples[number].dumps.get(rank) if number >= 0 else None
    return dump is not None and bool(dump.threads)


def sides(snapshot: Snapshot, rank: int, number: int, other: tuple[int, int] | None) -> tuple[Side, Side]:
    """What is compared: first the other one, then the rank in the sample shown.

    :param other: see :func:`counterpart`
    """
    with_sample = other is None or other[1] != number
    one, two = other or (rank, number), (rank, number)
    return _side(snapshot, *one, with_sample), _side(snapshot, *two, with_sample)


def _side(snapshot: Snapshot, rank: int, number: int, with_sample: bool) -> Side:
    sample = snapshot.samples[number]
    name = f"rank {MARK if snapshot.inferred >> rank & 1 else ''}{rank}"
    if with_sample:
        name += f", sample {number + 1} · {clock_text(sample.at, 10)}"
    else:
        name += f"  {snapshot.ranks[rank].node}"
    dump = sample.dumps.get(rank)
    return Side(name, dump, dump.what if dump is not None else "no answer")


class StackDiff(TextPane):
    """Frames of the one with ``-``, of the other with ``+``, common ones folded."""

    MEANINGS: ClassVar[Mapping[str, str]] = {**MEANINGS, "warning": "link-stale"}
    _sides: tuple[Side, Side] | None = None

    def show(self, one: Side, other: Side) -> None:
        """Draw what differs between these."""
        if self._sides != (one, other):
            self._sides = (one, other)
            self.rebuild()
            self.home()

    def build(self, width: int) -> Sequence[Line]:
        """Who is compared, then thread by thread."""
        return [] if self._sides is None else list(_diff(*self._sides, width))


def _diff(one: Side, other: Side, width: int) -> Iterator[Line]:
    yield Line((Piece("- ", "warning"), Piece(one.name, "title"), *_state(one)))
    yield Line((Piece("+ ", "running"), Piece(other.name, "title"), *_state(other)))
    yield Line()
    if one.dump is None or other.dump is None:
        for side in (one, other):
            if side.dump is None:
                yield Line.of(f"{side.name}: {side.why or 'no stacks of it'}", "warning")
        return
    yield from _work(one.dump, other.dump)
    names = dict.fromkeys(thread.name for dump in (one.dump, other.dump) for thread in dump.threads)
    same = 0
    for number, name in enumerate(names):
        left, right = _thread(one.dump, name), _thread(other.dump, name)
        if number and left is not None and right is not None and left.frames == right.frames:
            same += 1
            continue
        yield from _threads(name, left, right, width)
    if same:
        yield Line.of(f"{same} other thread{'s' * (same > 1)}: the same", "label")


def _state(side: Side) -> Iterator[Piece]:
    if side.dump is None or side.dump.process is None:
        return
    process = side.dump.process
    words = [STATES.get(process.state, ""), f"in {process.call}" if process.call else "", process.target]
    text = " · ".join(word for word in words if word)
    if text:
        yield Piece(f"  {text}", "warning" if process.state in STATES else "label")


def _work(one: Dump, other: Dump) -> Iterator[Line]:
    """What the process did between two samples."""
    if one.rank != other.rank or one.process is None or other.process is None:
        return
    span = other.at - one.at
    main = other.process.main_cpu_s - one.process.main_cpu_s
    whole = other.process.cpu_s - one.process.cpu_s
    switches = other.process.switches - one.process.switches
    if span <= 0 or min(main, whole, switches) < 0:
        return
    text = (
        f"{span_text(span)} between them: CPU time {span_text(main)} main thread, {span_text(whole)} in all"
        f" · the main thread went to sleep {switches:,} times"
    )
    yield Line.of(text, "label")
    yield Line()


def _thread(dump: Dump, name: str) -> Thread | None:
    return next((thread for thread in dump.threads if thread.name == name), None)


def _threads(name: str, one: Thread | None, other: Thread | None, width: int) -> Iterator[Line]:
    yield Line.of(name, "title")
    left = one.frames if one is not None else ()
    right = other.frames if other is not None else ()
    if left == right:
        yield Line.of(f"  the same {len(left)} frame{'s' * (len(left) != 1)}", "label")
        left = right = left[-AROUND:]
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    for tag, first, last, begin, end in matcher.get_opcodes():
        if tag == "equal":
            yield from _common(left[first:last], first == 0, last == len(left), width)
            continue
        yield from _only("- ", "warning", left[first:last], width)
        yield from _only("+ ", "running", right[begin:end], width)
    yield Line()


def _only(sign: str, role: str, frames: Sequence[Frame], width: int) -> Iterator[Line]:
    """Frames that only one side has; many library frames in a row become one line."""
    for library, group in groupby(frames, lambda frame: kind(frame) == "library"):
        found = list(group)
        if library and len(found) >= FOLD:
            yield Line((Piece(sign, role), Piece(f"… {len(found)} library frames", "label")))
        else:
            for frame in found:
                yield _frame(sign, role, frame, width)


def _common(frames: Sequence[Frame], first: bool, last: bool, width: int) -> Iterator[Line]:
    """Frames that both have: those next to a difference, and how many more there are."""
    head, tail = 0 if first else AROUND, 0 if last and not first else AROUND
    if len(frames) <= head + tail + 1:
        shown: list[Frame | int] = list(frames)
    else:
        shown = [*frames[:head], len(frames) - head - tail, *(frames[len(frames) - tail :] if tail else ())]
    for each in shown:
        if isinstance(each, int):
            yield Line.of(f"  … {each} frame{'s' * (each > 1)} in common", "label")
        else:
            yield _frame("  ", "label", each, width)


def _frame(sign: str, role: str, frame: Frame, width: int) -> Line:
    name = cut(frame.name, max(8, width // 2))
    where = cut_middle(frame.place, max(0, width - len(name) - 4))
    return Line((Piece(sign, role), Piece(name, "" if sign.strip() else role), Piece(f"  {where}", "label")))
