"""Stacks of ranks: what a dump of one rank holds, and its bounds.

Frames are outermost first, as a program is read; py-spy prints them the other way round.

A node cuts its dumps to the bounds below (:func:`fitted`) and says so in their notes;
``cockpit.base.stacks.packing`` refuses what is beyond them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

DEPTH = 4000
"""Frames of one stack."""

OUTERMOST = 1000
"""A deeper stack keeps this many of its outermost frames, and as many of the innermost as fit."""

THREADS = 1000
"""Threads of one process."""

CHILDREN = 1000
"""Processes below a rank."""

FRAMES = 50_000
"""Frames of one rank: of all its threads and children together."""

LOCALS = 60_000
"""Characters of a rank's local variables, with :data:`LOCAL_COST` for each of them."""

LOCAL_COST = 20

NOTES = 20
"""Notes of one dump."""

UNANSWERED = 8
"""Connections of one dump whose other ends do not answer."""


class Frame(NamedTuple):
    """One call on a stack; two ranks with equal frames are at the same place.

    :param name: the function, ``<module>``, or the symbol of a native frame
    :param file: the normalised file (``base.stacks.file_names``), or the shared object of a native frame
    :param line: the line that is being executed, from 1; 0 if unknown
    :param native: a C or C++ frame
    """

    name: str
    file: str
    line: int
    native: bool = False

    @property
    def place(self) -> str:
        """Where it is, as people write it: ``train.py:188``."""
        file = self.file[2:] if self.file.startswith("./") else self.file
        return "%s:%d" % (file, self.line) if self.line else file


LISTENING = "listening socket"
"""The target of a call that waits for others to connect."""

LEFT_OUT = Frame("(frames left out)", "", 0)
"""Replaces the missing frames in a stack that was cut."""


class Thread(NamedTuple):
    """One Python thread.

    :param tid: its thread id in the kernel; 0 if py-spy does not know
    :param active: whether py-spy saw it run rather than wait
    :param gil: whether it held the GIL
    :param frames: outermost first
    :param locals: for each frame the local variables as text, secrets taken out; empty when not asked for
    """

    name: str
    tid: int
    active: bool
    gil: bool
    frames: Tuple[Frame, ...]
    locals: Tuple[Dict[str, str], ...] = ()


class Child(NamedTuple):
    """A process below a rank: a data loader's worker, a compiler.

    :param state: the letter of proc(5)
    :param threads: its Python threads if children were asked for, else empty
    """

    pid: int
    name: str
    state: str
    threads: Tuple[Thread, ...] = ()


class Process(NamedTuple):
    """What the kernel says about a rank's process at the time of a dump.

    :param ticks: start time in clock ticks since boot
    :param state: the letter of proc(5): R runs, S sleeps, D waits without interruption, T stopped, Z zombie
    :param wchan: the kernel function its main thread waits in; empty if it runs or the kernel does not say
    :param call: the system call its main thread is in (``futex``, ``read``); empty if it runs or unknown
    :param target: what that call is about: a path, ``pipe``, ``socket``; empty where not known
    :param cpu_s: CPU time of all its threads so far, in seconds
    :param main_cpu_s: CPU time of its main thread so far, in seconds
    :param switches: how often its main thread has gone to sleep by itself so far
    :param children: processes below it
    :param idle_s: for how long its main thread has not run at all, until it was looked at; -1: unknown
    :param switches_after: :attr:`switches` after py-spy released it: later switches are not caused by
        sampling; -1: unknown
    :param io_bytes: what its main thread has read and written so far
    :param below_s: CPU time of the processes below it, and of those that these have waited for, in seconds
    :param below_bytes: what those below it have read and written so far
    """

    pid: int
    ticks: int
    state: str
    wchan: str = ""
    call: str = ""
    target: str = ""
    cpu_s: float = 0.0
    main_cpu_s: float = 0.0
    switches: int = 0
    children: Tuple[Child, ...] = ()
    idle_s: float = -1.0
    switches_after: int = -1
    io_bytes: int = 0
    below_s: float = 0.0
    below_bytes: int = 0


class LockFile(NamedTuple):
    """The file of a lock that a rank waits for.

    :param path: as the rank knows it
    :param age_s: since it was changed last
    :param holder: a process of this node that has it open or locked; 0: none has
    :param name: the holder's short name
    """

    path: str
    age_s: float
    holder: int = 0
    name: str = ""


class Unanswered(NamedTuple):
    """A TCP connection of a rank whose other end does not answer.

    :param host: the address of that end
    :param port: its port
    :param tries: how often what was sent has been sent again, each time after twice as long a wait
    """

    host: str
    port: int
    tries: int


class Deputy(NamedTuple):
    """What does the work of a rank whose main thread only waits for it.

    :param kind: ``thread`` of the same process, or ``child``: a process below it with the same rank
    :param thread: its stack
    :param process: what the kernel says about that thread, or about the main thread of that child
    """

    kind: str
    thread: Thread
    process: Process


@dataclass(frozen=True)
class Dump:
    """The answer of one rank to one question.

    :param rank: global rank
    :param at: when it was taken, unix seconds on the node's clock
    :param process: None if there is no process
    :param way: ``plain``, ``nonblocking``, ``native``; ``kernel``: no Python frames available, only
        :attr:`process`; empty: nothing at all
    :param threads: the main thread first; empty if none are available
    :param source: the line of source code that the main thread's innermost frame of user code executes
    :param loop: the head of the ``while`` that this line is in, in the same function; empty: it is in none
    :param deputy: who works while the main thread only waits for that
    :param lock: the file of the lock that it waits for, where it has one
    :param unanswered: its connections whose other ends do not answer, those that were tried most first
    :param error: why there are no threads: ``denied``, ``gone``, ``zombie``, ``timeout``, ``failed``
    :param what: that in a sentence
    :param hint: what to type or change next
    :param notes: what else a person should know ("py-spy left it stopped; continued")
    :param took_s: seconds it took
    """

    rank: int
    at: float
    process: Optional[Process] = None
    way: str = ""
    threads: Tuple[Thread, ...] = ()
    source: str = ""
    error: str = ""
    what: str = ""
    hint: str = ""
    notes: Tuple[str, ...] = ()
    took_s: float = 0.0
    loop: str = ""
    deputy: Optional[Deputy] = None
    lock: Optional[LockFile] = None
    unanswered: Tuple[Unanswered, ...] = ()

    @property
    def frames(self) -> Tuple[Frame, ...]:
        """The stack of the thread that works: the main one, or its deputy's."""
        if self.deputy is not None and self.threads:
            return self.deputy.thread.frames
        return self.threads[0].frames if self.threads else ()

    @property
    def main(self) -> Optional[Process]:
        """What the kernel says about the thread that works."""
        return self.process if self.deputy is None else self.deputy.process

    @property
    def children(self) -> Tuple[Child, ...]:
        """The processes below it."""
        return self.process.children if self.process is not None else ()


# -- cut to its bounds -------------------------------------------------------------------------------


def fitted(dump: Dump) -> Dump:
    """A dump within the bounds; its notes say what had to be left out."""
    cut = _Cut()
    threads = cut.threads(dump.threads, "threads")
    process = dump.process
    if process is not None:
        some = process.children[:CHILDREN]
        if len(some) < len(process.children):
            cut.note("child processes", len(process.children), CHILDREN)
        children = [
            child._replace(threads=cut.threads(child.threads, "threads of a child")) for child in some
        ]
        process = process._replace(children=tuple(children))
    deputy = dump.deputy
    if deputy is not None:
        (thread,) = cut.threads([deputy.thread], "threads")
        deputy = deputy._replace(thread=thread, process=deputy.process._replace(children=()))
    if not cut.notes:
        return dump
    notes = (*dump.notes[: NOTES - len(cut.notes)], *cut.notes)
    return replace(dump, threads=threads, process=process, deputy=deputy, notes=notes)


class _Cut:
    """What is left of the bounds of one dump."""

    def __init__(self) -> None:
        self.notes: Dict[str, None] = {}
        self._frames = FRAMES
        self._locals = LOCALS

    def note(self, what: str, found: int, most: int) -> None:
        self.notes["%s cut at %s of %s" % (what, format(most, ","), format(found, ","))] = None

    def threads(self, threads: Sequence[Thread], what: str) -> Tuple[Thread, ...]:
        if len(threads) > THREADS:
            self.note(what, len(threads), THREADS)
        return tuple(self._thread(thread) for thread in threads[:THREADS])

    def _thread(self, thread: Thread) -> Thread:
        frames, variables = thread.frames, thread.locals
        if len(frames) > DEPTH:
            self.note("stack", len(frames), DEPTH)
            frames, variables = shortened(frames, LEFT_OUT), shortened(variables, {})
        if len(frames) > self._frames:
            self.notes["stacks of further threads are left out: %s frames" % format(FRAMES, ",")] = None
            frames, variables = (), ()
        self._frames -= len(frames)
        return thread._replace(frames=frames, locals=self._variables(variables))

    def _variables(self, variables: Sequence[Dict[str, str]]) -> Tuple[Dict[str, str], ...]:
        """The innermost say most; those of the outer frames are left out."""
        kept: List[Dict[str, str]] = []
        for one in reversed(variables):
            size = sum(LOCAL_COST + len(name) + len(value) for name, value in one.items())
            self._locals -= size
            if size and self._locals < 0:
                self.notes["local variables of outer frames are left out"] = None
            kept.append(one if self._locals >= 0 else {})
        return tuple(reversed(kept)) if any(kept) else ()


def shortened(parts: Sequence[Any], instead: Any) -> Tuple[Any, ...]:
    """A stack of at most :data:`DEPTH` parts, with ``instead`` in place of those that are left out."""
    if len(parts) <= DEPTH:
        return tuple(parts)
    return (*parts[:OUTERMOST], instead, *parts[len(parts) - (DEPTH - OUTERMOST - 1) :])
