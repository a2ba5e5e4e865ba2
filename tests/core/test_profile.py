"""What a profile says: who is slow and why, in collections of which the truth is known; and odd ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cockpit.base.gate import fields
from cockpit.base.profile.summary import Collective, Operation, RankProfile, StepTimes
from cockpit.core.masks import mask_of
from cockpit.core.profile.collection import DONE, Collection, RankResult
from cockpit.core.profile.gain import Ahead, gain
from cockpit.core.profile.joined import join
from cockpit.core.profile.reader import operations, read
from cockpit.core.profile.reading import Parts, Reading
from cockpit.core.profile.words import MD_LINES, as_json, as_lines, as_markdown, bar
from tests.core.profiled import MS, Work, collection

T = TypeVar("T")

SLOW = {
    "data": (Work(data=300), "data", "input"),
    "forward": (Work(forward=200), "compute", "forward"),
    "backward": (Work(backward=300), "compute", "backward"),
    "update": (Work(update=100), "compute", "update"),
    "python in forward": (Work(idle=100), "idle", "forward"),
    "python in backward": (Work(idle=100, idle_in="backward"), "idle", "backward"),
    "python elsewhere": (Work(idle=100, idle_in=""), "idle", "outside of its phases"),
}


def one_of(slow: Work, rank: int = 5) -> Callable[[int, int], Work]:
    """This rank does that in each step."""
    return lambda one, step: slow if one == rank else Work()


# Who, and why


@pytest.mark.parametrize("name", SLOW)
def test_the_slow_rank_is_named_and_parts_and_phases_agree_on_why(name: str) -> None:
    slow, part, phase = SLOW[name]
    reading = read(collection(8, one_of(slow), nodes=2))
    found = reading.finding
    assert (found.id, found.ranks, found.certainty) == ("slow_rank", 1 << 5, "sure")
    assert found.what.startswith("rank 5 makes the others wait 0.")
    assert phase in " ".join((found.detail, *found.evidence))
    first = reading.rows[0]
    assert (first.ranks, first.slow, first.differs) == ((5,), True, part)
    assert found.nodes == ("gpu02",)


@pytest.mark.parametrize("nodes", [1, 2])
def test_nobody_is_named_where_all_do_the_same(nodes: int) -> None:
    found = read(collection(4, lambda rank, step: Work(), nodes=nodes)).finding
    assert (found.id, found.ranks, found.certainty, found.severity) == ("no_slow_rank", 0, "sure", "info")
    assert found.what == "no rank is slow; compute-bound: operations run 88% of a step"


def test_steps_that_differ_at_random_name_nobody() -> None:
    """Each rank is longest in a fifth of the steps, and by a fifth of a step."""
    noisy = collection(5, lambda rank, step: Work(idle=70 if (rank + step) % 5 == 0 else 10))
    assert read(noisy).finding.id == "no_slow_rank"


def test_a_rank_that_is_longer_by_less_than_its_steps_differ_is_not_named() -> None:
    """Rank 0 is longer in four of five steps, as any of them may be on a busy machine."""
    waves = ((40, 70, 36, 45, 0), (0, 10, 0, 60, 5), (5, 0, 66, 0, 30), (0, 44, 0, 12, 60))
    found = read(collection(4, lambda rank, step: Work(idle=waves[rank][step - 700]), phases=False)).finding
    assert found.id == "no_slow_rank"


def test_without_phases_the_part_is_said_and_not_sure() -> None:
    found = read(collection(8, one_of(Work(data=300)), phases=False)).finding
    assert (found.id, found.certainty) == ("slow_rank", "likely")
    assert found.detail.startswith("rank 5 waits for data 0.300 s of each step, the others 0.005 s")


def test_where_parts_and_phases_contradict_each_other_less_is_said() -> None:
    """What runs says it waits for data; the loop says that it is in its update."""
    slow = replace(collection(8, one_of(Work(data=200))), since={5: 650})
    update = collection(8, one_of(Work(update=220)))
    steps = {
        rank: tuple(
            changed(one, phases=other.phases)
            for one, other in zip(summary(slow, rank).steps, summary(update, rank).steps, strict=True)
        )
        for rank in slow.results
    }
    found = read(with_summaries(slow, lambda one: changed(one, steps=steps[one.rank]))).finding
    assert (found.id, found.ranks, found.certainty) == ("slow_rank", 1 << 5, "likely")
    assert found.detail == "the reason is unclear: its operations and its phases disagree"
    assert found.evidence[0].startswith("rank 5: 65% more own time per step than the median rank, since")
    assert not any("num_workers" in step.command for step in found.steps)


def test_where_a_cpu_waits_for_its_gpu_says_nothing_against_what_the_gpu_did() -> None:
    """The rank computes longer, and its CPU waits for that where it asks for the next batch."""

    def shifted(one: RankProfile) -> RankProfile:
        more = 100 * MS if one.rank == 5 else 0
        steps = (
            changed(step, phases=(step.phases[0] + more, step.phases[1] - more, *step.phases[2:]))
            for step in one.steps
        )
        return changed(one, steps=tuple(steps))

    made = with_summaries(collection(8, one_of(Work(forward=180))), shifted)
    found = read(made).finding
    assert (found.id, found.certainty) == ("slow_rank", "likely")
    assert (
        found.detail == "rank 5 computes 0.365 s of each step, the others 0.265 s; the same calls take longer"
    )
    on_cpus = with_summaries(made, lambda one: changed(one, device="cpu"))
    assert read(on_cpus).finding.detail == "the reason is unclear: its operations and its phases disagree"


def waiting_in_update(*, known: bool) -> Collection:
    """Rank 2 is slow in its update, in the middle of which all wait for each other, as with ZeRO.

    :param known: whether nodes say in which phase they wait
    """

    def moved(one: RankProfile) -> RankProfile:
        late = 60 if one.rank == 2 else 0
        steps = (
            changed(
                step,
                phases=(*step.phases[:2], 160 * MS, step.phases[2] + step.phases[3] - 160 * MS),
                compute=step.compute - late * MS,
                idle=step.idle + late * MS,
            )
            for step in one.steps
        )
        calls = (changed(call, phase=3 if known else -1) for call in one.collectives)
        return changed(one, device="cpu", backend="gloo", steps=tuple(steps), collectives=tuple(calls))

    return with_summaries(collection(4, one_of(Work(backward=220), 2)), moved)


def test_where_all_wait_in_the_phase_in_which_one_is_slow_that_phase_is_why() -> None:
    found = read(waiting_in_update(known=True)).finding
    assert (found.ranks, found.certainty) == (1 << 2, "sure")
    assert ", in its update" in found.detail
    assert ", in its update" not in read(waiting_in_update(known=False)).finding.detail


def test_waiting_that_does_not_go_into_its_phase_says_nothing_of_phases() -> None:
    made = waiting_in_update(known=True)
    wrong = with_summaries(
        made,
        lambda one: changed(
            one,
            collectives=tuple(changed(call, phase=1, took=10 * call.took) for call in one.collectives),
            steps=tuple(changed(step, phases=(MS, MS, *step.phases[2:])) for step in one.steps),
        ),
    )
    assert ", in its forward" not in read(wrong).finding.detail


def test_workers_are_advised_where_the_training_process_loads_data_itself() -> None:
    found = read(collection(8, one_of(Work(data=300)))).finding
    assert found.steps[0].command == "num_workers=3"
    others = {"enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__": ("data", 300.0, 1)}
    worked = read(collection(8, one_of(Work(data=300, operations=others)))).finding
    assert not any("num_workers" in step.command for step in worked.steps)


def test_all_ranks_may_be_input_bound() -> None:
    found = read(collection(4, lambda rank, step: Work(data=400))).finding
    assert found.what == "no rank is slow; input-bound: ranks wait 58 % of a step for data"
    assert [step.command for step in found.steps] == ["num_workers=3"]


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (Work(idle=700), "no operation runs for 71% of a step (Python, sleep, launching kernels)"),
        (Work(forward=5, backward=10, update=5, idle=5), "communication-bound: for 40% of a step nothing"),
    ],
)
def test_what_else_all_ranks_are_bound_by(work: Work, said: str) -> None:
    assert said in read(collection(4, lambda rank, step: work, phases=False)).finding.what


def test_several_slow_ranks_are_named_together_the_slowest_first() -> None:
    reading = read(collection(8, lambda rank, step: Work(data={2: 200, 6: 300}.get(rank, 5)), nodes=2))
    assert reading.finding.ranks == mask_of((2, 6))
    assert reading.finding.what.startswith("ranks 2,6 make the others wait 0.295 s of every 0.595 s step")
    assert [row.ranks for row in reading.rows if row.slow] == [(6,), (2,)]
    assert reading.operations is not None
    assert reading.operations.rank == 6
    assert reading.kept_up == pytest.approx(0.3)


def test_since_when_is_said_if_it_was_known() -> None:
    found = read(replace(collection(8, one_of(Work(data=300))), since={5: 1170})).finding
    assert "since step 1,170" in found.evidence[0]


def test_of_one_step_nothing_is_sure() -> None:
    found = read(collection(8, one_of(Work(data=300)), steps=[700])).finding
    assert (found.id, found.certainty) == ("slow_rank", "likely")


def test_one_rank_alone_has_nobody_to_be_compared_with() -> None:
    reading = read(collection(1, lambda rank, step: Work()))
    assert reading.finding.what.startswith(
        "only rank 0 was profiled: nothing to compare it with; compute-bound"
    )
    assert not reading.waits


# Steps that are not like the others


@pytest.mark.parametrize("what", ["evaluation", "checkpoint"])
def test_a_step_with_something_else_in_it_does_not_count(what: str) -> None:
    """All ranks evaluate in step 702, or rank 0 writes a checkpoint and the others wait for it."""

    def does(rank: int, step: int) -> Work:
        if step != 702 or (what == "checkpoint" and rank):
            return Work()
        return Work(forward=900) if what == "evaluation" else Work(idle=900)

    reading = read(collection(4, does))
    assert reading.steps == (700, 701, 703, 704)
    assert list(reading.left_out) == [702]
    assert "times as long as the others" in reading.left_out[702]
    assert "evaluation or a checkpoint" in reading.left_out[702]
    assert reading.finding.id == "no_slow_rank"
    assert reading.parts is not None
    assert reading.parts.took == pytest.approx(0.3)
    assert any(note.startswith("step 702 is left out: it took ") for note in reading.notes)


def test_a_slow_rank_is_named_beside_an_evaluation() -> None:
    usual = one_of(Work(data=150))
    both = collection(8, lambda rank, step: Work(forward=2000) if step == 701 else usual(rank, step))
    found = read(both).finding
    assert (found.id, found.ranks) == ("slow_rank", 1 << 5)


def test_gradient_accumulation_is_said_by_the_step() -> None:
    """Four batches, four backwards, one meeting."""
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"

    def does(rank: int, step: int) -> Work:
        data = 800 if rank == 5 else 20
        return Work(data=data, forward=320, backward=640, operations={name: ("data", data, 4)})

    reading = read(collection(8, does))
    assert reading.finding.detail.startswith("rank 5 waits for data 0.80 s of each step, the others 0.02 s")
    assert reading.operations is not None
    assert reading.operations.rows[0].count == 4


# Kinds of ranks


def stage(rank: int, *, layers: tuple[int, int], slow: int | None = None) -> Work:
    """Ranks 0-3 are the first stage of a pipeline, 4-7 the second."""
    many = layers[rank // 4]
    names = {"aten::mm": ("compute", 20.0 * many, 4 * many), "aten::gelu": ("compute", 4.0 * many, many)}
    names["aten::embedding" if rank < 4 else "aten::nll_loss"] = ("compute", 2.0, 1)
    idle = 100 if rank == slow else 10
    return Work(forward=8 * many, backward=16 * many, operations=names, idle=idle)


def test_stages_of_a_pipeline_are_not_compared_with_each_other() -> None:
    reading = read(collection(8, lambda rank, step: stage(rank, layers=(8, 14))))
    assert [kind.ranks for kind in reading.kinds] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    found = reading.finding
    assert (found.id, found.ranks, found.severity) == ("unequal_ranks", 0xF0, "info")
    assert found.what.startswith("ranks 4-7 run different operations and take longer: 0.396 s per step, ")
    assert not any(row.slow for row in reading.rows)


def test_within_a_stage_the_slow_rank_is_named_though_another_stage_is_longer() -> None:
    reading = read(collection(8, lambda rank, step: stage(rank, layers=(8, 14), slow=2)))
    assert reading.finding.ranks == 1 << 2
    assert reading.finding.what == "rank 2 takes 0.090 s longer per step than the median rank"
    assert reading.rows[0].ranks == (2,)


def test_stages_that_send_to_each_other_need_the_very_same_operations() -> None:
    """Four in five are the same, so that without sends they were alike."""
    made = collection(8, lambda rank, step: Work(forward=120 if rank > 3 else 80))
    assert len(read(made).kinds) == 1
    sent = with_summaries(
        made,
        lambda one: changed(
            one,
            names=f"of stage {one.rank // 4}",
            collectives=(*one.collectives, *sends(one)),
        ),
    )
    assert [kind.ranks for kind in read(sent).kinds] == [(0, 1, 2, 3), (4, 5, 6, 7)]


def test_a_few_calls_more_do_not_make_another_kind() -> None:
    made = collection(4, lambda rank, step: Work())
    logs = Operation(name="aten::item", kind="other", own=MS, count=5)
    more = with_summaries(
        made,
        lambda one: changed(one, operations=(*one.operations, logs), names="more") if one.rank == 0 else one,
    )
    assert len(read(more).kinds) == 1


def test_ranks_that_have_nothing_in_common_are_not_compared_though_much_is_left_out() -> None:
    def does(rank: int, step: int) -> Work:
        return Work(operations={f"aten::op{rank % 2}{at}": ("compute", 24.0, 10) for at in range(10)})

    cut = with_summaries(collection(4, does), lambda one: changed(one, operations_all=900))
    assert [kind.ranks for kind in read(cut).kinds] == [(0, 2), (1, 3)]


def test_who_has_more_to_do_is_said_to_have() -> None:
    """The same operations, and rank 5 calls one of them twice as often."""
    usual = {f"aten::op{at}": ("compute", 24.0, 10) for at in range(10)}
    own = {**usual, "aten::op3": ("compute", 144.0, 20)}
    made = collection(
        8, lambda rank, step: Work(forward=200 if rank == 5 else 80, operations=own if rank == 5 else usual)
    )
    found = read(made).finding
    assert found.ranks == 1 << 5
    assert "it has more to do: aten::op3 20 × per step, others 10" in found.detail


def test_who_does_all_that_others_do_and_more_is_compared_with_them() -> None:
    usual = {f"aten::op{at}": ("compute", 40.0, 10) for at in range(5)}
    more = {f"aten::more{at}": ("compute", 40.0, 10_000) for at in range(5)}
    made = collection(
        4,
        lambda rank, step: Work(
            forward=200 if rank == 3 else 80, operations=usual | more if rank == 3 else usual
        ),
    )
    assert read(made).finding.ranks == 1 << 3


# Collectives


def test_collectives_are_joined_and_whom_others_wait_for_arrives_last() -> None:
    reading = read(collection(8, one_of(Work(data=105)), nodes=2, collectives=2))
    first, second = reading.collectives
    assert (first.name, first.groups, first.ranks, first.seen, first.between) == (
        "all_reduce",
        ("0",),
        8,
        8,
        True,
    )
    assert (first.took, first.spread) == pytest.approx((0.02, 0.1))
    assert first.last[0] == (5, 5)
    assert first.count == 1
    assert first.rate == pytest.approx((100 << 20) / 0.02 * 2 * 7 / 8)
    assert second.size == 4096
    assert second.wait == 0
    assert reading.arrivals is not None
    assert reading.arrivals.row == 0
    assert reading.arrivals.after == pytest.approx({rank: 0.1 * (rank == 5) for rank in range(8)})


def test_clocks_of_nodes_are_set_by_the_ends_of_collectives() -> None:
    ahead = {"gpu01": 3.0, "gpu02": 3.25, "gpu03": -1.5}
    wrong = collection(6, one_of(Work(data=105)), nodes=3, ahead=ahead)
    measured = {"gpu01": 3.004, "gpu02": 3.25, "gpu03": -1.54}
    reading = read(replace(wrong, offsets=measured))
    found = reading.offsets
    assert found["gpu02"] - found["gpu01"] == pytest.approx(0.25, abs=1e-6)
    assert found["gpu01"] - found["gpu03"] == pytest.approx(4.5, abs=1e-6)
    assert reading.collectives[0].spread == pytest.approx(0.1, abs=1e-6)
    assert reading.clock == pytest.approx(0, abs=1e-6)


def test_groups_side_by_side_are_one_row_inside_a_node_and_between_nodes_apart() -> None:
    """Pairs of ranks on one node, and pairs of ranks on two."""
    inside = collection(8, one_of(Work(data=105)), nodes=4, meets=lambda rank: f"tp{rank // 2}")
    (row,) = read(inside).collectives
    assert (row.groups, row.ranks, row.seen, row.between) == (("tp0", "tp1", "tp2", "tp3"), 2, 2, False)
    assert (row.of, row.last[0]) == (20, (5, 5)) or row.last[0][1] == 5
    across = collection(8, one_of(Work(data=105)), nodes=2, meets=lambda rank: f"dp{rank % 4}")
    (row,) = read(across).collectives
    assert (row.ranks, row.between) == (2, True)


def test_without_names_of_groups_what_ends_apart_was_not_one() -> None:
    made = collection(4, one_of(Work(data=305), rank=3), meets=lambda rank: f"tp{rank // 2}")
    unnamed = with_summaries(
        made,
        lambda one: changed(
            one,
            collectives=tuple(changed(call, group="", ranks=0) for call in one.collectives),
        ),
    )
    reading = read(unnamed)
    (row,) = reading.collectives
    assert (row.groups, row.ranks, row.seen, row.rate) == (("",), 0, 4, None) or row.seen == 2
    assert row.spread < 0.31
    assert reading.ranks[2].wait == pytest.approx(0.3)
    assert reading.ranks[0].wait == reading.ranks[3].wait == 0


def test_ranks_that_are_missing_are_said_and_nobody_is_blamed_in_their_place() -> None:
    made = collection(8, one_of(Work(data=300)))
    gone = replace(made.results[5], state="writing", summary=None)
    reading = read(replace(made, results={**made.results, 5: gone}))
    assert reading.finding.what.startswith("no rank is slow among those profiled")
    assert reading.finding.certainty == "likely"
    assert "rank 5 missing: time all others waited for them counts as communication" in reading.notes
    last = reading.rows[-1]
    assert (last.ranks, last.parts, last.state) == ((5,), None, "writing")
    assert reading.collectives[0].seen == 7
    assert reading.collectives[0].ranks == 8


def test_a_rank_with_other_steps_is_missing_too() -> None:
    made = collection(4, lambda rank, step: Work())
    other = collection(4, lambda rank, step: Work(), steps=range(9, 12))
    reading = read(replace(made, results={**made.results, 2: other.results[2]}))
    assert reading.steps == (700, 701, 702, 703, 704)
    assert (reading.rows[-1].ranks, reading.rows[-1].why) == ((2,), "it profiled other steps: 9-11")


def test_steps_whose_collectives_do_not_fit_into_a_summary_do_not_count() -> None:
    made = collection(4, one_of(Work(data=105), rank=1))
    cut = with_summaries(made, lambda one: changed(one, collectives=one.collectives[:3]))
    reading = read(cut)
    assert reading.steps == (700, 701)
    assert reading.finding.ranks == 1 << 1
    assert any(note.startswith("ranks 0-3: only the first collectives are known") for note in reading.notes)


# Rows, operations, cost


def test_alike_ranks_of_a_node_share_a_row_and_the_slowest_come_first() -> None:
    def does(rank: int, step: int) -> Work:
        return Work(data=300) if rank == 5 else Work(forward=100 if rank == 7 else 80)

    rows = read(collection(12, does, nodes=3)).rows
    assert [(row.ranks_text, row.node, row.slow) for row in rows] == [
        ("5", "gpu02", True),
        ("7", "gpu02", False),
        ("0-3", "gpu01", False),
        ("4,6", "gpu02", False),
        ("8-11", "gpu03", False),
    ]


def test_operations_of_any_rank_beside_the_median_of_the_others() -> None:
    made = collection(8, one_of(Work(forward=200)))
    reading = read(made)
    found = reading.operations
    assert found is not None
    assert (found.rank, found.others) == (5, 7)
    assert found.rows[0].name == "aten::mm"
    assert (found.rows[0].own, found.rows[0].median) == pytest.approx((0.252, 0.168))
    assert found.rows[0].more == pytest.approx(0.084)
    other = operations(made, reading, 2)
    assert other is not None
    assert other.rank == 2
    assert other.rows[0].more == pytest.approx(0)
    assert operations(made, reading, 99) is None


def test_what_is_left_out_of_a_summary_is_not_taken_for_nothing() -> None:
    made = collection(4, one_of(Work(data=300), rank=1))
    cut = with_summaries(
        made,
        lambda one: one if one.rank == 1 else changed(one, operations=one.operations[1:], operations_all=90),
    )
    found = read(cut).operations
    assert found is not None
    row = next(row for row in found.rows if row.kind == "data")
    assert (row.median, row.more) == (None, None)


def test_cost_is_that_of_the_collection_or_of_the_ranks() -> None:
    made = collection(4, lambda rank, step: Work())
    cost = read(replace(made, during=0.33)).cost
    assert (cost.before, cost.during, cost.after, cost.stop) == (0.3, 0.33, 0.3, 0.5)
    cost = read(replace(made, before=None)).cost
    assert cost.before == 0.3
    assert cost.during == pytest.approx(0.3)


def test_a_collection_without_summaries_says_why() -> None:
    results = {rank: RankResult(rank, "n1", "refused", "it is already profiled") for rank in range(3)}
    reading = read(Collection(1, "id", "otter", "torch", 0.0, 700, 5, results=results))
    assert reading.finding.id == "no_profile"
    assert [(row.ranks, row.state, row.why) for row in reading.rows] == [
        ((0, 1, 2), "refused", "it is already profiled")
    ]
    sampled = {
        0: RankResult(0, "n1", DONE, samples=200, folded="a;b 200\n"),
        1: RankResult(1, "n1", "failed"),
    }
    cpu = Collection(1, "id", "otter", "cpu", 0.0, seconds=10.0, results=sampled)
    reading = read(cpu)
    assert reading.finding.id == "same_stacks"
    assert reading.finding.evidence == ("200 samples of rank 0",)
    assert as_lines(cpu, reading)[0] == "profile 1 of otter: 10 s, cpu, 1 of 2 ranks"


@pytest.mark.parametrize(("many", "certainty"), [(7, "unsure"), (400, "likely")])
def test_few_samples_do_not_prove_that_ranks_are_alike(many: int, certainty: str) -> None:
    results = {rank: RankResult(rank, "n1", DONE, samples=many, folded=f"a;b {many}\n") for rank in range(2)}
    cpu = Collection(1, "id", "otter", "cpu", 0.0, seconds=10.0, results=results)
    reading = read(cpu)
    assert (reading.finding.id, reading.finding.certainty) == ("same_stacks", certainty)
    assert not any("done" in line for line in as_lines(cpu, reading))


def test_what_takes_next_to_no_time_makes_a_rank_no_other_kind() -> None:
    """As the last rank of DeepSpeed's ZeRO, whose part of the parameters is another one."""

    def does(rank: int, step: int) -> Work:
        small = {f"aten::small{at}": ("compute", 0.01, 2 + (rank == 3)) for at in range(30)}
        return Work(data=5 + 300 * (rank == 3), operations={"aten::mm": ("compute", 240.0, 10), **small})

    reading = read(collection(4, does))
    assert len(reading.kinds) == 1
    assert (reading.finding.id, reading.finding.ranks) == ("slow_rank", mask_of([3]))


# What would be gained


def test_how_fast_it_would_be_without_who_is_slow() -> None:
    made = collection(4, one_of(Work(data=305), rank=2), before=0.5)
    reading = read(made)
    assert reading.parts is not None
    assert (reading.parts.took, reading.kept_up) == pytest.approx((0.6, 0.3))
    # Half of what it takes outside of the profile.
    assert gain(reading, Ahead()) == "without it: ~4 steps/s"
    whole = gain(reading, Ahead(7200.0, 1000.0))
    assert whole == "without it: ~4 steps/s, ~2,000 tokens/s, ETA ~1 h 00 min"
    assert whole in as_lines(made, reading, ahead=Ahead(7200.0, 1000.0))[3]
    two = collection(8, lambda rank, step: Work(data=305 if rank in (2, 3) else 5), before=0.6)
    assert gain(read(two), Ahead()).startswith("without them: ~3.3 steps/s")
    assert gain(read(collection(4, lambda rank, step: Work())), Ahead(7200.0, 1000.0)) == ""
    fast = gain(reading, Ahead(tokens_s=12_345_678.0))
    assert fast == "without it: ~4 steps/s, ~25,000,000 tokens/s"
    later = read(collection(4, one_of(Work(data=305), rank=2), before=0.3))
    assert gain(later, Ahead()) == "", "it was not slow before the profile"


# Words


@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.parametrize("ranks", [4, 64])
def test_text_fits_and_says_what_counts(width: int, ranks: int) -> None:
    made = collection(ranks, one_of(Work(data=300), rank=2), nodes=ranks // 4, collectives=3)
    lines = as_lines(made, read(made), width)
    assert max(map(len, lines)) <= width
    assert lines[2] == "rank 2 makes the others wait 0.295 s of every 0.595 s step (sure)"
    row = next(line for line in lines if line.startswith("! 2 "))
    assert row.split()[:8] == ["!", "2", "gpu01", "0.595", "s", "0.300", "s", "0.265"]
    assert ("ddddddd" in row) == (width > 80)
    assert any(line.startswith("cost: a step took 0.300 s directly before") for line in lines)
    assert any(line.split()[:1] == ["all_reduce"] for line in lines)


@pytest.mark.parametrize("ranks", [4, 256])
def test_markdown_has_sixty_lines_at_most(ranks: int) -> None:
    made = collection(
        ranks, lambda rank, step: Work(data=300, forward=80 + 30 * (rank % 7)), nodes=ranks // 4
    )
    lines = as_markdown(made, read(made))
    assert len(lines) <= MD_LINES
    assert lines[0] == f"# profile 1 of 20261121-otter: steps 700-704, torch, {ranks} ranks"
    assert any(line.startswith("| operation | rank ") for line in lines)


def test_nothing_a_node_says_is_a_mark_of_markdown_or_acts_on_a_terminal() -> None:
    odd = {"a|b `rm` <b>\x1b[2J": ("compute", 99.0, 1)}
    made = collection(2, lambda rank, step: Work(operations=odd))
    reading = read(made)
    assert reading.operations is not None
    assert reading.operations.rows[0].name == "a|b `rm` <b>\\x1b[2J"
    text = "\n".join(as_markdown(made, reading))
    assert "a\\|b \\`rm\\` \\<b\\>\\\\x1b\\[2J" in text
    assert "\x1b" not in "\n".join(as_lines(made, reading))


def test_a_bar_is_as_wide_as_it_is_asked_to_be() -> None:
    assert bar(Parts(0.25, 0.25, 0.25, 0.25, 0.0), 8) == "ddccmmww"
    assert bar(Parts(0.0, 0.0, 0.0, 0.0, 0.0), 8) == ""
    assert bar(Parts(0.0, 0.5, 0.0, 0.0, 0.5), 4) == "cc  "


def test_json_has_the_numbers_of_all_ranks() -> None:
    made = collection(4, one_of(Work(data=300), rank=2))
    found = as_json(made, read(made))
    assert found["finding"]["id"] == "slow_rank"
    assert found["ranks"]["2"]["data_s"] == pytest.approx(0.3)
    assert found["ranks"]["2"]["node"] == "gpu01"
    assert found["kinds"] == [{**found["kinds"][0], "ranks": "0-3"}]
    assert found["collectives"][0]["last"]["2"] == 5


# What always holds


def summary(made: Collection, rank: int) -> RankProfile:
    found = made.results[rank].summary
    assert found is not None
    return found


def with_summaries(made: Collection, change: Callable[[RankProfile], RankProfile]) -> Collection:
    """Each summary changed."""
    return replace(
        made,
        results={
            rank: replace(one, summary=one.summary and change(one.summary))
            for rank, one in made.results.items()
        },
    )


def changed(one: T, **values: object) -> T:
    """A copy of an object of a definition."""
    return type(one)(**{name: getattr(one, name) for name, _, _ in fields(type(one))} | values)


def sends(profile: RankProfile) -> list[Collective]:
    """One in each step."""
    return [
        Collective(step=one.step, name="send", group="pp", key="s", began=0, took=MS, exposed=0)
        for one in profile.steps
    ]


NS = st.one_of(st.integers(0, 10**9), st.integers(0, 1 << 53))
NAMES = st.sampled_from(["all_reduce", "send", "recv", "send_recv", "x", "broadcast", "\ud800\x1b[2J|", ""])
GROUPS = st.sampled_from(["", "0", "tp"])
STEPS = st.integers(0, 4)
STEP = st.builds(
    StepTimes,
    step=STEPS,
    began=st.one_of(NS, st.integers(0, 1 << 62)),
    took=NS,
    data=NS,
    compute=NS,
    communication=NS,
    idle=NS,
    phases=st.one_of(st.just(()), st.tuples(*[st.one_of(st.just(-1), NS)] * 4), st.just((1, 2))),
)
CALL = st.builds(
    Collective,
    step=STEPS,
    name=NAMES,
    group=GROUPS,
    key=st.sampled_from(["", "1", "2"]),
    size=st.one_of(st.just(0), st.integers(0, 1 << 61)),
    ranks=st.integers(0, 5),
    began=NS,
    took=NS,
    exposed=NS,
    phase=st.integers(-1, 3),
)
CALLED = st.builds(
    Operation,
    name=NAMES,
    kind=st.sampled_from(["data", "compute", "python", "other", "?"]),
    own=NS,
    count=st.integers(0, 1 << 40),
)
PROFILE = st.builds(
    RankProfile,
    rank=st.just(0),
    device=st.sampled_from(["gpu", "cpu", "?"]),
    backend=st.sampled_from(["", "nccl", "gloo"]),
    steps=st.lists(STEP, max_size=6).map(tuple),
    operations=st.lists(CALLED, max_size=5).map(tuple),
    operations_all=st.integers(0, 9),
    names=st.sampled_from(["", "a", "b"]),
    collectives=st.lists(CALL, max_size=8).map(tuple),
    collectives_all=st.integers(0, 9),
    before=st.one_of(st.none(), st.floats(-1e9, 1e9)),
    file=st.just("f"),
    size=st.just(1),
    sha256=st.just("0" * 64),
    notes=st.lists(NAMES, max_size=2).map(tuple),
)
RESULT = st.builds(
    RankResult,
    rank=st.just(0),
    node=st.sampled_from(["n1", "n2", "n3", "\x1b]0;"]),
    state=st.sampled_from([DONE, DONE, DONE, "failed", ""]),
    why=NAMES,
    began=st.one_of(st.none(), st.floats(0, 1e9)),
    file=NAMES,
    summary=st.one_of(st.none(), PROFILE, PROFILE, PROFILE),
)
HOSTILE = st.lists(RESULT, max_size=6).map(
    lambda results: Collection(
        1,
        "id",
        "otter",
        "torch",
        0.0,
        0,
        5,
        results={rank: replace(one, rank=rank) for rank, one in enumerate(results)},
        offsets={"n1": 5.0, "n2": -1e6},
    )
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(HOSTILE)
def test_whatever_nodes_say_it_is_read_and_every_step_is_the_sum_of_its_parts(made: Collection) -> None:
    reading = read(made)
    for rank, parts in reading.ranks.items():
        steps = {one.step: one for one in reversed(summary(made, rank).steps) if one.took}
        took = [steps[step].took / 1e9 for step in reading.steps if step in steps]
        assert parts.took == pytest.approx(sum(took) / len(took), rel=1e-6, abs=1e-9)
        assert min(parts) >= 0
    for width in (80, 100):
        assert all(len(line) <= width for line in as_lines(made, reading, width))
    assert len(as_markdown(made, reading)) <= MD_LINES
    assert as_json(made, reading)["asked"] == len(made.results)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(HOSTILE)
def test_nobody_waits_longer_than_it_is_exposed_nor_the_last_one_at_all(made: Collection) -> None:
    profiles = {rank: one.summary for rank, one in made.results.items() if one.summary is not None}
    found = join(profiles, {rank: made.results[rank].node for rank in profiles}, made.offsets)
    exposed = {
        (rank, step): sum(one.exposed for one in profile.collectives if one.step == step)
        for rank, profile in profiles.items()
        for step in range(5)
    }
    assert all(0 <= sum(waits.values()) <= exposed[key] for key, waits in found.waits.items())
    for one in found.collectives:
        assert all(call.end - call.began >= one.least for call in one.calls)
        assert all(not call.wait for call in one.calls if call.end - call.began == one.least)


def judged(reading: Reading, name: Mapping[int, int]) -> object:
    """What a reading says, with other numbers for ranks."""
    ranks = reading.finding.ranks
    named = {name[rank] for rank in name if ranks >> rank & 1}
    rows = [
        (sorted(name[rank] for rank in row.ranks), row.node, row.slow, row.differs) for row in reading.rows
    ]
    means = {name[rank]: parts for rank, parts in reading.ranks.items()}
    return named, sorted(rows), means, reading.finding.id, reading.steps


@given(st.permutations(range(8)), st.sampled_from(sorted(SLOW)), st.integers(0, 7))
@settings(max_examples=40, deadline=None)
def test_other_numbers_for_ranks_change_nothing_else(order: list[int], name: str, slow: int) -> None:
    made = collection(8, one_of(SLOW[name][0], rank=slow), nodes=2)
    other = replace(
        made,
        results={
            order[rank]: replace(
                one, rank=order[rank], summary=one.summary and changed(one.summary, rank=order[rank])
            )
            for rank, one in made.results.items()
        },
    )
    assert judged(read(made), dict(enumerate(order))) == judged(
        read(other), {rank: rank for rank in range(8)}
    )
