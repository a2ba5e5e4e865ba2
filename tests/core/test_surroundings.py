"""What a snapshot carries beside stacks: progress and recorders, as a verdict needs them, kept as JSON."""

from __future__ import annotations

import json

import pytest

from cockpit.base.gate import Malformed, read
from cockpit.core.pace.pace import Pace
from cockpit.core.stacks.collectives import Collectives, of_look
from cockpit.core.stacks.progress import Progress, of_pace
from tests.recorder import recorded


def told(found: Collectives | Progress) -> dict[str, object]:
    """As a file has it."""
    read_again: dict[str, object] = json.loads(json.dumps(found.as_json()))
    return read_again


def test_recorders_are_reduced_and_kept() -> None:
    found = of_look(recorded.seen("missing"), {7: "no answer"}, 1000.0)
    assert found.missing == 0b1000
    # Nobody waits for rank 1 alone: it waits itself.
    wait = found.of(0b1000)
    assert wait is not None
    assert (wait.name, wait.going, wait.absent) == ("all_reduce number 50 of group 4", 0b0010, 0b1000)
    assert found.since_s >= 3
    assert found.silent == {"no answer": "7"}
    assert read(Collectives, told(found)) == found
    assert of_look(recorded.seen("slow"), {}, 1000.0).waits == ()
    sizes = of_look(recorded.seen("size"), {}, 1000.0)
    assert [each.call for each in sizes.mismatches[0].calls] == [
        "all_reduce of 10 Float",
        "all_reduce of 12 Float",
    ]
    assert read(Collectives, told(sizes)) == sizes


@pytest.mark.parametrize("ranks", ["x", "0-99999999999", [1], "-1"])
def test_a_file_cannot_name_ranks_that_are_none(ranks: object) -> None:
    found = {**told(of_look(recorded.seen("missing"), {}, 1000.0)), "missing": ranks}
    with pytest.raises(Malformed):
        read(Collectives, found)


def paced(steps: int, slow: dict[int, float] | None = None) -> Pace:
    """Four ranks that take half a second a step, and what some of them work longer."""
    pace = Pace(range(4))
    for step in range(1, steps + 1):
        for rank in range(4):
            pace.stepped(rank, step, 1000.0 + 1.5 * step, span=1.5)
            pace.worked(rank, step, 0.5 + (slow or {}).get(rank, 0.0))
    return pace


def test_progress_says_whether_steps_go_on() -> None:
    pace = paced(20)
    fresh, late = of_pace(pace, 1030.0 + 4), of_pace(pace, 1030.0 + 5)
    assert (fresh.front, fresh.usual_s, fresh.goes_on, late.goes_on) == (20, 1.5, True, False)
    assert fresh.slow == ()
    assert read(Progress, told(fresh)) == fresh
    nothing = of_pace(Pace(range(4)), 1000.0)
    assert (nothing.goes_on, nothing.front, nothing.age_s) == (None, None, None)


def test_a_slow_rank_is_told_with_what_the_others_wait() -> None:
    (slow,) = of_pace(paced(20, {3: 1.0}), 1031.0).slow
    assert (slow.rank, slow.work_s, slow.usual_s, slow.work) == (3, 1.5, 0.5, True)
    assert slow.waits == pytest.approx(2 / 3)


def test_a_rank_that_has_been_slow_for_two_steps_is_told_with_how_many_these_are() -> None:
    pace = paced(20)
    for step in (21, 22):
        for rank in range(4):
            pace.stepped(rank, step, 1030.0 + 4.0 * (step - 20), span=4.0)
            pace.worked(rank, step, 3.0 if rank == 1 else 0.5)
    found = of_pace(pace, 1038.0)
    (slow,) = found.slow
    assert (slow.rank, slow.work_s, slow.usual_s, slow.steps) == (1, 3.0, 0.5, 2)
    assert read(Progress, told(found)) == found
    # Steps have become longer: the next one is not late before these were over.
    assert of_pace(pace, 1038.0 + 5.9).goes_on is True
    assert of_pace(pace, 1038.0 + 6.1).goes_on is False


def test_where_a_log_tells_of_each_tenth_step_nine_without_a_word_are_no_standstill() -> None:
    pace = Pace(range(4))
    for step in range(10, 70, 10):
        pace.stepped(0, step, 1000.0 + 0.5 * step, exact=False)
    found = of_pace(pace, 1030.0 + 7)
    assert (found.usual_s, found.lately_s, found.longest_s) == (0.5, 5.0, 5.0)
    assert (found.goes_on, found.lasts) == (True, False)
    assert of_pace(pace, 1030.0 + 7.6).lasts is True
