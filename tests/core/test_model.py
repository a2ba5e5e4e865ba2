"""The reducer: what the run record says becomes the state of nodes and ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.base.events import NodeSample, RankSample, Sample
from cockpit.core.run.events import Event, RecordReader
from cockpit.core.run.model import RankState, RunModel
from cockpit.core.run.states import Node, Rank, renewed
from cockpit.errors import Exit
from tests.happened import happened


def model(*events: tuple[float, str, str, dict[str, Any]]) -> RunModel:
    """A run of ranks 0, 1 on a and 2, 3 on b, after these events (at, kind, node, data)."""
    made = RunModel()
    made.apply(happened(0, "planned", "", {"nodes": {"a": [0, 1], "b": [2, 3]}}))
    for at, kind, node, data in events:
        made.apply(happened(at, kind, node, data))
    return made


def exited(at: float, node: str, rank: int, code: int | None, signal: int | None = None) -> Any:
    return (at, "rank_exited", node, {"rank": rank, "code": code, "signal": signal, "attempt": 0})


def started(at: float, node: str, rank: int, attempt: int = 0, restarts: int = 0) -> Any:
    return (at, "rank_started", node, {"rank": rank, "pid": 9, "attempt": attempt, "max_restarts": restarts})


def test_states_and_words() -> None:
    seen = model(started(1, "a", 0), exited(2, "a", 0, 3), exited(2, "a", 1, None, 9))
    seen.apply(happened(3, "rank_lost", "b", {"rank": 2, "why": "no record"}))
    assert [seen.ranks[n].text for n in range(4)] == [
        "exited 3",
        "killed by SIGKILL",
        "lost: no record",
        "waiting",
    ]


def test_the_first_failure_is_on_a_common_clock() -> None:
    # b's clock is 10 s ahead: its rank failed earlier although its record says later.
    skewed = model(
        (0, "clock", "b", {"offset_s": 10.0, "rtt_s": 0.001}), exited(15, "b", 2, 1), exited(6, "a", 0, 1)
    )
    first = skewed.first_failure()
    assert first is not None
    assert first.rank == 2


def test_ranks_ended_by_a_stop_did_not_fail_first() -> None:
    stopped = model((5, "stop_requested", "a", {}), exited(6, "a", 0, None, 15), exited(7, "b", 2, 1))
    first = stopped.first_failure()
    assert first is not None
    assert first.rank == 2
    assert stopped.ranks[0].failed


@pytest.mark.parametrize("asked", [True, False], ids=["here", "by another cockpit"])
def test_ranks_that_follow_those_of_another_node_into_a_stop_did_not_fail(asked: bool) -> None:
    clocks = [(0, "clock", name, {"offset_s": off, "rtt_s": 0.1}) for name, off in (("a", 0.0), ("b", 10.0))]
    stop = (5, "stop_asked", "", {"reason": "enough"}) if asked else (5, "stop_requested", "a", {"by": "ada"})
    stopped = model(*clocks, stop, exited(15.3, "b", 2, 1), (15.5, "stop_requested", "b", {}))
    assert stopped.ranks[2].failed
    assert stopped.first_failure() is None
    # Clocks do not tell which of these was first.
    for at in (14.9, 15.02):
        failed = model(*clocks, stop, exited(at, "b", 2, 1), (15.5, "stop_requested", "b", {}))
        assert failed.first_failure() is failed.ranks[2]


def test_a_stop_of_one_node_alone_or_one_that_reaches_no_node_hides_no_failure() -> None:
    clocks = [(0, "clock", name, {"offset_s": 0.0, "rtt_s": 0.001}) for name in "ab"]
    alone = model(*clocks, (5, "stop_requested", "a", {"by": "signal"}), exited(6, "b", 2, 1))
    assert alone.first_failure() is alone.ranks[2]
    unheard = model(*clocks, (5, "stop_asked", "", {"reason": "enough"}), exited(600, "b", 2, 1))
    assert unheard.first_failure() is unheard.ranks[2]
    gone = model(
        *clocks, (5, "stop_requested", "a", {"by": "ada"}), (6, "node_lost", "b", {"why": "rebooted"})
    )
    assert [rank.rank for rank in gone.failures()] == [2, 3]


def test_a_rank_that_is_started_again_has_not_failed() -> None:
    again = model(started(1, "a", 0, 0, 2), exited(2, "a", 0, 1))
    assert again.first_failure() is None
    again.apply(happened(3, "rank_started", "a", {"rank": 0, "pid": 10, "attempt": 2, "max_restarts": 2}))
    assert again.ranks[0].state is RankState.RUNNING
    # The end of the attempt before, recorded late, is none of the new one's.
    for kind in ("rank_exited", "rank_lost"):
        again.apply(happened(2, kind, "a", {"rank": 0, "attempt": 1, "code": 1, "signal": None}))
    assert again.ranks[0].state is RankState.RUNNING
    assert again.first_failure() is None
    again.apply(happened(4, "rank_exited", "a", {"rank": 0, "attempt": 2, "code": 1, "signal": None}))
    assert again.first_failure() is not None


def test_a_node_speaks_for_itself_only() -> None:
    told = b'{"t": 1, "e": "rank_exited", "node": "b", "rank": 0, "code": 1}\n'
    (event,) = RecordReader("a", [0]).feed(told)
    assert event.node == "a"
    lied = model(exited(1, "a", 2, 1), exited(1, "c", 0, 1), exited(1, "a", 99, 1))
    assert not any(rank.failed for rank in lied.ranks.values())


def test_exit_codes() -> None:
    ends: list[Any] = [(9.0, "ended", "a", {}), (9.0, "ended", "b", {})]
    good = [exited(1, node, rank, 0) for node, rank in (("a", 0), ("a", 1), ("b", 2), ("b", 3))]
    assert model(*good, *ends).exit_code() is Exit.OK
    assert model(*good[:3], exited(1, "b", 3, 7), *ends).exit_code() is Exit.RANK_FAILED
    assert model(*good[:2], ends[0]).exit_code() is Exit.NODE_UNFIT
    never_started = model((0, "launched", "a", {}), (0, "launched", "b", {}), *ends)
    assert never_started.exit_code() is Exit.RANK_FAILED
    assert (
        model(*good[:2], ends[0], (3, "node_lost", "b", {"why": "rebooted"})).exit_code() is Exit.RANK_FAILED
    )


def test_the_journal_may_come_before_the_record() -> None:
    # What a dead supervisor did not record is in our journal, and the journal is read first.
    seen = model(
        (0, "launched", "a", {}),
        (8, "rank_lost", "a", {"rank": 0, "attempt": 0, "why": "nobody saw it"}),
        (9, "ended", "a", {}),
        started(1, "a", 0),
        started(1, "a", 1),
        exited(2, "a", 1, 0),
    )
    assert [seen.ranks[n].text for n in (0, 1)] == ["lost: nobody saw it", "exited 0"]
    assert (seen.ranks[0].pid, seen.ranks[0].started_at, seen.ranks[1].why) == (9, 1, "")
    seen.apply(happened(10, *started(10, "a", 0, attempt=1)[1:]))
    assert seen.ranks[0].text == "running"


def test_done_means_ended_and_here() -> None:
    ended = model((9, "ended", "a", {}), (9, "node_lost", "b", {"why": "gone"}))
    assert ended.over
    assert not ended.done
    ended.apply(happened(10, "complete", "a", {}))
    assert ended.done


KINDS = st.sampled_from(["rank_started", "rank_exited", "rank_lost", "launcher_exited", "ended", "link"])


@given(st.lists(st.tuples(KINDS, st.sampled_from(["a", "b", "c"]), st.integers(0, 5))))
def test_any_order_of_events_is_survived(events: list[tuple[str, str, int]]) -> None:
    made = model()
    for at, (kind, node, rank) in enumerate(events):
        changed = made.apply(
            happened(at, kind, node, {"rank": rank, "code": 0, "signal": None, "state": "ok"})
        )
        assert changed <= {*made.nodes, *made.ranks}
    assert set(made.ranks) == {0, 1, 2, 3}


def test_a_supervisor_that_is_gone_stays_gone_beside_its_note() -> None:
    seen = model((1, "supervisor_gone", "a", {}))
    assert seen.nodes["a"].supervisor_gone
    assert len(seen.nodes["a"].notes) == 1


def test_a_sample_of_a_rank_that_has_ended_is_not_its_last_one() -> None:
    def measured(size: int) -> Event:
        return Event(2.0, "a", Sample(NodeSample(), {0: RankSample(rss_bytes=size)}))

    seen = model(started(1, "a", 0))
    seen.apply(measured(1 << 30))
    seen.apply(happened(*exited(3, "a", 0, 1)))
    seen.apply(measured(0))
    assert seen.ranks[0].sample == RankSample(rss_bytes=1 << 30)


def test_what_is_renewed_is_a_copy_with_these_fields() -> None:
    node, rank = Node("a", (0, 1), notes=("full",)), Rank(0, "a", RankState.RUNNING, pid=9)
    sample = RankSample(cpu_percent=98.0)
    assert renewed(node, sample=NodeSample(), sampled_at=3.0) == replace(
        node, sample=NodeSample(), sampled_at=3.0
    )
    assert renewed(rank, sample=sample) == replace(rank, sample=sample)
    assert (node.sampled_at, rank.sample) == (None, None), "the one before is as it was"
