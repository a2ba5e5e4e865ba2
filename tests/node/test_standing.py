"""When the ranks of a node stand still, by what their supervisor sees, on a clock that is given."""

from __future__ import annotations

import itertools

from cockpit.base.stillness import BACKOFF_S
from cockpit.node.run.standing import APART_S, Standing

AFTER_S, IDLE_S = 30, 120

RING = "0.100.ring"


def standing() -> Standing:
    """Ranks that were just started."""
    return Standing(AFTER_S, IDLE_S, APART_S, 0)


def stepping(still: Standing, until: int, every: int = 1, file: str = RING, begin: int = 0) -> None:
    """A rank makes a step each so many seconds."""
    for second in range(begin + every, until + 1, every):
        still.stepped(second, file, (second * 10**9,))
        still.since(second)


def at_work(still: Standing, until: int, begin: int = 0) -> None:
    """Two ranks work, and print nothing."""
    for second in range(begin, until, 5):
        still.worked(second, {0: (float(second), 0), 1: (float(second), 0)})


def test_without_a_step_for_long() -> None:
    still = standing()
    stepping(still, 100)
    assert still.since(129) is None
    assert still.since(131) == 100


def test_a_step_may_take_long_where_it_usually_does() -> None:
    still = standing()
    stepping(still, 200, every=20)
    assert still.since(319) is None
    assert still.since(321) == 200


def test_until_it_is_known_how_long_a_step_takes_it_may_take_ten_times_as_long() -> None:
    still = standing()
    stepping(still, 20, every=10)
    assert still.since(319) is None
    assert still.since(321) == 20


def test_a_single_long_step_does_not_make_the_next_one_usual() -> None:
    still = standing()
    stepping(still, 100)
    still.stepped(2000, RING, (2000 * 10**9,))
    assert still.since(2029) is None
    assert still.since(2031) == 2000


def test_one_rank_that_steps_is_enough() -> None:
    still = standing()
    stepping(still, 10)
    stepping(still, 100, file="1.101.ring", begin=10)
    assert still.since(125) is None


def test_the_same_steps_again_are_no_news() -> None:
    still = standing()
    stepping(still, 10)
    still.stepped(100, RING, (9 * 10**9, 10 * 10**9))
    assert still.since(100) == 10


def test_where_steps_are_known_logs_and_processors_do_not_count() -> None:
    still = standing()
    stepping(still, 10)
    for second in range(10, 60):
        still.logged(second, {"rank-0.log": second})
        still.worked(second, {0: (second, 0)})
    assert still.since(60) == 10


def test_without_steps_silence_and_idleness_of_all_that_have_worked() -> None:
    still = standing()
    at_work(still, 50)
    still.logged(50, {"rank-0.log": 10})
    for second in range(50, 200, 5):
        still.worked(second, {0: (50.0, 3), 1: (50.0, second)})
    assert still.since(169) is None
    assert still.since(175) == 50


def test_ranks_that_have_hardly_worked_may_sleep_longer() -> None:
    still = standing()
    for second in range(1, 290, 5):
        still.worked(second, {0: (7.0, 3), 1: (8.0, second)})
    assert still.since(290) is None
    assert still.since(302) is not None


def test_one_busy_rank_is_enough() -> None:
    still = standing()
    still.logged(1, {"rank-0.log": 10})
    for second in range(1, 290, 5):
        still.worked(second, {0: (7.0, 3), 1: (second / 8, 0)})
    assert still.since(290) is None


def test_a_rank_that_reads_uses_little_of_the_processor() -> None:
    still = standing()
    still.logged(1, {"rank-0.log": 10})
    for second in range(1, 290, 5):
        still.worked(second, {0: (7.0, second * 500)})
    assert still.since(290) is None


def test_waiting_may_keep_a_core_busy() -> None:
    still = standing()
    still.logged(1, {"rank-0.log": 10})
    at_work(still, 310, begin=1)
    assert still.since(300) is None
    assert still.since(302) == 1


def test_evidence_is_due_less_and_less_often_while_nothing_moves() -> None:
    still = standing()
    stepping(still, 10)
    due = []
    for second in range(11, 6000):
        if still.since(second) is not None and still.is_due(second):
            still.keep(second)
            due.append(second)
    assert due[0] == 41
    assert [late - early for early, late in itertools.pairwise(due)] == [*BACKOFF_S, BACKOFF_S[-1]]


def test_what_moves_and_stands_still_again_is_news_but_not_at_once() -> None:
    still = standing()
    stepping(still, 10)
    assert still.since(41) == 10
    still.keep(41)
    still.stepped(60, RING, (60 * 10**9,))
    assert still.since(60) is None
    assert still.since(91) == 60
    assert not still.is_due(91)
    assert not still.is_due(640)
    assert still.is_due(641)


def test_ranks_that_were_started_again_have_not_stood_still_since_the_last_step_of_others() -> None:
    still = standing()
    stepping(still, 10)
    still.restart(20)
    still.worked(30, {0: (1.0, 0)})
    still.worked(60, {0: (10.0, 0)})
    assert still.since(60) is None
    stepping(still, 70, begin=60)
    assert still.since(101) is None or still.since(101) == 70
