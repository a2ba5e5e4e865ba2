"""What is said about slow ranks: who and by how much; on NCCL, that no GPU is accused, and to profile."""

from __future__ import annotations

from cockpit.core.pace.finding import findings
from cockpit.core.pace.pace import Pace


def run(*, slow: tuple[int, ...], lag: bool = False) -> Pace:
    pace = Pace(range(8))
    pace.lag = lag
    for step in range(20):
        for rank in range(8):
            pace.stepped(rank, step, 2.0 * step)
            pace.worked(rank, step, 1.5 if rank in slow else 1.0)
    return pace


def test_nothing_is_said_of_ranks_that_are_alike() -> None:
    assert list(findings(run(slow=()), "otter")) == []
    assert list(findings(run(slow=(), lag=True), "otter")) == []


def test_a_slow_rank_is_named_with_its_share_and_what_to_type() -> None:
    (found,) = findings(run(slow=(5,)), "otter")
    assert (found.id, found.what, found.ranks, found.severity) == (
        "slow_rank",
        "rank 5 is slow",
        32,
        "warning",
    )
    assert found.evidence == ("rank 5: 50 % more work in a step than the median rank, since step 0",)
    assert found.steps[0].command == "cockpit stacks otter --samples 3"


def test_of_what_cpus_enqueue_no_rank_is_called_slow_and_a_profile_is_next() -> None:
    (found,) = findings(run(slow=(2, 5), lag=True), "otter")
    assert found.id == "enqueue_lag"
    assert found.what == "the CPUs of ranks 2,5 lag behind the others in enqueueing"
    assert "slow" not in " ".join((found.what, found.detail, *found.evidence))
    assert found.steps[0].command == "--profile nsys"
    assert "torch.profiler" in found.steps[0].reason
