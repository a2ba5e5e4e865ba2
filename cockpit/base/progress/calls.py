"""The last calls of a rank into packages that a person chose: a small file in memory, written by its probe.

It says where a rank was that answers nobody any more, or is dead. The file is :data:`SIZE` bytes, words of 64
bits in the machine's byte order: a header of :data:`HEADER_WORDS`, :data:`CAPACITY` records of
:data:`RECORD_WORDS`, and :data:`NAMES_SIZE` bytes of names, a line each: ``name TAB file TAB line``.

======  ==========================================================================================
word    of the header
======  ==========================================================================================
0, 1    :data:`MAGIC`; :data:`VERSION`
2, 3    the rank; its pid
4       start time of its process, in clock ticks since boot
5       Python's number of its main thread
6       how many calls were ever written; the next goes to that number modulo the capacity
7       how many bytes of names there are
8       1: there is no room for more names; later ones have the number 0
9       1: no calls are noted; the names are why, a sentence
======  ==========================================================================================

A record is when the call began (monotonic nanoseconds), Python's number of the thread, and which line of the
names it is, from 1. Nothing in it is believed: the rank's own program may write anything here.
"""

from __future__ import annotations

import struct
from typing import List, NamedTuple, Tuple

from cockpit.base.progress.ring import Malformed

MAGIC = 0x434B5054_43414C4C
VERSION = 1
HEADER_WORDS, RECORD_WORDS, CAPACITY = 16, 3, 4096
NAMES_SIZE = 256 << 10
_NAMES_AT = 8 * (HEADER_WORDS + RECORD_WORDS * CAPACITY)
SIZE = _NAMES_AT + NAMES_SIZE

SHOWN = 30
"""The last calls that are of interest."""

_HEADER = struct.Struct("=10Q")
_RECORD = struct.Struct("=3Q")


class Called(NamedTuple):
    """One call.

    :param mono_ns: when it began, on the node's monotonic clock
    :param main: whether in the main thread
    """

    mono_ns: int
    main: bool
    name: str
    file: str
    line: int


class Calls(NamedTuple):
    """What such a file says.

    :param ever: how many calls were ever noted
    :param why: why none are, or no more; empty: they are
    :param last: the newest first
    """

    rank: int
    pid: int
    ticks: int
    ever: int
    why: str
    last: Tuple[Called, ...]


def read(data: bytes, most: int = SHOWN) -> Calls:
    """The calls in these bytes.

    :raises Malformed: they are no such file
    """
    if len(data) != SIZE:
        raise Malformed("%d bytes" % len(data))
    magic, version, rank, pid, ticks, main, count, size, _, off = _HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise Malformed("it does not begin as one")
    names = data[_NAMES_AT : _NAMES_AT + min(size, NAMES_SIZE)].decode("utf-8", "replace").split("\n")
    found: List[Called] = []
    for number in range(count - 1, max(-1, count - 1 - min(most, CAPACITY)), -1):
        at = 8 * HEADER_WORDS + number % CAPACITY * _RECORD.size
        mono, thread, name = _RECORD.unpack_from(data, at)
        parts = names[name - 1].split("\t") if 0 < name <= len(names) else []
        if len(parts) != 3:
            parts = ["a function without a name here", "", "0"]
        line = int(parts[2]) if parts[2].isascii() and parts[2].isdigit() and len(parts[2]) < 9 else 0
        found.append(Called(mono, thread == main, parts[0][:200], parts[1][:1000], line))
    return Calls(rank, pid, ticks, count, names[0][:500] if off else "", tuple(found))
