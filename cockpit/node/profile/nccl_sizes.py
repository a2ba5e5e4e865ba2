"""What NCCL says of its calls in NVTX ranges of an nsys report: sizes, communicators.

NCCL attaches a payload to each range. ``nsys export --include-blobs=true`` writes it to
``NVTX_EVENTS.binaryData``, after a header of 32 bytes (domain, a word, schema, a word as u32; bytes of the
payload and of all as u64; little-endian). Tables ``NVTX_PAYLOAD_SCHEMAS`` and ``NVTX_PAYLOAD_SCHEMA_ENTRIES``
say where its fields are. As Nsight 2026 writes it, read by the open-source nsys-ai; not seen on a machine.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_left, bisect_right
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from cockpit.base.gate import RANK_LIMIT, SIZE

HEADER = struct.Struct("<IIIIQQ")
MOST_BLOB = 4096
"""Bytes of one: NCCL's have some 60."""
_FIELDS = 64
_WORDS = {5: struct.Struct("<I"), 18: struct.Struct("<Q"), 22: struct.Struct("<Q")}
"""Types of fields that are read: u32, u64, size."""
_MESSAGE, _GROUP, _RANKS = "Message size [bytes]", "NCCL communicator ID", "No. of ranks"

CALL = re.compile(r"nccl(AllReduce|AllGather|ReduceScatter|Broadcast|Bcast|Reduce|AlltoAll|Send|Recv)\b")
"""Ranges of calls that move data."""
GROUP_END = "ncclGroupEnd"

Key = Tuple[int, int]
"""Domain and schema."""


class MessageSize(NamedTuple):
    """What one payload says.

    :param size: bytes of the message; None: nothing
    :param group: the communicator, the same number on all of its ranks; 0: not known
    :param ranks: of it; 0: not known
    """

    size: Optional[int]
    group: int
    ranks: int


class Payloads:
    """How payloads are to be read.

    :param entries: rows of NVTX_PAYLOAD_SCHEMA_ENTRIES: domain, schema, type, name, offset; nothing of them
        is believed
    """

    def __init__(self, entries: Iterable[Tuple[Any, ...]]) -> None:
        self._fields: Dict[Key, List[Tuple[str, struct.Struct, int]]] = {}
        for domain, schema, kind, name, offset in entries:
            word = _WORDS.get(kind) if type(kind) is int else None
            offset = 0 if offset is None else offset
            if word is None or not isinstance(name, str) or name not in (_MESSAGE, _GROUP, _RANKS):
                continue
            whole = type(domain) is int and type(schema) is int and type(offset) is int
            if whole and 0 <= offset < MOST_BLOB:
                fields = self._fields.setdefault((domain, schema), [])
                if len(fields) < _FIELDS:
                    fields.append((name, word, offset))

    def __bool__(self) -> bool:
        return bool(self._fields)

    def read(self, blob: Any) -> Optional[MessageSize]:
        """What a payload says; None: nothing of NCCL's, or it is damaged."""
        if not isinstance(blob, bytes) or not HEADER.size <= len(blob) <= MOST_BLOB:
            return None
        domain, _, schema, _, size, _ = HEADER.unpack_from(blob)
        fields = self._fields.get((domain, schema))
        if fields is None or size > len(blob) - HEADER.size:
            return None
        found = {
            name: word.unpack_from(blob, HEADER.size + offset)[0]
            for name, word, offset in fields
            if offset + word.size <= size
        }
        message, ranks = found.get(_MESSAGE), found.get(_RANKS, 0)
        if message is not None and message > SIZE.most:
            return None
        return MessageSize(message, found.get(_GROUP, 0), ranks if ranks <= RANK_LIMIT else 0)


class Range(NamedTuple):
    """A call of NCCL on a thread: its times, its name as in :data:`CALL`, what its payload says."""

    start: int
    end: int
    name: str
    size: Optional[int]
    group: int


class Matched(NamedTuple):
    """The call that started a kernel: size of its messages; 0: not known."""

    size: int
    group: int


class Thread:
    """NCCL's ranges of a thread, and which of them started which kernel.

    A kernel is started within its call; in a group, within the ``ncclGroupEnd`` after its calls.
    """

    def __init__(self) -> None:
        self.calls: List[Range] = []
        self.ends: List[Tuple[int, int]] = []
        """When each ncclGroupEnd began and ended."""

    def match(self, launches: Iterable[Tuple[int, int]]) -> Dict[int, Matched]:
        """By kernel: the call that started it.

        :param launches: when each kernel was started, and its number
        """
        self.calls.sort(key=lambda one: (one.start, -one.end))
        self.ends.sort()
        found: Dict[int, Matched] = {}
        grouped: Dict[int, List[int]] = {}
        place = group = 0
        within: List[Range] = []
        for at, number in sorted(launches):
            while place < len(self.calls) and self.calls[place].start <= at:
                within.append(self.calls[place])
                place += 1
            while within and within[-1].end < at:
                within.pop()
            if within:
                found[number] = Matched(within[-1].size or 0, within[-1].group)
                continue
            while group < len(self.ends) and self.ends[group][1] < at:
                group += 1
            if group < len(self.ends) and self.ends[group][0] <= at:
                grouped.setdefault(group, []).append(number)
        starts = [one.start for one in self.calls]
        for group, numbers in grouped.items():
            since = self.ends[group - 1][1] if group else -1
            first, last = bisect_left(starts, since), bisect_right(starts, self.ends[group][0])
            found.update(_of_group(self.calls[first:last], numbers))
        return found


def _of_group(calls: Sequence[Range], numbers: Sequence[int]) -> Dict[int, Matched]:
    """Kernels that one ncclGroupEnd started, in order: each of one call, or one of all."""
    if len(calls) == len(numbers):
        return {number: Matched(one.size or 0, one.group) for number, one in zip(numbers, calls)}
    groups, names = {one.group for one in calls}, {one.name for one in calls}
    group = groups.pop() if len(groups) == 1 else 0
    alone = len(numbers) == len(names) == 1
    size = sum(one.size or 0 for one in calls) if alone else 0
    return {number: Matched(SIZE.nearest(size), group) for number in numbers}
