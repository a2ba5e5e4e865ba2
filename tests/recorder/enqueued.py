"""What torch's recorder has of a rank on NCCL: entries as ``ProcessGroupNCCL`` of torch 2.13 makes them.

There is no GPU here. What is written when is told in :mod:`cockpit.base.recorder.batches`.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from typing import Any

from cockpit.base.recorder.reading import read_json
from cockpit.core.recorder.members import Memberships
from cockpit.core.recorder.merge import Look, Recorded, look

BEGAN_NS = 10**18
Frames = list[dict[str, Any]]


class Rank:
    """One rank's recorder; each call takes a millisecond."""

    def __init__(self, rank: int, world: int, began_ns: int = BEGAN_NS) -> None:
        self.rank = rank
        self.entries: list[dict[str, Any]] = []
        self.now_ns = began_ns
        self._world = world
        self._collectives = self._pairs = self._calls = 0

    def collective(
        self, op: str, *sizes: int, state: str = "completed", frames: Frames | None = None
    ) -> None:
        """A collective of tensors of these sizes."""
        self._collectives += 1
        self._add(op, sizes, state, frames=frames)

    def exchange(self, *peers: tuple[str, int], state: str = "completed", ends: bool = True) -> None:
        """``batch_isend_irecv``: each of ``("send", 1)``.

        :param ends: whether the rank came to the end of the batch
        """
        self._pairs += 1
        for op, peer in peers:
            arrow = "->" if op == "send" else "<-"
            self._add(f"{op} {self.rank}{arrow}{peer}", (8,), "scheduled", p2p=True)
        if ends:
            self._add("coalesced", (), state, p2p=True)

    def coalesced(
        self, op: str, sizes: Sequence[int], end: str, state: str = "completed", *, listed: bool = True
    ) -> None:
        """Collectives that are sent off together.

        :param listed: whether they are recorded themselves, as since torch 2.7
        """
        self._collectives += 1
        for size in sizes if listed else ():
            self._add(op, (size,), "scheduled")
        self._add(end, (), state)

    def later(self, seconds: float) -> None:
        """Time goes by."""
        self.now_ns += round(seconds * 1e9)

    def again(self) -> None:
        """All groups are destroyed and made again."""
        self._collectives = self._pairs = 0
        self.later(1.0)

    def _add(
        self,
        op: str,
        sizes: Sequence[int],
        state: str,
        *,
        p2p: bool = False,
        frames: Frames | None = None,
    ) -> None:
        self._calls += 1
        self.now_ns += 10**6
        entry: dict[str, Any] = {
            "record_id": len(self.entries),
            "pg_id": 0,
            "process_group": ["0", "default_pg"],
            "collective_seq_id": self._collectives,
            "p2p_seq_id": self._pairs,
            "op_id": self._calls,
            "profiling_name": f"nccl:{op}",
            "input_sizes": [[size] for size in sizes],
            "output_sizes": [[size] for size in sizes],
            "input_dtypes": ["Float"] * len(sizes),
            "output_dtypes": ["Float"] * len(sizes),
            "state": state,
            "retired": state == "completed",
            "is_p2p": p2p,
            "time_created_ns": self.now_ns,
            "timeout_ms": 600_000,
            "time_discovered_started_ns": None,
            "time_discovered_completed_ns": None,
        }
        self.entries.append({**entry, "frames": frames} if frames is not None else entry)

    def told(self) -> dict[str, Any]:
        """The dump."""
        ranks = str(list(range(self._world)))
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}
        return {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": self.entries}

    def pickled(self) -> bytes:
        """The dump as NCCL's watchdog writes it."""
        for entry in self.entries:
            entry["process_group"] = tuple(entry["process_group"])
        return pickle.dumps(self.told(), 2)


def seen(ranks: Sequence[Rank], later_s: float = 60.0, last: int | None = None) -> Look:
    """A look at them all, so long after the last call.

    :param last: the recorders have kept this many entries only
    """
    at_us = max(one.now_ns for one in ranks) // 1000 + round(later_s * 1e6)
    recorded = {}
    for one in ranks:
        told = one.told()
        if last is not None:
            told["entries"] = told["entries"][-last:]
        trace = read_json(json.dumps(told).encode(), "dump_nccl_trace_json")
        recorded[one.rank] = Recorded(at_us, (trace,))
    return look(recorded, Memberships(len(ranks)))
