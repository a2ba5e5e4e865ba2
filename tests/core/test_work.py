"""Work: it finds the rank that was slow, never blames another one, and says where it cannot know."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cockpit.core.recorder.members import Memberships
from cockpit.core.recorder.merge import look
from cockpit.core.recorder.spans import union
from cockpit.core.recorder.work import Step, Work, parts, work
from tests.recorder import plainly
from tests.recorder.named import slow
from tests.recorder.training import Training

UNKNOWN = ("a recorder does not go back that far", "not all of its partners have entered")
PIPED = "gloo does not record sends between ranks, such as those of pipeline stages"
SHAPES = st.sampled_from([(1, 4), (2, 2), (4, 2), (2, 4), (1, 2), (1, 8)])


def training(
    shape: tuple[int, int],
    seed: int,
    late: int | None,
    delay: float,
    part: str,
    layers: int = 2,
    buckets: int = 4,
) -> Training:
    """A training in which one rank, or none, computes for longer in one part of each step."""
    rng = Random(seed)
    forward, backward = rng.randrange(20_000, 60_000), rng.randrange(20_000, 60_000)
    lengths = [rng.uniform(0.7, 1.4) for _ in range(12)]
    usual = {"data": 2000, "forward": forward, "backward": backward}

    def busy(rank: int, step: int, what: str) -> int:
        # Sequences differ from step to step, and nobody is exactly as fast as another.
        extra = delay * sum(usual.values()) if (rank, what) == (late, part) else 0
        return int((usual[what] + extra) * lengths[step] * rng.uniform(0.985, 1.015))

    return Training(*shape, busy, layers, buckets)


def works(run: Training, keep: dict[int, int] | None = None) -> list[Work]:
    """The work of all ranks in all steps."""
    return work(look(run.recorded(keep), Memberships(run.world)), run.step_times())


@settings(max_examples=30, deadline=None)
@given(
    SHAPES,
    st.integers(0, 1 << 30),
    st.sampled_from(["data", "forward", "backward"]),
    st.floats(0.3, 3),
    st.integers(1, 6),
    st.integers(1, 4),
)
def test_the_slow_rank_is_found_and_nobody_else(
    shape: tuple[int, int], seed: int, part: str, delay: float, buckets: int, layers: int
) -> None:
    late = seed % (shape[0] * shape[1])
    run = training(shape, seed, late, delay, part, buckets=buckets, layers=layers)
    found = works(run)
    assert [one.rank for one in slow(found)] == [late]
    lengths = {
        (rank, step.number): step.end_us - step.begin_us
        for rank, steps in run.step_times().items()
        for step in steps
    }
    for one in found:
        key = one.rank, one.step
        assert one.us is not None
        assert 0 <= one.us <= min(lengths[key], 1.05 * run.computed[key])
        if one.rank == late:
            assert one.us >= 0.9 * run.computed[late, one.step]


@settings(max_examples=15, deadline=None)
@given(SHAPES, st.integers(0, 1 << 30), st.integers(1, 6), st.integers(1, 4))
def test_of_healthy_ranks_none_is_slow(shape: tuple[int, int], seed: int, buckets: int, layers: int) -> None:
    run = training(shape, seed, None, 0, "data", buckets=buckets, layers=layers)
    assert slow(works(run)) == []


@settings(max_examples=12, deadline=None)
@given(
    SHAPES, st.integers(0, 1 << 30), st.sampled_from(["data", "forward", "backward"]), st.floats(0, 2),
    st.integers(1, 5), st.booleans(), st.sampled_from([1, 1000, 20_000]),
)  # fmt: skip
def test_it_is_what_the_definition_says(
    shape: tuple[int, int], seed: int, part: str, delay: float, buckets: int, whole: bool, ticks: int
) -> None:
    run = training(shape, seed, seed % (shape[0] * shape[1]), delay, part, buckets=buckets)
    for entries in run.entries.values():
        # By a coarse clock many things are at once.
        entries[:] = [entry._replace(at_us=entry.at_us // ticks * ticks) for entry in entries]
    keep = None if whole else {0: seed % len(run.entries[0]) + 1}
    seen = look(run.recorded(keep), Memberships(run.world))
    assert work(seen, run.step_times()) == plainly.work(seen, run.step_times())


# The same trainings each time: one in two thousand is missed, for `beside` errs by chance.
@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    SHAPES,
    st.integers(0, 1 << 30),
    st.lists(st.tuples(st.integers(-(10**10), 10**10), st.integers(-500, 500)), min_size=8, max_size=8),
)
@example((2, 4), 2856, [(0, 150), (0, 93), *[(0, 0)] * 6])
@example((2, 2), 785114913, [(0, 182), (0, 185), (0, -57), (0, -36), *[(0, 0)] * 4])
def test_clocks_that_are_not_quite_right_change_nothing(
    shape: tuple[int, int], seed: int, clocks: list[tuple[int, int]]
) -> None:
    late = seed % (shape[0] * shape[1])
    run = training(shape, seed, late, 0.5, "forward")
    recorded = run.recorded()
    steps = run.step_times()
    for rank, one in recorded.items():
        # Clocks of nodes are hours apart; what is left of that after correction is some 100 µs.
        hours, wrong = clocks[rank]
        there = one.traces[0].shifted(10**11 + hours)
        recorded[rank] = one._replace(traces=(there.shifted(wrong - hours - 10**11),))
    found = work(look(recorded, Memberships(run.world)), steps)
    assert [one.rank for one in slow(found)] == [late]
    assert all(one.us is not None and one.us >= 0 for one in found)


@settings(max_examples=10, deadline=None)
@given(SHAPES, st.integers(0, 1 << 30), st.data())
def test_what_recorders_have_forgotten_is_unknown(
    shape: tuple[int, int], seed: int, data: st.DataObject
) -> None:
    run = training(shape, seed, None, 0, "data")
    most = len(run.entries[0])
    keep = {rank: data.draw(st.integers(1, most)) for rank in run.entries if data.draw(st.booleans())}
    exact = {(one.rank, one.step): one for one in works(run)}
    seen = look(run.recorded(keep), Memberships(run.world))
    # Nobody is absent: each has entered everything.
    assert not any(one.absent for one in seen.collectives)
    for one in work(seen, run.step_times()):
        if one.us is None:
            assert one.why in (
                "a recorder does not go back that far",
                "not all of its partners have entered",
            )
        else:
            # How long the end of a step takes is learned from all steps on record.
            assert one.us == pytest.approx(exact[one.rank, one.step].us, abs=1000)


def test_a_recorder_that_holds_no_step_says_nothing() -> None:
    run = training((1, 4), 1, 2, 1, "backward")
    assert slow(works(run, keep={0: 4})) == []
    assert {one.us for one in works(run, keep={0: 4})} == {None}


def test_a_rank_that_has_come_to_nothing_yet_has_no_work() -> None:
    run = training((1, 4), 1, None, 0, "data")
    recorders = run.recorded()
    recorders[3] = recorders[3]._replace(traces=())
    steps = {rank: [] if rank == 3 else these for rank, these in run.step_times().items()}
    assert {one.rank for one in work(look(recorders, Memberships(run.world)), steps)} == {0, 1, 2}


def test_a_rank_that_does_not_answer_leaves_its_partners_unknown() -> None:
    run = training((2, 2), 1, 3, 1, "backward")
    recorded = run.recorded()
    memberships = Memberships(run.world)
    look(recorded, memberships)
    del recorded[3]
    found = work(look(recorded, memberships), run.step_times())
    assert {one.why for one in found if one.rank != 3} == {"some of its partners did not answer"}
    assert {one.why for one in found if one.rank == 3} == {"no collectives on record"}


def test_on_nccl_it_is_a_lag() -> None:
    run = training((1, 4), 1, 2, 1, "backward")
    assert not any(one.lag for one in works(run))
    run = training((1, 4), 1, 2, 1, "backward")
    nccl = Training(1, 4, lambda rank, _, __: 50_000 if rank == 2 else 20_000, backend="nccl")
    assert all(one.lag for one in works(nccl))
    assert [one.rank for one in slow(works(nccl), lag=True)] == [2]


def test_stages_of_a_pipeline_have_no_work_on_gloo() -> None:
    run = training((1, 4), 1, 2, 1, "backward")
    stages = {0: 0, 1: 0, 2: 1, 3: 1}
    seen = look(run.recorded(), Memberships(run.world))
    told = {one.why for one in work(seen, run.step_times(), stages=stages)}
    assert told == {PIPED}
    # Two jobs in one, or stages that send: ranks that have no collective in common.
    assert parts([]) == {}
    seen_alone = [one for one in seen.collectives if one.group.name != "0"]
    assert set(parts(seen_alone).values()) == {0}
    apart = look(Training(2, 2, lambda *_: 10_000, buckets=0).recorded(), Memberships(4)).collectives
    assert parts([one for one in apart if one.group.name != "0"]) == {0: 0, 1: 0, 2: 1, 3: 1}


@pytest.mark.parametrize("shape", [(1, 4), (2, 4)])
def test_ranks_that_only_agree_on_a_few_numbers_send_each_other_the_rest(shape: tuple[int, int]) -> None:
    """Stages of a pipeline over ``send`` and ``recv`` that have the norm of all gradients in common."""
    run = Training(*shape, lambda rank, *_: 50_000 if rank >= 2 else 20_000, layers=2, buckets=0)
    seen = look(run.recorded(), Memberships(run.world))
    told = work(seen, run.step_times())
    assert {one.why for one in told} == {PIPED}
    assert slow(told) == []
    stages = {rank: rank // shape[0] for rank in range(run.world)} if shape[0] > 1 else {}
    assert parts(seen.collectives) == stages
    nccl = Training(*shape, lambda *_: 20_000, layers=2, buckets=0, backend="nccl")
    known = work(look(nccl.recorded(), Memberships(run.world)), nccl.step_times())
    assert all(one.lag and one.us is not None for one in known)


@pytest.mark.parametrize(("dtype", "apart"), [("Byte", True), ("Long", True), ("Float", False)])
def test_objects_that_all_ranks_know_make_stages_no_one_part(dtype: str, apart: bool) -> None:
    run = Training(2, 2, lambda *_: 20_000, buckets=0)
    for entries in run.entries.values():
        entries[:] = [
            entry._replace(call=entry.call._replace(inputs=900, dtype=dtype))
            if entry.call.inputs == 1
            else entry
            for entry in entries
        ]
    found = parts(look(run.recorded(), Memberships(4)).collectives)
    assert (found[0] != found[2]) is apart


def test_a_rank_costs_the_others_what_they_wait_for_it_alone() -> None:
    def busy(rank: int, _: int, what: str) -> int:
        # Rank 2 would be late by more, but others come late too.
        late = {2: 150_000, 3: 40_000}.get(rank, 0) if what == "data" else 0
        return {"data": 2000, "forward": 50_000, "backward": 80_000}[what] + late

    told = works(Training(1, 4, busy))
    for rank in range(4):
        # A sum over four buckets would say several times as much; in a tensor-parallel pair both are late.
        costs = {one.cost_us for one in told if one.rank == rank}
        assert costs == ({0} if rank != 2 else costs)
        if rank == 2:
            assert all(cost == pytest.approx(140_000, abs=35_000) for cost in costs)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50))))
def test_spans(spans: list[tuple[int, int]]) -> None:
    some = [(min(span), max(span)) for span in spans]
    moments = {at for begin, end in some for at in range(begin, end)}
    joined = union(some)
    assert {at for begin, end in joined for at in range(begin, end)} == moments
    assert all(before[1] < after[0] for before, after in pairwise(joined))
    for begin, end in ((10, 30), (20, 40), (5, 25)):
        assert joined.within(begin, end) == len(moments & {*range(begin, end)})


def test_a_step_without_a_collective_is_all_work() -> None:
    run = training((1, 2), 1, None, 0, "data")
    end = run.ends[0][-1]
    later = {0: [Step(99, end, end + 5000)], 1: [Step(99, end, end + 5000)]}
    found = work(look(run.recorded(), Memberships(2)), later)
    assert [one.us for one in found] == [5000, 5000]


@pytest.mark.parametrize(("shape", "layers"), [((1, 4), 1), ((2, 2), 3)])
@pytest.mark.parametrize("buckets", [2, 4, 8])
@pytest.mark.parametrize("delay", [0.05, 0.15, 0.4])
def test_a_rank_that_is_late_once_is_not_late_anew_in_each_bucket(
    shape: tuple[int, int], layers: int, buckets: int, delay: float
) -> None:
    rng = Random(1)
    usual = {"data": 2000, "forward": 100_000, "backward": 200_000}

    def busy(rank: int, step: int, what: str) -> int:
        late = delay * sum(usual.values()) if (rank, what) == (3, "data") else 0
        return int((usual[what] + late) * rng.uniform(0.985, 1.015))

    found = slow(works(Training(*shape, busy, layers, buckets)))
    assert [one.rank for one in found] == ([3] if delay > 0.1 else [])
    assert all(one.excess == pytest.approx(delay, abs=0.03) for one in found)


@pytest.mark.parametrize(("late", "found"), [(15_000, []), (60_000, [3])])
def test_gradients_that_are_computed_after_the_last_were_sent_off_are_work(
    late: int, found: list[int]
) -> None:
    rng = Random(1)

    def busy(rank: int, step: int, what: str) -> int:
        usual = {"data": 2000, "forward": 100_000, "backward": 150_000}[what]
        return int((usual + late * ((rank, what) == (3, "data"))) * rng.uniform(0.985, 1.015))

    ranks = slow(works(Training(1, 4, busy, 1, 2, after=50_000, norm=False)))
    assert [one.rank for one in ranks] == found
    assert all(one.excess == pytest.approx(0.2, abs=0.03) for one in ranks)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("world", [2, 4])
def test_a_rank_is_slow_after_the_last_collective(world: int, norm: bool) -> None:
    rng = Random(1)

    def busy(rank: int, step: int, what: str) -> int:
        usual = {"data": 2000, "forward": 100_000, "backward": 150_000}[what]
        return int(usual * rng.uniform(0.985, 1.015))

    def update(rank: int, step: int) -> int:
        return int((20_000 + 60_000 * (rank == 1)) * rng.uniform(0.985, 1.015))

    (found,) = slow(works(Training(1, world, busy, 1, 2, norm=norm, update=update)))
    assert found.rank == 1
    assert found.excess > 0.18 if world == 2 else found.excess == pytest.approx(60 / 272, abs=0.03)


def test_what_others_compute_beside_the_last_collective_is_known_from_when_they_were_last() -> None:
    rng = Random(1)

    def busy(rank: int, step: int, what: str) -> int:
        usual = {"data": 2000, "forward": 100_000, "backward": 150_000}[what]
        return int(usual * rng.uniform(0.985, 1.015))

    def update(rank: int, step: int) -> int:
        return 5000 + 60_000 * (rank == 1 and step >= 20)

    run = Training(1, 4, busy, 1, 2, after=50_000, norm=False, update=update, steps=40)
    (found,) = slow(works(run))
    assert found.rank == 1
    assert found.excess == pytest.approx(60 / 307, abs=0.04)
