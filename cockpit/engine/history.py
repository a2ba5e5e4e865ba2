"""What a run printed so far, from the spool, merged over ranks by the nodes' time indexes."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cockpit.base.record import LAUNCHER_LOG, SIZES
from cockpit.engine.runs import NodeEntry, RunFolder


@dataclass(frozen=True)
class Piece:
    """New bytes of one log between two looks of its supervisor.

    :param at: when the bytes were there at the latest, unix seconds on our clock
    :param rank: None for the launcher's console
    """

    at: float
    node: str
    rank: int | None
    offset: int
    data: bytes


_STEP = 1 << 20
_INDEX_STEP = 64 << 10


def history(folder: RunFolder, since: float = 0.0) -> Iterator[Piece]:
    """Every spooled byte that was written after ``since`` (unix seconds, our clock), merged by time.

    Order is exact within a rank; over ranks it is that of the time index, 0.2 s fine.
    """
    model = folder.model()
    streams = [
        _node_history(folder, node, model.nodes[node.name].offset_s, since) for node in folder.manifest.nodes
    ]
    yield from heapq.merge(*streams, key=lambda piece: piece.at)


def _node_history(folder: RunFolder, node: NodeEntry, offset_s: float, since: float) -> Iterator[Piece]:
    root = folder.spool_dir(node)
    done: dict[str, int] = {}
    at = 0.0
    for at, sizes in time_index(root / SIZES):
        for file, size in sizes.items():
            start, done[file] = done.get(file, 0), size
            if at - offset_s >= since:
                yield from _pieces(root / file, at - offset_s, node.name, file, start, size)
    for path in sorted(root.glob("*.log")) if root.is_dir() else []:
        # Bytes that came after the last line of the index: newer than everything before.
        start, size = done.get(path.name, 0), path.stat().st_size
        yield from _pieces(path, at - offset_s, node.name, path.name, start, size)


def time_index(path: Path) -> Iterator[tuple[float, dict[str, int]]]:
    """Every line of a node's time index: unix seconds on its clock, and the sizes that changed."""
    at = 0
    while True:
        # Opened for each part: of a thousand nodes a thousand would be open.
        try:
            with path.open("rb") as file:
                file.seek(at)
                whole = file.read(_INDEX_STEP).rpartition(b"\n")[0]
        except FileNotFoundError:
            return
        if not whole:
            return
        at += len(whole) + 1
        for line in whole.split(b"\n"):
            try:
                entry = json.loads(line)
                yield float(entry["t"]), {str(name): int(size) for name, size in entry["s"].items()}
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # a node's index is data: a damaged line costs its order, no bytes


def _pieces(path: Path, at: float, node: str, file: str, start: int, end: int) -> Iterator[Piece]:
    if not file.endswith(".log") or "/" in file or not path.is_file():
        return
    rank = None if file == LAUNCHER_LOG else int(file.removeprefix("rank-").removesuffix(".log"))
    with path.open("rb") as source:
        source.seek(start)
        while start < end and (data := source.read(min(_STEP, end - start))):
            yield Piece(at, node, rank, start, data)
            start += len(data)
