"""A node as it was measured, as a line of a file: what is kept of measurements on disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO

from cockpit.base.ages import Ages, coarser
from cockpit.base.events import GpuSample, NodeSample, RankSample, Sample
from cockpit.base.gate import (
    RANK,
    RANKS_A_NODE,
    SIZE,
    ListOf,
    Malformed,
    Maybe,
    Number,
    RowOf,
    Text,
    Whole,
    bound,
    parsed,
    plain,
)

EVERY_S = 15.0
"""Seconds from one measurement of a node that is kept to the next."""

OLDER = 1 << 11
"""Measurements that become one are so many times nearer to each other than they are old, if that fits."""

_NUMBER = Maybe(Number(0, 1 << 40))
_BYTES = Maybe(SIZE)


@dataclass(frozen=True)
class RankMeasured:
    """A rank's process; ``cpu`` is in per cent of one core."""

    rank: int = bound(RANK)
    cpu: float | None = bound(_NUMBER)
    rss: int | None = bound(_BYTES)


@dataclass(frozen=True)
class GpuMeasured:
    """A GPU; ``busy`` is in per cent."""

    index: int = bound(Whole(0, 1 << 16))
    busy: float | None = bound(Maybe(Number(0, 100)))
    used: int | None = bound(_BYTES)
    total: int | None = bound(_BYTES)


@dataclass(frozen=True)
class Measured:
    """A node and its ranks at a moment.

    :param at: unix seconds on our clock
    :param load: processes, mean of a minute
    """

    at: float = bound(Number(0, 1e11))
    node: str = bound(Text(255))
    load: float | None = bound(_NUMBER)
    cores: int | None = bound(Maybe(Whole(0, 1 << 20)))
    used: int | None = bound(_BYTES)
    total: int | None = bound(_BYTES)
    disk_free: int | None = bound(_BYTES)
    disk_total: int | None = bound(_BYTES)
    ranks: tuple[RankMeasured, ...] = bound(ListOf(RowOf(RankMeasured), RANKS_A_NODE))
    gpus: tuple[GpuMeasured, ...] = bound(ListOf(RowOf(GpuMeasured), 64))

    @property
    def sample(self) -> Sample:
        """The same as a node reports it."""
        node = NodeSample(self.load, self.cores, self.used, self.total, self.disk_free, self.disk_total)
        ranks = {one.rank: RankSample(one.cpu, one.rss) for one in self.ranks}
        gpus = (GpuSample(one.index, None, one.busy, one.used, one.total) for one in self.gpus)
        return Sample(node, ranks, tuple(gpus))

    def line(self) -> bytes:
        """The line of the file, a list of the fields in their order."""
        told = plain(self)
        told["ranks"] = [list(one.values()) for one in told["ranks"]]
        told["gpus"] = [list(one.values()) for one in told["gpus"]]
        return json.dumps(list(told.values()), separators=(",", ":")).encode() + b"\n"


def measured(at: float, node: str, sample: Sample) -> Measured:
    """What is kept of a sample.

    :param at: when it came, unix seconds on our clock
    """
    of = sample.sample
    return Measured(
        round(at, 1),
        node,
        _round(of.load),
        of.cores,
        of.memory_bytes,
        of.memory_total_bytes,
        of.disk_free_bytes,
        of.disk_total_bytes,
        tuple(
            RankMeasured(rank, _round(one.cpu_percent), one.rss_bytes)
            for rank, one in sorted(sample.ranks.items())
        ),
        tuple(
            GpuMeasured(one.index, _round(one.utilisation_percent), one.memory_bytes, one.memory_total_bytes)
            for one in sample.gpus
        ),
    )


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def measured_of(line: bytes) -> Measured:
    """The measurement of a line.

    :raises Malformed: it is none
    """
    found: Measured = RowOf(Measured).read(parsed(line))
    return found


def moment(line: bytes) -> float | None:
    """When a line's node was measured, unix seconds; None: the line is damaged."""
    with suppress(Malformed):
        return measured_of(line).at
    return None


def thinned(data: bytes) -> bytes:
    """The content of a file with half of its bytes at most: the older they are, the fewer measurements."""
    older = OLDER
    while True:
        found = b"".join(reversed(list(_fewer(data, older))))
        if len(found) <= len(data) // 2 or older == 1:
            return found
        older = coarser(older, len(found), len(data) // 2)


def _fewer(data: bytes, older: int) -> Iterator[bytes]:
    """The lines that are left, the newest first: of each node the last of those that become one."""
    ages, spans = Ages(older, EVERY_S), dict[str, tuple[float, float]]()
    for line in reversed(list(BytesIO(data))):
        with suppress(Malformed):
            found = measured_of(line)
            span = ages.span(found.at)
            if spans.get(found.node) != span:
                spans[found.node] = span
                yield line
