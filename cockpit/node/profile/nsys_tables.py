"""From the tables of an nsys report, exported to SQLite, to what each rank did.

A report covers all processes of a node; a rank is the one process that its pid names. Where CUDA was traced,
kernels, copies and NCCL are what they are in a trace of torch's profiler. Without kernels, *compute* is the
time that the main thread spends outside of calls of the operating system (``osrt``), or torch's operators,
if ranges mark these.
"""

from __future__ import annotations

import re
from statistics import median
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

from cockpit.base.gate import SIZE
from cockpit.base.profile.summary import LENGTH, MOST_OPERATIONS, NS
from cockpit.node.profile import nccl_sizes
from cockpit.node.profile.events import BadTrace
from cockpit.node.profile.nsys_database import Database
from cockpit.node.profile.rank_events import (
    ANNOTATION,
    CALL,
    COPYING,
    KERNEL,
    NAME,
    OPERATOR,
    PAIRWISE,
    RUNNING,
    RUNTIME,
    SAMPLE,
    Call,
    RankEvents,
    Where,
)
from cockpit.node.profile.sums import About, Sum

_KERNELS, _GRAPHS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_COPIES, _SETS = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
_API, _NVTX, _OSRT = "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "OSRT_API"
_SAMPLES, _CHAINS = "COMPOSITE_EVENTS", "SAMPLING_CALLCHAINS"

RANK_TABLES = ((_KERNELS, "globalPid"), (_API, "globalTid"), (_NVTX, "globalTid"), (_OSRT, "globalTid"))
"""Tables by whose rows ranks are told from other processes, and the column that says whose a row is."""

_PUSH_POP, _START_END = 59, 60
"""Types of NVTX events that are ranges."""
_DIRECTIONS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
"""CUpti_ActivityMemcpyKind."""
_STEP = re.compile(
    r"(ProfilerStep#|(?:[a-z]{1,20}[ _])?(?:step|iteration|iter)[ #:_=-]*)([0-9]{1,12})\Z", re.IGNORECASE
)
"""Ranges that programs mark their steps with."""
_DETAILS = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = .*", re.DOTALL)
"""What ``emit_nvtx`` adds to names of operators."""
_OPERATORS = re.compile(r"(?:aten|autograd|c10d|_?c10d_functional|torch)::|record_param_comms\Z|nccl:")
_NCCL = re.compile(r"nccl(?:Dev)?Kernel_(?:Send|Recv)?([A-Za-z]+)")
_PID = (1 << 24) - 1
_SAMPLE_ROWS = 40
_STYLES = 100
"""Of naming steps."""
_BEGINS, _FINISHES = 31, 32
"""Classes of OSRT_API's rows that are no calls: tracing them began, and ended."""


def _pid(number: int) -> int:
    """Of a globalPid or globalTid, in which it is followed by 24 bits."""
    return number >> 24 & _PID


class _Kernel(NamedTuple):
    """A kernel that is a collective."""

    start: int
    length: int
    where: Where
    name: str
    correlation: Any


class _Step(NamedTuple):
    """A range that may be a step."""

    start: int
    length: int
    number: int
    where: Where
    text: str


class _Process:
    """A rank's process in a report."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.kept = RankEvents()
        self.events = 0
        self.gpu = False
        self.operators = False
        self.collectives: Dict[Any, List[_Kernel]] = {}
        """By correlation id; of graphs several have one."""
        self.launches: Dict[int, List[Tuple[int, Any]]] = {}
        """By thread: when each of these was started."""
        self.nccl: Dict[int, nccl_sizes.Thread] = {}
        self.ranks: Dict[int, int] = {}
        """Of each communicator."""
        self.waits: List[Tuple[int, int]] = []
        """Calls of the operating system on the main thread."""
        self.sampled: List[int] = []
        """When the CPU was sampled on it."""
        self.samples: Dict[int, int] = {}
        """How often in which function."""
        self.steps: Dict[str, List[_Step]] = {}
        """Ranges that may be its steps, by what they are called without the number."""

    def add(self, category: int, start: Any, end: Any, where: Where, text: str) -> bool:
        """Keep an event, if its times are times; see :meth:`RankEvents.add`."""
        self.events += 1
        if not _times(start, end):
            self.kept.unusable += 1
            return False
        return self.kept.add(category, start, end - start, where, text)


def _times(start: Any, end: Any) -> bool:
    whole = type(start) is int and type(end) is int
    return whole and 0 <= start <= end <= NS.most and end - start <= LENGTH.most


class Report:
    """An export that is being read.

    :param pids: of the processes that are ranks
    :raises BadTrace: it cannot be read
    """

    def __init__(self, database: Database, pids: Iterable[int]) -> None:
        self._db = database
        self.processes = {pid: _Process(pid) for pid in pids}
        self._payloads = nccl_sizes.Payloads(
            database.rows(
                "NVTX_PAYLOAD_SCHEMA_ENTRIES",
                ("domainId", "schemaId", "type", "name", "offset"),
                "schemaId",
                few=True,
            )
        )
        # What says most comes first: rows are bounded together.
        self._device()
        self._ranges()
        self._calls(_API, RUNTIME)
        self._calls(_OSRT, CALL)
        self._sample()
        if not any(one.events for one in self.processes.values()):
            raise BadTrace("it has no events of these ranks")

    def told(self, pid: int) -> Dict[str, Any]:
        """The sum of one process, as JSON; it is gone then.

        :raises BadTrace: it has no events
        """
        one = self.processes.pop(pid)
        _choose_steps(one)
        self._match(one)
        if not one.gpu and not one.operators:
            _run(one)
        about = About("report", self._base(), one.events, "nccl" if one.collectives else "")
        found = Sum(one.kept, about).told()
        samples = self._sampled(one, found["notes"])
        found["operations"][MOST_OPERATIONS - len(samples) :] = samples
        found["operations_all"] += len(samples)
        notes = found["notes"] + self._db.cut
        if not one.gpu and not one.operators:
            notes.append("no kernels: compute is the main thread outside of system calls, idle is in them")
        if one.collectives and not self._payloads:
            notes.append("no sizes of NCCL's messages: that takes a newer nsys (export --include-blobs)")
        found["notes"] = notes[:20]
        return found

    def _base(self) -> int:
        for (at,) in self._db.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",), "utcEpochNs", few=True):
            if type(at) is int and 0 <= at <= NS.most:
                return at
        return 0

    def _of(self, number: Any) -> Optional[_Process]:
        """The rank that a globalPid or globalTid is of."""
        return self.processes.get(_pid(number)) if type(number) is int else None

    def _device(self) -> None:
        """Kernels, graphs that were traced as a whole, copies."""
        columns = ("start", "end", "globalPid", "deviceId", "streamId", "correlationId", "graphNodeId")
        names = ("demangledName", "shortName")
        for start, end, number, device, stream, correlation, graph, *texts in self._db.rows(
            _KERNELS, (*columns, *names), "start", needed=("end", "globalPid")
        ):
            one = self._of(number)
            if one is None:
                continue
            text = next(filter(None, map(self._db.string, texts)), "(kernel without a name)")
            where = _stream(one, device, stream)
            one.gpu = True
            one.kept.graphs += type(graph) is int and graph > 0
            if one.add(KERNEL, start, end, where, text):
                kernel = _Kernel(start, end - start, where, text, correlation)
                one.collectives.setdefault(correlation, []).append(kernel)
        for start, end, number, device, stream, graph in self._db.rows(
            _GRAPHS, (*columns[:5], "graphId"), "start", needed=("end", "globalPid")
        ):
            if (one := self._of(number)) is not None:
                one.gpu = True
                one.add(KERNEL, start, end, _stream(one, device, stream), "(CUDA graph %s)" % str(graph)[:20])
        for table, name in ((_COPIES, "Memcpy"), (_SETS, "Memset")):
            for start, end, number, device, stream, kind in self._db.rows(
                table, (*columns[:5], "copyKind"), "start", needed=("end", "globalPid")
            ):
                if (one := self._of(number)) is not None:
                    text = "%s %s" % (name, _DIRECTIONS.get(kind, "")) if type(kind) is int else name
                    one.gpu = True
                    one.add(COPYING, start, end, _stream(one, device, stream), text.rstrip())

    def _ranges(self) -> None:
        """NVTX: steps, operators, calls of NCCL, and whatever else the program marks."""
        columns = ("start", "end", "eventType", "globalTid", "textId", "text", "binaryData")
        where = '"eventType" IN (%d, %d)' % (_PUSH_POP, _START_END)
        for start, end, _, number, name, text, blob in self._db.rows(
            _NVTX, columns, "start", where=where, needed=("end", "eventType", "globalTid")
        ):
            one = self._of(number)
            if one is None:
                continue
            text = text if isinstance(text, str) and text else self._db.string(name)
            if end is None:
                continue  # it had not ended when the report did
            thread, lane = number & _PID, _thread(number)
            found = _STEP.match(text)
            if found and len(one.steps) < _STYLES and _times(start, end):
                one.events += 1
                steps = one.steps.setdefault(found.group(1).lower(), [])
                steps.append(_Step(start, end - start, int(found.group(2)), lane, text))
                continue
            self._nccl(one, thread, start, end, text, blob)
            text = _DETAILS.sub("", text) or "(range without a name)"
            operator = _OPERATORS.match(text) is not None
            one.operators |= operator
            one.add(OPERATOR if operator else ANNOTATION, start, end, lane, text)

    def _nccl(self, one: _Process, thread: int, start: Any, end: Any, text: str, blob: Any) -> None:
        if not text.startswith("nccl") or not _times(start, end):
            return
        said = self._payloads.read(blob)
        if said is not None and said.ranks and said.group and len(one.ranks) < 10_000:
            one.ranks[said.group] = said.ranks
        found = nccl_sizes.CALL.match(text)
        if found is None and text != nccl_sizes.GROUP_END:
            return
        threads = one.nccl.setdefault(thread, nccl_sizes.Thread())
        if found is None:
            threads.ends.append((start, end))
        else:
            size, group = (None, 0) if said is None else (said.size, said.group)
            threads.calls.append(nccl_sizes.Range(start, end, found.group(1), size, group))

    def _calls(self, table: str, category: int) -> None:
        """Calls of CUDA's API, which start kernels, or of the operating system."""
        columns = ("start", "end", "globalTid", "nameId", "correlationId", "nestingLevel", "eventClass")
        for start, end, number, name, correlation, level, kind in self._db.rows(
            table, columns, "start", needed=("end", "globalTid")
        ):
            one = self._of(number)
            # A nested call is part of another one.
            if one is None or (category == CALL and (level not in (None, 0) or kind in (_BEGINS, _FINISHES))):
                continue
            lane = _thread(number)
            one.add(category, start, end, lane, self._db.string(name) or "(call without a name)")
            if not _times(start, end):
                continue
            if category == CALL:
                if lane[1] == lane[2]:
                    one.waits.append((start, end))
            elif correlation in one.collectives:
                one.launches.setdefault(number & _PID, []).append((start, correlation))

    def _match(self, one: _Process) -> None:
        """Give each collective its size, by the call of NCCL that started its kernel."""
        matched: Dict[Any, nccl_sizes.Matched] = {}
        for thread, launches in one.launches.items():
            calls = one.nccl.get(thread)
            if calls is None:
                continue
            found = calls.match((at, number) for number, (at, _) in enumerate(launches))
            matched.update((launches[number][1], each) for number, each in found.items())
        for correlation, kernels in one.collectives.items():
            said = matched.get(correlation) if len(kernels) == 1 else None
            for kernel in kernels:
                one.kept.call(self._call(one, kernel, said))

    def _call(self, one: _Process, kernel: _Kernel, said: Optional[nccl_sizes.Matched]) -> Call:
        symbol = _NCCL.match(kernel.name)
        op = one.kept.op(symbol.group(1) if symbol else kernel.name)
        group = "comm %x" % said.group if said is not None and said.group else ""
        ranks = one.ranks.get(said.group, 0) if said is not None else 0
        size = said.size if said is not None else 0
        if op == "reduce_scatter" and ranks:
            size = SIZE.nearest(size * ranks)  # NCCL says what comes out of it on each rank
        same = [group, op, str(size) if size else ""]
        if op in PAIRWISE:
            same.append("of process %d" % one.pid)  # who is at the other end is not known
        return Call(
            kernel.start, kernel.length, kernel.where, op, group, " ".join(filter(None, same)), False,
            bool(size), size, ranks,
        )  # fmt: skip

    def _sample(self) -> None:
        """Where main threads were when the CPU was sampled."""
        if not self._db.has(_CHAINS, "id", "symbol", "stackDepth"):
            return
        where: Dict[int, _Process] = {}
        for at, number, chain in self._db.rows(
            _SAMPLES, ("start", "globalTid", "id"), "start", needed=("globalTid", "id")
        ):
            one = self._of(number)
            if one is not None and number & _PID == one.pid and type(chain) is int and type(at) is int:
                where[chain] = one
                one.sampled.append(at)
        for chain, symbol in self._db.rows(
            _CHAINS, ("id", "symbol"), "id", where='"stackDepth" = 0', needed=("stackDepth", "symbol")
        ):
            if type(chain) is int and type(symbol) is int and (one := where.get(chain)) is not None:
                one.samples[symbol] = one.samples.get(symbol, 0) + 1

    def _sampled(self, one: _Process, notes: List[str]) -> List[List[Any]]:
        """Rows of operations: functions in which the main thread was sampled most."""
        if len(one.sampled) < 2:
            return []
        apart = [after - before for before, after in zip(one.sampled, one.sampled[1:])]
        every = int(median(apart))
        many = sum(one.samples.values())
        notes.append(f"{many:,} CPU samples of the main thread, one in {every / 1e6:.3g} ms")
        most = sorted(one.samples.items(), key=lambda each: (-each[1], each[0]))[:_SAMPLE_ROWS]
        return [
            [(self._db.string(symbol) or "?")[:NAME], SAMPLE, LENGTH.nearest(count * every), count]
            for symbol, count in most
        ]


def _stream(one: _Process, device: Any, stream: Any) -> Where:
    return True, "%d/%s" % (one.pid, str(device)[:10]), str(stream)[:20]


def _thread(number: int) -> Where:
    """The main thread is the one whose number is its process's."""
    return False, str(_pid(number)), str(number & _PID)


def _choose_steps(one: _Process) -> None:
    """Which ranges are the steps: those whose numbers only grow, and of several such the longest."""
    found: List[_Step] = []
    for some in one.steps.values():
        if all(before.number < after.number for before, after in zip(some, some[1:])):
            found = max(found, some, key=lambda steps: sum(step.length for step in steps))
    for some in one.steps.values():
        for step in some:
            if some is not found or not one.kept.mark(step.start, step.length, step.number, step.where):
                one.kept.add(ANNOTATION, step.start, step.length, step.where, step.text)


def _run(one: _Process) -> None:
    """Without kernels: the main thread runs where it is in no call of the operating system."""
    lanes = [lane for lane in one.kept.lanes.values() if lane.starts]
    begins = [min(lane.starts) for lane in lanes] + [mark.start for mark in one.kept.marks]
    ends = [max(map(int.__add__, lane.starts, lane.lengths)) for lane in lanes]
    ends += [mark.start + mark.length for mark in one.kept.marks]
    if not begins or not one.waits:
        return
    # Beside its ranges and calls: each moment of a thread belongs to one event.
    at, where = min(begins), (False, str(one.pid), "%d running" % one.pid)
    for start, end in [*sorted(one.waits), (max(ends), max(ends))]:
        if start > at:
            one.kept.add(RUNNING, at, start - at, where, "(outside of system calls)")
        at = max(at, end)
