"""When ranks stand still, on a clock that is given."""

from __future__ import annotations

from cockpit.node.run.stillness import Limits, Stillness

LIMITS = Limits(after_s=30, steps=6, idle_s=45, quiet_s=300, every_s=600)

RING = "0.100.ring"


def stepping(still: Stillness, until: int, every: int = 1, file: str = RING) -> None:
    """A rank makes a step each so many seconds."""
    for second in range(every, until + 1, every):
        still.stepped(second, file, (second * 10**9,))


def test_without_a_step_for_long() -> None:
    still = Stillness(LIMITS, 0)
    stepping(still, 100)
    assert still.since(129) is None
    assert still.since(131) == 100


def test_a_step_may_take_long_where_it_usually_does() -> None:
    still = Stillness(LIMITS, 0)
    stepping(still, 200, every=20)
    assert still.threshold_s == 120
    assert still.since(319) is None
    assert still.since(321) == 200


def test_a_single_long_step_does_not_make_the_next_one_usual() -> None:
    still = Stillness(LIMITS, 0)
    stepping(still, 100)
    still.stepped(2000, RING, (2000 * 10**9,))
    assert still.threshold_s == 30


def test_one_rank_that_steps_is_enough() -> None:
    still = Stillness(LIMITS, 0)
    stepping(still, 10)
    stepping(still, 100, file="1.101.ring")
    assert still.since(125) is None


def test_the_same_steps_again_are_no_news() -> None:
    still = Stillness(LIMITS, 0)
    stepping(still, 10)
    still.stepped(100, RING, (9 * 10**9, 10 * 10**9))
    assert still.since(100) == 10


def test_where_steps_are_known_logs_and_processors_do_not_count() -> None:
    still = Stillness(LIMITS, 0)
    stepping(still, 10)
    for second in range(10, 60):
        still.logged(second, {"rank-0.log": second})
        still.worked(second, {0: (second, 0)})
    assert still.since(60) == 10


def test_without_steps_silence_and_idleness_of_all() -> None:
    still = Stillness(LIMITS, 0)
    still.logged(1, {"rank-0.log": 10})
    for second in range(1, 60, 5):
        still.worked(second, {0: (7.0, 3), 1: (8.0, second)})
    assert still.since(45) is None
    assert still.since(56) == 1


def test_one_busy_rank_is_enough() -> None:
    still = Stillness(LIMITS, 0)
    still.logged(1, {"rank-0.log": 10})
    for second in range(1, 200, 5):
        still.worked(second, {0: (7.0, 3), 1: (second / 10, 0)})
    assert still.since(200) is None


def test_a_rank_that_reads_uses_little_of_the_processor() -> None:
    still = Stillness(LIMITS, 0)
    still.logged(1, {"rank-0.log": 10})
    for second in range(1, 200, 5):
        still.worked(second, {0: (7.0, second * 500)})
    assert still.since(200) is None


def test_waiting_may_keep_a_core_busy() -> None:
    still = Stillness(LIMITS, 0)
    still.logged(1, {"rank-0.log": 10})
    for second in range(1, 310, 5):
        still.worked(second, {0: (float(second), 0)})
    assert still.since(300) is None
    assert still.since(302) == 1


def test_a_line_in_a_log_is_movement() -> None:
    still = Stillness(LIMITS, 0)
    still.worked(1, {0: (7.0, 3)})
    still.logged(40, {"rank-0.log": 10})
    still.worked(41, {0: (7.0, 3)})
    assert still.since(80) is None
    assert still.since(86) == 40


def test_evidence_is_due_less_and_less_often_while_nothing_moves() -> None:
    still = Stillness(LIMITS, 0)
    stepping(still, 10)
    due = []
    for second in range(11, 6000):
        if still.due(second) is not None:
            still.keep(second)
            due.append(second)
    assert due == [41, 51, 651, 1851, 4251]


def test_what_moves_and_stands_still_again_is_news_but_not_at_once() -> None:
    still = Stillness(LIMITS, 0)
    stepping(still, 10)
    still.keep(41)
    still.stepped(60, RING, (60 * 10**9,))
    assert still.due(91) is None
    assert still.since(91) == 60
    assert still.due(640) is None
    assert still.due(641) == 60


def test_ranks_that_were_started_again_have_not_stood_still_since_the_last_step_of_others() -> None:
    still = Stillness(LIMITS, 0)
    stepping(still, 10)
    still.restart(20)
    still.worked(30, {0: (1.0, 0)})
    still.worked(60, {0: (10.0, 0)})
    assert still.since(60) is None
