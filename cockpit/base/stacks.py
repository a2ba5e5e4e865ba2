"""Stacks of ranks: what a dump of one rank holds, and how the dumps of many travel as one tree.

Frames are outermost first, as a program is read; py-spy tells them the other way round.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

UNPACKED_LIMIT = 64 << 20
"""Bytes of one packed answer when unpacked: a node may be broken, memory is ours."""


class Frame(NamedTuple):
    """One call on a stack; two ranks with equal frames are at the same place.

    :param name: the function, ``<module>``, or the symbol of a native frame
    :param file: the normalised file (``cockpit.base.sources``), or the shared object of a native frame
    :param line: the line that is being executed, from 1; 0 where none is known
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


class Thread(NamedTuple):
    """One Python thread.

    :param tid: its number for the kernel; 0 where py-spy does not know
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
    :param threads: its Python threads where children were asked for, else empty
    """

    pid: int
    name: str
    state: str
    threads: Tuple[Thread, ...] = ()


class Process(NamedTuple):
    """What the kernel says of a rank's process at the time of a dump.

    :param ticks: start time in clock ticks since boot
    :param state: the letter of proc(5): R runs, S sleeps, D waits without interruption, T stopped, Z zombie
    :param wchan: the kernel function its main thread waits in; empty where it runs or the kernel does not say
    :param call: the system call its main thread is in (``futex``, ``read``); empty where it runs or unknown
    :param target: what that call is about: a path, ``pipe``, ``socket``; empty where not known
    :param cpu_s: CPU time of all its threads so far, in seconds
    :param main_cpu_s: CPU time of its main thread so far, in seconds
    :param switches: how often its main thread has gone to sleep by itself so far
    :param children: processes below it
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


@dataclass(frozen=True)
class Dump:
    """The answer of one rank to one question.

    :param rank: global rank
    :param at: when it was taken, unix seconds on the node's clock
    :param process: None where there is no process
    :param way: ``plain``, ``nonblocking``, ``native``; ``kernel``: no Python frames to be had, only
        :attr:`process`; empty: nothing at all
    :param threads: the main thread first; empty where there are none to be had
    :param source: the line of source code that the main thread's innermost frame of user code executes
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

    @property
    def frames(self) -> Tuple[Frame, ...]:
        """The stack of the main thread."""
        return self.threads[0].frames if self.threads else ()


@dataclass
class _Table:
    """Every distinct string and stack once: ranks of one job are mostly at the same few places."""

    frames: List[List[Any]] = field(default_factory=list)
    nodes: List[List[int]] = field(default_factory=list)
    _frame_of: Dict[Frame, int] = field(default_factory=dict)
    _node_of: Dict[Tuple[int, int], int] = field(default_factory=dict)

    def stack(self, frames: Iterable[Frame]) -> int:
        """The number of the node in which this stack ends; -1 for an empty one."""
        node = -1
        for frame in frames:
            number = self._frame_of.setdefault(frame, len(self._frame_of))
            if number == len(self.frames):
                self.frames.append([frame.name, frame.file, frame.line, int(frame.native)])
            key = (node, number)
            node = self._node_of.setdefault(key, len(self._node_of))
            if node == len(self.nodes):
                self.nodes.append([key[0], key[1]])
        return node


def pack(dumps: Iterable[Dump]) -> bytes:
    """Dumps as one compressed prefix tree and what each rank adds to it; :func:`unpack` is the way back."""
    table = _Table()
    told = [_dump_out(dump, lambda thread: _thread_out(thread, table.stack(thread.frames))) for dump in dumps]
    text = json.dumps(
        {"frames": table.frames, "nodes": table.nodes, "dumps": told}, separators=(",", ":")
    ).encode()
    return zlib.compress(text, 1)


def unpack(data: bytes, clean: Callable[[str], str]) -> List[Dump]:
    """The dumps of :func:`pack`.

    :param clean: makes text of a node harmless; every string passes through it
    :raises ValueError: this is not what :func:`pack` makes
    """
    try:
        inflater = zlib.decompressobj()
        text = inflater.decompress(data, UNPACKED_LIMIT)
        if inflater.unconsumed_tail or not inflater.eof:
            raise ValueError("too large, or cut off")
        answer = json.loads(text.decode())
        stacks = _stacks(answer["frames"], answer["nodes"], clean)
        return [_dump_in(dump, clean, lambda number: stacks[number]) for dump in answer["dumps"]]
    except (zlib.error, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise ValueError("not a packed dump: %s" % error) from None


def _stacks(
    frames: List[List[Any]], nodes: List[List[int]], clean: Callable[[str], str]
) -> Dict[int, Tuple[Frame, ...]]:
    known = [Frame(clean(str(n)), clean(str(f)), int(line), bool(nat)) for n, f, line, nat in frames]
    stacks: Dict[int, Tuple[Frame, ...]] = {-1: ()}
    for number, (parent, frame) in enumerate(nodes):
        # A parent stands before its children: anything else would be a circle.
        stacks[number] = (*stacks[parent], known[frame])
    return stacks


def dump_json(dump: Dump) -> Dict[str, Any]:
    """One dump as a JSON object that people and programs can read: frames in full."""
    return _dump_out(
        dump,
        lambda thread: _thread_out(thread, [[*frame[:3], int(frame.native)] for frame in thread.frames]),
    )


def dump_from_json(data: Dict[str, Any], clean: Callable[[str], str]) -> Dump:
    """The dump of :func:`dump_json`.

    :raises ValueError: this is not what :func:`dump_json` makes
    """

    def frames(told: List[List[Any]]) -> Tuple[Frame, ...]:
        return tuple(Frame(clean(str(n)), clean(str(f)), int(line), bool(nat)) for n, f, line, nat in told)

    try:
        return _dump_in(data, clean, frames)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise ValueError("not a dump: %s" % error) from None


def _thread_out(thread: Thread, stack: Any) -> Dict[str, Any]:
    told: Dict[str, Any] = {
        "name": thread.name,
        "tid": thread.tid,
        "active": thread.active,
        "gil": thread.gil,
        "stack": stack,
    }
    if thread.locals:
        told["locals"] = list(thread.locals)
    return told


def _thread_in(
    told: Dict[str, Any], clean: Callable[[str], str], frames: Callable[[Any], Tuple[Frame, ...]]
) -> Thread:
    variables = tuple(
        {clean(str(name)): clean(str(value)) for name, value in one.items()} for one in told.get("locals", ())
    )
    return Thread(
        clean(str(told["name"])),
        int(told["tid"]),
        bool(told["active"]),
        bool(told["gil"]),
        frames(told["stack"]),
        variables,
    )


def _dump_out(dump: Dump, thread_out: Callable[[Thread], Dict[str, Any]]) -> Dict[str, Any]:
    process: Optional[Dict[str, Any]] = None
    if dump.process is not None:
        process = dump.process._asdict()
        process["children"] = [
            dict(child._asdict(), threads=[thread_out(thread) for thread in child.threads])
            for child in dump.process.children
        ]
    return {
        "rank": dump.rank,
        "at": dump.at,
        "way": dump.way,
        "error": dump.error,
        "what": dump.what,
        "hint": dump.hint,
        "notes": list(dump.notes),
        "source": dump.source,
        "took_s": round(dump.took_s, 4),
        "process": process,
        "threads": [thread_out(thread) for thread in dump.threads],
    }


def _dump_in(
    told: Dict[str, Any], clean: Callable[[str], str], frames: Callable[[Any], Tuple[Frame, ...]]
) -> Dump:
    process = None if told["process"] is None else _process_in(told["process"], clean, frames)
    return Dump(
        rank=int(told["rank"]),
        at=float(told["at"]),
        process=process,
        way=clean(str(told["way"])),
        threads=tuple(_thread_in(thread, clean, frames) for thread in told["threads"]),
        source=clean(str(told["source"])),
        error=clean(str(told["error"])),
        what=clean(str(told["what"])),
        hint=clean(str(told["hint"])),
        notes=tuple(clean(str(note)) for note in told["notes"]),
        took_s=float(told["took_s"]),
    )


def _process_in(
    told: Dict[str, Any], clean: Callable[[str], str], frames: Callable[[Any], Tuple[Frame, ...]]
) -> Process:
    children = tuple(
        Child(
            int(child["pid"]),
            clean(str(child["name"])),
            clean(str(child["state"])),
            tuple(_thread_in(thread, clean, frames) for thread in child["threads"]),
        )
        for child in told["children"]
    )
    return Process(
        pid=int(told["pid"]),
        ticks=int(told["ticks"]),
        state=clean(str(told["state"])),
        wchan=clean(str(told["wchan"])),
        call=clean(str(told["call"])),
        target=clean(str(told["target"])),
        cpu_s=float(told["cpu_s"]),
        main_cpu_s=float(told["main_cpu_s"]),
        switches=int(told["switches"]),
        children=children,
    )
