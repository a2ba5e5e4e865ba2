"""The sum of traces that torch itself wrote: two ranks, DDP with accumulation, a data loader, gloo.

The ranks measure themselves around what the trace has, so each figure has a bound that holds on any machine.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from typing import Any, NamedTuple

import pytest

from cockpit.base.gate import read
from cockpit.base.profile.summary import RankProfile
from cockpit.node.profile import traces
from tests.needs import require_module
from tests.node.kineto import calls, own, rows

pytestmark = [pytest.mark.launch, pytest.mark.slow]

FIRST, STEPS, BATCHES, SLOW_S = 10, 3, 2, 0.05
FIT_NS = 5_000_000
"""Torch reads a counter of the processor, and fits it to the clock."""

PROGRAM = (
    f"FIRST, STEPS, BATCHES, SLOW_S = {(FIRST, STEPS, BATCHES, SLOW_S)}"
    + """
import json, os, signal, sys, time
import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import DataLoader, Dataset

folder, stack = sys.argv[1], sys.argv[2] == "stack"
torch.set_num_threads(1)
other = os.fork()  # after the import of torch, which is most of what a rank costs
rank = int(other == 0)
signal.alarm(200)  # so that none outlives the others
dist.init_process_group("gloo", init_method="file://" + folder + "/meeting", rank=rank, world_size=2)

class Data(Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, place):
        if rank == 1 and place % 4 == 0:
            time.sleep(SLOW_S)
        return torch.ones(16)

model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 16))
optimizer = torch.optim.AdamW(model.parameters())
batches = iter(DataLoader(Data(), batch_size=4))
told = {"steps": [], "data": [0] * 100}

def step(number):
    for part in range(BATCHES):
        before = time.time_ns()
        x = next(batches)
        told["data"][number] += time.time_ns() - before
        if part + 1 < BATCHES:
            with model.no_sync():
                model(x).sum().backward()
        else:
            model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    flag = torch.ones(3)
    dist.all_reduce(flag)
    dist.barrier()
    if rank == 0:
        dist.send(flag, 1)
    else:
        dist.recv(flag, 0)

step(0)
profiler = profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_stack=stack)
marks = [None]

def mark(optimizer, args, kwargs):
    # As the probe does it: at the end of a step, within the optimizer's own annotation.
    number = len(told["steps"]) + FIRST
    if marks[-1] is not None:
        marks[-1].__exit__(None, None, None)
    told["steps"].append([number, time.time_ns()])
    if number < FIRST + STEPS:
        marks.append(record_function("ProfilerStep#%d" % number))
        marks[-1].__enter__()
        told["steps"][-1].append(time.time_ns())

profiler.start()
handle = register_optimizer_step_post_hook(mark)
for number in range(FIRST, FIRST + STEPS + 1):
    step(number)
profiler.add_metadata_json("cockpit", json.dumps({"rank": rank, "first": FIRST, "steps": STEPS}))
handle.remove()
profiler.stop()
profiler.export_chrome_trace(folder + "/rank-%d.json.gz" % rank)
with open(folder + "/told-%d.json" % rank, "w") as file:
    json.dump(told, file)
dist.destroy_process_group()
assert rank == 1 or os.waitpid(other, 0)[1] == 0
"""
)


class Rank(NamedTuple):
    found: dict[str, Any]
    told: dict[str, Any]


@pytest.fixture(scope="module", params=[pytest.param("plain", marks=pytest.mark.campaign), "stack"])
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Rank]:
    require_module("torch")
    folder = tmp_path_factory.mktemp("traces")
    (folder / "train.py").write_text(PROGRAM)
    words = [sys.executable, str(folder / "train.py"), str(folder), request.param]
    ran = subprocess.run(words, stderr=subprocess.PIPE, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    made = []
    for rank in (0, 1):
        with (folder / f"rank-{rank}.json.gz").open("rb") as file:
            found = traces.summed(file)
        made.append(Rank(found, json.loads((folder / f"told-{rank}.json").read_text())))
    return made


def test_the_gate_lets_them_through(ranks: list[Rank]) -> None:
    for rank in ranks:
        profile = read(RankProfile, {**rank.found, "rank": 0, "file": "t", "size": 1, "sha256": "0" * 64})
        assert (profile.device, profile.backend, profile.notes) == ("cpu", "gloo", ())


def test_steps_are_those_that_the_rank_marked(ranks: list[Rank]) -> None:
    for rank in ranks:
        found = rows(rank.found)
        assert [row["step"] for row in found] == list(range(FIRST, FIRST + STEPS))
        marks = rank.told["steps"]
        for row, (_, before, after) in zip(found, marks, strict=False):
            assert before - FIT_NS <= row["began"] <= after + FIT_NS
        for row, following in itertools.pairwise(found):
            assert row["began"] + row["took"] == following["began"]
        last = found[-1]
        assert last["took"] > 0
        assert last["began"] + last["took"] <= marks[STEPS][1] + FIT_NS
        for row in found:
            assert row["took"] == sum(row[part] for part in ("data", "compute", "communication", "idle"))


def test_data_is_the_time_in_the_loader(ranks: list[Rank]) -> None:
    sleeps = (0, round(1e9 * SLOW_S * BATCHES))
    for rank, least in zip(ranks, sleeps, strict=True):
        # A step begins as the optimizer has stepped: its batches are those of the next call.
        for row in rows(rank.found):
            assert least - FIT_NS <= row["data"] <= rank.told["data"][row["step"] + 1] + FIT_NS


def test_ranks_did_the_same_and_agree_on_each_collective(ranks: list[Rank]) -> None:
    one, other = ([{**call} for call in calls(rank.found)] for rank in ranks)
    assert len(one) == ranks[0].found["collectives_all"] == 4 * STEPS
    places = [
        {
            (call["step"], call["key"]): (call, rows(rank.found)[call["step"] - FIRST]["began"])
            for call in found
        }
        for rank, found in zip(ranks, (one, other), strict=True)
    ]
    joined = places[0].keys() & places[1].keys()
    # The gradients, 3 numbers, a barrier; not a send and its recv: gloo does not say between whom.
    assert len(joined) == 3 * STEPS
    for key in joined:
        (first, first_began), (second, second_began) = places[0][key], places[1][key]
        assert (first["size"], first["ranks"]) == (second["size"], 2)
        # It ends nowhere before it has begun everywhere: both ranks read one clock.
        begins = [first_began + first["began"], second_began + second["began"]]
        ends = [begins[0] + first["took"], begins[1] + second["took"]]
        assert min(ends) > max(begins) - FIT_NS
    gradients = {call["size"] for call in one if call["name"] == "all_reduce"}
    assert gradients == {12, 4 * (16 * 16 + 16)}


def test_operations_are_the_same_on_both_ranks_but_for_send_and_recv(ranks: list[Rank]) -> None:
    names = [
        {
            name
            for name, (kind, _, count) in own(rank.found).items()
            if count and kind in ("compute", "communication")
        }
        for rank in ranks
    ]
    assert names[0] ^ names[1] == {"c10d::send", "gloo:send", "c10d::recv_", "gloo:recv"}
    for rank in ranks:
        operations = own(rank.found)
        assert operations["aten::addmm"][2] == BATCHES * STEPS
        loader = [one for one in operations if one.startswith("enumerate(DataLoader)")]
        assert [operations[one][::2] for one in loader] == [("data", BATCHES * STEPS)]
        # What one thread does at a time is no longer than the steps; gloo has two threads more.
        assert sum(time for _, time, _ in operations.values()) <= 4 * sum(
            row["took"] for row in rows(rank.found)
        )


def test_with_stacks_the_function_that_sleeps_is_named(ranks: list[Rank]) -> None:
    operations = own(ranks[1].found)
    sleeps = [(kind, time) for name, (kind, time, _) in operations.items() if "sleep" in name]
    if any(kind == "python" for kind, _, _ in operations.values()):
        ((kind, time),) = sleeps
        assert kind == "python"
        assert time >= 1e9 * SLOW_S * BATCHES * STEPS - FIT_NS
    else:
        assert sleeps == []
