"""Traces as Kineto writes them, made up: times are nanoseconds after the trace's base."""

from __future__ import annotations

import gzip
import io
import json
from typing import Any

BASE = 1790857026000000000
PID, MAIN, GLOO = 4000, 4000, 4077
NAMES = ("step", "began", "took", "data", "compute", "communication", "idle", "overlapped", "phases")
CALLS = ("step", "name", "group", "key", "size", "ranks", "began", "took", "exposed", "phase")


def us(ns: int) -> str:
    """Microseconds with three decimals, as Kineto writes them."""
    return "%d.%03d" % divmod(ns, 1000)


class Made:
    """A trace that is being made."""

    def __init__(self, **beside: Any) -> None:
        self.beside: dict[str, Any] = {"schemaVersion": 1, **beside}
        self.events: list[str] = []

    def add(self, cat: str, name: str, start: int, length: int, tid: Any = MAIN, **args: Any) -> Made:
        pid = args.pop("pid", PID)
        text = '\n  {\n    "ph": "X", "cat": %s, "name": %s, "pid": %s, "tid": %s,\n    "ts": %s, "dur": %s'
        text %= *map(json.dumps, (cat, name, pid, tid)), us(start), us(length)
        if args:
            text += ',\n    "args": {\n      %s\n    }' % json.dumps(args)[1:-1]
        self.events.append(text + "\n  }")
        return self

    def step(self, number: int, start: int, length: int, tid: Any = MAIN) -> Made:
        return self.add("user_annotation", f"ProfilerStep#{number}", start, length, tid)

    def op(self, name: str, start: int, length: int, tid: Any = MAIN) -> Made:
        return self.add("cpu_op", name, start, length, tid)

    def data(self, start: int, length: int, tid: Any = MAIN) -> Made:
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        return self.add("user_annotation", name, start, length, tid)

    def gloo(
        self, op: str, start: int, length: int, dims: Any = None, dtype: str = "float", tid: Any = GLOO
    ) -> Made:
        args = {} if dims is None else {"Input type": [dtype], "Input Dims": dims}
        return self.add("user_annotation", f"gloo:{op}", start, length, tid, **args)

    def kernel(self, name: str, start: int, length: int, stream: int = 7, **args: Any) -> Made:
        named = {key.replace("_", " "): value for key, value in args.items()}
        return self.add("kernel", name, start, length, stream, pid=0, device=0, stream=stream, **named)

    def text(self) -> str:
        """The file."""
        beside = "".join(f"\n    {json.dumps(name)}: {json.dumps(one)}," for name, one in self.beside.items())
        events = ",".join(self.events)
        return (
            f'\n  {{{beside}\n  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": {BASE},\n'
            f'  "traceEvents": [{events}\n  ],\n  "traceName": "t.json"\n}}'
        )

    def file(self, *, packed: bool = False) -> io.BytesIO:
        """The same, open."""
        data = self.text().encode()
        return io.BytesIO(gzip.compress(data, 1) if packed else data)


def rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Its steps, by the names of their fields."""
    return [dict(zip(NAMES, row, strict=True)) for row in found["steps"]]


def calls(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Its collectives, by the names of their fields."""
    return [dict(zip(CALLS, row, strict=True)) for row in found["collectives"]]


def own(found: dict[str, Any]) -> dict[str, tuple[str, int, int]]:
    """By operation: kind, own time, count."""
    return {name: (kind, time, count) for name, kind, time, count in found["operations"]}
