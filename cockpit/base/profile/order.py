"""The last page of a rank's ring: an order for a profile, and what became of it.

An agent writes the order, the rank's hook reads it as its next step ends; the number comes last, and a hook
that finds a new one checks all of it. The hook answers on the same page. Neither waits for the other: a hook
that comes too late for the first step says so, one past the deadline ends what it does. The rank's own
program may write anything here: no answer is believed.

==========  ======================================================================================
word        of the order, written by the agent
==========  ======================================================================================
0           its number, never one that was there before; 0: there has been none
1, 2        the first step that is profiled, and how many
3           options: a sum of :data:`SHAPES`, :data:`STACK`, :data:`MEMORY`
4           deadline, monotonic nanoseconds
5           XOR of words 0 to 4 with :data:`MAGIC`
6           the number of an order that is cancelled
8-15        the collection's id, ASCII, ended by a zero byte
==========  ======================================================================================

==========  ======================================================================================
word        of the answer, written by the hook; times in nanoseconds
==========  ======================================================================================
16          the number of the order; written last where a new one is taken up
17          a place in :data:`STATES`
18, 19      when the profile began: wall clock, monotonic
20, 21      when it ended, before the profiler was stopped
22          how long stopping it, and then saving what it has, held the rank up
23          how long the profiler's first start took, before any step that is profiled
24          bytes of the file
25          the last step that is in it
32-63       why it was refused or failed, UTF-8, ended by a zero byte
==========  ======================================================================================
"""

from __future__ import annotations

import struct
from typing import NamedTuple

MAGIC = 0x434B5054_4F524452
WORDS = 512
"""Of 64 bits: a page."""
SIZE = 8 * WORDS

SHAPES, STACK, MEMORY = 1, 2, 4

STATES = (
    "",
    "ready",
    "profiling",
    "stopping",
    "writing",
    "written",
    "missed",
    "refused",
    "failed",
    "cancelled",
)
"""``ready``: the order was read, and the profiler has had its first start; ``missed``: the first step had
begun; ``cancelled``: by whoever ordered it, or past the deadline."""
OVER = frozenset(STATES[5:])
"""Those that are final."""

_ORDER = struct.Struct("=8Q")
_ANSWER = struct.Struct("=10Q")
_ANSWER_AT, _ID_AT, _WHY_AT = 8 * 16, 8 * 8, 8 * 32
_WHY, _ID_SIZE = 256, 64


class Order(NamedTuple):
    """A profile that is ordered: exactly these steps."""

    number: int
    first: int
    steps: int
    options: int
    deadline_ns: int
    id: str


class Answer(NamedTuple):
    """What became of one; see the table above. ``number`` 0: nothing was ordered yet."""

    number: int
    state: str
    began_wall_ns: int
    began_ns: int
    ended_wall_ns: int
    ended_ns: int
    stop_ns: int
    warm_ns: int
    size: int
    last: int
    why: str


def packed(order: Order) -> bytes:
    """The words 1 to 15 of an order; word 0, its number, is to be written after these."""
    five = order.number ^ order.first ^ order.steps ^ order.options ^ order.deadline_ns ^ MAGIC
    words = _ORDER.pack(order.number, order.first, order.steps, order.options, order.deadline_ns, five, 0, 0)
    return words[8:] + order.id.encode("ascii").ljust(_ID_SIZE, b"\0")


def answer(page: bytes) -> Answer:
    """What a page says; a state that there is not is ``failed``."""
    words = list(_ANSWER.unpack_from(page, _ANSWER_AT))
    state = STATES[words[1]] if words[1] < len(STATES) else "failed"
    why = page[_WHY_AT : _WHY_AT + _WHY].partition(b"\0")[0].decode("utf-8", "replace")
    return Answer._make([words[0], state, *words[2:], why])


def number(page: bytes) -> int:
    """Of the newest order."""
    return int(struct.unpack_from("=Q", page)[0])
