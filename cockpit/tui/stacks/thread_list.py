"""The threads of one rank: as a short list, and in full with frames, local variables and child processes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.cells import cell_len

from cockpit.base.stacks.dump import Child, Dump, Frame, Thread
from cockpit.core.cutting import cut_middle
from cockpit.core.inferred import MARK
from cockpit.core.stacks.recursion import folded
from cockpit.core.stacks.snapshot import Place
from cockpit.core.stacks.words import STATES, state_text
from cockpit.core.time_text import span_text
from cockpit.engine.stacks.ask import option_words
from cockpit.tui.look.units import clock_text
from cockpit.tui.panes.list_pane import ListPane
from cockpit.tui.panes.text_pane import Line, Piece, hanging
from cockpit.tui.stacks.labels import cut, home_text

FOLD = 3
"""This many library frames in a row or more become one line."""


@dataclass(frozen=True)
class RankSight:
    """What is known about one rank.

    :param place: where it is
    :param dump: the dump shown; None: there is none
    :param why: why there is no dump
    :param asked: what only this rank was asked for (``native``, ``locals``, ``children``)
    """

    rank: int
    place: Place
    dump: Dump | None
    why: str = ""
    asked: tuple[str, ...] = ()


class ThreadList(ListPane[Thread]):
    """One line per thread: its name, what it does, its innermost frame."""

    _sight: RankSight | None = None

    def show(self, sight: RankSight | None) -> None:
        """Draw the threads of this rank."""
        if self._sight is None or sight is None or sight.rank != self._sight.rank:
            self.touched = False
        changed = sight != self._sight
        self._sight = sight
        if changed:
            self.show_items(sight.dump.threads if sight is not None and sight.dump is not None else ())

    def key_of(self, item: Thread) -> Hashable:
        """Its thread id in the kernel, or its name."""
        return item.tid or item.name

    def item_lines(self, item: Thread, before: Thread | None, width: int) -> Sequence[Line]:
        """Its name, its state, its innermost frame."""
        dump = self._sight.dump if self._sight is not None else None
        state, role = thread_state(item, state_of(item, dump))
        does = f"{state:<6}"
        frame = f" {item.frames[-1].name}" if item.frames else ""
        name = cut(item.name, max(8, width // 2 - 4, width - len(does) - 1 - cell_len(frame)))
        pieces = [Piece(f"{name:<12} ", ""), Piece(does, role)]
        left = width - sum(cell_len(piece.text) for piece in pieces)
        if left > 7:
            pieces.append(Piece(cut(frame, left), "label"))
        return [Line(tuple(pieces))]

    def empty_lines(self, width: int) -> Sequence[Line]:
        """Why there are none."""
        return list(_nothing(self._sight, width))


def state_of(thread: Thread, dump: Dump | None) -> str:
    """The kernel's letter for a thread of a rank; empty where it is not known: it is asked for some only."""
    if dump is None or dump.process is None:
        return ""
    if dump.deputy is not None and thread.tid and thread.tid == dump.deputy.thread.tid:
        return dump.deputy.process.state
    # A signal stops all threads at once.
    return dump.process.state if thread is dump.threads[0] or dump.process.state == "T" else ""


def thread_state(thread: Thread, kernel: str = "") -> tuple[str, str]:
    """A thread's state in a word, and its role.

    :param kernel: the kernel's letter for it; empty: not known
    """
    if thread.gil:
        return "GIL", "warning"
    if kernel in STATES:
        return STATES[kernel], "warning"
    return ("runs", "running") if thread.active else ("sleeps", "label")


@dataclass(frozen=True)
class Shown:
    """An item of a rank's pane: some lines that belong together."""

    key: Hashable
    lines: tuple[Line, ...]


class RankPane(ListPane[Shown]):
    """Everything that is known about one rank."""

    def show(self, sight: RankSight, kinds: Sequence[Sequence[str]], *, library: bool) -> None:
        """Draw this.

        :param kinds: the kind of each frame of each thread
        :param library: show every frame of a library
        """
        self._sight, self._kinds, self._library = sight, kinds, library
        self.show_items(self._arranged())

    _sight: RankSight | None = None
    _kinds: Sequence[Sequence[str]] = ()
    _library = False

    def rebuild(self) -> None:
        """Lines depend on the width."""
        if self.scrollable_size.width > 0:
            self.items = self._arranged()
        super().rebuild()

    def _arranged(self) -> Sequence[Shown]:
        if self._sight is None:
            return ()
        width = max(1, self.scrollable_size.width)
        return list(_rank_items(self._sight, self._kinds, self._library, width))

    def key_of(self, item: Shown) -> Hashable:
        """Thread and frame."""
        return item.key

    def item_lines(self, item: Shown, before: Shown | None, width: int) -> Sequence[Line]:
        """As they were made."""
        return item.lines

    def go_to(self, thread: int) -> None:
        """Bring a thread into view."""
        self.put_on(("thread", thread))


def _rank_items(
    sight: RankSight, kinds: Sequence[Sequence[str]], library: bool, width: int
) -> Iterator[Shown]:
    yield Shown("head", (*_head(sight, width), Line(heading=True)))
    dump = sight.dump
    if dump is None or not dump.threads:
        return
    for number, thread in enumerate(dump.threads):
        state = state_of(thread, dump)
        own = kinds[number] if number < len(kinds) else ()
        yield from _thread_items(("thread", number), thread, state, own, library, width)
    children = dump.process.children if dump.process is not None else ()
    if "children" in sight.asked and not children:
        yield Shown("no child", (Line.of("it has no child processes", "label"),))
    for child in children:
        yield Shown(("child", child.pid), (_child_line(child),))
        for number, thread in enumerate(child.threads):
            state = "" if number else child.state
            key = ("child", child.pid, number)
            yield from _thread_items(key, thread, state, (), library, width, indent=2)


def _child_line(child: Child) -> Line:
    state = state_text(child.state)
    role = "warning" if child.state in STATES else "label"
    return Line(
        (Piece(f"child {child.pid}  ", "label"), Piece(child.name, "title"), Piece(f"  {state}", role))
    )


def _head(sight: RankSight, width: int) -> Iterator[Line]:
    """Where it is, the state of its process, and its notes."""
    dump = sight.dump
    mark = MARK if sight.place.inferred else ""
    yield from hanging((Piece(f"rank {mark}{sight.rank}  ", "title"),), home_text(sight.place), width)
    if dump is not None and dump.process is not None:
        process = dump.process
        facts = [f"pid {process.pid}"]
        facts += [f"{sight.place.ns_pid} in its container"] if sight.place.ns_pid else []
        facts.append(state_text(process.state))
        facts += [f"in {process.call}"] if process.call else []
        facts += [process.target] if process.target else []
        facts += [f"kernel: {process.wchan}"] if process.wchan else []
        facts.append(f"{span_text(process.cpu_s)} of CPU time")
        role = "warning" if process.state in STATES else "label"
        yield from hanging((Piece("process  ", "label"),), " · ".join(facts), width, role)
    if dump is not None and dump.way:
        words = [f"py-spy {dump.way}" if dump.way != "kernel" else "from the kernel only"]
        words += [f"asked alone, with {option_words(sight.asked)}"] if sight.asked else []
        words += [f"at {clock_text(dump.at, 8)}, took {span_text(dump.took_s)}"]
        yield from hanging((Piece("taken    ", "label"),), " · ".join(words), width, "label")
    yield from _nothing(sight, width)
    for note in dump.notes if dump is not None else ():
        yield from hanging((Piece("note     ", "label"),), note, width, "warning")
    if dump is not None and dump.source:
        yield from hanging((Piece("source   ", "label"),), dump.source, width)


def _nothing(sight: RankSight | None, width: int) -> Iterator[Line]:
    """Why there are no threads, and what to do."""
    if sight is None:
        yield Line.of("no rank is chosen", "label")
        return
    dump = sight.dump
    if dump is not None and dump.threads:
        return
    why = dump.what if dump is not None and dump.what else sight.why or "no answer yet"
    yield from hanging((), why, width, "warning" if dump is not None and dump.error else "label")
    if dump is not None and dump.hint:
        yield from hanging((), dump.hint, width)


def _thread_items(
    key: tuple[Hashable, ...],
    thread: Thread,
    kernel: str,
    kinds: Sequence[str],
    library: bool,
    width: int,
    indent: int = 0,
) -> Iterator[Shown]:
    state, role = thread_state(thread, kernel)
    pad = " " * indent
    words = [Piece(f"{pad}{thread.name}", "title"), Piece(f"  {state}", role)]
    if thread.tid:
        words.append(Piece(f"  tid {thread.tid}", "label"))
    yield Shown(key, (Line(tuple(words), indent),))
    last = len(thread.frames) - 1
    circles = {} if library else {number: one for number, one in folded(thread.frames) if one is not None}
    shown = range(len(thread.frames)) if library else [number for number, _ in folded(thread.frames)]
    places = ((number, thread.frames[number]) for number in shown)
    for hidden, group in groupby(places, lambda each: not library and _folds(thread, kinds, *each)):
        found = list(group)
        if hidden and len(found) >= FOLD:
            line = Line.of(f"{pad}  … {len(found)} library frames", "label")
            yield Shown((*key, "hidden", found[0][0]), (line,))
            continue
        for number, frame in found:
            if number in circles:
                line = Line.of(f"{pad}  … {circles[number].text}", "label")
                yield Shown((*key, "circle", number), (line,))
                continue
            lines = [_frame_line(frame, pad, width, innermost=number == last)]
            for name, value in _locals(thread, number).items():
                head = (Piece(f"{pad}      {name} ", "label"), Piece("= ", "label"))
                lines += hanging(head, value, width)
            yield Shown((*key, number), tuple(lines))
    yield Shown((*key, "end"), (Line(heading=True),))


def _folds(thread: Thread, kinds: Sequence[str], number: int, frame: Frame) -> bool:
    """Whether a frame is a library's and says little: not the innermost, and not one that was asked for."""
    kind = kinds[number] if number < len(kinds) else "user"
    ends = number in (0, len(thread.frames) - 1)
    return kind == "library" and not ends and not frame.native and not _locals(thread, number)


def _locals(thread: Thread, number: int) -> dict[str, str]:
    return thread.locals[number] if number < len(thread.locals) else {}


def _frame_line(frame: Frame, pad: str, width: int, *, innermost: bool) -> Line:
    name = cut(frame.name, max(8, width // 2))
    role = "strong" if innermost else "label" if frame.native else ""
    where = cut_middle(frame.place, max(0, width - len(name) - len(pad) - 4))
    return Line((Piece(f"{pad}  {name}", role), Piece(f"  {where}", "label")), len(pad) + 2)
