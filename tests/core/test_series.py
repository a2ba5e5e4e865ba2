"""What ranks noted and what a log says, step by step side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from cockpit.core.pace.past import Apart, PastStep
from cockpit.core.pace.phases import NAMES
from cockpit.core.pace.series import COLUMNS, Ends, LoggedStep, Row, rows

START = 1_800_000_000.0


def step(
    number: int,
    *,
    span: float = 2.0,
    restarts: int = 0,
    begun: float = START,
    exact: bool = True,
    count: int = 1,
) -> PastStep:
    apart = (Apart(3, 0.5),) if exact else ()
    at = begun + number * span
    median, least, greatest = 0.5 * span, 0.4 * span, 0.75 * span
    values = (span, median, least, greatest) if exact else (span, span, span, span)
    return PastStep(
        restarts, number, at, count, "", *values, 3 if exact else 0, exact, exact, False, False, apart
    )


def joined(steps: Sequence[PastStep], said: Iterable[LoggedStep]) -> list[Row]:
    return list(rows(steps, Ends(steps), said, 4))


def test_a_row_has_what_both_know() -> None:
    said = [LoggedStep(START + 2.0 * number + 0.1, number, loss=3 - number / 10) for number in range(1, 11)]
    found = joined([step(number) for number in range(1, 11)], said)
    assert [row["step"] for row in found] == [row["log_step"] for row in found] == list(range(1, 11))
    assert list(found[4]) == list(COLUMNS)
    assert found[4] == {
        **{"step": 5, "t": START + 10, "restarts": 0, "steps": 1, "ranks": 4, "step_s": 2.0},
        **{"compared": "work", "work_s": 1.0},
        **{"slowest_s": 1.5, "slowest_rank": 3, "slow": (Apart(3, 0.5),), "estimated": False},
        **dict.fromkeys(f"{name}_s" for name in NAMES),
        **{"log_step": 5, "loss": 2.5, "lr": None, "samples_s": None, "tokens_s": None},
    }


@pytest.mark.parametrize("ahead", [-1, 5000])
def test_a_log_that_counts_otherwise_is_brought_to_the_same_steps(ahead: int) -> None:
    """From 0; or as the training went on from a checkpoint, and the ranks count from the start."""
    said = [
        LoggedStep(START + 2.0 * number + 0.2, number + ahead, loss=float(number)) for number in range(1, 101)
    ]
    found = joined([step(number) for number in range(1, 101)], said)
    assert len(found) == 100
    assert all(row["loss"] == row["step"] == row["log_step"] - ahead for row in found)


def test_quick_steps_keep_their_own_numbers_although_lines_come_late() -> None:
    steps = [step(number, span=0.02, count=25) for number in range(25, 1000, 25)]
    said = [LoggedStep(START + 0.02 * number + 0.2, number, loss=float(number)) for number in range(1, 1000)]
    found = joined(steps, said)
    assert len(found) == 999
    assert [row["step"] for row in found if row["ranks"] is not None] == list(range(25, 1000, 25))
    assert all(row["loss"] == row["step"] for row in found)
    assert sum(row["steps"] for row in found) == 999


@pytest.mark.parametrize(("span", "late_s"), [(2.0, 0.1), (0.1, 0.4), (0.02, 0.3)])
def test_a_log_that_counts_from_zero_adds_no_step_and_no_time_goes_back(span: float, late_s: float) -> None:
    count = max(1, round(0.5 / span))
    steps = [step(number, span=span, count=count) for number in range(count, 201, count)]
    said = [
        LoggedStep(START + span * (number + 1) + late_s, number, loss=float(number))
        for number in range(0, 200, 10)
    ]
    found = joined(steps, said)
    assert sum(row["steps"] for row in found) == steps[-1].step
    times = [row["t"] for row in found]
    assert times == sorted(times)
    told = {row["log_step"]: row["step"] for row in found if row["loss"] is not None}
    assert len(told) == len(said)
    if span >= 0.1:
        assert all(number == count + 1 for count, number in told.items())


def test_what_an_evaluation_before_the_first_step_says_is_not_taken_for_it() -> None:
    steps = [step(number, span=0.5) for number in range(1, 20)]
    said = [LoggedStep(START - 5.0, 0, loss=9.0)] + [
        LoggedStep(START + 0.5 * number + 0.1, number, loss=float(number)) for number in range(1, 20)
    ]
    found = joined(steps, said)
    assert [row["step"] for row in found] == list(range(20))
    assert [row["loss"] for row in found] == [9.0, *map(float, range(1, 20))]
    assert sum(row["steps"] for row in found) == 19


def test_numbers_of_a_log_are_not_corrected_by_what_was_read_from_it() -> None:
    # When lines arrived was written down a step later.
    steps = [step(number, exact=False, begun=START - 4.5) for number in range(1, 101)]
    said = [LoggedStep(START + 2.0 * number, number, loss=float(number)) for number in range(1, 101)]
    found = joined(steps, said)
    assert [row["step"] for row in found] == [row["log_step"] for row in found] == list(range(1, 101))


def test_each_epoch_may_count_anew() -> None:
    said = [
        LoggedStep(START + 2.0 * number + 0.1, (number - 1) % 20, loss=float(number))
        for number in range(1, 61)
    ]
    found = joined([step(number) for number in range(1, 61)], said)
    assert [row["loss"] for row in found] == [row["step"] for row in found] == list(range(1, 61))


def test_a_restart_repeats_steps() -> None:
    again = START + 100
    steps = [step(number) for number in range(1, 31)]
    steps += [step(number, restarts=1, begun=again) for number in range(21, 41)]
    said = [LoggedStep(START + 2.0 * number + 0.1, number, loss=1.0) for number in range(1, 31)]
    said += [LoggedStep(again + 2.0 * number + 0.1, number, loss=2.0) for number in range(21, 41)]
    found = joined(steps, said)
    assert len(found) == 50
    assert {(row["restarts"], row["loss"]) for row in found} == {(0, 1.0), (1, 2.0)}


def test_without_the_ranks_the_log_counts() -> None:
    found = joined(
        [], [LoggedStep(START, 7, lr=1e-4), LoggedStep(None, None, loss=2.0), LoggedStep(START + 1, 8)]
    )
    assert [(row["step"], row["t"], row["estimated"]) for row in found] == [
        (7, START, True),
        (None, None, True),
        (8, START + 1, True),
    ]
    assert all(row["ranks"] is None and row["slow"] == () for row in found)


def test_when_cpus_enqueued_is_no_work() -> None:
    (row,) = joined([replace(step(4), lag=True)], [])
    assert (row["compared"], row["work_s"], row["slowest_rank"]) == ("enqueue", None, 3)


def test_steps_read_from_logs_name_nobody() -> None:
    (row,) = joined([step(4, exact=False)], [])
    assert row["estimated"]
    assert (row["ranks"], row["work_s"], row["slowest_s"], row["slowest_rank"]) == (None,) * 4


def test_of_ranks_that_drift_apart_numbers_are_compared() -> None:
    said = [LoggedStep(START + 1.4 * number, number, loss=float(number)) for number in range(1, 101)]
    found = joined([step(number) for number in range(1, 101)], said)
    assert len(found) == 100
    assert all(row["loss"] == row["step"] for row in found)


def test_a_log_is_not_compared_with_steps_of_long_ago() -> None:
    said = [LoggedStep(START + 1000 + number, 500 + number) for number in range(100)]
    found = joined([step(number) for number in range(1, 11)], said)
    assert [row["step"] for row in found] == [*range(1, 11), *range(500, 600)]


def test_odd_numbers_do_no_harm() -> None:
    said = [LoggedStep(START, 2**60), LoggedStep(START, 0), LoggedStep(None, 3), LoggedStep(START + 6.1, 4)]
    found = joined([step(number) for number in range(1, 6)], said)
    assert sorted(row["step"] for row in found if row["ranks"]) == [1, 2, 3, 4, 5]
