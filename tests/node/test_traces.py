"""Summing up a rank's trace: every number against what is in the trace, whatever the trace."""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import json
import os
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.traces import trace as written
from cockpit.base.gate import fields, read
from cockpit.base.profile.summary import Collective, RankProfile, StepTimes
from cockpit.node.profile import events, rank_events, traces
from cockpit.node.profile.events import BadTrace
from tests.node.kineto import BASE, CALLS, GLOO, MAIN, NAMES, Made, calls, own, rows
from tests.pythons import python

CALLERS = {"rank": 3, "file": "t.json.gz", "size": 1, "sha256": "0" * 64}
"""Fields that who sums it up adds."""


def summed(made: Made, **limits: int) -> dict[str, Any]:
    found = traces.summed(made.file(), **limits)
    read(RankProfile, {**found, **CALLERS})
    return found


def test_rows_have_the_fields_of_their_definitions() -> None:
    assert tuple(name for name, _, _ in fields(StepTimes)) == NAMES
    assert tuple(name for name, _, _ in fields(Collective)) == CALLS


# Steps.


def test_a_step_lasts_until_the_next_one_begins_and_each_moment_counts_once() -> None:
    made = Made().step(700, 1000, 900).step(701, 2000, 500)
    made.data(1000, 200).op("aten::stack", 1050, 100)  # what the loader computes is data
    made.op("aten::linear", 1300, 200).op("aten::addmm", 1350, 100)  # one inside the other
    made.op("aten::mm", 1400, 300, GLOO + 1)  # on another thread, beside it: together 1300 to 1700
    made.gloo("all_reduce", 1600, 300, [[4]])  # 100 beside an operator, 200 exposed
    made.gloo("all_reduce", 1950, 100, [[4]])  # into the next step
    first, second = rows(summed(made))
    assert first == {
        "step": 700, "began": BASE + 1000, "took": 1000, "data": 200, "compute": 400, "communication": 250,
        "idle": 150, "overlapped": 100, "phases": [],
    }  # fmt: skip
    assert second == {
        "step": 701, "began": BASE + 2000, "took": 500, "data": 0, "compute": 0, "communication": 50,
        "idle": 450, "overlapped": 0, "phases": [],
    }  # fmt: skip


def test_operators_that_start_collectives_or_wait_for_them_compute_nothing() -> None:
    made = Made().step(1, 0, 1000)
    for place, name in enumerate(
        ("c10d::allreduce_", "record_param_comms", "_c10d_functional::wait_tensor", "nccl:all_reduce")
    ):
        made.op(name, 100 * place, 90)
    made.op("aten::copy_", 20, 10)  # within the first one
    (row,) = rows(summed(made))
    assert (row["compute"], row["communication"], row["idle"]) == (10, 0, 990)
    assert own(summed(made))["c10d::allreduce_"] == ("communication", 80, 1)


def test_what_waits_for_a_collective_that_it_has_started_does_not_compute_meanwhile() -> None:
    made = Made().step(1, 0, 1000)
    made.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 100, 600)
    made.op("aten::add_", 110, 40).op("aten::cat", 200, 50)
    made.op("c10d::allreduce_", 260, 10)  # then it waits until 650
    made.op("aten::copy_", 660, 30).op("aten::mm", 800, 50)
    made.gloo("all_reduce", 265, 385, [[4]])
    (row,) = rows(summed(made))
    assert (row["compute"], row["communication"], row["overlapped"]) == (170, 385, 0)
    assert row["idle"] == 1000 - 170 - 385


def test_data_counts_on_the_training_thread_only() -> None:
    made = Made().step(1, 0, 1000).data(0, 100).data(300, 500, MAIN + 1)
    assert rows(summed(made))[0]["data"] == 100


def test_the_main_thread_trains_where_another_one_steps_the_optimizer() -> None:
    made = Made().step(1, 0, 1000, MAIN + 9).data(0, 100).data(300, 500, MAIN + 1)
    assert rows(summed(made))[0]["data"] == 100


def test_a_step_that_is_marked_twice_counts_once_and_the_mark_of_a_gpu_is_none() -> None:
    made = Made().step(5, 0, 100).step(5, 10, 80, MAIN + 1).step(6, 100, 50)
    made.add("gpu_user_annotation", "ProfilerStep#5", 40, 100, 7, pid=0)
    assert [(row["step"], row["took"]) for row in rows(summed(made))] == [(5, 100), (6, 50)]


def test_steps_that_are_missing_are_said() -> None:
    made = Made(cockpit={"rank": 3, "first": 700, "steps": 5}).step(700, 0, 100).step(701, 100, 100)
    assert summed(made)["notes"] == ["2 of 5 steps are in the trace"]


def test_a_trace_without_marks_is_one_step() -> None:
    made = Made(cockpit={"first": 700, "steps": 5}).op("aten::mm", 100, 50).data(200, 30)
    found = summed(made)
    (row,) = rows(found)
    assert (row["step"], row["began"], row["took"], row["data"], row["compute"]) == (
        700,
        BASE + 100,
        130,
        30,
        50,
    )
    assert found["notes"] == ["the trace does not mark its steps: it is summed up as if it were one step"]


def test_of_very_many_steps_the_first_hundred_count() -> None:
    made = Made()
    for number in range(130):
        made.step(number, 100 * number, 100)
    found = summed(made)
    assert [row["step"] for row in rows(found)] == list(range(100))
    assert found["notes"] == ["only the first 100 of 130 steps are summed up"]


# Operations.


def test_own_time_is_without_what_is_called_on_the_same_thread() -> None:
    made = Made().step(1, 0, 1000)
    made.op("aten::linear", 100, 300).op("aten::t", 110, 20).op("aten::addmm", 150, 200)
    made.op("aten::linear", 500, 100).op("aten::addmm", 120, 250, GLOO)
    made.add("python_function", "train.py(7): step", 50, 400)
    made.add("python_function", "<built-in method mm of Tensor object at 0x7f677912b110>", 600, 50)
    made.add("user_annotation", "Optimizer.step#AdamW.step", 700, 100).op("aten::_fused_adamw_", 710, 60)
    found = summed(made)
    assert own(found) == {
        "aten::linear": ("compute", 80 + 100, 2),
        "aten::t": ("compute", 20, 1),
        "aten::addmm": ("compute", 200 + 250, 2),
        "train.py(7): step": ("python", 100, 1),
        "<built-in method mm of Tensor object>": ("python", 50, 1),
        "Optimizer.step#AdamW.step": ("other", 40, 1),
        "aten::_fused_adamw_": ("compute", 60, 1),
    }
    assert [row[2] for row in found["operations"]] == sorted(row[2] for row in found["operations"])[::-1]
    assert found["operations_all"] == 7


def test_own_time_is_clipped_to_the_steps_and_a_function_that_began_before_counts_from_there() -> None:
    made = Made().step(1, 1000, 1000).op("aten::mm", 100, 50).op("aten::mm", 1900, 300)
    made.add("python_function", "train.py(1): main", 0, 5000)
    made.add("python_function", "train.py(7): batch", 1200, 300)
    assert own(summed(made)) == {
        "train.py(1): main": ("python", 1000 - 300 - 100, 0),
        "train.py(7): batch": ("python", 300, 1),
        "aten::mm": ("compute", 100, 1),
    }


def test_only_operations_with_most_time_are_told_and_how_many_there_are() -> None:
    made = Made().step(1, 0, 1_000_000)
    for place in range(400):
        made.op(f"custom::{place:03}", 1000 * place, place + 1)
    found = summed(made)
    assert (found["operations_all"], len(found["operations"])) == (400, 300)
    assert found["operations"][0] == ["custom::399", "compute", 400, 1]
    assert found["operations"][-1] == ["custom::100", "compute", 101, 1]


def test_names_are_those_of_operators_and_collectives_but_for_reading_a_number() -> None:
    def made(*more: str) -> Made:
        trace = Made().step(1, 0, 1000).op("aten::mm", 0, 10).op("c10d::allreduce_", 20, 10)
        for place, name in enumerate(more):
            trace.op(name, 100 + 10 * place, 5)
        return trace

    plain = summed(made())["names"]
    assert len(plain) == 16
    assert summed(made("aten::mm", "aten::item", "aten::_local_scalar_dense"))["names"] == plain
    assert summed(made().add("python_function", "log.py(3): log", 600, 10))["names"] == plain
    assert summed(made("aten::relu"))["names"] != plain
    assert summed(made().gloo("send", 600, 10))["names"] != plain
    # What is not in a step does not count.
    assert summed(made().op("aten::relu", 2000, 10))["names"] == plain


def test_long_names_that_differ_at_their_end_stay_two() -> None:
    stem = "void at::native::elementwise_kernel<" + 300 * "x"
    found = own(summed(Made().step(1, 0, 100).op(stem + "a", 0, 10).op(stem + "b", 20, 20)))
    assert sorted(time for _, time, _ in found.values()) == [10, 20]
    assert all(name.startswith(stem[:180]) and len(name) == 200 for name in found)


# Collectives of gloo.


def test_collectives_of_gloo_have_sizes_and_keys() -> None:
    world = {"backend": "gloo", "rank": 0, "world_size": 2, "pg_count": 1}
    made = Made(distributedInfo=world).step(1, 1000, 1000).step(2, 2000, 1000)
    made.op("aten::mm", 1150, 100)
    made.gloo("all_reduce", 1100, 100, [[128, 64]]).gloo("all_reduce", 1300, 10, [[128, 64]], tid=GLOO + 1)
    made.gloo("all_reduce", 2100, 10, [[128, 64]]).gloo("broadcast", 1400, 10, [[7], [5]], "c10::BFloat16")
    made.gloo("barrier", 1500, 10).gloo("send", 1600, 10, [[3]], "long int", MAIN)
    made.gloo("all_reduce", 500, 10, [[3]]).gloo("all_reduce", 3000, 10, [[3]])  # in no step
    found = summed(made)
    assert found["collectives_all"] == 6
    assert found["backend"] == "gloo"
    assert found["notes"] == []
    assert [(one["step"], one["key"], one["size"]) for one in calls(found)] == [
        (1, "all_reduce 128x64 #1", 4 * 128 * 64),
        (1, "all_reduce 128x64 #2", 4 * 128 * 64),
        (1, "broadcast 7,5 #1", 2 * 7),  # the type of the second one is not known
        (1, "barrier #1", 0),
        (1, "send 3 #1", 24),
        (2, "all_reduce 128x64 #1", 4 * 128 * 64),
    ]
    first = calls(found)[0]
    assert (first["name"], first["group"], first["ranks"]) == ("all_reduce", "", 2)
    assert (first["began"], first["took"], first["exposed"]) == (100, 100, 50)


def test_with_several_groups_nobody_knows_how_large_one_of_gloo_is() -> None:
    made = Made(distributedInfo={"backend": "gloo", "world_size": 4, "pg_count": 3}).step(1, 0, 100)
    assert calls(summed(made.gloo("all_reduce", 10, 10, [[1]])))[0]["ranks"] == 0


def test_without_sizes_collectives_are_matched_by_their_order_and_that_is_said() -> None:
    made = Made().step(1, 0, 1000).gloo("all_reduce", 10, 10).gloo("all_reduce", 30, 10)
    found = summed(made)
    assert [one["key"] for one in calls(found)] == ["all_reduce #1", "all_reduce #2"]
    assert found["notes"] == ["the trace has no tensor sizes: collectives are matched by order alone"]
    assert summed(Made().step(1, 0, 1000).gloo("barrier", 10, 10))["notes"] == []


def test_a_collective_within_another_one_of_its_thread_counts_once() -> None:
    made = Made().step(1, 0, 1000)
    made.gloo("all_reduce", 100, 200, [[8]]).gloo("all_gather", 150, 50, [[8]])
    made.gloo("all_reduce", 100, 200, [[8]])  # the same once more
    made.gloo("all_reduce", 150, 100, [[9]], tid=GLOO + 1)  # another one
    found = summed(made)
    assert [one["key"] for one in calls(found)] == ["all_reduce 8 #1", "all_reduce 9 #1"]
    assert rows(found)[0]["communication"] == 200
    times = own(found)
    assert times["gloo:all_reduce"][1] + times["gloo:all_gather"][1] == 200 + 100


# GPUs.

NCCL: dict[str, Any] = {
    "Collective_name": "allreduce",
    "In_msg_nelems": 1 << 20,
    "dtype": "BFloat16",
    "Group_size": 64,
}
GROUP: dict[str, Any] = {"Process_Group_Name": "0", "Process_Group_Description": "default_pg"}


def test_on_a_gpu_kernels_and_copies_compute_and_operators_only_launch() -> None:
    made = Made(distributedInfo={"backend": "nccl", "world_size": 64, "pg_count": 9}).step(1, 0, 1000)
    made.op("aten::mm", 0, 500).add("cuda_runtime", "cudaLaunchKernel", 20, 10)
    made.kernel("ampere_bf16_s16816gemm", 100, 300).kernel("elementwise", 350, 100, 20)  # on two streams
    made.add("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 450, 50, 21, pid=0)
    made.add("gpu_memset", "Memset (Device)", 480, 40, 21, pid=0)
    made.data(480, 60)  # 20 of it while nothing runs
    name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    made.kernel(name, 430, 300, 30, **NCCL, **GROUP, Seq=812)
    made.add("gpu_user_annotation", "nccl:all_reduce", 430, 300, 30, pid=0)
    made.add("user_annotation", "nccl:all_reduce", 20, 30)
    found = summed(made)
    (row,) = rows(found)
    assert found["device"] == "gpu"
    assert (row["compute"], row["data"], row["communication"]) == (420, 20, 190)
    assert (row["idle"], row["overlapped"]) == (1000 - 420 - 20 - 190, 110)
    assert calls(found) == [
        {
            "step": 1, "name": "all_reduce", "group": "default_pg 0", "key": "0 812", "size": 2 << 20,
            "ranks": 64, "began": 430, "took": 300, "exposed": 190, "phase": -1,
        }
    ]  # fmt: skip
    times = own(found)
    assert times["ampere_bf16_s16816gemm"] == ("compute", 300, 1)
    assert times["aten::mm"] == ("other", 500 - 30 - 20, 1)
    assert times[name] == ("communication", 300, 1)
    assert times["Memset (Device)"] == ("copy", 40, 1)


def test_old_kernels_of_nccl_tell_their_operation_by_name_alone() -> None:
    made = Made().step(1, 0, 1000)
    made.kernel("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", 100, 50)
    made.kernel("ncclKernel_ReduceScatter_RING_LL_Sum_half(ncclWorkElem)", 200, 50)
    made.kernel("ncclKernel_SendRecv(ncclWorkElem)", 300, 50)
    made.kernel("void ncclDevKernel_Generic<8>(x)", 400, 50)
    found = summed(made)
    assert [(one["name"], one["key"], one["size"]) for one in calls(found)] == [
        ("all_reduce", "all_reduce #1", 0),
        ("reduce_scatter", "reduce_scatter #1", 0),
        ("send_recv", "send_recv #1", 0),
        ("void ncclDevKernel_Generic<8>(x)", "void ncclDevKernel_Generic<8>(x) #1", 0),
    ]
    assert rows(found)[0]["communication"] == 200
    assert found["notes"][0].startswith("the trace has no tensor sizes")


def test_without_a_number_a_collective_of_nccl_is_known_by_group_size_and_order() -> None:
    made = Made().step(1, 0, 1000).step(2, 1000, 1000)
    for start in (100, 300, 1100):
        made.kernel("ncclDevKernel_AllGather_RING_LL(x)", start, 50, **{**NCCL, **GROUP})
    keys = [one["key"] for one in calls(summed(made))]
    assert keys == ["0 all_reduce 1048576 #1", "0 all_reduce 1048576 #2", "0 all_reduce 1048576 #1"]


def test_one_number_of_several_kernels_is_not_one_key() -> None:
    made = Made().step(1, 0, 1000)
    for start in (100, 300):
        made.kernel("ncclDevKernel_AllGather_RING_LL(x)", start, 50, **NCCL, **GROUP, Seq=7)
    assert [one["key"] for one in calls(summed(made))] == ["0 7", "0 7 #2"]


def test_both_ends_of_a_send_have_one_key_whatever_number_each_gives_it() -> None:
    def one(name: str, number: int) -> dict[str, Any]:
        args = {**NCCL, **GROUP, "Collective_name": name, "Seq": number, "Src_Rank": 1, "Dst_Rank": 3}
        made = Made().step(1, 0, 1000).kernel("ncclDevKernel_SendRecv(x)", 100, 50, **args)
        return calls(summed(made))[0]

    sent, received = one("send", 4), one("recv", 9)
    assert (sent["name"], received["name"]) == ("send", "recv")
    assert sent["key"] == received["key"] == "0 1>3 1048576 #1"


def test_kernels_of_graphs_are_said() -> None:
    made = Made().step(1, 0, 1000).kernel("gemm", 10, 10, graph_node_id=812).kernel("gemm", 30, 10)
    assert summed(made)["notes"] == [
        "1 kernels were launched by CUDA graphs: no operator launches each of them"
    ]


def test_only_kernels_and_no_operators_are_a_set_of_operations_too() -> None:
    one, two = (Made().step(1, 0, 100).kernel(name, 10, 10) for name in ("gemm", "conv"))
    assert summed(one)["names"] != summed(two)["names"]


def test_a_rank_that_two_sources_number_differently_is_said() -> None:
    made = Made(distributedInfo={"rank": 5}, cockpit={"rank": 3}).step(1, 0, 10)
    assert summed(made)["notes"] == ["torch.distributed calls this rank 5, cockpit rank 3"]


# Whatever the trace.

THREADS = (MAIN, GLOO)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["op", "start", "data", "gloo", "python"]),
        st.integers(0, 60),
        st.integers(0, 30),
        st.sampled_from(THREADS),
    ),
    max_size=14,
)
NAME_OF = {
    "op": "aten::mm",
    "start": "c10d::allreduce_",
    "data": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "gloo": "gloo:all_reduce",
    "python": "train.py(7): step",
}


def of(drawn: list[tuple[str, int, int, int]], steps: list[int]) -> Made:
    made = Made()
    for place, (begin, end) in enumerate(itertools.pairwise(steps)):
        made.step(place, begin, end - begin)
    for kind, start, length, tid in drawn:
        if kind in ("op", "start"):
            made.op(NAME_OF[kind], start, length, tid)
        elif kind == "python":
            made.add("python_function", NAME_OF[kind], start, length, tid)
        elif kind == "data":
            made.add("user_annotation", NAME_OF[kind], start, length, tid)
        else:
            made.gloo("all_reduce", start, length, [[4]], tid=tid)
    return made


def waits(one: tuple[str, int, int, int], drawn: list[tuple[str, int, int, int]]) -> bool:
    """Whether an operator starts a collective in what it calls."""
    begin, end = (one[1], -one[2]), one[1] + one[2]
    starts = [other for other in drawn if other[0] == "start" and other[3] == one[3]]
    return one[0] == "op" and any(begin <= (other[1], -other[2]) and other[1] < end for other in starts)


STEPS = st.lists(st.integers(1, 25), min_size=1, max_size=3).map(
    lambda lengths: [10, *itertools.accumulate(lengths, initial=0)][1:]
)


@given(EVENTS, STEPS)
def test_each_number_is_that_of_counting_every_nanosecond(
    drawn: list[tuple[str, int, int, int]], steps: list[int]
) -> None:
    steps = [10 + one for one in steps]
    found = summed(of(drawn, steps))
    own_times = dict.fromkeys(NAME_OF.values(), 0)
    for row, (begin, end) in zip(rows(found), itertools.pairwise(steps), strict=True):
        counts = dict.fromkeys(("data", "compute", "communication", "idle", "overlapped"), 0)
        for moment in range(begin, end):
            runs = [one for one in drawn if one[1] <= moment < one[1] + one[2]]
            kinds = {one[0] for one in runs if (one[0] != "data" or one[3] == MAIN) and not waits(one, drawn)}
            first = "data" if "data" in kinds else "compute" if "op" in kinds else "idle"
            if first == "idle" and "gloo" in kinds:
                first = "communication"
            counts[first] += 1
            counts["overlapped"] += "gloo" in kinds and first != "communication"
            for thread in THREADS:
                there = [one for one in runs if one[3] == thread]
                if there:
                    # What began last; of several, the shortest; then by name.
                    inner = max(there, key=lambda one: (one[1], -one[2], NAME_OF[one[0]]))
                    own_times[NAME_OF[inner[0]]] += 1
        assert row == {
            "step": row["step"], "began": BASE + begin, "took": end - begin, "phases": [], **counts
        }  # fmt: skip
        assert row["took"] == sum(row[one] for one in ("data", "compute", "communication", "idle"))
    assert {name: time for name, (_, time, _) in own(found).items()} == {
        name: time
        for name, time in own_times.items()
        if time or any(NAME_OF[kind] == name and 10 <= start < steps[-1] for kind, start, _, _ in drawn)
    }


@given(EVENTS, STEPS, st.randoms())
def test_the_order_of_events_and_packing_change_nothing(
    drawn: list[tuple[str, int, int, int]], steps: list[int], chance: random.Random
) -> None:
    made = of(drawn, [10 + one for one in steps])
    found = summed(made)
    chance.shuffle(made.events)
    assert summed(made) == found
    assert traces.summed(made.file(packed=True)) == found


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 64, 1 << 20])
def test_pieces_of_any_size_are_one_file(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(cockpit={"first": 1, "steps": 2}).step(1, 0, 100).step(2, 100, 100)
    made.op("ä — 𝄞", 10, 20).gloo("all_reduce", 30, 10, [[1, 2]])
    monkeypatch.setattr(events, "_PIECE", 1 << 20)
    whole = summed(made)
    monkeypatch.setattr(events, "_PIECE", piece)
    assert summed(made) == whole


# What no profiler wrote.


def failure(data: bytes, **limits: int) -> str:
    with pytest.raises(BadTrace) as caught:
        traces.summed(io.BytesIO(data), **limits)
    return str(caught.value)


TRACE = Made().step(1, 0, 100).op("aten::mm", 0, 10).text()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is empty"),
        (b"   \n", "it is empty"),
        (b"hello", "it is not a trace: it does not begin with an object of JSON"),
        (b"[]", "it is not a trace: it does not begin with an object of JSON"),
        (b"{}", "it is not a trace: it has no traceEvents"),
        (b'{"traceEvents": 7}', "it is not a trace: it has no traceEvents"),
        (b'{"traceEvents": []}', "it has no operation in it"),
        (b'{[]: []}', "it is not JSON"),
        (TRACE[:-40].encode(), "it is incomplete: it ends in the middle"),
        (TRACE[:300].encode(), "it is incomplete: it ends in the middle"),
        (b'{"a": %s1%s}' % (200_000 * b"[", 200_000 * b"]"), "one of its values is nested too deep"),
        (b'{"traceEvents": [%s' % (200_000 * b'{"a":'), "one of its values is nested too deep"),
        (gzip.compress(TRACE.encode())[:-30], "it is incomplete: Compressed file ended"),
        (b"\x1f\x8bnot really", "it is incomplete: "),
    ],
)  # fmt: skip
def test_what_is_no_whole_trace_is_refused_in_a_sentence(data: bytes, why: str) -> None:
    assert failure(data).startswith(why)


def test_a_long_event_and_a_long_value_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "LONGEST", 1 << 20)
    monkeypatch.setattr(events, "_PIECE", 1 << 16)
    why = "it is not JSON, or one of its values is longer than 1 MB"
    long = b'"%s"' % ((3 << 20) * b"x")
    assert failure(b'{"a": %s, "traceEvents": []}' % long) == why
    assert failure(b'{"traceEvents": [{"name": %s}]}' % long) == why
    assert failure(b'{"traceEvents": [' + (3 << 20) * b"{" + b"}]}") in (
        why,
        "one of its values is nested too deep",
    )


def test_a_bomb_and_too_many_events_are_refused() -> None:
    bomb = gzip.compress(b'{"a": 1,' + (64 << 20) * b" ")
    assert failure(bomb, most_bytes=8 << 20) == "it has more than 8 MB, unpacked"
    many = b'{"traceEvents": [%s{}]}' % (2000 * b"{},")
    assert failure(many, most_events=1000) == "it has more than 1,000 events: profile fewer steps"


ODD: list[Any] = [
    None, True, "", "x", "NaN", "-1", "1e400", "-0.5", "١", "²", "1_000", "9" * 400, -1, -0.001, 1e300,
    10**400, [], {}, [[]], float("nan"), float("inf"), 0.0, 1 << 80,
]  # fmt: skip


def odd_texts() -> Iterator[str]:
    for name in ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args"):
        for value in ODD:
            event = {"ph": "X", "cat": "kernel", "name": "nccl", "pid": 1, "tid": 1, "ts": 5, "dur": 5}
            yield json.dumps({**event, name: value})
            yield json.dumps({**event, "cat": "user_annotation", "name": "gloo:x", name: value})
    for name in ("Collective name", "In msg nelems", "dtype", "Group size", "Process Group Name", "Seq"):
        for value in ODD:
            event = {"ph": "X", "cat": "kernel", "name": "nccl", "pid": 1, "tid": 1, "ts": 5, "dur": 5}
            yield json.dumps({**event, "args": {"In msg nelems": 3, "Process Group Name": "1", name: value}})
    for name in ("Input Dims", "Input type"):
        for value in [*ODD, [[1 << 62, 1 << 62]], [[[[[[[1]]]]]]], [["x", []], None]]:
            args = {"Input Dims": [[3]], "Input type": ["float"], name: value}
            event = {"ph": "X", "cat": "user_annotation", "name": "gloo:x", "pid": 1, "tid": 1, "ts": 5}
            yield json.dumps({**event, "dur": 5, "args": args})
    yield from ("1", "null", '"x"', "[]", "{}", "-0.5", "NaN")


def test_whatever_is_in_an_event_the_sum_can_be_read() -> None:
    made = Made(distributedInfo=[], cockpit="x").step(1, 0, 100)
    made.events.extend(odd_texts())
    found = summed(made)
    profile = read(RankProfile, {**found, **CALLERS})
    assert sum(row[1] for row in found["steps"]) > 0
    assert profile.steps[0].took == 100
    assert any("have no usable times or names" in note for note in profile.notes)


@pytest.mark.parametrize("name", ["baseTimeNanoseconds", "distributedInfo", "cockpit"])
@pytest.mark.parametrize("value", [[], {}, -1, 1e400, "x", None, 1 << 200, {"rank": [], "first": -1}])
def test_whatever_is_beside_the_events_the_sum_can_be_read(name: str, value: Any) -> None:
    text = TRACE.replace('"displayTimeUnit"', f'"x": 1, "{name}": {json.dumps(value)}, "y"')
    text = text.replace('"baseTimeNanoseconds": 1', '"z": 1') if name == "baseTimeNanoseconds" else text
    found = traces.summed(io.BytesIO(text.encode()))
    read(RankProfile, {**found, **CALLERS})


def test_steps_of_a_century_and_times_without_end_stay_within_their_bounds() -> None:
    made = Made().step(1, 0, 100).step(2, 1 << 61, 1 << 50)
    for tid in range(200):
        made.op("aten::mm", 0, 1 << 53, tid)
    read(RankProfile, {**summed(made), **CALLERS})


def test_names_threads_and_collectives_without_end_are_counted_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rank_events, "_NAMES", 5)
    monkeypatch.setattr(rank_events, "_LANES", 3)
    monkeypatch.setattr(rank_events, "MOST_CALLS", 4)
    made = Made().step(1, 0, 1000)
    for place in range(10):
        made.op(f"custom::{place}", 10 * place, 5).gloo("all_reduce", 500 + 10 * place, 5, [[4]])
        made.op("custom::0", 10 * place, 5, 9000 + place)
    found = summed(made)
    assert found["collectives_all"] == 10
    assert len(found["collectives"]) == 4
    assert "(other names)" in own(found)
    assert found["notes"] == [
        "only the first of many collectives are listed one by one",
        "9 events have no usable times or names, and do not count",
        "6 events have more names than are told apart",
    ]


def test_times_are_exact_however_they_are_written() -> None:
    assert traces.nanoseconds("4991492791317.223") == 4991492791317223
    assert traces.nanoseconds("1695942352000123") == 1695942352000123000
    assert traces.nanoseconds("0.5") == 500
    assert traces.nanoseconds("1.5e3") == 1500000
    odd: list[Any] = ["", ".", "-1", "NaN", "Infinity", "1e30", "x.123", "1e5.123", None, 7, [], "9" * 50]
    for bad in odd:
        assert traces.nanoseconds(bad) is None


@pytest.mark.slow
def test_memory_is_a_part_of_the_file() -> None:
    file = io.BytesIO("".join(written(12_000_000)).encode())
    tracemalloc.start()
    found = traces.summed(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found["events"] > 30_000
    assert peak < 5_000_000


# The part of the node code.


def part(file: Path, version: str | None = None) -> subprocess.CompletedProcess[str]:
    run = [python(version) if version else sys.executable, "-m", "cockpit.node", "sum", str(file)]
    root = Path(traces.__file__).parents[3]
    return subprocess.run(run, capture_output=True, text=True, cwd=root, env={**os.environ}, check=False)


def test_the_part_prints_the_sum_on_the_oldest_python(tmp_path: Path) -> None:
    made = Made().step(1, 0, 100).op("aten::mm", 0, 10)
    file = tmp_path / "t.json.gz"
    file.write_bytes(made.file(packed=True).getvalue())
    done = part(file, "3.8")
    assert (done.returncode, done.stderr) == (0, "")
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    assert json.loads(done.stdout) == {**summed(made), "sha256": sha256}


def test_the_part_says_why_not_in_one_line_and_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("hello")
    (tmp_path / "link").symlink_to(tmp_path / "bad")
    os.mkfifo(tmp_path / "fifo")
    for name, why in (
        ("bad", "it is not a trace: it does not begin with an object of JSON"),
        ("link", "a symbolic link"),
        ("fifo", "not a regular file"),
        ("gone", "No such file or directory"),
    ):
        done = part(tmp_path / name)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"cockpit: the trace cannot be read: {why}\n"
