"""What is kept of the events of a rank, until they are summed up: of each a few integers."""

from __future__ import annotations

import hashlib
import re
from array import array
from typing import Dict, Iterable, List, NamedTuple, Tuple

DATA, COMPUTE, COMMUNICATION = "data", "compute", "communication"
COPY, PYTHON, SYSTEM, SAMPLE, OTHER = "copy", "python", "system", "sample", "other"

OPERATOR, ANNOTATION, FUNCTION, RUNTIME, KERNEL, COPYING, CALL, RUNNING = range(8)
"""Categories of events: an operator of torch, a range that the program marks, a function of Python, a call of
CUDA's API, a kernel, a copy, a call of the operating system, time of a thread outside of such calls."""
OF_GPU = (KERNEL, COPYING)

_LOADER = re.compile(r"enumerate\(DataLoader\)#.*__next__\Z", re.DOTALL)
_BACK_ENDS = ("gloo:", "mpi:", "ucc:")
"""So begin annotations of collectives that the CPU carries out; those of NCCL last as long as the call."""
_STARTS = re.compile(r"c10d::|_?c10d_functional::|record_param_comms\Z|nccl:")
"""Operators that only start collectives, or wait for them."""
_KERNELS = re.compile(r"(?:void )?(?:nccl|rccl|nvshmem|deep_ep::)")
"""Kernels that are collectives."""
READS = frozenset(("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero"))
"""Operators that read a number, which one rank of many does to print it."""

_COLLECTIVES = tuple(
    (re.compile(symbol, re.IGNORECASE), name)
    for symbol, name in (
        ("all_?reduce", "all_reduce"), ("all_?gather", "all_gather"), ("all_?to_?all", "all_to_all"),
        ("reduce_?scatter", "reduce_scatter"), ("broadcast", "broadcast"), ("barrier", "barrier"),
        ("send_?recv", "send_recv"), ("reduce", "reduce"), ("gather", "gather"), ("scatter", "scatter"),
        ("send", "send"), ("recv", "recv"),
    )
)  # fmt: skip
PAIRWISE = frozenset(("send", "recv", "send_recv"))

NAME = 200
"""Characters of a name."""
MOST_CALLS = 100_000
"""Collectives that are kept."""
_NAMES = 50_000
_LANES, _MARKS = 10_000, 10_000

Where = Tuple[bool, str, str]
"""Whether it is a GPU's; process, and thread or stream."""


class Lane:
    """The events of one thread, or of one stream of a GPU: when each began, how long it took, its name."""

    def __init__(self, gpu: bool) -> None:
        self.gpu = gpu
        self.starts, self.lengths, self.names = array("q"), array("q"), array("H")


class Named(NamedTuple):
    """A name that events have.

    :param kind: see :class:`cockpit.base.profile.summary.Operation`
    """

    text: str
    kind: str
    category: int


class Call(NamedTuple):
    """A collective.

    :param same: what it is on all of its ranks; ``numbered``: it has a number that its group counts, and
        is the only one of this
    :param sized: the trace has the sizes of its tensors
    """

    start: int
    length: int
    lane: Where
    op: str
    group: str
    same: str
    numbered: bool
    sized: bool
    size: int
    ranks: int


class Mark(NamedTuple):
    """The annotation of a step."""

    start: int
    length: int
    step: int
    lane: Where


class RankEvents:
    """What is kept of the events of a rank."""

    def __init__(self) -> None:
        self.lanes: Dict[Where, Lane] = {}
        self.names: List[Named] = []
        self.marks: List[Mark] = []
        self.calls: List[Call] = []
        self.unusable = self.unnamed = self.calls_left = self.graphs = 0
        self._numbers: Tuple[Dict[str, int], ...] = tuple({} for _ in range(8))
        self._ops: Dict[str, str] = {}

    def add(self, category: int, start: int, length: int, where: Where, text: str) -> bool:
        """Keep an event; it is unusable if there are too many threads.

        :return: whether it is a collective that a kernel or an annotation names: see :meth:`call`
        """
        lane = self.lanes.get(where)
        if lane is None:
            if len(self.lanes) >= _LANES:
                self.unusable += 1
                return False
            lane = self.lanes[where] = Lane(where[0])
        if len(text) > NAME:
            # Names of kernels may differ at their ends only.
            text = "%s… %s" % (text[: NAME - 10], hashed([text])[:8])
        numbers = self._numbers[category]
        number = numbers.get(text)
        if number is None:
            if len(self.names) >= _NAMES:
                self.unnamed += 1
                text = "(other names)"
            number = numbers.get(text)
            if number is None:
                number = numbers[text] = len(self.names)
                self.names.append(Named(text, _kind(text, category), category))
        lane.starts.append(start)
        lane.lengths.append(length)
        lane.names.append(number)
        return category in (KERNEL, ANNOTATION) and self.names[number].kind == COMMUNICATION

    def mark(self, start: int, length: int, step: int, where: Where) -> bool:
        """Keep a step; whether there is room for it."""
        if len(self.marks) >= _MARKS:
            return False
        self.marks.append(Mark(start, length, step, where))
        return True

    def call(self, call: Call) -> None:
        """Keep a collective, if there is room for it."""
        if len(self.calls) >= MOST_CALLS:
            self.calls_left += 1
            return
        self.calls.append(call)

    def op(self, name: str) -> str:
        """What a collective is called here, whatever a kernel or a back end calls it."""
        op = self._ops.get(name)
        if op is None:
            op = next((name_ for pattern, name_ in _COLLECTIVES if pattern.search(name)), name)[:NAME]
            if len(self._ops) < 1000:
                self._ops[name] = op
        return op


def _kind(text: str, category: int) -> str:
    if category == OPERATOR:
        return COMMUNICATION if _STARTS.match(text) else COMPUTE
    if category == ANNOTATION:
        if _LOADER.match(text):
            return DATA
        return COMMUNICATION if text.startswith(_BACK_ENDS) else OTHER
    if category == KERNEL:
        return COMMUNICATION if _KERNELS.match(text) else COMPUTE
    return {FUNCTION: PYTHON, COPYING: COPY, CALL: SYSTEM, RUNNING: COMPUTE}.get(category, OTHER)


def hashed(texts: Iterable[str]) -> str:
    """A hash over texts, in hexadecimal digits."""
    return hashlib.sha256("\n".join(texts).encode("utf-8", "replace")).hexdigest()
