"""Snapshots of single nodes as one: whose stacks count, what is said, how sure a verdict may be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cockpit.base.stacks.dump import Dump, Frame, Thread
from cockpit.base.stacks.kinds import Doing
from cockpit.core.finding import Finding
from cockpit.core.stacks.classes import RankClass
from cockpit.core.stacks.merging import merged
from cockpit.core.stacks.snapshot import Place, Sample, Snapshot
from cockpit.errors import CockpitError
from tests.core.fates import end

ELSEWHERE = "not found on the nodes that were asked"


def taken(node: str, ranks: range, at: float, *, samples: int = 2, run: str = "") -> Snapshot:
    """A snapshot of a job of four ranks, of which one node has these."""
    places = {
        rank: Place(node, rank) if rank in ranks else Place("", why=ELSEWHERE, end=end(ELSEWHERE))
        for rank in range(4)
    }
    thread = Thread("MainThread", 1, True, False, (Frame("main", "train.py", 3),))
    looks = [
        Sample(at + number, {rank: Dump(rank, at, threads=(thread,)) for rank in ranks}, {}, 0.5)
        for number in range(samples)
    ]
    return Snapshot(
        "20261121-040000",
        f"job at 10.0.0.1:29500, on {node}",
        run,
        places,
        looks,
        {"native": node == "gpu01"},
    )


def test_two_nodes_are_one_job() -> None:
    whole = merged({"a": taken("gpu01", range(2), 100.0), "b": taken("gpu02", range(2, 4), 103.0, samples=3)})
    assert whole.notes == ()
    found = whole.snapshot
    assert [place.node for _, place in sorted(found.ranks.items())] == ["gpu01"] * 2 + ["gpu02"] * 2
    assert [sorted(sample.dumps) for sample in found.samples] == [[0, 1, 2, 3]] * 2
    assert found.missing() == {}
    assert found.options == {"native": False}
    assert found.title == "job at 10.0.0.1:29500, on gpu01 (and 1 other snapshot)"
    sure = Finding("hang", "rank 1 is elsewhere", certainty="sure")
    assert whole.judged(sure) == sure


def test_what_was_taken_at_other_times_is_said_and_never_sure() -> None:
    parts = {"new": taken("gpu02", range(1, 4), 142.0), "old": taken("gpu01", range(2), 100.0)}
    whole = merged(parts)
    assert whole.notes == (
        "rank 1: in old and in new, which is newer and is used",
        "taken 42 s apart: what waited for whom may have changed in between",
    )
    assert whole.snapshot.ranks[1].node == "gpu02"
    assert whole.snapshot.samples[0].dumps[1].at == 142.0
    judged = whole.judged(Finding("hang", "rank 1 is elsewhere", certainty="sure", evidence=("x",)))
    assert (judged.certainty, judged.evidence) == ("likely", ("x", "these snapshots were taken 42 s apart"))


def test_a_node_that_is_silent_in_one_and_answers_in_another_is_not_silent() -> None:
    one, other = taken("gpu01", range(2), 100.0), taken("gpu02", range(2, 4), 100.0)
    for sample in one.samples:
        sample.silent.update({"gpu02": "no route", "gpu03": "no route"})
    assert merged({"a": one, "b": other}).snapshot.samples[-1].silent == {"gpu03": "no route"}


def test_other_jobs_are_refused() -> None:
    one = taken("gpu01", range(2), 100.0, run="otter")
    for odd, why in (
        (taken("gpu02", range(2, 4), 100.0, run="heron"), "belongs to run heron, but a to run otter"),
        (replace(one, ranks={0: Place("gpu01")}), "has rank 0, but a has ranks 0-3"),
        (replace(one, samples=[]), "it contains no stacks"),
    ):
        with pytest.raises(CockpitError, match=why):
            merged({"a": one, "b": odd})


def test_names_of_two_jobs_are_said_and_never_sure() -> None:
    other = replace(taken("gpu02", range(2, 4), 100.0), title="job at 10.0.0.1:29501, on gpu02")
    whole = merged({"a": taken("gpu01", range(2), 100.0), "b": other})
    said = "a belongs to job at 10.0.0.1:29500; b belongs to job at 10.0.0.1:29501"
    assert whole.notes == (f"{said}: merged as if they were one job",)
    judged = whole.judged(Finding("hang", "rank 1 is elsewhere", certainty="sure"))
    assert (judged.certainty, judged.evidence) == ("likely", ("these snapshots may be of different jobs",))


def test_since_when_ranks_stand_is_that_of_the_snapshot_that_counts() -> None:
    old = replace(taken("gpu01", range(2), 100.0), stood={0: 52.0, 1: 60.0})
    new = replace(taken("gpu02", range(1, 4), 103.0), stood={1: 90.0, 3: 70.0})
    assert merged({"old": old, "new": new}).snapshot.stood == {0: 52.0, 1: 90.0, 3: 70.0}


@pytest.mark.parametrize(("state", "facts"), [("", "sleeps · frozen"), ("T", "stopped · state T · frozen")])
def test_who_is_stopped_in_its_sleep_does_not_sleep(state: str, facts: str) -> None:
    assert RankClass(1, (), Doing("sleep", "", None, "sleeps"), state, "frozen").facts == facts
