"""The evidence that a supervisor keeps, as a file: written on the node, read here within bounds.

The file is one line, a JSON object, and then bytes: of each rank in ``stacks`` a packed dump, of each in
``recorders`` its packed traces, as long as that line says.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Optional, Sequence, Tuple

from cockpit.base import gate
from cockpit.base.gate import Definition, ListOf, Malformed, Of, RowOf, Text, Whole, bound, maybe, read

FORMAT = 1
"""Version of the file; a reader refuses a newer one."""

LIMIT = 20 << 20
"""Bytes of one file."""

FILES = 200
"""Files of one run on one node."""

REASONS = "stall|failure|asked"
"""Why it was kept."""

NAME = r"\d{8}-\d{6}(?:-\d{1,3})?-(?:%s)\.evidence" % REASONS
FILE = Text(60, r"(?:%s)?" % NAME)
"""The name of such a file; empty: there is none."""

_HEAD = 1 << 20
_PART = Whole(0, LIMIT)
_NAME = re.compile(NAME)


class StackPart(Definition):
    """The packed dump of a rank, so many bytes."""

    rank: int = bound(gate.RANK)
    size: int = bound(_PART)


class RecorderPart(Definition):
    """What the recorder of a rank has: when it was asked, and packed traces of so many bytes each.

    :param source: ``server``, or ``file``: what NCCL's watchdog wrote before the rank ended
    """

    rank: int = bound(gate.RANK)
    at: float = bound(gate.TIME)
    source: str = bound(gate.WORD, "")
    lengths: Tuple[int, ...] = bound(ListOf(_PART, 10), ())


class StepPart(Definition):
    """The last step of a rank, by its probe: when it ended, and how long a step of it usually takes."""

    rank: int = bound(gate.RANK)
    step: int = bound(gate.COUNT)
    at: float = bound(gate.TIME)
    usual_s: Optional[float] = maybe(gate.SECONDS)


class Head(Definition):
    """The first line. Times are unix seconds on the node's clock.

    :param t: when it was begun
    :param why: see :data:`REASONS`
    :param since: since when the ranks had stood still
    :param failed: ranks whose end was the reason
    :param trouble: what is missing, and why
    """

    format: int = bound(gate.COUNT)
    t: float = bound(gate.TIME)
    why: str = bound(Text(20, REASONS))
    boot_id: str = bound(gate.WORD, "")
    run: str = bound(gate.WORD, "")
    node: str = bound(Text(255), "")
    since: Optional[float] = maybe(gate.TIME)
    failed: Tuple[int, ...] = bound(gate.RANKS, ())
    took_s: float = bound(gate.SECONDS, 0.0)
    trouble: Tuple[str, ...] = bound(ListOf(gate.SENTENCE, 20), ())
    steps: Tuple[StepPart, ...] = bound(ListOf(RowOf(StepPart), gate.RANKS_A_NODE), ())
    stacks: Tuple[StackPart, ...] = bound(ListOf(RowOf(StackPart), gate.RANKS_A_NODE), ())
    recorders: Tuple[RecorderPart, ...] = bound(ListOf(Of(RecorderPart), gate.RANKS_A_NODE), ())


class EvidenceFile(Definition):
    """A file's content, its parts still packed."""

    head: Head
    stacks: Tuple[bytes, ...]
    recorders: Tuple[Tuple[bytes, ...], ...]


def is_name(name: str) -> bool:
    """Whether a file of this name is evidence."""
    return _NAME.fullmatch(name) is not None


def written(
    head: Dict[str, Any],
    stacks: Sequence[Tuple[int, bytes]],
    recorders: Sequence[Tuple[Dict[str, Any], bytes]],
) -> bytes:
    """The content of a file.

    :param stacks: by rank a packed dump
    :param recorders: what a node's agent says of a recorder, and its traces
    """
    told = dict(head, stacks=[[rank, len(data)] for rank, data in stacks])
    told["recorders"] = [
        {name: item[name] for name in ("rank", "at", "source", "lengths")} for item, _ in recorders
    ]
    parts = [
        json.dumps(told).encode() + b"\n",
        *(data for _, data in stacks),
        *(data for _, data in recorders),
    ]
    return b"".join(parts)


def parsed(data: bytes) -> EvidenceFile:
    """What is in a file.

    :raises Malformed: it is something else, or a newer cockpit wrote it
    """
    line, end, _ = data[:_HEAD].partition(b"\n")
    if not end:
        raise Malformed("no first line")
    try:
        told = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        raise Malformed("its first line is invalid: %s" % str(error)[:100]) from None
    head = read(Head, told)
    if head.format > FORMAT:
        raise Malformed("written by a newer cockpit")
    place = len(line) + 1
    sizes = [one.size for one in head.stacks] + [size for one in head.recorders for size in one.lengths]
    if place + sum(sizes) != len(data):
        raise Malformed("%d bytes, and its first line says %d" % (len(data), place + sum(sizes)))
    parts: List[bytes] = []
    for size in sizes:
        parts.append(data[place : place + size])
        place += size
    stacks, others = parts[: len(head.stacks)], iter(parts[len(head.stacks) :])
    traces = tuple(tuple(next(others) for _ in one.lengths) for one in head.recorders)
    return EvidenceFile(head, tuple(stacks), traces)
