"""What a run printed so far, from the spool, merged over ranks by the nodes' time indexes."""

from __future__ import annotations

import heapq
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cockpit.base.fields import SIZES as SIZES_OF_FILES
from cockpit.base.gate import TIME, bound, read
from cockpit.base.record import SIZES, logged_rank
from cockpit.engine.files import lines, open_regular
from cockpit.engine.logs.spooled import logs_of
from cockpit.engine.records.folder import NodeEntry, RunFolder
from cockpit.errors import CockpitError, os_error


@dataclass(frozen=True)
class Piece:
    """New bytes of one log between two looks by its supervisor.

    :param at: the latest time by which the bytes were there, unix seconds on our clock
    :param rank: None for the launcher's console
    """

    at: float
    node: str
    rank: int | None
    offset: int
    data: bytes


@dataclass(frozen=True)
class _Sizes:
    """A line of a time index."""

    t: float = bound(TIME)
    s: Mapping[str, int] = bound(SIZES_OF_FILES)


_STEP = 1 << 20

Trouble = Callable[[CockpitError], None]
"""Called for a log that cannot be read; the others go on."""


def history(folder: RunFolder, trouble: Trouble, since: float = 0.0) -> Iterator[Piece]:
    """Every spooled byte that was written after ``since`` (unix seconds, our clock), merged by time.

    Order is exact within a rank; across ranks it is that of the time index, to within 0.2 s.
    """
    model = folder.model()
    told: set[str] = set()

    def once(error: CockpitError) -> None:
        if str(error) not in told:
            told.add(str(error))
            trouble(error)

    streams = [
        _node_history(folder, node, model.nodes[node.name].offset_s, since, once)
        for node in folder.manifest.nodes
    ]
    yield from heapq.merge(*streams, key=lambda piece: piece.at)


def _node_history(
    folder: RunFolder, node: NodeEntry, offset_s: float, since: float, trouble: Trouble
) -> Iterator[Piece]:
    root = folder.spool_dir(node)
    try:
        here = logs_of(folder, node)
    except CockpitError as error:
        trouble(error)
        return
    done = dict.fromkeys(here, 0)
    at = 0.0
    try:
        for at, sizes in time_index(root / SIZES):
            for file, size in sizes.items():
                if file in here and size > done[file]:
                    start, done[file] = done[file], min(size, here[file])
                    if at - offset_s >= since:
                        yield from _pieces(root / file, at - offset_s, node.name, start, done[file], trouble)
    except CockpitError as error:
        trouble(error)
    for file, size in here.items():
        # Bytes that came after the last line of the index: newer than everything before.
        yield from _pieces(root / file, at - offset_s, node.name, done[file], size, trouble)


def time_index(path: Path) -> Iterator[tuple[float, Mapping[str, int]]]:
    """Every line of a node's time index: unix seconds on its clock, and the sizes that changed.

    A damaged line is ignored: it costs order, but no bytes.

    :raises CockpitError: it cannot be read
    """
    for line in lines(path):
        try:
            entry = read(_Sizes, json.loads(line))
        except (ValueError, RecursionError):
            continue
        yield entry.t, entry.s


def _pieces(path: Path, at: float, node: str, start: int, end: int, trouble: Trouble) -> Iterator[Piece]:
    rank = logged_rank(path.name)
    while start < end:
        # Opened for each piece: the logs of all nodes are read at the same time.
        try:
            data = _read(path, start, min(_STEP, end - start))
        except OSError as error:
            trouble(os_error("cannot read the spool", path, error))
            return
        if not data:
            return
        yield Piece(at, node, rank, start, data)
        start += len(data)


def _read(path: Path, start: int, length: int) -> bytes:
    number = open_regular(path)
    try:
        return os.pread(number, length, start)
    finally:
        os.close(number)
