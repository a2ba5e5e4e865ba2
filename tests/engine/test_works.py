"""Work as a session learns it: what one node says of its ranks changes nothing about the others'."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cockpit.core.pace.pace import Pace
from cockpit.core.recorder.look import look
from cockpit.core.recorder.members import Memberships
from cockpit.engine.recorder import Heard
from cockpit.engine.run import unworked
from cockpit.engine.works import Works
from tests.recorder.training import Training


class Told:
    """Recorders of a training that has just ended, some of whose ranks say that they are on NCCL."""

    def __init__(self, nccl: int) -> None:
        run = Training(1, 4, lambda rank, *_: 60_000 if rank == 2 else 20_000)
        other = Training(1, 4, lambda rank, *_: 60_000 if rank == 2 else 20_000, backend="nccl")
        self.pace = Pace(range(4))
        steps = run.step_times()
        ahead = round(time.time() * 1e6) - max(step.end_us for some in steps.values() for step in some)
        for rank, some in steps.items():
            for step in some:
                self.pace.stepped(rank, step.number, (step.end_us + ahead) / 1e6)
        recorded = {**run.recorded(), **{rank: other.recorded()[rank] for rank in range(nccl)}}
        self._recorded = {
            rank: one._replace(
                traces=tuple(trace.shifted(ahead) for trace in one.traces), taken_us=one.taken_us + ahead
            )
            for rank, one in recorded.items()
        }

    async def look(self, since: float) -> Heard:
        return Heard(look(self._recorded, Memberships(4)), {}, True)


@pytest.mark.parametrize(("nccl", "lag"), [(0, False), (4, True)])
def test_on_nccl_it_is_enqueue_lag(nccl: int, lag: bool) -> None:
    told = Told(nccl)
    party: Any = SimpleNamespace()
    works = Works(party, told.pace)
    works._recorders = told  # type: ignore[assignment]
    asyncio.run(works.look())
    assert told.pace.works
    assert told.pace.lags is lag
    named, other = told.pace.slow(), told.pace.late()
    assert [one.rank for one in (other if lag else named)] == [2]
    assert (named if lag else other) == []


def test_why_work_is_not_known_is_kept(tmp_path: Path) -> None:
    told = Told(0)

    async def looked(since: float) -> Heard:
        recorded = {
            rank: one._replace(traces=tuple(each._replace(from_us=1 << 55) for each in one.traces))
            for rank, one in told._recorded.items()
            if rank < 3
        }
        return Heard(look(recorded, Memberships(4)), {3: "no answer\x1b"}, True)

    told.look = looked  # type: ignore[method-assign]
    party: Any = SimpleNamespace()
    works = Works(party, told.pace, folder=tmp_path)
    works._recorders = told  # type: ignore[assignment]
    asyncio.run(works.look())
    assert told.pace.unworked[3] == "no answer\x1b"
    found = unworked.kept(tmp_path)
    assert sorted(found) == [0, 1, 2, 3]
    assert "\x1b" not in found[3]
    assert all(found.values())
    # Once it is known, nothing is left of it.
    works._recorders = Told(0)  # type: ignore[assignment]
    asyncio.run(works.look())
    assert unworked.kept(tmp_path) == {}
    for data in (b"", b"[", b"[]", b'{"x": "y"}', b'{"0": 7}', b"[" * 100_000):
        (tmp_path / unworked.NAME).write_bytes(data)
        assert unworked.kept(tmp_path) == {}


def test_one_rank_that_says_nccl_does_not_hide_who_is_slow() -> None:
    told = Told(1)
    party: Any = SimpleNamespace()
    works = Works(party, told.pace)
    works._recorders = told  # type: ignore[assignment]
    asyncio.run(works.look())
    assert not told.pace.lags
