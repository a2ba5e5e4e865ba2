"""Simulated training: what the recorders of all ranks would have, with delays that are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from cockpit.base.recorder.trace import DONE, Call, Entry, Group, Trace, lows
from cockpit.core.recorder.merge import Recorded
from cockpit.core.recorder.work import Step

WORLD = Group("gloo", "0", "default_pg")


@dataclass
class Training:
    """Tensor-parallel × data-parallel: forward with its collectives, backward with buckets, one for all.

    :param tensor: ranks of a tensor-parallel group; ``data``: of a data-parallel one
    :param busy: microseconds that a rank computes in a part of a step: ``data``, ``forward``, ``backward``
    :param after: microseconds that are computed when the last bucket was sent off
    :param norm: whether there is one for all
    :param update: microseconds that a rank computes at the end of a step, when it has waited for the others
    :param layers: collectives of the forward pass
    :param buckets: collectives of the backward pass, which nobody waits for until its end
    """

    tensor: int
    data: int
    busy: Callable[[int, int, str], int]
    layers: int = 2
    buckets: int = 4
    after: int = 0
    norm: bool = True
    update: Callable[[int, int], int] = lambda rank, step: 50
    backend: str = "gloo"
    steps: int = 12
    entries: dict[int, list[Entry]] = field(default_factory=dict)
    ends: dict[int, list[int]] = field(default_factory=dict)
    computed: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ranks = range(self.tensor * self.data)
        self._now = dict.fromkeys(ranks, 1_000_000_000)
        self._numbers: dict[tuple[int, Group], int] = {}
        self.entries = {rank: [] for rank in ranks}
        self.ends = {rank: [1_000_000_000] for rank in ranks}
        for step in range(self.steps):
            self._step(step)

    def _step(self, step: int) -> None:
        for rank in self._now:
            self._compute(step, rank, self.busy(rank, step, "data"))
        for layer in range(self.layers):
            for rank in self._now:
                self._compute(step, rank, self.busy(rank, step, "forward") // self.layers)
            for group, members in self._tensor_groups():
                self._wait(members, [self._enter(rank, group, 512 + layer) for rank in members])
        ready = dict(self._now)
        for bucket in range(self.buckets):
            for rank in self._now:
                self._compute(step, rank, self.busy(rank, step, "backward") // self.buckets)
            for group, members in self._data_groups():
                last = max(self._enter(rank, group, 1000 + bucket) for rank in members)
                for rank in members:
                    ready[rank] = max(ready[rank], last)
        for rank in self._now:
            self._compute(step, rank, self.after)
            self._now[rank] = max(self._now[rank], ready[rank])
        if self.norm:
            self._wait(list(self._now), [self._enter(rank, WORLD, 1) for rank in self._now])
        for rank in self._now:
            self._compute(step, rank, self.update(rank, step))
            self.ends[rank].append(self._now[rank])

    def _compute(self, step: int, rank: int, us: int) -> None:
        self._now[rank] += us
        self.computed[rank, step] = self.computed.get((rank, step), 0) + us

    def _enter(self, rank: int, group: Group, size: int) -> int:
        group = group._replace(backend=self.backend)
        number = self._numbers[rank, group] = self._numbers.get((rank, group), 0) + 1
        call = Call(group, "all_reduce", str(size), size, size, "Float", -1)
        self.entries[rank].append(Entry(call, number, self._now[rank], DONE))
        return self._now[rank]

    def _wait(self, members: list[int], arrivals: list[int]) -> None:
        for rank in members:
            self._now[rank] = max(self._now[rank], *arrivals, 0)

    def _tensor_groups(self) -> list[tuple[Group, list[int]]]:
        if self.tensor == 1:
            return []
        return [
            (Group("gloo", f"tp{first}", ""), [*range(first * self.tensor, (first + 1) * self.tensor)])
            for first in range(self.data)
        ]

    def _data_groups(self) -> list[tuple[Group, list[int]]]:
        if self.data == 1:
            return []
        ranks = range(self.tensor * self.data)
        return [
            (Group("gloo", f"dp{first}", ""), [*ranks[first :: self.tensor]]) for first in range(self.tensor)
        ]

    def recorded(self, keep: dict[int, int] | None = None) -> dict[int, Recorded]:
        """What all recorders have at the end; ``keep``: how many entries some of them hold."""
        found = {}
        for rank, entries in self.entries.items():
            room = (keep or {}).get(rank, len(entries))
            rows = tuple(entries[-room:])
            whole = len(rows) == len(entries)
            from_us = 0 if whole else rows[0].at_us
            trace = Trace("test", "2.10", rows, from_us, whole, lows(rows))
            found[rank] = Recorded(self.ends[rank][-1], (trace,))
        return found

    def step_times(self) -> dict[int, list[Step]]:
        """The steps of each rank."""
        return {
            rank: [Step(number, *span) for number, span in enumerate(pairwise(ends))]
            for rank, ends in self.ends.items()
        }

    @property
    def world(self) -> int:
        """How many ranks there are."""
        return len(self.entries)
