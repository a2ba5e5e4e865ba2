"""What a profile is to be: ranks, steps, cost; and when there can be none, why, and what to type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from cockpit.base.answers import RankWindow
from cockpit.base.profile.summary import RankProfile, StepTimes
from cockpit.core.profile.collection import DONE, Collection, RankResult
from cockpit.engine.profile.choose import LARGER, Known, Met, Plan, Wish
from cockpit.engine.profile.choose_nsys import choose
from cockpit.errors import CockpitError

GB = 10**9


def met(nodes: int = 2, a_node: int = 2, kind: str = "torch", **of_all: Any) -> Met:
    """What healthy nodes say."""
    window = {"step": 100, "age_s": 0.05, "step_s": 0.2, **of_all}
    node = {rank: f"gpu{rank // a_node:02}" for rank in range(nodes * a_node)}
    windows = {rank: RankWindow(rank, **window) for rank in node}
    return Met(kind, windows, node, {}, dict.fromkeys(node.values(), 100 * GB), 50.0, 0.01)


def other(found: Met, windows: Mapping[int, Mapping[str, Any]], **more: Any) -> Met:
    """The same, but for some ranks."""
    changed = {rank: replace(found.windows[rank], **fields) for rank, fields in windows.items()}
    return replace(found, windows={**found.windows, **changed}, **more)


def plan(found: Met, wish: Wish | None = None, known: Known | None = None, now: float = 50.0) -> Plan:
    """What is chosen."""
    return choose(wish or Wish(), found, known or Known(), now)


def refused(found: Met, wish: Wish | None = None, known: Known | None = None) -> str:
    """Why nothing is."""
    with pytest.raises(CockpitError) as raised:
        plan(found, wish, known)
    assert raised.value.hint
    return str(raised.value)


def earlier(events: int, backend: str = "nccl", size: int = 10**6, steps: int = 1) -> Collection:
    """A collection of this run."""
    each = tuple(StepTimes(step, 1, 1) for step in range(steps))
    summary = RankProfile(
        0, "gpu00", "gpu", backend, "2.13", each, events=events, file="f", size=size, sha256="0" * 64
    )
    results = {0: RankResult(0, "gpu00", DONE, summary=summary)}
    return Collection(1, "x", "r", "torch", 0.0, 1, 1, None, ("shapes",), results)


def test_all_ranks_up_to_64_and_a_selection_beyond() -> None:
    assert plan(met(8, 8)).ranks == tuple(range(64))
    of_many = met(9, 8)
    assert plan(of_many).ranks == (0, 8, 16, 24, 32, 35, 40, 48, 56, 64, 71)
    # The slowest one, as it is known, or as their steps say; and a median one.
    assert 13 in plan(of_many, known=Known(slowest=13)).ranks
    slow = other(of_many, {5: {"step_s": 0.4}, 9: {"step_s": 0.1}, 0: {"why": "nsys is in its environment"}})
    assert plan(slow).ranks[:3] == (1, 5, 8)
    assert plan(slow).left_out == {}


def test_ranks_that_cannot_be_profiled_are_named() -> None:
    found = other(met(), {1: {"why": "it is already profiled"}, 2: {"step": None}}, absent={4: "exited 1"})
    made = plan(found)
    assert made.ranks == (0, 3)
    assert made.left_out == {1: "it is already profiled", 2: "its steps are not counted", 4: "exited 1"}
    assert plan(found, Wish(ranks=frozenset({0, 1}))).left_out == {1: "it is already profiled"}
    nobody = other(met(1), {0: {"why": "no probe"}, 1: {"why": "no probe"}})
    assert refused(nobody) == (
        "no rank can be profiled with torch: ranks 0-1: no probe; py-spy works on any rank: --kind cpu"
    )


def test_the_first_step_is_a_little_ahead_of_the_front() -> None:
    found = other(met(), {3: {"step": 102}})
    # A second and a round trip of steps of 0.2 s, and two more.
    assert plan(found).first == 102 + 2 + 6
    assert plan(found, now=51.0).first == 102 + 5 + 2 + 6
    assert plan(met(step_s=30.0)).first == 103
    assert plan(met(step_s=0.001)).first == 100 + 50 + 2 + 1020


def test_a_rank_that_is_nowhere_near_the_others_keeps_nobody_waiting() -> None:
    usual = plan(met(2, 2))
    for lie in ({"step": 1 << 40}, {"step": 1000}, {"age_s": 6e10}, {"step": 100_000}):
        found = plan(other(met(2, 2), {3: lie}))
        assert (found.ranks, found.first) == ((0, 1, 2), usual.first), lie
        assert found.left_out[3].startswith("it is at step ")
    assert plan(other(met(2, 2), {3: {"step": 150}})).ranks == (0, 1, 2, 3)
    assert plan(other(met(2, 2), {3: {"step": 1 << 40}}), Wish(ranks=frozenset({3}))).ranks == (3,)


def test_ranks_of_which_as_many_are_elsewhere_are_told_apart_by_a_person() -> None:
    said = refused(other(met(2, 2), {2: {"step": 9**9}, 3: {"step": 9**9}}))
    assert "rank 2 is at step 387,420,489, ranks 0-1 at 100" in said
    assert "--ranks 0-1" in said


@pytest.mark.parametrize("step_s", [5e-324, 1e-300, -1.0, 0.0])
def test_steps_of_no_length_are_none(step_s: float) -> None:
    assert "unknown" in refused(met(2, 2, step_s=step_s))
    assert plan(other(met(2, 2), {0: {"step_s": step_s}})).estimate.wait_s < 10


def test_one_node_that_told_of_a_huge_trace_prevents_no_later_profile() -> None:
    one = earlier(5000)
    summary = one.results[0].summary
    assert summary is not None
    lied = replace(summary, events=1 << 40, size=1 << 60)
    results = {rank: RankResult(rank, "n", DONE, summary=summary) for rank in (0, 1)}
    results[2] = RankResult(2, "n", DONE, summary=lied)
    found = plan(met(2, 2), known=Known(earlier=replace(one, results=results)))
    assert found.estimate.size <= 5 * LARGER * 10**6


def test_how_long() -> None:
    assert plan(met()).steps == 5
    assert plan(met(), Wish(steps=3)).steps == 3
    assert plan(met(), Wish(seconds=2.05)).steps == 10
    assert plan(met(), Wish(seconds=0.01)).steps == 1
    assert "101 steps are too many: 100 at most" in refused(met(), Wish(seconds=20.2))
    spied = met(kind="cpu")
    assert plan(spied).seconds == 10.0
    assert plan(spied, Wish(steps=11)).seconds == 3.0
    blind = met(kind="cpu", step=None, step_s=None, age_s=None)
    assert plan(blind, Wish(seconds=3.2)).seconds == 3.0
    assert "--steps: the steps of these ranks are not counted" in refused(blind, Wish(steps=3))


def test_a_deadline_ends_it_whatever_happens() -> None:
    made = plan(met(step_s=30.0))
    assert made.deadline_s > 60 + 8 * 30.0
    assert plan(met(kind="cpu")).deadline_s == 80.0


def test_its_cost_is_estimated() -> None:
    made = plan(met())
    # Facts: 1.98 MB of a step with shapes, 12 to 18 microseconds of each of its 5,100 events.
    assert made.estimate.raw / 5 == pytest.approx(1.98e6, rel=0.01)
    assert made.estimate.stop_s == pytest.approx((0.306, 0.459))
    assert plan(met(), Wish(shapes=False)).estimate.raw / 5 == pytest.approx(1.28e6, rel=0.01)
    every = plan(met(), Wish(stack=True, memory=True))
    assert every.estimate.raw / 5 == pytest.approx(3.37e6, rel=0.01)
    told = plan(met(), known=Known(earlier=earlier(2000, size=300_000, steps=2)))
    assert (told.estimate.raw, told.estimate.size) == (5 * 1000 * 387, 750_000)
    assert told.estimate.measured
    assert made.text == (
        "torch: steps 108 to 112 of ranks 0-3, in about 2 s; about 759 kB per rank (9.87 MB unpacked); "
        "each rank pauses for 0.3 to 0.5 s at the end"
    )


def test_refused_while_no_step_is_made() -> None:
    still = met(age_s=48.0)
    assert refused(still, known=Known(stalled="rank 3 waits in data.py:118")) == (
        "the run is not making steps: rank 3 waits in data.py:118; to see where ranks are: cockpit stacks"
    )
    said = refused(still)
    assert said.startswith("no step for 48 s, and one usually takes 200 ms: a checkpoint, an evaluation or a")
    assert "it is writing a checkpoint" in refused(still, known=Known(saved_s=47.0))
    assert "checkpoint, an evaluation" in refused(still, known=Known(saved_s=300.0))
    # Stale words of somebody who has watched do not count while ranks move.
    assert plan(met(), known=Known(stalled="rank 3 waits")).ranks
    # A rank alone may be far behind: what counts is the front.
    assert plan(other(met(), {1: {"age_s": 99.0}})).ranks
    assert plan(met(age_s=80.0, step_s=30.0)).ranks
    # py-spy shows what goes on in a long step; of a stall, stacks show more.
    assert plan(met(age_s=48.0, kind="cpu")).kind == "cpu"
    assert "is not making steps" in refused(met(age_s=48.0, kind="cpu"), known=Known(stalled="rank 3 waits"))


def test_refused_before_the_second_step() -> None:
    assert "only one step has ended" in refused(met(step_s=None))


def test_refused_where_the_disk_is_short() -> None:
    made = plan(met())
    need = 2 * (made.estimate.raw + made.estimate.size) + (64 << 20)
    found = met()
    assert plan(replace(found, free={**found.free, "gpu01": need})).ranks
    short = refused(replace(found, free={**found.free, "gpu01": need - 1}))
    assert short == (
        "too little room for traces on gpu01: 88.4 MB free on gpu01, 88.4 MB needed; free some there, or: "
        "--steps 2, or fewer --ranks"
    )


def recorded(size: int, steps: int = 5) -> Collection:
    """What nsys recorded of this run."""
    results = {0: RankResult(0, "gpu00", DONE, file="f.nsys-rep", size=size)}
    return Collection(1, "x", "r", "nsys", 0.0, 1, steps, before=0.2, results=results)


def test_nsys_records_steps_of_whole_nodes_once_it_has_started() -> None:
    made = plan(met(9, 8, kind="nsys"))
    assert (made.kind, made.ranks, made.steps, made.seconds) == ("nsys", tuple(range(72)), 5, 0.0)
    # The step that goes on now, and those until all nodes record: 4 s and a round trip of steps of 0.2 s.
    assert made.first == 100 + 1 + 1 + 21
    assert made.deadline_s > 60 + 5 * (made.estimate.wait_s + made.estimate.takes_s)
    assert made.text == (
        "nsys: steps 123 to 127 of ranks 0-71, in about 4 s; a report of each node, with all of its ranks"
    )
    # Around each rank, it records those alone that are asked for.
    alone = plan(met(9, 8, kind="nsys"), Wish(ranks=frozenset({3, 9})), Known(ready=True, apart=True))
    assert (alone.ranks, alone.cost) == ((3, 9), "a report of each rank")
    # Ranks that are elsewhere are on the same node all the same.
    assert plan(other(met(kind="nsys"), {3: {"step": 9**9}}), Wish(ranks=frozenset({0}))).ranks == (
        0,
        1,
        2,
        3,
    )


def test_nsys_records_seconds_where_no_steps_are_counted() -> None:
    blind = met(kind="nsys", step=None, step_s=None, age_s=None)
    assert (plan(blind).first, plan(blind).seconds) == (None, 5.0)
    made = plan(met(kind="nsys"), Wish(seconds=2.5))
    assert (made.first, made.steps, made.seconds) == (None, 0, 2.5)
    assert made.text == "nsys: ranks 0-3 for 2.5 s; a report of each node, with all of its ranks"
    assert "--steps: the steps of these ranks are not counted" in refused(blind, Wish(steps=3))
    assert "101 steps are too many" in refused(met(kind="nsys"), Wish(steps=101))


def test_nsys_is_refused_where_the_run_was_not_launched_ready_or_stands_still() -> None:
    why = "it was not launched with --profile nsys-ready"
    said = refused(other(met(1, kind="nsys"), {0: {"why": why}, 1: {"why": why}}))
    assert said == (
        f"no rank can be profiled with nsys: ranks 0-1: {why}; next time: cockpit run --profile nsys-ready "
        "…; now: --kind torch or --kind cpu"
    )
    assert "no step for 48 s" in refused(met(kind="nsys", age_s=48.0))
    stalled = Known(stalled="rank 3 waits")
    assert "is not making steps" in refused(met(kind="nsys", age_s=48.0), known=stalled)
    assert "is not making steps" in refused(met(kind="nsys", age_s=48.0), Wish(seconds=3), stalled)
    taken = other(met(1), {0: {"why": "nsys profiles it"}, 1: {"why": "nsys profiles it"}})
    assert refused(taken, known=Known(ready=True)).endswith("nsys profiles it; nsys can: --kind nsys")


def test_nsys_is_refused_where_the_disk_is_short() -> None:
    found = met(kind="nsys")
    free = {**found.free, "gpu01": 400_000_000}
    assert refused(replace(found, free=free)) == (
        "too little room for reports on gpu01: 400 MB free on gpu01, 500 MB needed; free some there, in the "
        "run folder and in its temporary folder"
    )
    apart = refused(replace(found, free=free), known=Known(ready=True, apart=True))
    assert "1 GB needed; free some" in apart
    # By what it wrote before: as many times as much as it is to last longer, and what it writes first.
    large = Known(recorded=recorded(GB))
    assert plan(found, known=large).estimate.size == pytest.approx(1.08 * GB)
    assert "about 1.08 GB" in plan(found, known=large).text
    assert plan(found, Wish(steps=50), large).estimate.size == pytest.approx(14.4 / 5 * GB)
    assert "or: --steps 25" in refused(replace(found, free={"gpu01": 4 * GB}), Wish(steps=50), large)


def test_refused_where_collectives_would_be_given_up() -> None:
    heavy = Known(earlier=earlier(700_000))
    assert "more than a tenth of the 10 min 00 s" in refused(met(), known=heavy)
    assert plan(met(), known=Known(earlier=earlier(700_000, backend="gloo"))).ranks
    assert plan(met(), known=replace(heavy, timeout_s=3600.0)).ranks
    assert "more than a tenth of the 30 s" in refused(met(), Wish(steps=100), Known(timeout_s=30.0))
