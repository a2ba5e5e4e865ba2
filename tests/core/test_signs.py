"""Signs of progress where nothing tells steps, whatever nodes say of their ranks."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cockpit.base.events import RankSample
from cockpit.base.gate import Malformed, read
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.signs import CPU, FRESH_S, RECORDER, Signs, differing
from cockpit.core.recorder.counts import Count, counts
from cockpit.core.recorder.members import Memberships
from cockpit.core.recorder.merge import Recorded, look
from tests.core.test_recorder import PAIR, SECOND, WORLD, calls
from tests.core.test_recorder import rank as entered
from tests.recorder import recorded
from tests.recorder.training import Training

START = 1_800_000_000.0
RANKS = range(4)


def us(at: float) -> int:
    return round(at * 1e6)


# Main threads


def test_a_main_thread_that_runs_and_one_that_sleeps() -> None:
    signs = Signs(RANKS)
    for second in range(60):
        signs.ran(0, 0.5 * second, 10 + second, START + second)
        signs.ran(1, 2.0, 7 + (second >= 20), START + second)
        signs.ran(2, 2.0, 7, START + second)
    runs, slept, never = (signs.of(rank) for rank in range(3))
    assert runs is not None
    assert slept is not None
    assert never is not None
    assert (runs.source, runs.at, runs.least) == (CPU, START + 59, False)
    assert (slept.at, slept.least, slept.age_s(START + 60)) == (START + 20, False, 40.0)
    assert (never.at, never.least, never.age_s(START + 60)) == (START, True, 60.0), "since we look, or longer"
    assert (runs.collectives, runs.behind) == (None, 0)
    assert signs.of(3) is None
    known = {rank: sign for rank in RANKS if (sign := signs.of(rank)) is not None}
    assert differing(known, START + 60) == [0], "the only one that goes on"
    del known[0]
    assert differing(known, START + 60) == [], "all stand still"


def test_counters_that_fall_are_those_of_another_process_which_runs() -> None:
    signs = Signs(RANKS)
    for at, used in ((0, 50.0), (10, 50.0), (20, 0.1)):
        signs.ran(0, used, 9, START + at)
    sign = signs.of(0)
    assert sign is not None
    assert (sign.at, sign.least) == (START + 20, False)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 1e300, True, "5", [5], 1 << 80])
def test_what_cannot_be_a_counter_does_not_pass_the_gate(value: Any) -> None:
    assert read(RankSample, {"main_cpu_s": 5.5, "main_switches": 7}).main_switches == 7
    assert read(RankSample, {"main_cpu_s": None}).main_cpu_s is None
    for name in ("main_cpu_s", "main_switches"):
        with pytest.raises(Malformed):
            read(RankSample, {name: value})


def test_what_is_no_counter_is_no_sign() -> None:
    signs = Signs(RANKS)
    for cpu_s, switches in ((None, 5), (5.0, None), (math.nan, 5), (math.inf, 5)):
        signs.ran(0, cpu_s, switches, START)
    signs.ran(99, 1.0, 1, START)
    assert [signs.of(rank) for rank in (0, 99)] == [None, None]


# Recorders


def test_a_recorder_counts_more_than_a_main_thread_until_it_is_old() -> None:
    signs = Signs(RANKS)
    signs.ran(0, 1.0, 5, START)
    signs.entered(0, Count(1200, us(START - 30), 3, us(START - 1)), START)
    sign = signs.of(0)
    assert sign is not None
    assert (sign.source, sign.collectives, sign.behind) == (RECORDER, 1200, 3)
    assert sign.age_s(START + 40) == 29.0, "as it was when it was looked at"
    signs.ran(0, 2.0, 6, START + FRESH_S + 2)
    sign = signs.of(0)
    assert sign is not None
    assert (sign.source, sign.collectives, sign.behind) == (CPU, None, 0)


@pytest.mark.parametrize("at", [-1, 0, us(START), us(START + 9e6), 1 << 62])
@pytest.mark.parametrize("taken", [-1, 0, us(START), us(START + 9e6), 1 << 62])
def test_whatever_time_a_node_says_it_is_a_time(at: int, taken: int) -> None:
    signs = Signs(RANKS)
    signs.entered(0, Count(5, at, -3, taken), START)
    sign = signs.of(0)
    if sign is not None:  # what was looked at long ago, as it says itself, is no news
        assert 0 <= sign.at <= sign.seen_at <= START
        assert sign.behind == 0
        assert math.isfinite(sign.age_s(START))


TOLD = st.tuples(
    st.sampled_from(["ran", "entered"]),
    st.integers(0, 3),
    st.floats(0, 1 << 36),
    st.integers(0, 1 << 62),
    st.integers(-(1 << 62), 1 << 62),
)


@settings(max_examples=60, deadline=None)
@given(told=st.lists(TOLD, max_size=60))
def test_a_node_that_lies_affects_its_own_ranks_only(told: list[tuple[str, int, float, int, int]]) -> None:
    """Ranks 2 and 3 are on the node that lies; what is said of 0 and 1 is the same without it."""

    def signs(ranks: range) -> Signs:
        made = Signs(RANKS)
        for second, (what, rank, cpu_s, count, at) in enumerate(told):
            now = START + second
            honest = rank < 2
            if rank not in ranks:
                continue
            if what == "ran":
                made.ran(rank, cpu_s, count, now)
            else:
                made.entered(rank, Count(count, us(now) if honest else at, 0, us(now) if honest else at), now)
        made.ran(0, 0.0, 0, START + len(told))
        return made

    with_it, without = signs(range(4)), signs(range(2))
    assert [with_it.of(rank) for rank in (0, 1)] == [without.of(rank) for rank in (0, 1)]
    for rank in (2, 3):
        sign = with_it.of(rank)
        assert sign is None or (sign.at <= START + len(told) and sign.age_s(START + len(told)) >= 0)


# How far recorders say ranks are


def test_who_misses_a_collective_is_behind() -> None:
    """As real recorders had it: rank 3 has not entered the last three buckets, nor the collective of all."""
    found = counts(recorded.seen("missing"))
    assert {rank: count.behind for rank, count in found.items()} == {0: 0, 1: 1, 2: 0, 3: 4}
    assert all(count.collectives > 60 for count in found.values())
    assert found[3].last_us < min(found[rank].last_us for rank in (0, 2))


def staggered(run: Training, apart_us: int) -> dict[int, Recorded]:
    """Recorders that are asked one after the other while training goes on."""
    found = {}
    for rank, one in run.recorded().items():
        taken = one.taken_us - (run.world - rank) * apart_us
        (trace,) = one.traces
        entries = tuple(entry for entry in trace.entries if entry.at_us <= taken)
        found[rank] = Recorded(taken, (trace._replace(entries=entries),))
    return found


def test_who_is_asked_earlier_is_not_behind() -> None:
    run = Training(2, 4, lambda *_: 20_000, steps=40)
    found = counts(look(staggered(run, 100_000), Memberships(run.world)))
    assert found[7].collectives - found[0].collectives > 50
    assert {count.behind for count in found.values()} <= {0, 1}


def world(tops: list[int], *, taken: int = 2000 * SECOND) -> dict[int, Recorded]:
    """Ranks that have entered so many collectives of all."""
    return {
        number: entered(*calls(WORLD, *range(max(1, top - 9), top + 1)), taken=taken)
        for number, top in enumerate(tops)
    }


@pytest.mark.parametrize("lie", [101, 150, 1 << 40, 1 << 62])
def test_a_node_that_says_its_ranks_are_ahead_puts_nobody_behind(lie: int) -> None:
    told = world([100, 100, 98, 100, 100, 100, 100])
    for number in (3, 4, 5):
        other = calls(WORLD._replace(backend="odd"), 77)
        told[number] = entered(*calls(WORLD, 99, 100, lie), *other, taken=2000 * SECOND)
    found = counts(look(told, Memberships(7)))
    assert [found[number].behind for number in range(7)] == [0, 0, 2, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("tops", "behind"),
    [
        ([50, 47], [0, 3]),
        ([50, 50, 47, 47], [0, 0, 3, 3]),
        ([50, 50, 50, 1], [0, 0, 0, 49]),
        ([47, 47, 47, 50], [0, 0, 0, 0]),
        ([50, 48, 46, 44, 42], [0, 0, 0, 2, 4]),
    ],
)
def test_a_rank_is_behind_what_most_others_have_entered(tops: list[int], behind: list[int]) -> None:
    found = counts(look(world(tops), Memberships(len(tops))))
    assert [found[number].behind for number in range(len(tops))] == behind


def test_a_group_of_which_a_rank_has_nothing_does_not_count() -> None:
    told = world([50, 50, 50, 50])
    told[1] = entered(*calls(WORLD, *range(41, 51)), *calls(PAIR, 1, 2, 3), taken=2000 * SECOND)
    found = counts(look(told, Memberships(4)))
    assert [(count.collectives, count.behind) for count in found.values()] == [
        (50, 0),
        (53, 0),
        (50, 0),
        (50, 0),
    ]
    assert counts(look({0: entered(taken=SECOND)}, Memberships(4))) == {}


# In the pace of a run


def test_a_rank_whose_steps_are_known_needs_no_sign() -> None:
    pace = Pace(RANKS)
    for rank in RANKS:
        pace.signs.ran(rank, 1.0, 5, START)
    assert pace.of(0).sign is not None
    assert replace(pace.of(0), sign=None) == replace(pace.of(99))
    pace.stepped(0, 7, START, exact=False)
    assert (pace.of(0).step, pace.of(0).sign) == (7, None)
    assert pace.of(1).sign is not None
    pace.restarted(1, 1)
    assert pace.of(1).sign is None, "that was another process"
