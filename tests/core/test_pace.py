"""Pace: how far each rank is, and who is slow; whatever nodes and clocks say."""

from __future__ import annotations

import math
import random
import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cockpit.core.pace.heat import LEVELS, NO_STEP, USUAL, Heat, Window
from cockpit.core.pace.history import BUCKETS, History
from cockpit.core.pace.log_steps import SaidSteps
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.rows import Row, alike, pairs, rows
from cockpit.core.pace.steps import FEWEST, Steps

START = 1_800_000_000.0
STEP_S = 2.0


def trained(
    ranks: int,
    steps: int,
    *,
    slow: int | None = None,
    since: int = 0,
    delay: float = 0.0,
    noise: float = 0.02,
    works: bool = True,
    phases: Sequence[float] = (),
    seed: int = 0,
) -> Pace:
    """Synchronous training: all ranks finish a step together, the slow one works longer in it."""
    made, dice = Pace(range(ranks)), random.Random(seed)
    at = START
    for step in range(steps):
        late = delay if slow is not None and step >= since else 0.0
        at += STEP_S + late
        for rank in range(ranks):
            made.stepped(rank, step, at + dice.random() * noise, phases=phases)
            work = STEP_S * (1 + dice.random() * noise) + (late if rank == slow else 0.0)
            if works:
                made.worked(rank, step, work)
    return made


@settings(max_examples=40, deadline=None)
@given(
    ranks=st.integers(3, 24),
    share=st.floats(0.15, 3),
    noise=st.floats(0, 0.04),
    data=st.data(),
)
def test_the_slow_rank_is_named_and_nobody_else(
    ranks: int, share: float, noise: float, data: st.DataObject
) -> None:
    slow = data.draw(st.integers(0, ranks - 1))
    seen = trained(ranks, 40, slow=slow, since=15, delay=share * STEP_S, noise=noise, seed=ranks)
    (named,) = seen.slow()
    assert named.rank == slow
    assert seen.apart_since(slow) == 15
    # Noise lengthens what both work, by as much at most; they are kept as 32-bit floats.
    assert named.excess == pytest.approx(share, abs=(1 + share) * (noise + 1e-6))
    healthy = trained(ranks, 40, noise=noise, seed=ranks)
    assert not healthy.slow()


def test_whole_steps_accuse_nobody_in_synchronous_training() -> None:
    assert not trained(8, 40, slow=3, delay=2.0, works=False).slow()


def worked(table: list[list[float | None]], stages: dict[int, int] | None = None) -> Pace:
    """Work by step and rank, seconds; None is not known."""
    seen = Pace(range(len(table[0])))
    for step, row in enumerate(table):
        for rank, work in enumerate(row):
            seen.stepped(rank, step, START + 10.0 * step)
            if work is not None:
                seen.worked(rank, step, work)
    seen.steps.staged(stages or {})
    return seen


def half_slow(ranks: int, by: float) -> list[list[float | None]]:
    """The second half of the ranks works longer."""
    step: list[float | None] = [*[1.0] * (ranks // 2), *[1.0 + by] * (ranks // 2)]
    return [step] * 12


def slow_in(table: list[list[float | None]], stages: dict[int, int] | None = None) -> list[int]:
    return [slow.rank for slow in worked(table, stages).slow()]


@pytest.mark.parametrize(
    ("steps", "slow_steps", "named"),
    [(10, 8, [2]), (10, 7, []), (9, 9, []), (30, 8, [2]), (30, 7, []), (60, 8, [2])],
)
@pytest.mark.parametrize(("by", "enough"), [(0.11, True), (0.09, False)])
def test_slow_in_eight_of_the_last_ten_steps_by_a_tenth(
    steps: int, slow_steps: int, named: list[int], by: float, enough: bool
) -> None:
    table: list[list[float | None]] = [[1.00, 1.01, 1.00, 0.99] for _ in range(steps)]
    for row in table[-slow_steps:]:
        row[2] = 1.0 + by
    assert slow_in(table) == (named if enough else [])


def test_a_step_is_compared_with_itself_and_a_rank_with_its_stage() -> None:
    # Sequences differ in length from step to step, stages of a pipeline in what they compute.
    assert slow_in([[1.0 + step % 3] * 4 for step in range(12)]) == []
    last_stage_works_more: list[list[float | None]] = [[1.0, 1.0, 1.5, 1.5] for _ in range(12)]
    assert slow_in(last_stage_works_more) == [2, 3]
    assert slow_in(last_stage_works_more, {0: 0, 1: 0, 2: 1, 3: 1}) == []
    unknown: list[list[float | None]] = [[1.0, None, None, 2.0] for _ in range(12)]
    assert slow_in(unknown) == [3]


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("by", [0.15, 0.5, 1.0])
def test_where_half_of_the_ranks_are_slow_they_are_by_what_they_are(ranks: int, by: float) -> None:
    half = ranks // 2
    seen = worked(half_slow(ranks, by))
    assert {slow.rank: round(slow.excess, 3) for slow in seen.slow()} == dict.fromkeys(range(half, ranks), by)
    last = next(seen.steps.newest())
    assert last.typical_work == 1.0
    stages = {rank: rank % 2 for rank in range(ranks)}
    if ranks > 2:
        # As many of each stage are slow.
        found = worked(half_slow(ranks, by), stages).slow()
        assert {slow.rank: round(slow.excess, 3) for slow in found} == dict.fromkeys(range(half, ranks), by)


@pytest.mark.parametrize(("ahead", "named"), [(0, [3]), (2, [3]), (30, [])])
def test_a_number_that_means_another_step_on_each_rank_compares_no_work(ahead: int, named: list[int]) -> None:
    """One rank has counted some steps that the others did not make."""
    seen = Pace(range(4))
    for step in range(100):
        for rank in range(4):
            number = step + (ahead if rank == 0 else 0)
            seen.stepped(rank, number, START + 2.0 * step, span=2.0)
            seen.worked(rank, number, 1.6 if rank == 3 else 0.8)
    assert [slow.rank for slow in seen.slow()] == named


def test_when_cpus_enqueue_makes_nobody_slow() -> None:
    seen = worked([[1.0, 1.0, 1.5, 1.0] for _ in range(12)])
    assert (seen.lags, seen.of(2).work, seen.of(2).lag) == (False, 1.5, None)
    seen.lag = True
    assert seen.slow() == []
    assert [(late.rank, round(late.excess, 3)) for late in seen.late()] == [(2, 0.5)]
    assert seen.apart_since(2) == 0
    assert seen.of(2).work is None
    assert seen.of(2).lag == pytest.approx(0.5)
    assert seen.of(0).lag == pytest.approx(0.0)
    # Long after the last look at recorders whole steps are compared, and then a slow one is slow.
    for step in range(12, 200):
        for rank in range(4):
            seen.stepped(rank, step, START + 10.0 * step, span=9.0 if rank == 1 else 4.0)
    assert not seen.lags
    assert [slow.rank for slow in seen.slow()] == [1]
    assert seen.late() == []


@pytest.mark.parametrize(
    ("steps", "took", "named"),
    [(1, 5.0, False), (2, 2.1, True), (2, 1.9, False), (3, 1.6, True), (4, 1.4, False), (5, 1.3, True)],
)
def test_what_may_be_slow_after_few_steps_is_for_who_asks(steps: int, took: float, named: bool) -> None:
    table: list[list[float | None]] = [[1.0, 1.0, 1.0, 1.0] for _ in range(8)]
    table += [[1.0, 1.0, took, 1.0] for _ in range(steps)]
    seen = worked(table)
    assert seen.slow() == []
    found = seen.slow_lately()
    assert [one.rank for one in found] == [2] * named
    if found:
        assert (found[0].steps, found[0].took_s, found[0].step_s) == pytest.approx((steps, took, 10.0))
        assert found[0].usual_s == pytest.approx(1.0)
    # One that was slow once, as with a checkpoint, is not: nor a rank of which more is known.
    assert worked([*table, [1.0, 1.0, 1.0, 1.0]]).slow_lately() == []
    assert worked([*table, *table[-1:] * 10]).slow_lately() == []
    # Ten steps of this length are made within a second.
    assert worked([[0.01, 0.01, 0.05, 0.01] for _ in range(5)]).slow_lately() == []
    seen.lag = True
    assert seen.slow_lately() == []


def test_a_rank_that_waits_for_nobody_is_slow_and_behind() -> None:
    seen = Pace(range(4))
    for rank, span in enumerate((1.0, 1.0, 1.0, 3.0)):
        for step in range(int(90 / span)):
            seen.stepped(rank, step, START + (step + 1) * span)
    assert [slow.rank for slow in seen.slow()] == [3]
    pace = seen.of(3)
    assert (pace.step, pace.behind, pace.span) == (29, 60, 3.0)
    assert seen.front == (89, START + 90)
    columns = Heat().draw(seen.steps, Window(START + 90, 3.0, 30), seen.usual())
    assert {column[3] for column in columns[1:]} == {USUAL + len(LEVELS)}, "drawn where it did its own steps"
    assert {column[0] for column in columns} == {USUAL}


def test_the_front_and_who_is_behind_it() -> None:
    seen = Pace((0, 1))
    assert seen.front is None
    assert seen.of(0).step is None
    seen.stepped(0, 5, START + 10)
    seen.stepped(0, 6, START + 12)
    seen.stepped(1, 6, START + 12.5)
    assert seen.front == (6, START + 12)
    assert seen.of(1).behind == 0
    assert seen.of(1).behind_s == pytest.approx(0.5, abs=1e-3)
    assert seen.of(0).span == pytest.approx(2.0)
    assert seen.of(1).span is None


def test_what_a_log_tells_is_an_estimate_and_accuses_nobody() -> None:
    seen = Pace(range(4))
    for step in range(0, 400, 10):
        for rank in range(4):
            # Lines arrive when they arrive.
            seen.stepped(rank, step, START + step * 1.0 + (rank == 3) * (step % 7), exact=False)
    assert not seen.slow()
    assert seen.of(0).estimated
    assert seen.of(3).behind_s is None
    assert seen.usual() == pytest.approx(1.0, abs=0.7)
    columns = Heat().draw(seen.steps, Window(START + 390, 5.0, 60), seen.usual())
    assert all(column[0] == USUAL for column in columns), "ten steps that are told of as one fill their time"


def test_lines_that_arrive_in_portions_are_timed_over_several() -> None:
    seen = Pace((0,))
    for step in range(1, 200):
        # A quarter of a second a step; what was written in 0.3 s arrives together, now and then late.
        arrived = math.ceil(step * 0.25 / 0.3) * 0.3 + (step % 3 == 0) * 0.04
        seen.stepped(0, step, START + arrived, exact=False)
    spans = [step.typical_span for step in seen.steps if not math.isnan(step.typical_span)]
    assert spans
    assert all(span == pytest.approx(0.25, rel=0.2) for span in spans)
    seen.stepped(0, 200, START + 100, exact=False)
    assert next(seen.steps.newest()).typical_span == pytest.approx(50, abs=1), "a stall is one"


def test_steps_that_ranks_print_count_unless_they_note_them() -> None:
    seen = Pace((0, 1))
    said = SaidSteps(seen)
    seen.stepped(1, 3, START)
    for step in range(1, 40):
        for rank in (0, 1):
            said.read(rank, f"step {step}/5000 loss 2.5\n".encode(), START + 3.0 * step)
    assert (seen.of(0).step, seen.of(0).estimated) == (39, True)
    assert seen.of(0).span == pytest.approx(3.0)
    assert (seen.of(1).step, seen.of(1).estimated) == (3, False)


def test_the_rank_itself_is_believed_over_its_log() -> None:
    seen = Pace((0,))
    seen.stepped(0, 7, START, exact=False)
    seen.stepped(0, 6, START + 1)
    seen.stepped(0, 9, START + 2, exact=False)
    assert (seen.of(0).step, seen.of(0).estimated) == (6, False)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**53), st.floats(0, 2e9)), max_size=60))
def test_any_report_is_taken_in(reports: list[tuple[int, int, float]]) -> None:
    seen = Pace((0, 1, 2))
    for rank, step, at in reports:
        seen.stepped(rank, step, at)
        seen.worked(rank, step, at / 1e6)
    keys = [step.key for step in seen.steps]
    assert keys == sorted(keys)
    seen.slow()
    for rank in (0, 1, 2):
        seen.of(rank)
    columns = Heat().draw(seen.steps, Window(2e9, 60.0, 80), seen.usual())
    assert len(columns) == 80
    assert all(len(column) == 3 for column in columns)


@pytest.mark.parametrize("first", [True, False])
def test_one_rank_that_lies_moves_neither_front_nor_table(first: bool) -> None:
    seen = Pace(range(3))
    lie = 10**15
    for step in range(200):
        for rank in range(3):
            if rank or not first or step:
                seen.stepped(rank, step, START + step)
            else:
                seen.stepped(0, lie, START)
    for more in range(100):
        seen.stepped(0, lie + more, START + 200 + more)
    assert seen.front == (199, START + 199)
    assert seen.of(1).behind == 0
    assert len(seen.steps) in (200, 201)


def test_a_restarted_run_counts_its_steps_anew() -> None:
    seen = trained(4, 30)
    for rank in range(4):
        seen.restarted(rank, 1)
    assert seen.front is None
    for rank in range(4):
        seen.stepped(rank, 10, START + 500)
    assert seen.front == (10, START + 500)
    assert len(seen.steps) == 31


def test_one_rank_alone_does_not_restart_the_run() -> None:
    seen = trained(4, 30)
    seen.restarted(2, 5)
    for rank in range(4):
        seen.stepped(rank, 30, START + 100 + rank)
    step = seen.step(30)
    assert step is not None
    assert [step.end(rank) for rank in range(4)] == [START + 100 + rank for rank in range(4)]


@pytest.mark.parametrize("log_first", [True, False])
@pytest.mark.parametrize("resumed", [5000, 100_000])
def test_a_log_that_counts_further_is_not_ahead_of_ranks_that_note_their_steps(
    log_first: bool, resumed: int
) -> None:
    """A resumed run: the hook of an optimizer counts from the start of the program."""
    seen = Pace(range(4))
    seen.relative = True
    for step in range(1, 40):
        at = START + 2.0 * step
        for rank in (3, 0, 1, 2) if log_first else range(4):
            if rank == 3:
                seen.stepped(3, resumed + step, at + 0.2, exact=False)
            else:
                seen.stepped(rank, step, at)
    assert seen.front == (39, START + 78)
    assert [seen.of(rank).behind for rank in range(4)] == [0] * 4
    assert seen.lagging() == []
    assert (seen.of(3).step, seen.of(3).estimated) == (resumed + 39, True)
    assert seen.usual() == pytest.approx(2.0)
    # Nobody counts otherwise: then it is ahead.
    seen.relative = False
    seen.stepped(0, 40, START + 80)
    assert (seen.of(0).behind > 0) is (resumed < seen.steps.limit // 2)


def test_ranks_whose_node_was_asked_a_moment_earlier_are_not_behind() -> None:
    seen = Pace(range(4))
    for step in range(100):
        for rank in range(4):
            if rank < 2 or step < 94:
                seen.stepped(rank, step, START + step / 10, span=0.1)
    for rank in range(4):
        seen.heard(rank, START + (9.91 if rank < 2 else 9.35))
    assert seen.lagging() == []
    assert [seen.of(rank).behind for rank in range(4)] == [0] * 4
    # Asked again, they have done no more: these hang.
    for rank in (2, 3):
        seen.heard(rank, START + 9.9)
    seen.stepped(0, 100, START + 10)
    assert seen.lagging() == [2, 3]
    assert seen.of(2).behind == 6


def test_an_older_checkpoint_takes_the_run_back() -> None:
    seen = trained(4, 130)
    at = START + 300
    for step in range(30, 39):
        at += STEP_S
        for rank in range(4):
            seen.stepped(rank, step, at + rank / 100)
    assert seen.front == (38, at)
    assert [seen.of(rank).step for rank in range(4)] == [38] * 4
    assert [seen.of(rank).behind for rank in range(4)] == [0] * 4
    assert [step.key for step in seen.steps][-2:] == [(1, 37), (1, 38)]
    assert seen.of(0).span == pytest.approx(STEP_S)
    # Then ranks are started anew.
    for rank in range(4):
        seen.restarted(rank, 1)
        seen.stepped(rank, 5, at + 60)
    assert next(seen.steps.newest()).key == (2, 5)
    # What a node kept of the time before belongs there.
    seen.remember(0, 131, START + 290, None, attempt=0, count=1)
    assert seen.steps.get((0, 131)) is not None
    seen.remember(0, 25, START + 301, None, attempt=0, count=1)
    assert seen.steps.get((1, 25)) is None, "it was before the first that told it"


def test_one_or_two_ranks_of_four_take_nobody_back() -> None:
    seen = trained(4, 130)
    for step in range(30, 60):
        for rank in (0, 1):
            seen.stepped(rank, step, START + 300 + step)
    assert seen.front is not None
    assert seen.front[0] == 129
    seen.stepped(0, 130, START + 400)
    # What was noted before, and is told again, is no news either.
    for rank in range(4):
        seen.stepped(rank, 100, START + 200)
    assert seen.front == (130, START + 400)


@pytest.mark.parametrize("head", [True, False])
def test_a_log_that_counts_in_each_epoch_goes_on(head: bool) -> None:
    seen = Pace((0, 1))
    said, at = SaidSteps(seen), START
    for epoch in (1, 2, 3):
        if head:
            for rank in (0, 1):
                said.read(rank, f"Epoch {epoch}/40\n".encode(), at)
        for step in range(1, 26):
            at += 2.0
            for rank in (0, 1):
                line = f"step {step}/25 loss 0.5\n" if head else f"Epoch {epoch}/40 step {step}/25 loss 0.5\n"
                said.read(rank, line.encode(), at)
                if rank:
                    assert seen.of(rank).step == step
    assert seen.front == (25, at)
    assert next(seen.steps.newest()).key == (2, 25)


def test_a_lower_number_in_a_log_is_believed_when_more_follow() -> None:
    seen = Pace((0,))
    for step in (*range(100, 120), 57, 120, 30, 31, 32, 33):
        seen.stepped(0, step, (seen.last_at or START) + 2, exact=False)
    assert seen.of(0).step == 120
    seen.stepped(0, 34, (seen.last_at or START) + 20, exact=False)
    assert seen.of(0).step == 34


def test_steps_and_their_history_are_bounded() -> None:
    gone = History()
    kept = Steps(range(100_000), gone.add)
    assert kept.limit == FEWEST
    kept = Steps((0, 1), gone.add)
    kept.limit = 100
    for step in range(100 + 3 * BUCKETS):
        for rank in (0, 1):
            at = START + step * 60.0
            kept.finish(rank, (0, step), at, 1.0 + rank + (step == 77), exact=True, count=1)
    assert len(kept) == 100
    assert len(gone) <= BUCKETS
    buckets = gone.buckets
    assert sum(bucket.steps for bucket in buckets) == 3 * BUCKETS
    assert [bucket.at for bucket in buckets] == sorted(bucket.at for bucket in buckets)
    worst = max(buckets, key=lambda bucket: bucket.greatest)
    assert (worst.greatest, worst.slowest, worst.least) == (3.0, 1, 1.0)
    assert worst.first <= 77 <= worst.last


@pytest.mark.parametrize("worked", [2, 1, 10**9])
def test_a_minute_has_its_median_step_and_one_quantity(worked: int) -> None:
    """A step of 40 s in each minute, and a recorder that reaches over some steps only."""
    seen = Pace(range(4))
    seen.steps.limit = 200
    at = START
    for step in range(3000):
        span = 40.0 if step % 60 == 0 else 1.0 + step % 7 / 100
        at += span
        for rank in range(4):
            seen.stepped(rank, step, at, span=span)
            if step % worked == 1 % worked:
                seen.worked(rank, step, 0.9 if rank == 2 else 0.5)
    for bucket in seen.history.buckets[2:-2]:
        known = worked < 10**9
        assert bucket.work is known
        assert bucket.middle == pytest.approx(0.5 if known else 1.03, abs=0.04)
        assert bucket.least == pytest.approx(0.5 if known else 1.0)
        assert bucket.greatest == pytest.approx(0.9 if known else 40, abs=39)
        assert (bucket.slowest, round(bucket.excess, 2)) == ((2, 0.8) if known else (3, 0.0))
        assert len(bucket.some) <= 16


@pytest.mark.parametrize("spans", [[1.0] * 20 + [3.0] * 25, [3.0] * 25 + [1.0] * 20, [1.0, 3.0, 3.0] * 15])
def test_the_median_of_many_steps_is_not_their_mean(spans: list[float]) -> None:
    gone = History()
    kept = Steps((0, 1), gone.add)
    kept.limit = 10
    spans = spans + [9.0] * 10
    for step, span in enumerate(spans):
        for rank in (0, 1):
            kept.finish(rank, (0, step), START + step, span, exact=True, count=1)
    (bucket,) = gone.buckets
    assert (bucket.steps, bucket.middle) == (len(spans) - 10, 3.0)


@pytest.mark.slow
@pytest.mark.parametrize(("phases", "most"), [((), 20e6), ((0.1, 0.2, 0.3, 0.1), 24e6)])
def test_a_run_of_64_ranks_takes_little_memory(phases: Sequence[float], most: float) -> None:
    many = 600
    tracemalloc.start()
    seen = trained(64, many, phases=phases)
    assert [step.excess(7) is None for step in seen.steps] == [False] * many
    seen.slow()
    for step in seen.steps:
        assert len(step.excesses) == 64
        assert step.slowest[0] >= step.typical_work
        assert step.first_end <= step.typical_end
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken / many * seen.steps.limit < most
    assert seen.steps.limit * 0.3 >= 3600, "an hour of quick steps is known exactly"


def test_a_checkpoint_is_a_column_without_a_step_and_what_goes_on_fills_the_rest() -> None:
    seen, at = Pace((0, 1)), START
    for step in range(60):
        at += STEP_S + (30 if step == 50 else 0)
        for rank in (0, 1):
            seen.stepped(rank, step, at)
    columns = Heat().draw(seen.steps, Window(at + 10, STEP_S, 60), seen.usual())
    drawn = "".join(str(column[0]) for column in columns)
    assert drawn == "1" * 30 + "0" * 15 + "1" * 10 + "0" * 5


def test_a_column_has_the_worst_step() -> None:
    seen, at = Pace(range(3)), START
    for step in range(40):
        at += 1.0
        for rank in range(3):
            seen.stepped(rank, step, at)
            seen.worked(rank, step, 1.7 if (rank, step) == (2, 33) else 1.0)
    columns = Heat().draw(seen.steps, Window(START + 40, 10.0, 4), seen.usual())
    assert [column[2] for column in columns] == [1, 1, 1, 4]
    assert {column[0] for column in columns} == {1}


def test_a_drawn_step_changes_when_its_work_is_learned() -> None:
    seen, heat = trained(3, 10, works=False), Heat()
    window = Window(START + 20, STEP_S, 10)
    assert {level for column in heat.draw(seen.steps, window, 2.0) for level in column} == {USUAL}
    for rank in range(3):
        seen.worked(rank, 9, 5.0 if rank == 1 else 1.0)
    assert heat.draw(seen.steps, window, 2.0)[-1] == bytes((USUAL, USUAL + len(LEVELS), USUAL))


def drawn_at(seen: Pace, heat: Heat, until: float, wide: float, columns: int) -> list[bytes]:
    window = Window(math.ceil(until / wide) * wide, wide, columns)
    return heat.draw(seen.steps, window, seen.usual(), seen.history.buckets)


@settings(max_examples=20, deadline=None)
@given(
    wide=st.sampled_from([1.0, 10.0, 60.0]), late=st.integers(0, 150), seed=st.integers(0, 99),
    work_after=st.integers(1, 60), all_of_it=st.booleans(),
)  # fmt: skip
@example(wide=10.0, late=80, seed=0, work_after=1, all_of_it=False)
@example(wide=10.0, late=80, seed=0, work_after=1, all_of_it=True)
def test_what_was_drawn_before_is_what_would_be_drawn_anew(
    wide: float, late: int, seed: int, work_after: int, all_of_it: bool
) -> None:
    """Whatever is learned late: work, all or only the last of what a node did that was away."""
    seen, heat, dice = Pace(range(4)), Heat(), random.Random(seed)
    away: list[tuple[int, float]] = []
    for step in range(300):
        at = START + step * 3.0 + (60 if step > 200 else 0)
        if step == 100 + late and all_of_it:
            for old, then in away:
                seen.stepped(3, old, then)
        for rank in range(4):
            if rank == 3 and 100 <= step < 100 + late:
                away.append((step, at))
            else:
                seen.stepped(rank, step, at + dice.random() * 0.1)
        if step % 30 == 0:
            for old in range(max(0, step - work_after), step):
                for rank in range(4):
                    seen.worked(rank, old, 1.0 + (rank == 2 and old % 50 == 3))
        if step % 50 == 49:
            now = seen.last_at or 0.0
            assert drawn_at(seen, heat, now, wide, 40) == drawn_at(seen, Heat(), now, wide, 40)


def test_what_is_too_old_to_be_kept_rank_by_rank_is_drawn_with_its_slowest_rank() -> None:
    seen = Pace(range(4))
    seen.steps.limit = 50
    for step in range(2000):
        for rank in range(4):
            seen.stepped(rank, step, START + step * 3.0 + (600 if step >= 1000 else 0), span=3.0)
            seen.worked(rank, step, 1.6 if (rank, step) == (2, 500) else 1.0)
    began, last = seen.began_at, seen.last_at
    assert began == pytest.approx(START, abs=1)
    assert last is not None
    columns = drawn_at(seen, Heat(), last, 120.0, 60)
    rank_2 = "".join(str(column[2]) for column in columns)
    assert rank_2.count("4") == 1
    assert {column[0] for column in columns} == {NO_STEP, USUAL}
    dark = "".join(str(column[0]) for column in columns).strip("0")
    assert 3 <= dark.count("0") <= 6, "the ten minutes without a step"


def test_before_the_first_and_after_the_last_step_nothing_is_drawn() -> None:
    seen = trained(2, 5, noise=0)
    columns = Heat().draw(seen.steps, Window(START + 40, STEP_S, 40), seen.usual())
    assert [column[0] != NO_STEP for column in columns] == [False] * 20 + [True] * 5 + [False] * 15


# Rows

NODES = {f"gpu{number:02d}": range(8 * number, 8 * number + 8) for number in range(8)}


def test_nodes_whose_ranks_agree_are_one_row_each_and_what_differs_opens_its_node() -> None:
    found = rows(NODES, {13: 0}, 30, every=False)
    assert [row.name for row in found[:3]] == ["gpu00", "gpu01", ""]
    assert [row.ranks_text for row in found[:3]] == ["0-7", "8", "9"]
    assert len(found) == 7 + 8


def test_on_a_low_screen_calm_nodes_share_rows_and_what_differs_keeps_its_own() -> None:
    found = rows(NODES, {13: 0, 40: 0}, 7, every=False)
    shown = [(row.name, row.ranks_text) for row in found]
    assert ("", "13") in shown
    assert ("gpu05", "40") in shown, "it is the first of its node"
    assert ("gpu[02-04]", "16-39") in shown
    assert sorted(rank for row in found for rank in row.ranks) == list(range(64))


MANY = {f"gpu{number:03d}": range(8 * number, 8 * number + 8) for number in range(128)}


def test_rows_of_a_node_are_in_the_order_of_their_first_ranks_and_the_first_has_its_name() -> None:
    found = rows(NODES, dict.fromkeys(range(0, 64, 2), 0), 20, every=False)
    assert [(row.name, row.ranks_text) for row in found[:2]] == [("gpu00", "0,2,4,6"), ("", "1,3,5,7")]


@pytest.mark.parametrize("height", [2, 5, 12, 20])
@pytest.mark.parametrize("slow", [range(0, 1024, 2), range(0, 1024, 3), range(0, 1024, 11), range(512)])
def test_however_many_ranks_are_slow_they_fit_on_the_screen(slow: range, height: int) -> None:
    found = rows(MANY, dict.fromkeys(slow, 0), height, every=False)
    assert len(found) <= height
    assert all(len({rank in slow for rank in row.ranks}) == 1 for row in found), "slow ones have their own"
    assert len(pairs(MANY, dict.fromkeys(slow, 0), height)) <= height


def test_slow_ranks_are_alike_if_they_are_slow_by_about_as_much() -> None:
    found = alike({3: 0.48, 5: 0.52, 7: 2.0, 9: 0.50, 11: 0.11, 13: 2.6})
    assert found == {11: 0, 3: 1, 9: 1, 5: 1, 7: 2, 13: 2}


def test_ranks_of_a_row_are_named_in_few_columns() -> None:
    assert Row((), tuple(range(496, 504))).ranks_text == "496-503"
    assert Row((), (496, 497, 498, 499, 501, 502, 503)).ranks_text == "496-503"
    assert Row((), (496, 498, 500, 502)).ranks_text == "496…502"
    assert Row((), (0, 2, 4, 6)).ranks_text == "0,2,4,6"


@given(
    nodes=st.integers(1, 40), each=st.integers(1, 8), height=st.integers(1, 50), every=st.booleans(),
    apart=st.sets(st.integers(0, 400), max_size=12),
)  # fmt: skip
def test_every_rank_is_in_one_row_in_order(
    nodes: int, each: int, height: int, every: bool, apart: set[int]
) -> None:
    hosts = {f"n{number:03d}": range(number * each, (number + 1) * each) for number in range(nodes)}
    found = rows(hosts, dict.fromkeys(apart, 0), height, every=every)
    assert sorted(rank for row in found for rank in row.ranks) == list(range(nodes * each))
    assert all(row.ranks for row in found)


def test_a_rank_that_was_not_heard_of_for_long_does_not_smear_its_step_over_the_others() -> None:
    pace = Pace(range(4))
    for step in range(300):
        for rank in range(4):
            if rank != 3 or step < 10 or step == 299:
                pace.stepped(rank, step, 1000.0 + 2 * step)
    last = pace.step(299)
    assert last is not None
    assert last.count == 1
    every = Pace(range(4))
    for step in range(0, 300, 10):
        for rank in range(4):
            every.stepped(rank, step, 1000.0 + 2 * step, exact=False)
    tenth = every.step(290)
    assert tenth is not None
    assert tenth.count == 10


def test_what_a_node_kept_fills_what_nobody_watched() -> None:
    pace = Pace(range(2))
    for step in range(1, 4):
        for rank in (0, 1):
            pace.stepped(rank, step, START + step)
    # A link was lost; first comes what a ring still has, then what the node kept, which has one of them, too.
    for rank in (0, 1):
        pace.stepped(rank, 100, START + 100, span=1.0)
        for step in range(3, 100):
            pace.remember(rank, step, START + step, 1.0, attempt=0, count=1)
        pace.remember(rank, 100, START + 7, 5.0, attempt=0, count=50)
    assert [step.step for step in pace.steps] == list(range(1, 101))
    assert {step.typical_span for step in pace.steps if step.step > 1} == {1.0}
    assert pace.front == (100, START + 100)
    assert pace.of(1).at == START + 100
    pace.remember(7, 101, START, 1.0, attempt=0, count=1)
    assert pace.front == (100, START + 100), "of an unknown rank"


def test_what_a_node_kept_is_all_there_is_of_a_run_that_is_over() -> None:
    pace = Pace(range(2))
    for rank in (0, 1):
        pace.remember(rank, 64, START + 64, 1.0, attempt=0, count=64)
        pace.remember(rank, 65, START + 65, 1.0, attempt=0, count=1)
    assert pace.front == (65, START + 65)
    assert pace.noted_until([0]) == START + 65
    assert [step.count for step in pace.steps] == [64, 1]


def test_steps_around_an_event_stay_as_they_are() -> None:
    pace = Pace(range(2))
    limit = pace.steps.limit = 400
    pace.steps.happened(START + 150)
    for step in range(1, 1001):
        for rank in (0, 1):
            pace.stepped(rank, step, START + step)
    kept = [step.step for step in pace.steps]
    assert len(kept) == limit
    assert kept == sorted(kept)
    # A quarter of the room is theirs, up to 60 s after the event.
    assert kept[:100] == list(range(111, 211))
    assert kept[100:] == list(range(701, 1001))
    assert pace.steps.get((0, 300)) is None
    assert any(bucket.first <= 300 <= bucket.last for bucket in pace.history.buckets)


def test_events_do_not_hold_steps_for_ever() -> None:
    pace = Pace(range(1))
    pace.steps.limit = 400
    for step in range(1, 5001):
        pace.steps.happened(START + step)
        pace.stepped(0, step, START + step)
    assert len(pace.steps) == 400
    assert [step.step for step in pace.steps][-300:] == list(range(4701, 5001))
