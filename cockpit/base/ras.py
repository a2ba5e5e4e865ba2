"""What NCCL's RAS knows of a job, cut down to what is unusual: the rows that cross a link.

RAS is a thread in each process that uses NCCL (2.24 and newer); together they answer for the whole job. What
its fields mean is from NCCL's user guide (``troubleshooting/ras.rst``) and its ``src/ras/client_support.cc``.
"""

from __future__ import annotations

from typing import Tuple

from cockpit.base import gate
from cockpit.base.gate import Definition, ListOf, Of, Text, Whole, bound

MEMBERS = 64
"""Ranks of one group that are named; how many there are is always told."""

NAMED = 4000
"""Ranks that one answer names."""

COMMUNICATORS = 64
"""Communicators that are told one by one: those with something unusual first, then the largest."""

GROUPS = 8
"""Different counts of one operation that are told, those of most ranks first."""

OPERATIONS = 16

RUNNING = "running"
"""The state of a rank that has nothing unusual."""

HASH = Text(100, r"0x[0-9a-f]{1,16}(:0x[0-9a-f]{1,16})?")
HOST = Text(64, r"[0-9A-Za-z.:%_-]*")
VERSION = Text(60, r"[0-9A-Za-z.+~_-]*")
OPERATION = Text(40, r"[A-Za-z0-9_]+")


class Member(Definition):
    """A rank of a communicator.

    :param number: its rank there, which is not the job's
    :param host: the address by which its process is known to the others; empty: not known
    :param pid: of its process, as that one sees itself in a container; 0: not known
    """

    number: int = bound(gate.RANK)
    host: str = bound(HOST)
    pid: int = bound(gate.PID)


_MEMBERS = ListOf(Of(Member), MEMBERS)


class Counted(Definition):
    """Ranks that have launched an operation equally often: a CPU's view, a GPU may be behind.

    :param op: ``AllReduce``, as NCCL calls it
    :param times: since the communicator was made
    :param ranks: how many ranks; ``members``: some of them
    """

    op: str = bound(OPERATION)
    times: int = bound(Whole(0, (1 << 64) - 1))
    ranks: int = bound(gate.COUNT)
    members: Tuple[Member, ...] = bound(_MEMBERS, ())


class Stated(Definition):
    """Ranks in one state.

    :param state: ``running``, ``init``, ``finalize``, ``abort``, or an error: ``remote process error``
    :param ranks: how many ranks; ``members``: some of them
    """

    state: str = bound(Text(60, r"[A-Za-z0-9 ]+"))
    ranks: int = bound(gate.COUNT)
    members: Tuple[Member, ...] = bound(_MEMBERS, ())


class Lost(Definition):
    """A rank of which RAS has no data.

    :param unresponsive: its process did not answer; false: it did, and is no member (yet, or any more)
    :param dead: RAS has given it up, after 60 s
    """

    member: Member = bound(Of(Member))
    unresponsive: bool = bound(gate.FLAG)
    dead: bool = bound(gate.FLAG)


class Communicator(Definition):
    """A communicator.

    :param hash: as in NCCL's own output; with ``second`` it is unique
    :param size: its ranks; ``heard``: those that told about it; ``missing``: how many RAS misses
    :param counts: by operation, those of most ranks first; operations that nobody has launched are left out
    """

    hash: str = bound(HASH)
    second: str = bound(HASH)
    size: int = bound(Whole(0, gate.RANK_LIMIT))
    heard: int = bound(gate.COUNT)
    missing: int = bound(gate.COUNT, 0)
    lost: Tuple[Lost, ...] = bound(ListOf(Of(Lost), MEMBERS), ())
    states: Tuple[Stated, ...] = bound(ListOf(Of(Stated), OPERATIONS), ())
    counts: Tuple[Counted, ...] = bound(ListOf(Of(Counted), OPERATIONS * GROUPS), ())

    @property
    def differing(self) -> Tuple[str, ...]:
        """Operations that its ranks have not launched equally often."""
        ops = [one.op for one in self.counts]
        return tuple(dict.fromkeys(op for op in ops if ops.count(op) > 1))

    @property
    def odd(self) -> bool:
        """Whether anything about it is unusual; in training that goes on, differing counts are not."""
        return bool(self.missing or self.differing or any(one.state != RUNNING for one in self.states))


class RasAnswer(Definition):
    """NCCL's version, how many communicators there are, and rows of them; `kind`, `what`: why none"""

    at: float = bound(gate.TIME)
    """When it was asked, on the node's clock."""
    took_s: float = bound(gate.SECONDS, 0.0)
    version: str = bound(VERSION, "")
    timeouts: int = bound(gate.COUNT, 0)
    """Processes that RAS did not wait for any longer."""
    communicators: int = bound(gate.COUNT, 0)
    odd: int = bound(gate.COUNT, 0)
    """Communicators with something unusual: these come first."""
    rows: Tuple[Communicator, ...] = bound(ListOf(Of(Communicator), COMMUNICATORS), ())
    kind: str = bound(gate.WORD, "")
    what: str = bound(gate.SENTENCE, "")
