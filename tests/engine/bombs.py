"""Answers made to hurt who reads them, and what they cost: ``python -m tests.engine.bombs NAME`` prints JSON.

Each is sent by one node of two. A sample is taken, kept, opened again and written out as text and page.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cockpit.base.answers import SpyAnswer
from cockpit.base.stacks.dump import Dump, Frame, Process, Thread
from cockpit.base.stacks.packing import dump_json, pack
from cockpit.core.stacks.page import as_page
from cockpit.core.stacks.snapshot import Place
from cockpit.core.stacks.text import as_lines
from cockpit.core.stacks.verdict import verdict
from cockpit.engine.stacks import saved
from cockpit.engine.stacks.ask import Ask, RankProcess
from cockpit.engine.stacks.take import Sampler

RANKS = 64
"""Ranks of the node that sends a bomb; the other node has one, after them."""

TICK_S = 0.005


def lines(*told: object) -> bytes:
    """These lines as an answer; bytes are a line as it stands."""
    deflater = zlib.compressobj(9)
    parts = []
    for line in told:
        data = line if isinstance(line, bytes) else json.dumps(line, separators=(",", ":")).encode()
        parts.append(deflater.compress(data + b"\n"))
    return b"".join((*parts, deflater.flush()))


def zeros(size: int) -> bytes:
    """An answer that unpacks to ``size`` zeros, a multiple of a MiB."""
    head = zlib.compressobj(9)
    start = head.compress(b"") + head.flush(zlib.Z_FULL_FLUSH)
    more = zlib.compressobj(9, wbits=-15)
    block = more.compress(bytes(1 << 20)) + more.flush(zlib.Z_FULL_FLUSH)
    return start + block * (size >> 20)


def places(length: int) -> list[object]:
    """One stack of this many frames."""
    numbers = [number for place in range(length) for number in (place - 1, 0)]
    chunks = [{"nodes": numbers[at : at + 4000]} for at in range(0, len(numbers), 4000)]
    return [{"frames": [["again", "./train.py", 7, 0]]}, *chunks]


def told(rank: int, stacks: Iterable[int], **more: Any) -> dict[str, Any]:
    """A dump as it is sent, with a thread for each stack."""
    threads = [{"name": "t", "tid": 1, "active": True, "gil": False, "stack": one, **more} for one in stacks]
    return {"dump": {**dump_json(Dump(rank, time.time(), Process(1, 2, "S"), "plain")), "threads": threads}}


def deep(rank: int, depth: int, *first: Frame) -> Dump:
    frames = (*first, *(Frame("again", "./train.py", 7 + number % 3) for number in range(depth)))
    thread = Thread("MainThread", 100 + rank, True, False, frames)
    return Dump(rank, time.time(), Process(100 + rank, 7, "R"), "plain", (thread,))


def chain() -> Iterator[bytes]:
    """A chain of 40,000 calls, each of them the end of a thread's stack: 1.8 GB if every stack is made."""
    yield lines(*places(40_000), *(told(rank, range(600 * rank, 600 * rank + 600)) for rank in range(RANKS)))


def chains() -> Iterator[bytes]:
    """The same within the bounds of a stack: 1,000 threads a rank, each 3,000 to 4,000 calls deep."""
    yield lines(*places(4000), *(told(rank, range(3000, 4000)) for rank in range(RANKS)))


def threads() -> Iterator[bytes]:
    """As many frames as a rank may have, for as many ranks as there is room for."""
    yield lines(*places(50), *(told(rank, [49] * 1000) for rank in range(RANKS)))


def tree() -> Iterator[bytes]:
    """No two ranks have a call in common, and each stack is as deep as it may be."""
    for rank in range(RANKS):
        yield pack([deep(rank, 3999, Frame(f"main{rank}", "./train.py", 1))])


def values() -> Iterator[bytes]:
    """Local variables, small ones: they take up more than their text."""
    some = {f"v{number}": "1" for number in range(80)}
    for rank in range(RANKS):
        yield lines(*places(50), told(rank, [49], locals=[some] * 50))


def odd() -> Iterator[bytes]:
    """A line as long as it may be, of what takes up most when it is read, and is no answer."""
    yield lines(b'{"frames": [' + b"[[]]," * 100_000 + b"0]}")


def nested() -> Iterator[bytes]:
    """Lists within lists."""
    yield lines(b'{"dump": ' + b"[" * 400_000)


def spaces() -> Iterator[bytes]:
    """64 MiB that are one line."""
    yield zeros(64 << 20)


def claims() -> Iterator[bytes]:
    """8 MiB, as much as a part of an answer may be, that unpack to 8 GB."""
    yield zeros(8 << 30)[: 8 << 20]


def endless() -> Iterator[bytes]:
    """The same rank for ever."""
    while True:
        yield pack([deep(0, 3000)])


def honest() -> Iterator[bytes]:
    """64 ranks in a recursion of 3,000 calls: this is to be shown."""
    for rank in range(0, RANKS, 8):
        yield pack(deep(each, 2900 + each) for each in range(rank, rank + 8))


BOMBS = {
    each.__name__: each
    for each in (
        chain, chains, threads, tree, values, odd, nested, spaces, claims, endless, honest
    )
}  # fmt: skip


class _Link:
    """A node's link: every request for stacks is answered with the same parts."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self.lost: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.hello = SimpleNamespace(machine="x86_64")
        self._parts = parts

    async def call(self, request: Any) -> SpyAnswer:
        return SpyAnswer(True)

    async def stream(self, request: Any) -> _Link:
        return self

    async def parts(self) -> AsyncIterator[tuple[Any, bytes]]:
        for part in self._parts:
            yield None, part

    async def close(self) -> None:
        pass


class _Job:
    """Two nodes: one sends a bomb, the other what it should."""

    title = run = "otter"
    command = "cockpit stacks otter"
    nodes = ("bad", "good")

    def __init__(self, bomb: Iterator[bytes]) -> None:
        self._links = {"bad": _Link(bomb), "good": _Link(iter([pack([deep(RANKS, 20)])]))}
        self._ranks = {"bad": range(RANKS), "good": [RANKS]}

    def places(self) -> dict[int, Place]:
        return {rank: Place(node) for node, ranks in self._ranks.items() for rank in ranks}

    twice: Mapping[int, str] = {}

    async def refresh(self) -> None:
        pass

    def folder(self, node: str) -> str:
        return ""

    async def link(self, node: str) -> Any:
        return self._links[node]

    async def targets(self, node: str, link: Any) -> list[RankProcess]:
        return [RankProcess(rank, 1000 + rank, 7) for rank in self._ranks[node]]


async def _late(late: list[float]) -> None:
    """Note by how much each turn of the loop is late."""
    while True:
        before = time.perf_counter()
        await asyncio.sleep(TICK_S)
        late.append(time.perf_counter() - before - TICK_S)


async def _sample(name: str, root: Path) -> dict[str, Any]:
    late: list[float] = []
    parts = BOMBS[name]()
    if name != "endless":
        parts = iter(list(parts))
    stacks = Sampler(_Job(parts), Ask(), root)
    ticking = asyncio.create_task(_late(late))
    began = time.perf_counter()
    sample = await stacks.take()
    took_s = time.perf_counter() - began
    folder = await stacks.kept()
    ticking.cancel()
    loaded = saved.load(folder)
    found = verdict(loaded)
    text = sum(map(len, as_lines(loaded, found, threads="all"))), len(as_page(loaded, found))
    late.sort()
    return {
        "ranks": sorted(sample.dumps),
        "loaded": sorted(rank for sample in loaded.samples for rank in sample.dumps),
        "silent": sample.silent,
        "took_s": took_s,
        "p99_ms": 1000 * late[int(0.99 * len(late))],
        "max_ms": 1000 * late[-1],
        "disk_mb": sum(file.stat().st_size for file in folder.iterdir()) / 1e6,
        "text_mb": sum(text) / 1e6,
        "peak_mb": _peak_mb(),
    }


def _peak_mb() -> float:
    # Not from getrusage(): there the memory of who started us counts as well.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1000
    raise ValueError("no VmHWM")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(_sample(sys.argv[1], Path(folder)))))
