"""SQLite exports of nsys as two versions write them, made up: columns as their schemas document them.

Schema 3.0.0 is that of nsys 2022.4, 3.28 that of 2026: more columns, another table of meta data, payloads of
NVTX ranges. Times are nanoseconds after the start of the session.
"""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path
from typing import Any

BASE = 1_795_862_258_000_000_000
COMM = 0xFEED_BEEF_0123_4567
DOMAIN, SCHEMA, INIT = 1, 77, 78

_OLD = """
CREATE TABLE EXPORT_META_DATA (name TEXT NOT NULL, value TEXT);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
  category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
  domainId INTEGER, uint64Value INTEGER, jsonText TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, gridX INTEGER);
"""
_NEW = """
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
  category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
  domainId INTEGER, uint64Value INTEGER, jsonTextId INTEGER, jsonText TEXT, binaryData BLOB);
CREATE TABLE NVTX_PAYLOAD_SCHEMAS (domainId INTEGER, schemaId INTEGER, name TEXT, type INTEGER, flags INTEGER,
  numEntries INTEGER, payloadSize INTEGER, alignTo INTEGER);
CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER NOT NULL, schemaId INTEGER NOT NULL,
  idx INTEGER NOT NULL, flags INTEGER, type INTEGER, name TEXT, description TEXT, arrayOrUnionDetail INTEGER,
  offset INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER,
  contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
  globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,
  gridX INTEGER, clusterX INTEGER, graphNodeId INTEGER, graphId INTEGER);
"""
_BOTH = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
  eventClass INTEGER,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL);
CREATE TABLE OSRT_API (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, nestingLevel INTEGER,
  callchainId INTEGER NOT NULL);
CREATE TABLE COMPOSITE_EVENTS (id INTEGER NOT NULL PRIMARY KEY, start INTEGER NOT NULL, cpu INTEGER,
  threadState INTEGER, globalTid INTEGER, cpuCycles INTEGER NOT NULL);
CREATE TABLE SAMPLING_CALLCHAINS (id INTEGER NOT NULL, symbol INTEGER NOT NULL, module INTEGER NOT NULL,
  stackDepth INTEGER NOT NULL);
"""
_ENTRIES = (
    (SCHEMA, 0, 18, "NCCL communicator ID", None),
    (SCHEMA, 1, 22, "Message size [bytes]", 8),
    (SCHEMA, 2, 5, "Reduction operation", 16),
    (INIT, 0, 18, "NCCL communicator ID", None),
    (INIT, 1, 5, "No. of ranks", 8),
    (INIT, 2, 5, "Rank", 12),
)


def global_pid(pid: int) -> int:
    """As nsys writes it: the machine, the process, and 24 bits for a thread."""
    return (1 << 48) + (pid << 24)


class Export:
    """An export that is being made.

    :param new: schema 3.28, else 3.0.0
    """

    def __init__(self, path: Path, *, new: bool = True) -> None:
        self.path, self.new = path, new
        self.db = sqlite3.connect(path)
        self.db.executescript(_BOTH + (_NEW if new else _OLD))
        self._strings: dict[str, int] = {}
        self._correlation = 100
        self.insert("TARGET_INFO_SESSION_START_TIME", utcEpochNs=BASE)
        if new:
            for schema, place, kind, name, offset in _ENTRIES:
                self.insert(
                    "NVTX_PAYLOAD_SCHEMA_ENTRIES", domainId=DOMAIN, schemaId=schema, idx=place, type=kind,
                    name=name, offset=offset,
                )  # fmt: skip

    def insert(self, table: str, **row: Any) -> None:
        names = ", ".join(f'"{name}"' for name in row)
        marks = ", ".join("?" * len(row))
        self.db.execute(f'INSERT INTO "{table}" ({names}) VALUES ({marks})', tuple(row.values()))

    def string(self, text: str) -> int:
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self.insert("StringIds", id=self._strings[text], value=text)
        return self._strings[text]

    def range(self, pid: int, text: str, start: Any, end: Any, tid: int | None = None, **more: Any) -> None:
        """An NVTX range; of its text half are by id."""
        named = {"textId": self.string(text)} if len(text) % 2 else {"text": text}
        self.insert(
            "NVTX_EVENTS",
            start=start,
            end=end,
            eventType=59,
            globalTid=global_pid(pid) + (tid or pid),
            **named,
            **more,
        )

    def payload(self, size: int, comm: int = COMM) -> dict[str, Any]:
        """Of a collective of so many bytes; older versions have none."""
        return self._blob(SCHEMA, struct.pack("<QQII", comm, size, 0, 0))

    def world(self, ranks: int, comm: int = COMM) -> dict[str, Any]:
        """Of the start of a communicator."""
        return self._blob(INIT, struct.pack("<QII", comm, ranks, 0))

    def _blob(self, schema: int, data: bytes) -> dict[str, Any]:
        head = struct.pack("<IIIIQQ", DOMAIN, 0, schema, 0, len(data), 32 + len(data))
        return {"binaryData": head + data} if self.new else {}

    def api(
        self, pid: int, name: str, start: int, end: int, correlation: Any = 0, tid: int | None = None
    ) -> None:
        self.insert(
            "CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=end, globalTid=global_pid(pid) + (tid or pid),
            correlationId=correlation, nameId=self.string(name), returnValue=0,
        )  # fmt: skip

    def kernel(
        self,
        pid: int,
        name: str,
        start: Any,
        end: Any,
        stream: int = 7,
        at: int | None = None,
        tid: int | None = None,
    ) -> int:
        """A kernel, and if ``at`` the call that started it then; its correlation id."""
        self._correlation += 1
        self.insert(
            "CUPTI_ACTIVITY_KIND_KERNEL", start=start, end=end, deviceId=0, contextId=1, streamId=stream,
            correlationId=self._correlation, globalPid=global_pid(pid), demangledName=self.string(name),
            shortName=self.string(name[:8]),
        )  # fmt: skip
        if at is not None:
            self.api(pid, "cudaLaunchKernel_v7000", at, at + 5, self._correlation, tid)
        return self._correlation

    def copy(self, pid: int, kind: int, start: int, end: int, stream: int = 7) -> None:
        self.insert(
            "CUPTI_ACTIVITY_KIND_MEMCPY", start=start, end=end, deviceId=0, contextId=1, streamId=stream,
            correlationId=1, globalPid=global_pid(pid), bytes=4096, copyKind=kind,
        )  # fmt: skip

    def wait(self, pid: int, name: str, start: int, end: int, tid: int | None = None, level: int = 0) -> None:
        self.insert(
            "OSRT_API", start=start, end=end, eventClass=27, globalTid=global_pid(pid) + (tid or pid),
            nameId=self.string(name), returnValue=0, nestingLevel=level, callchainId=0,
        )  # fmt: skip

    def sample(self, pid: int, at: int, symbol: str) -> None:
        number = at
        self.insert("COMPOSITE_EVENTS", id=number, start=at, globalTid=global_pid(pid) + pid, cpuCycles=1)
        self.insert(
            "SAMPLING_CALLCHAINS",
            id=number,
            symbol=self.string(symbol),
            module=self.string("libc"),
            stackDepth=0,
        )
        self.insert(
            "SAMPLING_CALLCHAINS",
            id=number,
            symbol=self.string("main"),
            module=self.string("libc"),
            stackDepth=1,
        )

    def done(self) -> Path:
        self.db.commit()
        self.db.close()
        return self.path

    def collective(
        self, pid: int, kind: str, size: int, at: int, start: int, end: int, comm: int = COMM
    ) -> None:
        """A call of NCCL on the main thread from ``at`` on, and its kernel on a stream of its own."""
        self.range(pid, f"nccl{kind}", at, at + 20, domainId=DOMAIN, **self.payload(size, comm))
        self.kernel(
            pid,
            f"ncclDevKernel_{kind}_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            start,
            end,
            20,
            at + 8,
        )


def job(path: Path, pids: tuple[int, ...], *, new: bool = True, late: int = 0, steps: int = 4) -> Path:
    """Ranks that each take steps of 1000: compute 0-400 and 500-700, an all_reduce 600-900, a copy 950-960.

    :param late: how much later than the others the last rank comes to the collective, and spends less in it
    """
    made = Export(path, new=new)
    for pid in pids:
        made.range(pid, "ncclCommInitRankConfig", 10, 50, domainId=DOMAIN, **made.world(len(pids)))
        for step in range(steps):
            begin = 10_000 + 1000 * step
            made.range(pid, f"ProfilerStep#{step + 30}", begin, begin + 1000)
            made.kernel(pid, "void gemm<float>(float*)", begin, begin + 400, at=begin + 1)
            made.kernel(pid, "void relu<float>(float*)", begin + 500, begin + 700)
            made.range(pid, "forward, seq = 12, op_id = 3", begin, begin + 300)
            more = late if pid == pids[-1] else 0
            made.collective(pid, "AllReduce", 1 << 20, begin + 310, begin + 600 + more, begin + 900)
            made.copy(pid, 1, begin + 950, begin + 960)
    return made.done()
