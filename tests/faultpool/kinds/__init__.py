"""All kinds that are tried."""

from __future__ import annotations

from tests.faultpool.kind import Kind
from tests.faultpool.kinds import collectives, ends, groups, healthy, locks, pipelines, reading, workers

KINDS: tuple[Kind, ...] = (
    *reading.KINDS,
    *locks.KINDS,
    *workers.KINDS,
    *collectives.KINDS,
    *groups.KINDS,
    *pipelines.KINDS,
    *ends.KINDS,
    *healthy.KINDS,
)
