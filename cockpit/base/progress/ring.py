"""The ring of a rank: its last steps, in a small file in memory that its probe writes and an agent reads.

The file is :data:`SIZE` bytes, all words of 64 bits in the machine's byte order: a header of
:data:`HEADER_WORDS` words, :data:`CAPACITY` records of :data:`RECORD_WORDS` words, how many marks were ever
written, :data:`MARKS` marks, and the page of :mod:`cockpit.base.profile.order`, of whose spare words two are
when a rendezvous last began, and when the process group was last there (nanoseconds, wall clock; 0: never, or
not noted). Version 1 had no marks, version 2 not that page.

======  ==========================================================================================
word    of the header
======  ==========================================================================================
0       :data:`MAGIC`
1       :data:`VERSION`
2, 3    the rank; its pid
4       start time of its process, in clock ticks since boot
5       where steps come from: a place in :data:`SOURCES`
6       how many steps were ever written; the next goes to that number modulo the capacity
7       1: a hook raised an error and does not write any more
8-15    why, in UTF-8, ended by a zero byte
======  ==========================================================================================

A record is the step, when it ended (nanoseconds: wall clock, then monotonic), and the XOR of these three with
:data:`MAGIC`. The writer takes no lock, so a reader may see half a record: its check then fails, and it is
passed over. A mark (:mod:`~cockpit.base.progress.phases`) is one word: the kind in 3 bits, the loader in the
:data:`LOADER_BITS` above, and the monotonic clock in the rest, 4.5 years of it. The rank's own program may
write anything here: nothing in it is believed.

Beside it the probe says in a file of its own what it can do: :class:`ProbeReport`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

from cockpit.base.gate import PID, RANK, SENTENCE, TIME, WORD, Definition, ListOf, bound, maybe
from cockpit.base.progress.phases import Mark

MAGIC = 0x434B5054_52494E47
VERSION = 3
HEADER_WORDS, RECORD_WORDS, CAPACITY = 16, 4, 508
MARKS = 4095
LOADER_BITS = 4
LOADERS = 1 << LOADER_BITS
_STEPS_SIZE = 8 * (HEADER_WORDS + RECORD_WORDS * CAPACITY)
"""Bytes before the marks, which are all of a ring of version 1: four pages."""
ORDER = _STEPS_SIZE + 8 * (1 + MARKS)
"""Bytes before the page of orders, which are all of a ring of version 2: twelve pages."""
SIZE = ORDER + 4096
"""Bytes of the file."""
RENDEZVOUS = ORDER + 8 * 64
"""Bytes before those two words."""
_VERSIONS = {_STEPS_SIZE: 1, ORDER: 2, SIZE: VERSION}
"""By size."""

LAST_STEPS = 32
"""Steps of a rank that its node's run record has at the end: those that no measurement may have seen."""

SOURCES = ("", "optimizer", "deepspeed")
"""What counts steps: nothing yet, the hook of torch's optimizers (from 1), DeepSpeed's ``global_steps``."""

MOST_STEP = 1 << 40
"""A step beyond this is nonsense."""
MOST_NS = 1 << 62
"""A time beyond this is nonsense."""

_HEADER = struct.Struct("=%dQ" % (HEADER_WORDS - 8))
_RECORD = struct.Struct("=%dQ" % RECORD_WORDS)
_RENDEZVOUS = struct.Struct("=2Q")


class Malformed(ValueError):
    """These bytes are no ring."""


class Step(NamedTuple):
    """One step, and when it ended: nanoseconds on the node's wall clock, and on its monotonic one."""

    step: int
    wall_ns: int
    mono_ns: int


@dataclass(frozen=True)
class Ring:
    """What a ring says.

    :param ticks: start time of the process, which with its pid identifies it
    :param source: one of :data:`SOURCES`
    :param broken: why the hook has stopped writing; empty: it has not
    :param steps: those that are there, the oldest first
    :param marks: the same
    :param marks_since_ns: marks before this were overwritten; 0: none that were asked for
    :param rendezvous_ns: when it last began one, on the wall clock; 0: not known
    :param group_ns: when its process group was last there; the same
    """

    rank: int
    pid: int
    ticks: int
    source: str
    broken: str
    steps: Tuple[Step, ...]
    marks: Tuple[Mark, ...] = ()
    marks_since_ns: int = 0
    rendezvous_ns: int = 0
    group_ns: int = 0


class ProbeReport(Definition):
    """What the probe of a rank says about itself: its file has these fields, and so has the run record.

    :param server: why torch's server is not there; empty: it is
    :param handlers: of the server
    :param steps: why no steps are noted; empty: they are
    :param phases: why no phases of steps are, or not all of them; empty: they are
    :param window: why nsys does not record the steps that were asked for; empty: it does, or none were
    :param rendezvous: why that of its process group is not noted; empty: it is
    :param rendezvous_at: when it last began the rendezvous of its process group, unix seconds on its node's
        clock; None: it has not, or that is not noted
    :param group_at: when that group was last there; the same
    """

    rank: int = bound(RANK)
    pid: int = bound(PID)
    torch: str = bound(WORD, "")
    server: str = bound(SENTENCE, "")
    handlers: Tuple[str, ...] = bound(ListOf(WORD, 100), ())
    steps: str = bound(SENTENCE, "")
    phases: str = bound(SENTENCE, "")
    window: str = bound(SENTENCE, "")
    rendezvous: str = bound(SENTENCE, "")
    rendezvous_at: Optional[float] = maybe(TIME)
    group_at: Optional[float] = maybe(TIME)


def read(data: bytes, since_ns: int = 0) -> Ring:
    """The ring in these bytes.

    :param since_ns: only steps that ended after this, on the monotonic clock, and marks from there on
    :raises Malformed: they are none
    """
    if len(data) not in _VERSIONS:
        raise Malformed("%d bytes" % len(data))
    magic, version, rank, pid, ticks, source, count, broken = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise Malformed("it does not begin as one")
    if version != _VERSIONS[len(data)]:
        raise Malformed("version %d" % version)
    if source >= len(SOURCES):
        raise Malformed("source %d" % source)
    why = ""
    if broken:
        text = data[_HEADER.size : 8 * HEADER_WORDS].partition(b"\0")[0]
        why = text.decode("utf-8", "replace") or "it does not say why"
    found = tuple(_newest(data, count, since_ns))[::-1]
    marks, marks_since_ns = _marks(data, since_ns) if version > 1 else ((), 0)
    met = _RENDEZVOUS.unpack_from(data, RENDEZVOUS) if version > 2 else (0, 0)
    met = tuple(at if at <= MOST_NS else 0 for at in met)
    return Ring(rank, pid, ticks, SOURCES[source], why, found, marks, marks_since_ns, *met)


def seconds(steps: Sequence[Step], place: int) -> Optional[float]:
    """How long a step took: since the one before it ended, if that is there."""
    if not place or steps[place - 1].step + 1 != steps[place].step:
        return None
    return (steps[place].mono_ns - steps[place - 1].mono_ns) / 1e9


def spans(steps: Sequence[Step]) -> List[Optional[Tuple[int, int]]]:
    """When each step began and ended, monotonic nanoseconds; None: the one before it is not there."""
    found: List[Optional[Tuple[int, int]]] = [None] * min(1, len(steps))
    for before, step in zip(steps, steps[1:]):
        found.append((before.mono_ns, step.mono_ns) if before.step + 1 == step.step else None)
    return found


def _newest(data: bytes, count: int, since_ns: int) -> Iterator[Step]:
    """Records backwards in time, until one is older than asked for or out of order."""
    before = MOST_NS
    for number in range(count - 1, max(-1, count - 1 - CAPACITY), -1):
        step, wall, mono, check = _RECORD.unpack_from(
            data, 8 * HEADER_WORDS + number % CAPACITY * _RECORD.size
        )
        if step ^ wall ^ mono ^ MAGIC != check or step > MOST_STEP or wall > MOST_NS:
            continue  # half written, or not by our hook
        if mono <= since_ns or mono > before:
            return
        before = mono
        yield Step(step, wall, mono)


def _marks(data: bytes, since_ns: int) -> Tuple[Tuple[Mark, ...], int]:
    """Marks from a moment on, oldest first, and before which moment they were overwritten."""
    words = memoryview(data)[_STEPS_SIZE:].cast("Q")
    count, before = words[0], MOST_NS
    found: List[Mark] = []
    for number in range(count - 1, max(-1, count - 1 - MARKS), -1):
        word = words[1 + number % MARKS]
        mono = word >> (3 + LOADER_BITS)
        if mono < since_ns:
            return tuple(reversed(found)), 0
        if mono <= before:  # else it is not by our hook
            before = mono
            found.append(Mark(word & 7, word >> 3 & LOADERS - 1, mono))
    return tuple(reversed(found)), before if count > MARKS else 0
