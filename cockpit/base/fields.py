"""Fields that requests and answers have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Tuple

from cockpit.base import record
from cockpit.base.gate import (
    NODE_NAME,
    PATH,
    PID,
    RANK,
    RANKS,
    RANKS_A_NODE,
    RUN_NAME,
    SIZE,
    TICKS,
    WORD,
    FieldKind,
    Malformed,
    MapOf,
    Of,
    Whole,
    bound,
)


class LogName(FieldKind):
    """A file that is followed: a rank's log, the launcher's console, the run record, the time index."""

    def read(self, value: Any) -> str:
        """See :meth:`cockpit.base.gate.FieldKind.read`."""
        if isinstance(value, str) and record.is_followed(value):
            return value
        raise Malformed("not a file that is followed")


LOG = LogName()
SIZES = MapOf(LOG, SIZE, RANKS_A_NODE + 3)
"""Bytes by file, of all files that are followed on a node."""


@dataclass(frozen=True)
class Target:
    """A rank's process."""

    rank: int = bound(RANK)
    pid: int = bound(Whole(1, 1 << 30))
    ticks: int = bound(TICKS)


@dataclass(frozen=True)
class Identity:
    """A process: pid and start time."""

    pid: int = bound(PID)
    ticks: int = bound(TICKS)


@dataclass(frozen=True)
class RunIdentity:
    """What an agent itself needs from ``record.json``."""

    run: str = bound(RUN_NAME)
    node: str = bound(NODE_NAME)
    boot_id: str = bound(WORD)
    ranks: Tuple[int, ...] = bound(RANKS)
    supervisor: Identity = bound(Of(Identity))


FILES_A_NODE = 2 * RANKS_A_NODE + 8
"""Files that the processes of one job write on one node: two of each rank, some of its launchers."""

FILES_A_JOB = 1 << 16
"""Files that the processes of one job write on all its nodes."""


@dataclass(frozen=True)
class Opened:
    """A regular file that a process of a job has open for writing.

    :param number: what the asker calls it
    :param fd: the descriptor by which the process has it
    :param offset: bytes of it that the asker has
    """

    number: int = bound(Whole(0, FILES_A_JOB))
    path: str = bound(PATH)
    device: int = bound(SIZE)
    inode: int = bound(Whole(0, (1 << 64) - 1))
    pid: int = bound(PID)
    ticks: int = bound(TICKS)
    fd: int = bound(PID)
    offset: int = bound(SIZE, 0)
