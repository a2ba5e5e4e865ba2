"""Fields that requests and answers have in common."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from cockpit.base import gate, record
from cockpit.base.gate import Definition, FieldKind, ListOf, Malformed, MapOf, Of, Text, Whole, bound, maybe


class Address(FieldKind):
    """An IP address."""

    def read(self, value: Any) -> str:
        """See :meth:`cockpit.base.gate.FieldKind.read`."""
        import ipaddress  # loaded where it is read, not on every node

        try:
            if isinstance(value, str):
                ipaddress.ip_address(value.partition("%")[0])
                return Text(100, r"[0-9A-Za-z.:%_-]+").read(value)
        except ValueError:
            pass
        raise Malformed("not an address")


class LogName(FieldKind):
    """A file that is followed: a rank's log or NCCL's file, the console, the run record, the time index."""

    def read(self, value: Any) -> str:
        """See :meth:`cockpit.base.gate.FieldKind.read`."""
        if isinstance(value, str) and record.is_followed(value):
            return value
        raise Malformed("not a file that is followed")


LOG = LogName()
FILES = 2 * gate.RANKS_A_NODE + 3
SIZES = MapOf(LOG, gate.SIZE, FILES)
"""Bytes by file, of all files that are followed on a node."""
MARK = Whole(0, (1 << 32) - 1)
MARKS = MapOf(LOG, MARK, FILES)
"""See :attr:`cockpit.base.trail.Trail.mark`; by file."""


PROFILE_ID = Text(31, r"[0-9a-z][0-9a-z-]*")
"""The id of a collection."""
REPORT_FILES = 10_000
"""Files of a reports folder that are listed."""
PROFILE_STEPS = 100
"""Steps of one profile at most."""
THREAD = "thread: "
"""So begins the first frame of folded stacks that are not the main thread's."""


class Target(Definition):
    """A rank's process."""

    rank: int = bound(gate.RANK)
    pid: int = bound(Whole(1, 1 << 30))
    ticks: int = bound(gate.TICKS)


class Identity(Definition):
    """A process: pid and start time."""

    pid: int = bound(gate.PID)
    ticks: int = bound(gate.TICKS)


class RunIdentity(Definition):
    """What an agent itself needs from ``record.json``."""

    run: str = bound(gate.RUN_NAME)
    node: str = bound(gate.NODE_NAME)
    boot_id: str = bound(gate.WORD)
    ranks: Tuple[int, ...] = bound(gate.RANKS)
    supervisor: Identity = bound(Of(Identity))


class RunFacts(RunIdentity):
    """``record.json``: what a run folder was made for."""

    t: float = bound(gate.TIME)
    format: int = bound(gate.COUNT, 0)
    index: int = bound(gate.COUNT, 0)
    host: str = bound(Text(255), "")
    launcher: str = bound(gate.WORD, "")
    profile: Optional[Dict[str, str]] = maybe(MapOf(gate.WORD, Text(4096, r"[^\0]*"), 100))
    nccl_debug: bool = bound(gate.FLAG, False)


class Caller(Definition):
    """An ssh connection by which ranks were started from another machine, as their node sees it; or an srun.

    :param ranks: those whose output goes back over it
    :param address: where it comes from; to: the node's own address
    :param to_port: 0: it is no connection; srun listens there, at ``address`` and ``port``
    """

    ranks: Tuple[int, ...] = bound(gate.RANKS)
    address: str = bound(Address())
    port: int = bound(Whole(1, 65535))
    to: str = bound(Address())
    to_port: int = bound(Whole(0, 65535))


CALLERS = ListOf(Of(Caller), gate.RANKS_A_NODE)

TRIAL_ROUNDS = 64
"""Peers that a rank measures with in one trial."""

FILES_A_NODE = 2 * gate.RANKS_A_NODE + 8
"""Files that the processes of one job write on one node: two of each rank, some of its launchers."""

FILES_A_JOB = 1 << 16
"""Files that the processes of one job write on all its nodes."""


class Opened(Definition):
    """A regular file that a process of a job has open for writing.

    :param number: what the asker calls it
    :param fd: the descriptor by which the process has it
    :param offset: bytes of it that the asker has
    :param mark: see :attr:`cockpit.base.trail.Trail.mark`; of the first ``marked`` bytes
    """

    number: int = bound(Whole(0, FILES_A_JOB))
    path: str = bound(gate.PATH)
    device: int = bound(gate.SIZE)
    inode: int = bound(Whole(0, (1 << 64) - 1))
    pid: int = bound(gate.PID)
    ticks: int = bound(gate.TICKS)
    fd: int = bound(gate.PID)
    offset: int = bound(gate.SIZE, 0)
    mark: Optional[int] = maybe(MARK)
    marked: int = bound(gate.SIZE, 0)


RUNS_TOLD = 10_000
"""Run folders in one answer."""

PACKAGE = Text(300, r"[^\0/]+")
"""The name of a folder of an installed distribution: ``numpy-2.1.0.dist-info``."""
PACKAGES_TOLD = 20_000
"""Of them in one answer."""

BASES = 1000
"""Folders of run folders that one node is asked about."""
