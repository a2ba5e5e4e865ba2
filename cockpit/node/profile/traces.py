"""Sum up the trace that torch's profiler wrote for a rank: ``sum FILE``.

On stdout comes JSON: the fields of :class:`cockpit.base.profile.summary.RankProfile` that the trace can
tell, and the file's checksum, which takes as long as its program made it large. Of each event a few integers
are kept, so a file of 150 MB takes some 60 MB; see :mod:`cockpit.node.profile.events` for what is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from array import array
from bisect import bisect_right
from typing import IO, Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from cockpit.base.gate import COUNT, RANK_LIMIT, SIZE
from cockpit.base.profile.summary import LENGTH, MOST_COLLECTIVES, MOST_OPERATIONS, NS
from cockpit.base.shared_fields import PROFILE_STEPS
from cockpit.node import safefiles
from cockpit.node.profile.events import MOST_BYTES, MOST_EVENTS, BadTrace, Trace
from cockpit.node.profile.union import Union

DATA, COMPUTE, COMMUNICATION = "data", "compute", "communication"
COPY, PYTHON, OTHER = "copy", "python", "other"

_OPERATOR, _ANNOTATION, _FUNCTION, _RUNTIME, _KERNEL, _COPY = range(6)
_CATEGORIES = {
    "cpu_op": _OPERATOR,
    "user_annotation": _ANNOTATION,
    "python_function": _FUNCTION,
    "cuda_runtime": _RUNTIME,
    "cuda_driver": _RUNTIME,
    "kernel": _KERNEL,
    "gpu_memcpy": _COPY,
    "gpu_memset": _COPY,
    # Before torch 2.0.
    "Operator": _OPERATOR,
    "Runtime": _RUNTIME,
    "Kernel": _KERNEL,
    "Memcpy": _COPY,
    "Memset": _COPY,
}
"""Of events with a length, as Kineto names them. Others are about the profiler, or repeat these."""
_OF_GPU = (_KERNEL, _COPY)

_STEP = re.compile(r"ProfilerStep#([0-9]{1,12})\Z")
_LOADER = re.compile(r"enumerate\(DataLoader\)#.*__next__\Z", re.DOTALL)
_BACK_ENDS = ("gloo:", "mpi:", "ucc:")
"""So begin annotations of collectives that the CPU carries out; those of NCCL last as long as the call."""
_STARTS = re.compile(r"c10d::|_?c10d_functional::|record_param_comms\Z|nccl:")
"""Operators that only start collectives, or wait for them."""
_KERNELS = re.compile(r"(?:void )?(?:nccl|rccl|nvshmem|deep_ep::)")
"""Kernels that are collectives."""
_NCCL_KERNEL = re.compile(r"nccl(?:Dev)?Kernel_([A-Za-z]+)")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_READS = frozenset(("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero"))
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
_PAIRWISE = frozenset(("send", "recv", "send_recv"))
_UNTITLED = "undefined"
"""How torch describes a group of which its program says nothing."""
_BYTES = {
    "double": 8, "long": 8, "float": 4, "int": 4, "half": 2, "bfloat16": 2, "short": 2, "byte": 1, "char": 1,
    "bool": 1, "complex<float>": 8, "complex<double>": 16, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
"""Of one element, by torch's names, without C++'s ``c10::``, ``int`` and ``unsigned``."""

_NAME, _NAMES = 200, 50_000
_LANES, _MARKS, _CALLS = 10_000, 10_000, 100_000
_SHOWN = 100
"""Characters of the sizes of a collective."""
_BITS, _NAME_BITS = 53, 16
_NICE = 10
_CHUNK = 1 << 20
_BESIDE = frozenset(("baseTimeNanoseconds", "distributedInfo", "cockpit"))


def main(argv: List[str]) -> int:
    """Sum up the file, print JSON; a sentence on stderr and 1 if that cannot be done."""
    os.nice(_NICE)
    try:
        with os.fdopen(safefiles.opened(argv[0]), "rb") as file:
            found = summed(file)
            found["sha256"] = _sha256(file)
    except BadTrace as error:
        return _failed(str(error))
    except OSError as error:
        return _failed(error.strerror or str(error))
    except MemoryError:
        return _failed("there is not enough memory for it")
    sys.stdout.write(json.dumps(found, separators=(",", ":")))
    sys.stdout.flush()
    return 0


def _sha256(file: IO[bytes]) -> str:
    """Of all of it."""
    digest = hashlib.sha256()
    file.seek(0)
    for chunk in iter(lambda: file.read(_CHUNK), b""):
        digest.update(chunk)
    return digest.hexdigest()


def _failed(why: str) -> int:
    sys.stderr.write("cockpit: the trace cannot be read: %s\n" % why)
    return 1


def summed(
    file: IO[bytes], *, most_bytes: int = MOST_BYTES, most_events: int = MOST_EVENTS
) -> Dict[str, Any]:
    """What the trace tells, as JSON.

    :param file: open for reading, at its start; packed with gzip or not
    :raises BadTrace: it is none, or too large
    :raises OSError: it cannot be read
    """
    trace = Trace(file, _BESIDE, most_bytes=most_bytes, most_events=most_events)
    kept = _Kept()
    for event in trace.events():
        if event.get("ph") == "X":
            kept.add(event)
    return _Sum(kept, trace).told()


class _Lane:
    """The events of one thread, or of one stream of a GPU: when each began, how long it took, its name."""

    def __init__(self, gpu: bool) -> None:
        self.gpu = gpu
        self.starts, self.lengths, self.names = array("q"), array("q"), array("H")


class _Named(NamedTuple):
    """A name that events have.

    :param kind: see :class:`cockpit.base.profile.summary.Operation`
    """

    text: str
    kind: str
    category: int


class _Call(NamedTuple):
    """A collective.

    :param same: what it is on all of its ranks; ``numbered``: it has a number that its group counts, and
        is the only one of this
    :param sized: the trace has the sizes of its tensors
    """

    start: int
    length: int
    lane: Tuple[bool, str, str]
    op: str
    group: str
    same: str
    numbered: bool
    sized: bool
    size: int
    ranks: int


class _Mark(NamedTuple):
    """The annotation of a step."""

    start: int
    length: int
    step: int
    lane: Tuple[bool, str, str]


class _Kept:
    """What is kept of the events."""

    def __init__(self) -> None:
        self.lanes: Dict[Tuple[bool, str, str], _Lane] = {}
        self.names: List[_Named] = []
        self.marks: List[_Mark] = []
        self.calls: List[_Call] = []
        self.unusable = self.unnamed = self.calls_left = self.graphs = 0
        self._numbers: Tuple[Dict[str, int], ...] = tuple({} for _ in range(6))
        self._ops: Dict[str, str] = {}

    def add(self, event: Dict[str, Any]) -> None:
        """Keep one; it is unusable if its numbers are none."""
        category = event.get("cat")
        place = _CATEGORIES.get(category) if isinstance(category, str) else None
        if place is None:
            return
        start, length = nanoseconds(event.get("ts")), nanoseconds(event.get("dur"))
        text, pid, tid = event.get("name"), event.get("pid"), event.get("tid")
        if start is None or length is None or length > LENGTH.most:
            self.unusable += 1
            return
        if not (isinstance(text, str) and isinstance(pid, str) and isinstance(tid, str)):
            self.unusable += 1
            return
        where = (place in _OF_GPU, pid[:40], tid[:40])
        lane = self.lanes.get(where)
        if lane is None:
            if len(self.lanes) >= _LANES:
                self.unusable += 1
                return
            lane = self.lanes[where] = _Lane(where[0])
        if place == _ANNOTATION and text.startswith("ProfilerStep#"):
            found = _STEP.match(text)
            if found and len(self.marks) < _MARKS:
                self.marks.append(_Mark(start, length, int(found.group(1)), where))
                return
        if len(text) > _NAME:
            # Names of kernels may differ at their ends only.
            text = "%s… %s" % (text[: _NAME - 10], _hash([text])[:8])
        elif place == _FUNCTION and " at 0x" in text:
            text = _ADDRESS.sub("", text)
        numbers = self._numbers[place]
        number = numbers.get(text)
        if number is None:
            if len(self.names) >= _NAMES:
                self.unnamed += 1
                text = "(other names)"
            number = numbers.get(text)
            if number is None:
                number = numbers[text] = len(self.names)
                self.names.append(_Named(text, _kind(text, place), place))
        lane.starts.append(start)
        lane.lengths.append(length)
        lane.names.append(number)
        if place in (_KERNEL, _ANNOTATION):
            args = event.get("args")
            details = args if isinstance(args, dict) else {}
            if place == _KERNEL and (_whole(details.get("graph node id")) or _whole(details.get("graph id"))):
                self.graphs += 1
            if self.names[number].kind == COMMUNICATION:
                self._call(start, length, where, text, details)

    def _call(
        self, start: int, length: int, lane: Tuple[bool, str, str], text: str, args: Dict[str, Any]
    ) -> None:
        if len(self.calls) >= _CALLS:
            self.calls_left += 1
            return
        if lane[0]:
            symbol = _NCCL_KERNEL.match(text)
            name = _text(args.get("Collective name")) or (symbol.group(1) if symbol else text)
            shapes, elements = "", _whole(args.get("In msg nelems"))
            size = elements * _bytes(_text(args.get("dtype")))
            shapes = str(elements) if elements else ""
        else:
            name = text.partition(":")[2]
            dims, types = args.get("Input Dims"), args.get("Input type")
            shapes = _shapes(dims)
            size = _size(dims, types)
        op = self._ops.get(name)
        if op is None:
            op = next((name_ for pattern, name_ in _COLLECTIVES if pattern.search(name)), name)[:_NAME]
            if len(self._ops) < 1000:
                self._ops[name] = op
        group = _text(args.get("Process Group Name"))[:60]
        title = _text(args.get("Process Group Description"))[:60]
        number = _text(args.get("Seq"))[:20] if group else ""
        ends = [_text(args.get(name))[:20] for name in ("Src Rank", "Dst Rank")]
        if op in _PAIRWISE:
            # Each rank counts these by itself.
            number = ""
        same = " ".join((group, number)) if number else " ".join(one for one in (group, op, shapes) if one)
        if op in _PAIRWISE and all(ends):
            same = " ".join((group, ">".join(ends), shapes))
        ranks = _whole(args.get("Group size"))
        self.calls.append(
            _Call(
                start, length, lane, op, group if title in ("", _UNTITLED) else title + " " + group,
                same, bool(number), bool(shapes), SIZE.nearest(size), ranks if ranks <= RANK_LIMIT else 0,
            )
        )  # fmt: skip


class _Step(NamedTuple):
    number: int
    begin: int
    end: int


class _Sum:
    """The sum of what was kept."""

    def __init__(self, kept: _Kept, trace: Trace) -> None:
        self._kept, self._events = kept, trace.count
        beside = trace.beside
        self._base = _whole(beside.get("baseTimeNanoseconds"))
        self._spread = _object(beside.get("distributedInfo"))
        self._ours = _object(beside.get("cockpit"))
        self._notes: List[str] = []
        self._gpu = any(name.category == _KERNEL for name in kept.names)
        self._steps = self._bounds()
        self._low, self._high = self._steps[0].begin, self._steps[-1].end
        # Numbers of names follow the order of events; what comes of a trace must not.
        order = sorted(range(len(kept.names)), key=lambda one: kept.names[one])
        self._named = [kept.names[one] for one in order]
        self._ranked = array("H", bytes(2 * len(order)))
        for place, one in enumerate(order):
            self._ranked[one] = place
        self._kinds = [[self._span_kind(name, gpu) for name in self._named] for gpu in (False, True)]
        self._starting = bytes(
            name.kind == COMMUNICATION and name.category == _OPERATOR for name in self._named
        )
        self._own, self._counts = [0] * len(order), [0] * len(order)
        self._training = {mark.lane for mark in kept.marks}

    def told(self) -> Dict[str, Any]:
        """All that the trace tells, as JSON."""
        parts: Dict[str, List[Union]] = {DATA: [], COMPUTE: [], COMMUNICATION: []}
        for where in sorted(self._kept.lanes):
            # The main thread is one, where a thread of autograd steps the optimizer.
            training = not self._training or where in self._training or where[1] == where[2]
            for kind, spans in self._lane(self._kept.lanes.pop(where)).items():
                if training or kind != DATA:
                    parts[kind].append(spans)
        data, compute, communication = (Union.of(parts.pop(kind)) for kind in list(parts))
        busy = Union.of((data, compute))
        steps = self._times(data, compute, communication, busy)
        calls = self._collectives(busy)
        used = [one for one in range(len(self._named)) if self._own[one] or self._counts[one]]
        used.sort(key=lambda one: (-self._own[one], one))
        rows = [
            [
                self._named[one].text,
                self._kind(self._named[one]),
                LENGTH.nearest(self._own[one]),
                self._counts[one],
            ]
            for one in used[:MOST_OPERATIONS]
        ]
        self._note_the_rest(calls)
        backend = _text(self._spread.get("backend"))[:100]
        return {
            "device": "gpu" if self._gpu else "cpu",
            "backend": backend,
            "torch": _text(self._ours.get("torch"))[:100],
            "steps": steps,
            "operations": rows,
            "operations_all": len(used),
            "names": self._names(used),
            "collectives": calls[:MOST_COLLECTIVES],
            "collectives_all": len(calls) + self._kept.calls_left,
            "events": self._events,
            "notes": self._notes,
        }

    def _bounds(self) -> List[_Step]:
        """The steps; each lasts until the next one begins."""
        first, steps = _whole(self._ours.get("first")), _whole(self._ours.get("steps"))
        marks: List[_Mark] = []
        seen = set()
        for mark in sorted(self._kept.marks):
            if mark.step not in seen and mark.length:
                seen.add(mark.step)
                marks.append(mark)
        if not marks:
            lanes = [lane for lane in self._kept.lanes.values() if lane.starts]
            if not lanes:
                raise BadTrace("it has no operation in it")
            begin = min(min(lane.starts) for lane in lanes)
            end = max(max(map(int.__add__, lane.starts, lane.lengths)) for lane in lanes)
            self._notes.append("the trace does not mark its steps: it is summed up as if it were one step")
            return [_Step(COUNT.nearest(first), begin, max(end, begin + 1))]
        found = [
            _Step(mark.step, mark.start, following.start if following else mark.start + mark.length)
            for mark, following in zip(marks, [*marks[1:], None])
        ]
        found = [
            step._replace(end=min(step.end, step.begin + LENGTH.most))
            for step in found
            if step.end > step.begin
        ]
        if len(found) > PROFILE_STEPS:
            self._notes.append("only the first %d of %d steps are summed up" % (PROFILE_STEPS, len(found)))
            found = found[:PROFILE_STEPS]
        elif steps > len(found):
            self._notes.append("%d of %d steps are in the trace" % (len(found), steps))
        return found

    def _lane(self, lane: _Lane) -> Dict[str, Union]:
        """Count own times and calls; return what is covered by each kind. The lane is empty then."""
        mask, names = (1 << _BITS) - 1, (1 << _NAME_BITS) - 1
        low, high, ranked, own, counts = self._low, self._high, self._ranked, self._own, self._counts
        # By begin, the longer one first: it is outside. One integer each takes little memory.
        order = [
            (start << _BITS | mask - length) << _NAME_BITS | ranked[name]
            for start, length, name in zip(lane.starts, lane.lengths, lane.names)
        ]
        order.sort()
        del lane.starts[:], lane.lengths[:], lane.names[:]
        spans = {DATA: Union(), COMPUTE: Union(), COMMUNICATION: Union()}
        kinds = self._kinds[lane.gpu]
        waiting = self._waiting(order)
        open_ends: List[int] = []
        open_names: List[int] = []
        for place, one in enumerate(order):
            name = one & names
            begin = one >> _BITS + _NAME_BITS
            end = begin + mask - (one >> _NAME_BITS & mask)
            kind = kinds[name]
            if kind is not None and not (kind == COMPUTE and waiting and waiting[place]):
                spans[kind].add(begin, end)
            if low <= begin < high:
                counts[name] += 1
            begin, end = max(begin, low), min(end, high)
            if end <= begin:
                continue
            own[name] += end - begin
            if lane.gpu:
                continue
            # Each moment belongs to what began last. Annotations may end in the middle of others; what ends
            # before the newest one can have no later moment.
            while open_ends and open_ends[-1] <= begin:
                open_ends.pop()
                open_names.pop()
            at = begin
            while open_ends and open_ends[-1] <= end:
                own[open_names.pop()] -= open_ends[-1] - at
                at = open_ends.pop()
            if open_ends:
                own[open_names[-1]] -= end - at
            open_ends.append(end)
            open_names.append(name)
        return spans

    def _waiting(self, order: Sequence[int]) -> bytearray:
        """Which events start a collective in what they call: hooks of gradients, and functions with a
        backward of their own, wait for it there. Only what else they call computes.

        :param order: as :meth:`_lane` has them
        :return: nothing: none does
        """
        mask, names, found = (1 << _BITS) - 1, (1 << _NAME_BITS) - 1, bytearray()
        if not any(self._starting):
            return found
        opened: List[Tuple[int, int]] = []
        for place, one in enumerate(order):
            begin = one >> _BITS + _NAME_BITS
            while opened and opened[-1][0] <= begin:
                opened.pop()
            if self._starting[one & names]:
                found = found or bytearray(len(order))
                for end, outer in reversed(opened):
                    if found[outer]:
                        break  # and so are those around it
                    found[outer] = end > begin
            opened.append((begin + mask - (one >> _NAME_BITS & mask), place))
        return found

    def _span_kind(self, name: _Named, gpu: bool) -> Optional[str]:
        """The kind of span that an event of this name is part of; None: of none."""
        if name.kind == COMMUNICATION and name.category == _OPERATOR:
            return None
        if name.kind in (COMPUTE, COPY):
            return COMPUTE if gpu or not self._gpu else None
        return name.kind if name.kind in (DATA, COMMUNICATION) else None

    def _kind(self, name: _Named) -> str:
        """Where kernels compute, operators only launch them."""
        return OTHER if self._gpu and name.category == _OPERATOR and name.kind == COMPUTE else name.kind

    def _names(self, used: Iterable[int]) -> str:
        """A hash over the set of operators and collectives; of kernels if there are none of these."""
        every = [self._named[one] for one in used if self._counts[one]]
        found = {
            name.text
            for name in every
            if name.category == _OPERATOR or (name.category == _ANNOTATION and name.kind == COMMUNICATION)
        }
        return _hash(sorted(found - _READS or {name.text for name in every if name.category in _OF_GPU}))[:16]

    def _times(self, data: Union, compute: Union, communication: Union, busy: Union) -> List[List[Any]]:
        any_of = Union.of((busy, communication))
        rows = []
        for step in self._steps:
            span = (step.begin, step.end)
            took = step.end - step.begin
            work, whole = busy.within(*span), any_of.within(*span)
            # A GPU goes on while the host waits for data: only where it does not, that costs time.
            in_data = work - compute.within(*span) if self._gpu else data.within(*span)
            exposed = whole - work
            overlapped = communication.within(*span) - exposed
            began = NS.nearest(self._base + step.begin)
            rows.append(
                [step.number, began, took, in_data, work - in_data, exposed, took - whole, overlapped, []]
            )
        return rows

    def _collectives(self, busy: Union) -> List[List[Any]]:
        """Those that begin in a step; one within another of its thread is part of that."""
        calls: List[_Call] = []
        ends: Dict[Tuple[bool, str, str], int] = {}
        for call in sorted(self._kept.calls, key=lambda one: (one.start, -one.length, one[2:])):
            end = call.start + call.length
            if end > ends.get(call.lane, -1) or not call.length:
                ends[call.lane] = end
                calls.append(call)
        begins = [step.begin for step in self._steps]
        world = _whole(self._spread.get("world_size"))
        alone = _whole(self._spread.get("pg_count")) == 1 and world <= RANK_LIMIT
        counts: Dict[Tuple[int, str], int] = {}
        rows: List[List[Any]] = []
        for call in calls:
            place = bisect_right(begins, call.start) - 1
            if place < 0 or call.start >= self._steps[place].end:
                continue
            step = self._steps[place]
            count = counts[place, call.same] = counts.get((place, call.same), 0) + 1
            rows.append(
                [
                    step.number,
                    call.op,
                    call.group,
                    call.same if call.numbered and count == 1 else "%s #%d" % (call.same, count),
                    call.size,
                    call.ranks or (world if alone else 0),
                    call.start - step.begin,
                    call.length,
                    call.length - busy.within(call.start, call.start + call.length),
                    -1,
                ]
            )
        return rows

    def _note_the_rest(self, rows: List[List[Any]]) -> None:
        kept, notes = self._kept, self._notes
        calls = [call for call in kept.calls if not call.numbered]
        if any(call.op != "barrier" for call in calls) and not any(call.sized for call in calls):
            notes.append("the trace has no tensor sizes: collectives are matched by order alone")
        if kept.calls_left or len(rows) > MOST_COLLECTIVES:
            notes.append("only the first of many collectives are listed one by one")
        if kept.unusable:
            notes.append(f"{kept.unusable:,} events have no usable times or names, and do not count")
        if kept.unnamed:
            notes.append(f"{kept.unnamed:,} events have more names than are told apart")
        if kept.graphs:
            notes.append(
                f"{kept.graphs:,} kernels were launched by CUDA graphs: no operator launches each of them"
            )
        theirs, ours = self._spread.get("rank"), self._ours.get("rank")
        if isinstance(theirs, str) and isinstance(ours, str) and theirs != ours:
            notes.append("torch.distributed calls this rank %s, cockpit rank %s" % (theirs[:20], ours[:20]))


def nanoseconds(text: Any) -> Optional[int]:
    """Of microseconds as a trace writes them, exactly; None: not a length, or of more than a century."""
    if not isinstance(text, str) or len(text) > 40:
        return None
    try:
        if text[-4:-3] == "." and text[-3:].isdigit():
            found = int(text[:-4] + text[-3:])
        elif text.isdigit():
            found = 1000 * int(text)
        else:
            # What is not finite is no integer.
            found = round(1000 * float(text))
    except (ValueError, OverflowError):
        return None
    return found if 0 <= found <= NS.most else None


def _kind(text: str, category: int) -> str:
    if category == _OPERATOR:
        return COMMUNICATION if _STARTS.match(text) else COMPUTE
    if category == _ANNOTATION:
        if _LOADER.match(text):
            return DATA
        return COMMUNICATION if text.startswith(_BACK_ENDS) else OTHER
    if category == _KERNEL:
        return COMMUNICATION if _KERNELS.match(text) else COMPUTE
    return {_FUNCTION: PYTHON, _COPY: COPY}.get(category, OTHER)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _object(value: Any) -> Dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _whole(value: Any) -> int:
    """A number that counts something; 0 if it is none."""
    return int(value) if isinstance(value, str) and len(value) < 20 and value.isdecimal() else 0


def _bytes(dtype: str) -> int:
    """Of one element; 0: not known."""
    plain = dtype.lower().replace("c10::", "").replace("unsigned ", "").replace("signed ", "")
    return _BYTES.get(plain[:-4] if plain.endswith(" int") else plain, 0)


def _shapes(dims: Any, depth: int = 0) -> str:
    """``128x64,10``; empty: the trace has none."""
    if not isinstance(dims, list) or not dims or depth > 3:
        return ""
    if all(isinstance(one, str) for one in dims):
        found = "x".join(dims)
    else:
        found = ",".join(_shapes(one, depth + 1) for one in dims[:_SHOWN])
    return found if len(found) <= _SHOWN else "%s… %s" % (found[: _SHOWN - 10], _hash([found])[:8])


def _size(dims: Any, types: Any) -> int:
    """Bytes of tensors; 0: not known."""
    if not isinstance(dims, list) or not isinstance(types, list):
        return 0
    found = 0
    for one, dtype in zip(dims, types):
        elements = 1
        for length in one if isinstance(one, list) else ():
            elements = SIZE.nearest(elements * _whole(length))
        found += elements * _bytes(_text(dtype))
    return found


def _hash(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode("utf-8", "replace")).hexdigest()
