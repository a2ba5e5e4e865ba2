"""Dumps read from JSON, packed or in full, within bounds: whatever a node or a file says.

A packed answer is read line by line, in time and memory that grow with its actual content, never with what it
could be made to unfold to. Only our side reads dumps: this is not sent to nodes.
"""

from __future__ import annotations

import json
import zlib
from array import array
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

from cockpit.base import gate
from cockpit.base.gate import (
    Definition,
    FieldKind,
    ListOf,
    Malformed,
    MapOf,
    Maybe,
    Number,
    Of,
    RowOf,
    Text,
    Whole,
    bound,
    maybe,
    read,
    shown,
)
from cockpit.base.stacks.dump import (
    CHILDREN,
    DEPTH,
    LOCALS,
    NOTES,
    THREADS,
    UNANSWERED,
    Child,
    Deputy,
    Dump,
    Frame,
    LockFile,
    Process,
    Thread,
    Unanswered,
    fitted,
)
from cockpit.base.stacks.packing import LINE, PLACES, TEXT, TooLarge

KEPT = 32 << 20
"""Bytes that its dumps may take up, in memory or on disk; see :class:`Room`."""

# Ten times what is kept of a text: made harmless, a character may become ten, and then be read from a file.
_NAME = Text(6000)
_LONG = Text(6000, cut=True)
_LINE_NUMBER = Whole(0, 1 << 31)
_NATIVE = Whole(0, 1)
_CPU = Number(0, 1 << 50)
_IDLE = Number(-1, 1 << 40)

# Bytes, roughly, of what is kept: a dump, a frame, its place on a stack, a thread or the like, a text.
_DUMP, _FRAME, _STACKED, _STRUCTURE, _TEXT = 1000, 150, 24, 250, 60

_LINE_COST = 200
"""A short line is as much work as this many bytes of a long one."""

_PART = 1 << 16

Clean = Callable[[str], str]


class Anything(FieldKind):
    """What is checked where it is used."""

    def read(self, value: Any) -> Any:
        """See :meth:`FieldKind.read`."""
        return value


ANYTHING = Anything()


class Room:
    """How much more may be taken in.

    :param kept: bytes that dumps may take up; each counts with what it needs in memory or on disk (where a
        frame is written out for each stack that it is on), whichever is more
    :param text: bytes that may be unpacked
    """

    def __init__(self, kept: int = KEPT, text: int = TEXT) -> None:
        self.kept = kept
        self.text = text
        self._most = kept

    @property
    def used(self) -> int:
        """Bytes that dumps take up."""
        return self._most - self.kept

    def unpack(self, size: int, lines: int = 0) -> None:
        """Note that this many bytes and ends of lines were unpacked.

        :raises TooLarge: that is too much
        """
        self.text -= size + _LINE_COST * lines
        if self.text < 0:
            raise TooLarge("more text than an answer may have")

    def keep(self, size: int) -> None:
        """Note that something of this size is to be kept.

        :raises TooLarge: there is no room for it
        """
        self.kept -= size
        if self.kept < 0:
            raise TooLarge(
                "stacks of more than %s MB; --ranks asks fewer ranks" % format(self._most / 1e6, ".2g")
            )


# -- packed for a link -------------------------------------------------------------------------------


def unpack(data: bytes, clean: Clean, room: Optional[Room] = None) -> Iterator[Dump]:
    """The dumps of :func:`pack`, one after the other: those before a fault are still returned.

    :param clean: makes text from a node harmless; every string passes through it
    :param room: how much may be taken in
    :raises TooLarge: there is no room for it
    :raises ValueError: this is not what :func:`pack` makes
    """
    room = room or Room()
    tree = _Tree(clean, room)
    try:
        for line in _lines(data, room):
            told = json.loads(line)
            if not isinstance(told, dict) or len(told) != 1:
                raise Malformed("expected an object with one entry")
            ((kind, value),) = told.items()
            if kind == "frames":
                tree.add_frames(value)
            elif kind == "nodes":
                tree.add_places(value)
            elif kind == "dump":
                yield _Reading(clean, room, tree.stack).dump(value)
            else:
                raise Malformed("expected frames, nodes or dump")
    except (RecursionError, zlib.error) as error:
        raise Malformed(str(error)) from None


def _lines(data: bytes, room: Room) -> Iterator[bytes]:
    """The lines of a packed answer; never much more than one of them is in memory."""
    line = bytearray()
    for part in _inflated(data):
        *whole, rest = part.split(b"\n")
        room.unpack(len(part), len(whole))
        for end in whole:
            yield bytes(line) + end
            line.clear()
        line += rest
        if len(line) > LINE:
            raise TooLarge("a line of more than %d bytes" % LINE)
    if line:
        raise Malformed("its last line is cut off")


def _inflated(data: bytes) -> Iterator[bytes]:
    inflater = zlib.decompressobj()
    for start in range(0, len(data), _PART):
        rest = data[start : start + _PART]
        part = b"..."
        while rest or len(part) == _PART:
            part = inflater.decompress(rest, _PART)
            yield part
            if inflater.eof:
                if inflater.unused_data or start + _PART < len(data):
                    raise Malformed("it continues after its end")
                return
            rest = inflater.unconsumed_tail
    raise Malformed("it is cut off")


class _Tree:
    """The frames and places of a packed answer; a stack is built only if a thread has it."""

    def __init__(self, clean: Clean, room: Room) -> None:
        self._frame = _Frames(clean, room)
        self._frames: List[Frame] = []
        self._parents = array("i")
        self._called = array("i")
        self._depths = array("i")
        self._sizes = array("q")
        self._made: Dict[int, Tuple[Frame, ...]] = {-1: ()}

    def add_frames(self, told: Any) -> None:
        """Take in more frames."""
        if not isinstance(told, list):
            raise Malformed("frames: expected a list")
        if len(self._frames) + len(told) > PLACES:
            raise TooLarge("more than %d frames" % PLACES)
        self._frames += map(self._frame, told)

    def add_places(self, told: Any) -> None:
        """Take in more places; each is below an earlier one, so there is no cycle."""
        if not isinstance(told, list) or len(told) % 2:
            raise Malformed("nodes: expected a list of pairs")
        parents, frames, depths = self._parents, len(self._frames), self._depths
        if len(parents) + len(told) // 2 > PLACES:
            raise TooLarge("more than %d places" % PLACES)
        for parent, frame in zip(told[::2], told[1::2]):
            if type(parent) is not int or type(frame) is not int:
                raise Malformed("nodes: expected integers")
            if not (-1 <= parent < len(parents) and 0 <= frame < frames):
                raise Malformed("nodes: refers to what is not there")
            depth = depths[parent] + 1 if parent >= 0 else 1
            if depth > DEPTH:
                raise TooLarge("a stack of more than %d frames" % DEPTH)
            parents.append(parent)
            self._called.append(frame)
            depths.append(depth)
            above = self._sizes[parent] if parent >= 0 else 0
            self._sizes.append(above + _size(self._frames[frame]))

    def stack(self, told: Any) -> Tuple[Tuple[Frame, ...], int]:
        """The stack that ends in this place, and its size."""
        if type(told) is not int or not -1 <= told < len(self._parents):
            raise Malformed("expected the number of a place")
        found = self._made.get(told)
        if found is None:
            frames, place = [], told
            while place >= 0:
                frames.append(self._frames[self._called[place]])
                place = self._parents[place]
            found = self._made[told] = tuple(reversed(frames))
        return found, self._sizes[told] if found else 0


# -- in full for files -------------------------------------------------------------------------------


class FromJson:
    """Reads dumps of :func:`dump_json`, cut to their bounds.

    :param clean: makes text harmless; every string passes through it
    :param room: how much may be taken in
    """

    def __init__(self, clean: Clean, room: Optional[Room] = None) -> None:
        room = room or Room()
        self._frame = _Frames(clean, room)
        self._reading = _Reading(clean, room, self._stack)

    def __call__(self, value: Any) -> Dump:
        """The dump.

        :raises TooLarge: there is no room for it
        :raises ValueError: this is not what :func:`dump_json` makes
        """
        return self._reading.dump(value)

    def _stack(self, told: Any) -> Tuple[Tuple[Frame, ...], int]:
        if not isinstance(told, list):
            raise Malformed("expected a stack, got %s" % shown(told))
        frames = tuple(map(self._frame, told))
        return frames, sum(map(_size, frames))


# -- the form of a dump ------------------------------------------------------------------------------


class _Frames:
    """Reads frames; each distinct one is checked and made once."""

    def __init__(self, clean: Clean, room: Room) -> None:
        self._clean = clean
        self._room = room
        self._known: Dict[Tuple[Any, ...], Frame] = {}

    def __call__(self, told: Any) -> Frame:
        if not isinstance(told, list) or len(told) != 4:
            raise Malformed("expected a frame of 4 values")
        name, file, line, native = told
        if not (isinstance(name, str) and isinstance(file, str)):
            raise Malformed("expected a frame's name and file, got %s, %s" % (shown(name), shown(file)))
        if not (type(line) is int and type(native) is int):
            raise Malformed("expected a frame's line and 0 or 1, got %s, %s" % (shown(line), shown(native)))
        key = (name, file, line, native)
        frame = self._known.get(key)
        if frame is None:
            _NAME.read(name), _NAME.read(file), _LINE_NUMBER.read(line), _NATIVE.read(native)
            frame = self._known[key] = Frame(self._clean(name), self._clean(file), line, native == 1)
            self._room.keep(_FRAME + 2 * _size(frame))
        return frame


def _size(frame: Frame) -> int:
    """What a frame adds to a stack."""
    return _STACKED + len(frame.name) + len(frame.file)


class _Thread(Definition):
    name: str = bound(_NAME)
    tid: int = bound(gate.TICKS)
    active: bool = bound(gate.FLAG)
    gil: bool = bound(gate.FLAG)
    stack: Any = bound(ANYTHING)
    locals: Tuple[Dict[str, str], ...] = bound(ListOf(MapOf(_NAME, _LONG, LOCALS), LOCALS), ())


_THREADS = ListOf(Of(_Thread), THREADS)


class _Child(Definition):
    pid: int = bound(gate.PID)
    name: str = bound(_NAME)
    state: str = bound(_NAME)
    threads: Tuple[_Thread, ...] = bound(_THREADS, ())


class _Process(Definition):
    pid: int = bound(gate.PID)
    ticks: int = bound(gate.TICKS)
    state: str = bound(_NAME)
    wchan: str = bound(_NAME)
    call: str = bound(_NAME)
    target: str = bound(_LONG)
    cpu_s: float = bound(_CPU)
    main_cpu_s: float = bound(_CPU)
    switches: int = bound(gate.TICKS)
    children: Tuple[_Child, ...] = bound(ListOf(Of(_Child), CHILDREN))
    idle_s: float = bound(_IDLE, -1.0)
    switches_after: int = bound(Whole(-1, gate.TICKS.most), -1)
    io_bytes: int = bound(gate.TICKS, 0)
    below_s: float = bound(_CPU, 0.0)
    below_bytes: int = bound(gate.TICKS, 0)


class _Deputy(Definition):
    kind: str = bound(_NAME)
    thread: _Thread = bound(Of(_Thread))
    process: _Process = bound(Of(_Process))


class _LockFile(Definition):
    path: str = bound(_LONG)
    age_s: float = bound(gate.SECONDS)
    holder: int = bound(gate.PID, 0)
    name: str = bound(_NAME, "")


class _Unanswered(Definition):
    host: str = bound(Text(45, "[0-9a-f.:]+"))
    port: int = bound(Whole(0, 65535))
    tries: int = bound(gate.COUNT)


class _Dump(Definition):
    rank: int = bound(gate.RANK)
    at: float = bound(gate.TIME)
    way: str = bound(_NAME)
    error: str = bound(_NAME)
    what: str = bound(_LONG)
    hint: str = bound(_LONG)
    notes: Tuple[str, ...] = bound(ListOf(_LONG, 2 * NOTES))
    source: str = bound(_LONG)
    took_s: float = bound(_CPU)
    process: Optional[_Process] = bound(Maybe(Of(_Process)))
    threads: Tuple[_Thread, ...] = bound(_THREADS)
    loop: str = bound(_LONG, "")
    deputy: Optional[_Deputy] = maybe(Of(_Deputy))
    lock: Optional[_LockFile] = maybe(Of(_LockFile))
    unanswered: Tuple[_Unanswered, ...] = bound(ListOf(RowOf(_Unanswered), UNANSWERED), ())


_NOTHING: Dict[str, str] = {}


class _Reading:
    """One dump that is being read.

    :param stack: builds a stack from its packed form, and returns its size too
    """

    def __init__(
        self, clean: Clean, room: Room, stack: Callable[[Any], Tuple[Tuple[Frame, ...], int]]
    ) -> None:
        self._clean = clean
        self._room = room
        self._stack = stack

    def dump(self, value: Any) -> Dump:
        """The dump, within its bounds."""
        told, clean = read(_Dump, value), self._clean
        self._room.keep(_DUMP)
        found: Dict[str, Any] = dict(
            vars(told),
            process=None if told.process is None else self._process(told.process),
            way=clean(told.way),
            threads=self._threads(told.threads),
            source=self._text(told.source),
            error=clean(told.error),
            what=self._text(told.what),
            hint=self._text(told.hint),
            notes=tuple(map(self._text, told.notes)),
            loop=self._text(told.loop),
            deputy=told.deputy and self._deputy(told.deputy),
            lock=told.lock and self._lock(told.lock),
            unanswered=tuple(
                Unanswered(self._text(one.host), one.port, one.tries) for one in told.unanswered
            ),
        )
        return fitted(Dump(**found))

    def _deputy(self, told: _Deputy) -> Deputy:
        return Deputy(self._clean(told.kind), self._thread(told.thread), self._process(told.process))

    def _lock(self, told: _LockFile) -> LockFile:
        return LockFile(self._text(told.path), told.age_s, told.holder, self._clean(told.name))

    def _process(self, told: _Process) -> Process:
        clean = self._clean
        children = []
        for child in told.children:
            self._room.keep(_STRUCTURE + len(child.name))
            threads = self._threads(child.threads)
            children.append(Child(child.pid, clean(child.name), clean(child.state), threads))
        texts = {name: clean(getattr(told, name)) for name in ("state", "wchan", "call", "target")}
        return Process(**{**vars(told), **texts, "children": tuple(children)})

    def _threads(self, told: Iterable[_Thread]) -> Tuple[Thread, ...]:
        return tuple(map(self._thread, told))

    def _thread(self, told: _Thread) -> Thread:
        frames, size = self._stack(told.stack)
        self._room.keep(_STRUCTURE + size)
        variables = tuple(self._variables(one) if one else _NOTHING for one in told.locals)
        return Thread(self._text(told.name), told.tid, told.active, told.gil, frames, variables)

    def _variables(self, told: Dict[str, str]) -> Dict[str, str]:
        self._room.keep(_STRUCTURE)
        return {self._text(name): self._text(value) for name, value in told.items()}

    def _text(self, told: str) -> str:
        text = self._clean(told)
        self._room.keep(_TEXT + len(text))
        return text
