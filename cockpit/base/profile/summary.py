"""What a node says of the profile of one rank: kilobytes, of a trace of megabytes.

All times are nanoseconds. Those of a step are lengths of unions, clipped to the step, never sums of events;
each moment of a step counts once. In this order, the first that it is in:

=============  ===================================================================================
data           the training thread is in a data loader's ``__next__``
compute        an operation runs: a kernel or a copy on a GPU if the trace has kernels, else an operator of
               torch on any thread, those that only start a collective or wait for one left out
communication  a collective runs, and nothing of the above: *exposed*
idle           nothing of these: Python, the launch of kernels, sleep
=============  ===================================================================================

A GPU goes on while its training thread waits for data: where the trace has kernels, compute comes before
data.
"""

from __future__ import annotations

from typing import Optional, Tuple

from cockpit.base import gate
from cockpit.base.gate import Definition, ListOf, RowOf, Text, Whole, bound, maybe
from cockpit.base.shared_fields import PROFILE_STEPS

NS = Whole(0, 1 << 62)
LENGTH = Whole(0, 1 << 53)
NAME = Text(200, cut=True)
MOST_OPERATIONS, MOST_COLLECTIVES = 300, 4000


class StepTimes(Definition):
    """One step that was profiled.

    :param began: unix nanoseconds, the node's clock; ``took``: until the next one began
    :param overlapped: of communication: beside compute or data
    :param phases: input, forward, backward, update from the ring; -1: not known
    """

    step: int = bound(gate.COUNT)
    began: int = bound(NS)
    took: int = bound(LENGTH)
    data: int = bound(LENGTH, 0)
    compute: int = bound(LENGTH, 0)
    communication: int = bound(LENGTH, 0)
    idle: int = bound(LENGTH, 0)
    overlapped: int = bound(LENGTH, 0)
    phases: Tuple[int, ...] = bound(ListOf(Whole(-1, 1 << 53), 4), ())


class Operation(Definition):
    """All calls of one operation in all steps, and what lies in these of one that began before.

    :param own: its time without that of what it calls on its thread; on a GPU the kernel's
    :param count: those that begin in a step
    :param kind: ``data``, ``compute``, ``communication``, ``copy``, ``python``, ``system`` (calls of the
        operating system), ``sample`` (a function, by how often it was sampled) or ``other``: where the trace
        has kernels, also operators of torch, which only launch them
    """

    name: str = bound(NAME)
    kind: str = bound(gate.WORD)
    own: int = bound(LENGTH)
    count: int = bound(gate.COUNT)


class Collective(Definition):
    """One call of a collective on this rank.

    :param group: description and name, as far as the trace has them
    :param key: the same on all of its ranks: group and sequence number where the trace has them, else
        operation, sizes, and the how-manieth of these in its step; of a ``send`` and its ``recv`` the same,
        if the trace has their ranks
    :param began: after the step began; ``exposed``: of ``took``, with neither compute nor data beside it
    :param size: bytes that go in; 0: not known
    :param ranks: of its group; 0: not known
    :param phase: in which it ended, by the marks of the training thread: 1 forward, 2 backward, 3 update; -1:
        not known
    """

    step: int = bound(gate.COUNT)
    name: str = bound(NAME)
    group: str = bound(NAME, "")
    key: str = bound(NAME)
    size: int = bound(gate.SIZE, 0)
    ranks: int = bound(Whole(0, gate.RANK_LIMIT), 0)
    began: int = bound(LENGTH)
    took: int = bound(LENGTH)
    exposed: int = bound(LENGTH)
    phase: int = bound(Whole(-1, 3), -1)


class RankProfile(Definition):
    """The summary of one rank's trace.

    :param device: ``gpu``: the trace has kernels; ``cpu``
    :param backend: of torch.distributed, as the trace says: ``nccl``, ``gloo``; empty: it does not
    :param operations: those with most time, of ``operations_all`` names
    :param names: a hash over those of torch's operators, on any thread, and of collectives, but for operators
        that read a number to print it; of kernels, if there are no operators
    :param collectives: the first, of ``collectives_all``
    :param began: when the profiler began, unix nanoseconds of the node's clock
    :param before: seconds of a step, median, of the last ones before the profile; None: not known
    :param stop_s: how long stopping the profiler, and saving its trace, held the rank up; ``warm_s``: the
        same of its first start
    :param sha256: of the file on the node
    :param notes: what makes the numbers less than they seem
    """

    rank: int = bound(gate.RANK)
    node: str = bound(Text(255), "")
    device: str = bound(gate.WORD)
    backend: str = bound(gate.WORD, "")
    torch: str = bound(gate.WORD, "")
    steps: Tuple[StepTimes, ...] = bound(ListOf(RowOf(StepTimes), PROFILE_STEPS))
    operations: Tuple[Operation, ...] = bound(ListOf(RowOf(Operation), MOST_OPERATIONS), ())
    operations_all: int = bound(gate.COUNT, 0)
    names: str = bound(gate.WORD, "")
    collectives: Tuple[Collective, ...] = bound(ListOf(RowOf(Collective), MOST_COLLECTIVES), ())
    collectives_all: int = bound(gate.COUNT, 0)
    events: int = bound(gate.COUNT, 0)
    began: int = bound(NS, 0)
    before: Optional[float] = maybe(gate.SECONDS)
    stop_s: float = bound(gate.SECONDS, 0.0)
    warm_s: float = bound(gate.SECONDS, 0.0)
    file: str = bound(gate.FILE_NAME)
    size: int = bound(gate.SIZE)
    sha256: str = bound(Text(64, r"[0-9a-f]{64}"))
    notes: Tuple[str, ...] = bound(ListOf(gate.SENTENCE, 20), ())
