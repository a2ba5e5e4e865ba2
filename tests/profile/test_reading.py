"""Real traces of ranks, one of which is slow in one phase, summed up and read: it is named, and why."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cockpit.base.gate import read
from cockpit.base.profile.summary import RankProfile
from cockpit.core.profile.collection import DONE, Collection, RankResult
from cockpit.core.profile.reader import read as reading_of
from cockpit.node.profile import traces
from tests.needs import require_module

pytestmark = [pytest.mark.launch, pytest.mark.slow]

RANKS, SLOW, FIRST, STEPS, SLOW_S = 3, 1, 10, 5, 0.4
MANY_TIMES = 4
"""How many of the sleeps are in a batch."""

PROGRAM = (
    f"RANKS, SLOW, FIRST, STEPS, SLOW_S, MANY_TIMES = {(RANKS, SLOW, FIRST, STEPS, SLOW_S, MANY_TIMES)}"
    + """
import json, os, signal, sys, time
import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import DataLoader, Dataset

folder, site = sys.argv[1:]
torch.set_num_threads(1)
rank, others = 0, []
for other in range(1, RANKS):
    pid = os.fork()  # after the import of torch, which is most of what a rank costs
    if pid == 0:
        rank, others = other, []
        break
    others.append(pid)
signal.alarm(200)  # so that none outlives the others
dist.init_process_group("gloo", init_method="file://" + folder + "/meeting", rank=rank, world_size=RANKS)

def sleep(here, seconds=SLOW_S):
    if rank == SLOW and site == here:
        time.sleep(seconds)

class Data(Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, place):
        sleep("input", SLOW_S / MANY_TIMES)
        return torch.ones(64)

class Sleeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)
    @staticmethod
    def backward(ctx, grad):
        sleep("backward")
        return grad

class Layer(torch.nn.Module):
    def forward(self, x):
        sleep("forward")
        return Sleeps.apply(x)

model = torch.nn.Sequential(torch.nn.Linear(64, 64), Layer(), torch.nn.Linear(64, 64))
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
batches = iter(DataLoader(Data(), batch_size=MANY_TIMES))
told = []

def step():
    at = [time.monotonic_ns()]
    x = next(batches)
    at.append(time.monotonic_ns())
    loss = model(x).sum()
    at.append(time.monotonic_ns())
    loss.backward()
    at.append(time.monotonic_ns())
    sleep("update")
    optimizer.step()
    at.append(time.monotonic_ns())
    told.append([after - before for before, after in zip(at, at[1:])])

step()
told.clear()
profiler = profile(activities=[ProfilerActivity.CPU], record_shapes=True)
profiler.start()
for number in range(FIRST, FIRST + STEPS):
    with record_function("ProfilerStep#%d" % number):
        step()
profiler.stop()
profiler.export_chrome_trace(folder + "/rank-%d.json.gz" % rank)
with open(folder + "/told-%d.json" % rank, "w") as file:
    json.dump(told, file)
dist.destroy_process_group()
assert all(os.waitpid(pid, 0)[1] == 0 for pid in others)
"""
)


def taken(folder: Path, site: str) -> Collection:
    """Of real ranks, one of which sleeps there in each step."""
    (folder / "train.py").write_text(PROGRAM)
    words = [sys.executable, str(folder / "train.py"), str(folder), site]
    ran = subprocess.run(words, stderr=subprocess.PIPE, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    results = {}
    for rank in range(RANKS):
        with (folder / f"rank-{rank}.json.gz").open("rb") as file:
            found = {**traces.summed(file), "rank": rank, "file": "t", "size": 1, "sha256": "0" * 64}
        told = json.loads((folder / f"told-{rank}.json").read_text())
        # The agent adds what the rank's ring says of these steps.
        found["steps"] = [[*row[:-1], phases] for row, phases in zip(found["steps"], told, strict=True)]
        results[rank] = RankResult(rank, "n1", DONE, summary=read(RankProfile, found))
    return Collection(1, "id", "otter", "torch", 0.0, FIRST, STEPS, results=results)


@pytest.mark.parametrize(
    ("site", "part"),
    [
        ("backward", "compute"),
        *(
            pytest.param(*one, marks=pytest.mark.campaign)
            for one in (("input", "data"), ("forward", "idle"), ("update", "idle"))
        ),
    ],
)
def test_the_slow_rank_is_named_with_what_it_is_slow_by(site: str, part: str, tmp_path: Path) -> None:
    """What sleeps in a backward is an operation of autograd's; elsewhere no operation runs."""
    require_module("torch")
    reading = reading_of(taken(tmp_path, site))
    found = reading.finding
    assert (found.id, found.ranks) == ("slow_rank", 1 << SLOW), found
    assert reading.rows[0].differs == part, found
    assert f" {site} 0." in found.evidence[0], found
    assert reading.ranks[SLOW].wait < SLOW_S / 2 < reading.ranks[0].wait
    assert reading.collectives[0].last[0][0] == SLOW
    if site == "input":
        assert found.steps[0].command.startswith("num_workers=")
