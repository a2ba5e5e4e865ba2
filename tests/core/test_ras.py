"""What NCCL's RAS says, as evidence: which rank it is about, and when it says nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cockpit.base.gate import Malformed, plain, read
from cockpit.base.ras import Communicator, RasAnswer
from cockpit.core.stacks.progress import Done, Progress
from cockpit.core.stacks.ras import Ras, merged, of_answer, sentences
from cockpit.core.stacks.snapshot import Snapshot
from cockpit.core.stacks.verdict import verdict
from cockpit.node.recorder.ras_reading import answer
from tests.core.test_verdict import ALL_REDUCE, USER, collective, snapshot, still
from tests.recorder.ras import Comm, Missing, Rank, body, job

PIDS = {rank: ("gpu1" if rank < 2 else "gpu2", [41_000 + rank]) for rank in range(4)}
"""Those of the snapshots in the tests of verdicts."""

HOSTS = {41_000 + rank: f"10.0.0.{1 + rank // 2}" for rank in range(4)}


def ras(comms: Sequence[Comm], pids: dict[int, tuple[str, list[int]]] = PIDS, **more: Any) -> Ras:
    """What is known after this was said."""
    told = answer(body(comms))
    rows = tuple(read(Communicator, plain(row)) for row in told.rows)
    said = RasAnswer(1000.0, 0.1, told.version, told.timeouts, told.communicators, told.odd, rows, **more)
    return of_answer(said, "gpu1", 1001.0, {}, pids)


def comm(counts: Sequence[dict[str, int]], hash: str = "0xab", first: int = 0, **more: Any) -> Comm:
    """A communicator of ranks from one on, with what each has launched."""
    each = [Rank(number, 41_000 + first + number, one) for number, one in enumerate(counts)]
    return Comm([one._replace(host=HOSTS[one.pid], **more) for one in each], hash=hash)


BEHIND = comm([{"AllReduce": 1205 - (rank == 3)} for rank in range(4)])


def test_who_has_launched_less_is_said_by_its_rank() -> None:
    (told,) = sentences(ras([BEHIND]), still=True)
    assert told == (
        "NCCL RAS: rank 3 has launched 1,204 AllReduce, the others 1,205 (communicator 0xab of 4 ranks)"
    )
    assert sentences(ras([BEHIND]), still=False) == ()


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([9, 9, 9, 10], "rank 3 has launched 10 AllReduce, the others 9 "),
        ([9, 9, 10, 10], "ranks 0-1 have launched 9 AllReduce, the others 10 "),
        ([7, 8, 9, 9], "rank 0 has launched 7 AllReduce, the others 8 to 9 "),
        ([9, 9, 9, 0], "rank 3 has launched 0 AllReduce, the others 9 "),
        ([9, 9, 9, 9], "in the communicator all ranks have launched the same operations"),
    ],
)
def test_counts_in_words(counts: list[int], said: str) -> None:
    (told,) = sentences(ras([comm([{"AllReduce": number} for number in counts])]), still=True)
    assert told.startswith(f"NCCL RAS: {said}")


def test_a_rank_that_waits_for_another_one_is_not_what_is_said() -> None:
    """Neither has come to the large one: rank 2 because it waits for rank 3 in the small one."""
    small = comm([{"AllGather": 6}, {"AllGather": 5}], "0xcd", first=2)
    large = comm([{"AllReduce": 9}, {"AllReduce": 9}, {"AllReduce": 8}, {"AllReduce": 8}])
    (told,) = sentences(ras([large, small]), still=True)
    assert "rank 3 has launched 5 AllGather, the others 6 (communicator 0xcd of 2 ranks)" in told


def test_who_calls_something_else_is_told_with_both() -> None:
    odd = comm([{"AllReduce": 9, "Broadcast": 5}] * 3 + [{"AllReduce": 8, "Broadcast": 6}])
    told = sentences(ras([odd]), still=True)
    assert [one.split(" (")[0] for one in told] == [
        "NCCL RAS: rank 3 has launched 8 AllReduce, the others 9",
        "NCCL RAS: rank 3 has launched 6 Broadcast, the others 5",
    ]


def test_who_does_not_answer_is_said_while_steps_go_on_too() -> None:
    lost = [Missing(2, 41_002, "10.0.0.2"), Missing(3, 4711, "10.0.0.9", dead=True)]
    both = Comm([Rank(0, 41_000), Rank(1, 41_001)], lost)
    assert sentences(ras([both, both]), still=False) == (
        "NCCL RAS: process 4711 on 10.0.0.9 has not answered for a minute",
        "NCCL RAS: rank 2 does not answer",
    )
    # It answers, and is no member: that is so while a communicator is made, or given up.
    gone = Comm([Rank(0, 41_000)], [Missing(1, 41_001, unresponsive=False)])
    assert sentences(ras([gone]), still=True) == ()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"abort": True}, "rank 1 has aborted communicator 0xab of 2 ranks"),
        ({"async_error": 6}, "rank 1 reports an error in communicator 0xab of 2 ranks: remote process error"),
        ({"init_state": 7}, "rank 1 is still making communicator 0xab of 2 ranks"),
    ],
)
def test_states_in_words(more: dict[str, Any], said: str) -> None:
    ranks = [Rank(0, 41_000), Rank(1, 41_001, **more)]
    assert sentences(ras([Comm(ranks, hash="0xab")]), still=True) == (f"NCCL RAS: {said}",)


# Which process is which rank


def test_a_pid_that_two_nodes_have_is_that_of_the_node_whose_pids_are_there() -> None:
    pids = {0: ("gpu1", [11]), 1: ("gpu1", [12]), 2: ("gpu2", [11]), 3: ("gpu2", [13])}
    ranks = [Rank(n, pid, {"AllReduce": n}, host) for n, (host, pid) in enumerate(
        [("10.0.0.1", 11), ("10.0.0.1", 12), ("10.0.0.2", 11), ("10.0.0.2", 13)]
    )]  # fmt: skip
    known = ras([Comm(ranks)], pids).ranks
    assert [(one.host, one.pid, one.rank) for one in known] == [
        ("10.0.0.1", 11, 0),
        ("10.0.0.1", 12, 1),
        ("10.0.0.2", 11, 2),
        ("10.0.0.2", 13, 3),
    ]


def test_where_pids_do_not_tell_the_node_no_rank_is_named() -> None:
    """Containers number their processes alike."""
    pids = {0: ("gpu1", [7]), 1: ("gpu2", [7])}
    ranks = [Rank(0, 7, {"AllReduce": 3}, "10.0.0.1"), Rank(1, 7, {"AllReduce": 4}, "10.0.0.2")]
    told = ras([Comm(ranks)], pids)
    assert told.ranks == ()
    assert sentences(told, still=True)[0].startswith("NCCL RAS: process 7 on 10.0.0.1 has launched 3 ")


def test_a_process_that_is_no_rank_of_the_job_stays_one() -> None:
    told = ras(job([41_000, 41_001, 9], behind=2))
    assert {one.rank for one in told.ranks} == {0, 1}
    assert "process 9 on 10.0.0.1 has launched 1,204" in sentences(told, still=True)[0]


# In a verdict, and on disk


def hung(**more: Any) -> Snapshot:
    """Rank 3 is not where the others wait, and RAS says so too."""
    taken = snapshot(4, still(ALL_REDUCE), {3: still(USER, call="clock_nanosleep")})
    return replace(taken, ras=ras([BEHIND]), **more)


def test_it_is_evidence_and_changes_no_verdict() -> None:
    with_it, without = verdict(hung()), verdict(replace(hung(), ras=None))
    assert with_it.evidence[-1].startswith("NCCL RAS: rank 3 has launched 1,204 AllReduce")
    assert len(with_it.evidence) <= 6
    assert replace(with_it, evidence=()) == replace(without, evidence=())


def test_counts_are_no_evidence_while_steps_go_on_or_after_one_look() -> None:
    ranks = {rank: Done(20, 1000.9) for rank in range(4)}
    goes_on = hung(progress=Progress(1001.0, 0.5, True, ranks))
    assert not [fact for fact in verdict(goes_on).evidence if "RAS" in fact]
    taken = snapshot(4, still(ALL_REDUCE), looks=1)
    assert not [fact for fact in verdict(replace(taken, ras=ras([BEHIND]))).evidence if "RAS" in fact]


def test_that_all_have_launched_the_same_is_evidence_where_all_wait() -> None:
    taken = snapshot(4, still(collective("barrier")))
    equal = comm([{"AllReduce": 9}] * 4)
    found = verdict(replace(taken, ras=ras([equal, equal._replace(hash="0xcd")])))
    assert found.id == "together"
    assert found.evidence[-1] == (
        "NCCL RAS: in each of 2 communicators all ranks have launched the same operations"
    )


def test_it_is_kept_as_it_was_and_read_within_bounds() -> None:
    told = replace(ras([BEHIND]), silent={"gpu2": "NCCL RAS gave no answer"})
    assert read(Ras, told.as_json()) == told
    for odd in ({"rows": [{"hash": "\x1b[2J"}]}, {"ranks": [[1, 2, 3]]}, {"at": "now"}, {"version": "1\n"}):
        with pytest.raises(Malformed):
            read(Ras, {**told.as_json(), **odd})
    assert "\x1b" not in str(read(Ras, {**told.as_json(), "silent": {"gpu\x1b[2J": "no\x1b[2J"}}).silent)


def test_of_several_snapshots_the_newest_answer_counts() -> None:
    old, new, none = ras([BEHIND]), replace(ras([BEHIND]), at=1005.0), Ras(1009.0, silent={"gpu1": "no"})
    assert merged([old, None, none, new]) is new
    assert merged([None]) is None
