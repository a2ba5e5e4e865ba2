"""Calls that NCCL's backend sends off together, in healthy jobs and in those that hang."""

from __future__ import annotations

from typing import Any

import pytest

from cockpit.base.recorder.packing import pack
from cockpit.base.recorder.reading import read_pickle
from cockpit.base.recorder.trace import SOURCES, reduced
from cockpit.base.recorder.unpacking import unpack
from cockpit.core.recorder.late import lasts
from cockpit.core.recorder.members import Memberships
from cockpit.core.recorder.merge import Look, Recorded, look
from cockpit.core.recorder.report import as_json, as_lines
from cockpit.core.stacks.collectives import of_look
from cockpit.core.stacks.verdict import verdict
from tests.core.test_verdict import collective, named, snapshot, still
from tests.core.test_verdict_facts import SLEEPS
from tests.recorder.enqueued import Rank, seen

MINUTE_S = 60.0
QUIET = ["collectives:", "  no rank waits for another one (0-2 inspected)"]


def pipeline(steps: int = 5) -> list[Rank]:
    """Three stages, two micro-batches a step, and an all_reduce at its end: as many batches as neighbours."""
    ranks = [Rank(rank, 3) for rank in range(3)]
    for one in ranks:
        for _ in range(steps):
            for _ in range(2):
                if one.rank > 0:
                    one.exchange(("recv", one.rank - 1))
                if one.rank < 2:
                    one.exchange(("send", one.rank + 1))
            one.collective("all_reduce", 3)
            one.later(0.1)
    return ranks


def quiet(found: Look) -> bool:
    """Whether nothing at all is wrong."""
    return not (found.open() or found.pairs or found.differences() or found.missing())


def test_a_healthy_pipeline() -> None:
    found = seen(pipeline())
    assert as_lines(found, {}) == QUIET
    assert quiet(found)
    assert [(one.number, one.call.op, one.complete) for one in found.collectives] == [
        (number, "all_reduce", True) for number in range(1, 6)
    ]


@pytest.mark.parametrize("last", range(1, 12))
def test_a_healthy_pipeline_of_which_recorders_have_forgotten_the_beginning(last: int) -> None:
    assert quiet(seen(pipeline(), last=last))


def test_a_stage_that_hangs_before_a_collective() -> None:
    ranks = pipeline()
    for one in (ranks[0], ranks[2]):
        one.collective("all_reduce", 3, state="scheduled")
    found = seen(ranks)
    assert found.missing(1_000_000) == 0b010
    assert [(one.number, one.going, one.absent) for one in found.open()] == [(6, 0b101, 0b010)]
    assert found.pairs == ()


def test_a_stage_that_hangs_between_two_batches() -> None:
    ranks = pipeline()
    ranks[0].exchange(("send", 1), state="started")
    ranks[2].exchange(("recv", 1), state="started")
    found = seen(ranks)
    assert found.missing(1_000_000) == 0b010
    assert [(pair.rank, pair.peer, pair.alone) for pair in found.pairs] == [(0, 1, True), (2, 1, True)]
    assert as_lines(found, {})[1:3] == [
        "  rank 1 has not entered what others wait for",
        "  rank 0 has been in a send to rank 1 for 60.0 s, number 11 of all ranks (group 0); "
        "rank 1 has not received",
    ]
    taken = snapshot(3, still(collective("batch_isend_irecv")), {1: SLEEPS})
    taken.collectives = of_look(found, {}, 1001.0)
    assert taken.collectives.since_s == pytest.approx(MINUTE_S, abs=1)
    told = verdict(taken)
    named(told, "absent", 1, certainty="sure")
    assert told.what.startswith("rank 1 did not join the ")


def test_who_waits_for_a_stage_that_waits_itself_is_not_missing() -> None:
    ranks = pipeline()
    ranks[1].exchange(("recv", 0), state="started")
    ranks[2].exchange(("recv", 1), state="started")
    found = seen(ranks)
    assert found.missing(1_000_000) == 0b001
    # A moment later the same is how a pipeline fills.
    assert seen(ranks, later_s=0.01).missing(1_000_000) == 0
    assert as_lines(seen(ranks, later_s=0.01), {}) == QUIET


def test_those_who_meet_wait_for_nobody_in_particular() -> None:
    ranks = pipeline()
    ranks[0].exchange(("send", 1), ("recv", 1), state="started")
    ranks[1].exchange(("recv", 0), ("send", 0), state="started")
    found = seen(ranks)
    assert found.missing() == 0
    assert [(pair.rank, pair.peer, pair.alone) for pair in found.pairs] == [
        (0, 1, False),
        (0, 1, False),
        (1, 0, False),
        (1, 0, False),
    ]


def test_a_batch_whose_end_was_not_reached() -> None:
    ranks = pipeline()
    ranks[0].exchange(("send", 1), ends=False)
    assert [(pair.rank, pair.peer) for pair in seen(ranks).pairs] == [(0, 1)]


@pytest.mark.parametrize(
    ("op", "end", "listed"),
    [
        ("_broadcast_oop", "coalesced", True),
        ("_broadcast_oop", "ALLGATHER_coalesced", True),
        ("_reduce_oop", "REDUCE_SCATTER_coalesced", True),
        ("all_reduce", "coalesced", True),
        ("_broadcast_oop", "coalesced", False),
    ],
)
def test_collectives_that_are_sent_off_together(op: str, end: str, listed: bool) -> None:
    ranks = [Rank(rank, 3) for rank in range(3)]
    for one in ranks:
        for _ in range(3):
            one.coalesced(op, [2, 4, 6], end, listed=listed)
        one.collective("all_reduce", 3)
    for last in (None, 4, 3, 2):
        found = seen(ranks, last=last)
        assert as_lines(found, {}) == QUIET
        assert quiet(found)
    for one in ranks[:2]:
        one.coalesced(op, [2, 4, 6], end, "started", listed=listed)
    found = seen(ranks)
    assert found.missing() == 0b100
    assert [(one.number, one.call.op) for one in found.open()] == [(5, op if listed else end)]


def test_coalesced_calls_that_torch_records_as_one() -> None:
    ranks = [Rank(rank, 3) for rank in range(3)]
    for one in ranks:
        one.collective("reduce_scatter_tensor_coalesced", 8, 16)
        one.collective("allreduce_coalesced", 8, 16)
    assert as_lines(seen(ranks), {}) == QUIET
    ranks[0].collective("reduce_scatter_tensor_coalesced", 8, 16, state="started")
    found = seen(ranks)
    assert [(one.number, one.going, one.absent) for one in found.open()] == [(3, 0b001, 0b110)]


def late(ranks: int, *lags_ms: int, last: int = 1) -> Look:
    """Collectives in which one rank is so much later than the others."""
    found = [Rank(rank, ranks) for rank in range(ranks)]
    for lag_ms in lags_ms:
        for one in found:
            one.later(lag_ms / 1000 if one.rank == last else 0.0)
            one.collective("all_reduce", 3)
            one.later(0.0 if one.rank == last else lag_ms / 1000)
    return seen(found)


def test_who_is_last_and_by_how_much() -> None:
    (one,) = lasts(late(3, *[100, 0, 200] * 3).collectives)
    assert (one.rank, one.looked, one.waited, one.times) == (1, 9, 6, 6)
    assert one.lag_us == pytest.approx(150_000, abs=2000)
    assert as_lines(late(3, *[100] * 9), {})[2] == (
        "  enqueues last in all ranks: rank 1, in 9 of the last 9 collectives, 100 ms after the others"
    )
    # By little, or seldom.
    assert lasts(late(3, *[15] * 50).collectives) == []
    assert lasts(late(3, *[0] * 50, *[500] * 4).collectives) == []


STACK = [
    {"name": "all_reduce", "filename": "/opt/venv/lib/python3.11/site-packages/torch/a.py", "line": 2696},
    {"name": "step", "filename": "/home/ada/secret/train.py", "line": 7},
    {"name": "<module>", "filename": "/home/ada/secret/train.py", "line": 40},
]


def test_the_line_at_which_ranks_wait() -> None:
    ranks = pipeline(steps=1)
    for one in ranks[:2]:
        one.collective("all_reduce", 3, state="started", frames=STACK)
    traces = {one.rank: read_pickle(one.pickled()) for one in ranks}
    assert [entry.source for entry in traces[0].entries[-2:]] == ["", "train.py:7 step"]
    at_us = ranks[0].now_ns // 1000 + 60_000_000
    recorded = {
        rank: Recorded(at_us, (unpack(pack(reduced(trace, 0, 4000)), str),)) for rank, trace in traces.items()
    }
    found = look(recorded, Memberships(3))
    assert as_lines(found, {})[2].endswith("rank 2 has not entered; called at train.py:7 step")
    assert as_json(found, {})["waits"][0]["sources"] == {"train.py:7 step": "0-1"}
    assert of_look(found, {}, 1001.0).waits[0].source == "train.py:7 step"


@pytest.mark.parametrize(
    "frames",
    [7, [], [7], [{}], [{"name": 1, "filename": "x.py", "line": 1}], [{"name": "f", "filename": None}]],
)
def test_stacks_that_are_none(frames: Any) -> None:
    one = Rank(0, 1)
    one.collective("all_reduce", 3, frames=frames)
    (entry,) = read_pickle(one.pickled()).entries
    assert entry.source == ""


def test_stacks_of_many_calls_are_bounded() -> None:
    one = Rank(0, 1)
    for place in range(SOURCES + 50):
        one.collective("all_reduce", 3, state="scheduled", frames=[{**STACK[1], "line": place}])
    trace = read_pickle(one.pickled())
    assert sum(bool(entry.source) for entry in trace.entries) == SOURCES
    assert trace.entries[-1].source == f"train.py:{SOURCES + 49} step"
    assert unpack(pack(trace), str) == trace


def test_whether_a_group_got_over_what_does_not_match() -> None:
    ranks = [Rank(rank, 3) for rank in range(3)]
    for one in ranks:
        one.collective("all_reduce", 8 + one.rank % 2)
    assert [one.last for one in of_look(seen(ranks), {}, 1001.0).mismatches] == [True]
    for one in ranks:
        one.collective("all_reduce", 3)
    (differs,) = of_look(seen(ranks), {}, 1001.0).mismatches
    assert (differs.last, differs.odd) == (False, 0b010)


def test_what_a_cuda_graph_captured_has_no_end_and_is_over_once_a_later_one_is() -> None:
    ranks = [Rank(rank, 3) for rank in range(3)]
    for one in ranks:
        one.collective("all_reduce", 8, state="scheduled")
        one.collective("all_reduce", 3)
    assert as_lines(seen(ranks), {}) == QUIET
