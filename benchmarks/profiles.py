"""How long a profile of a running run takes, and what it costs the run: real training, the verb as typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measure import FOLDER, BenchmarkError
from benchmarks.table import Figure, Level, Result
from tests.pythons import found as python

RANKS, ROUNDS, STEPS = (4, 8), 3, 5
STEP_S = 0.2
"""What a step of the training sleeps, beside what it computes."""

TRAIN = """
import os, sys, time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(24)))
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
loader = DataLoader(TensorDataset(torch.randn(320, 64)), batch_size=32)
while not os.path.exists("end"):
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        time.sleep(float(sys.argv[1]))
"""

CALLS = """
import sys, time
sys.path.insert(0, sys.argv[1])
space = {}
exec(compile(open(sys.argv[2]).read(), "calls.py", "exec"), space)
import chosen, other
def each(function):
    began = time.perf_counter_ns()
    for _ in range(1_000_000):
        function()
    return (time.perf_counter_ns() - began) / 1e6
print(each(chosen.f), each(other.f))
space["arm"](sys.argv[3], 0, ["chosen"])
chosen.f(), other.f()
print(each(chosen.f), each(other.f))
"""


class Taken(NamedTuple):
    """One profile.

    :param wall: seconds from the command to its end
    """

    wall: float
    told: dict[str, Any]


def run() -> Result:
    """Measure; needs torch."""
    levels: list[Level] = []
    figures: list[Figure] = []
    for ranks in RANKS:
        with training(ranks) as (name, env):
            torch = [
                profile(name, env, "--kind", "torch", "--steps", str(STEPS), "--fetch") for _ in range(ROUNDS)
            ]
            kinds = {"torch": torch}
            if ranks == RANKS[0]:
                kinds["cpu"] = [profile(name, env, "--kind", "cpu", "--seconds", "5") for _ in range(ROUNDS)]
        aim = 10.0 if ranks == RANKS[1] else None
        what = f"{ranks} ranks, {STEPS} steps: from the command to traces fetched, verified, summed up"
        levels.append(Level(what, [one.wall for one in torch], "s", aim))
        for kind, some in kinds.items():
            costs = [one.told["cost"] for one in some]
            figures += [
                Figure(
                    f"a step {when} a profile, {kind}, {ranks} ranks, against before",
                    [1000 * cost[f"{when}_s"] for cost in costs],
                    [1000 * cost["before_s"] for cost in costs],
                    "ms",
                )
                for when in ("during", "after")
            ]
            if kind == "torch":
                stop = [1000 * cost["stop_s"] for cost in costs]
                levels.append(Level(f"{ranks} ranks: stopping it holds a rank up, at most", stop, "ms"))
    return Result(
        "profiles",
        f"profiles of running runs: gloo on this machine, steps of {STEP_S:g} s and some",
        {"during, after": "cockpit profile RUN --kind KIND", "before": "the same run, seconds before"},
        figures,
        levels,
    )


def calls() -> Result:
    """What noting calls costs each one; needs a Python with sys.monitoring."""
    path = python("3.12") or python("3.13")
    if path is None:
        raise BenchmarkError("there is no Python 3.12 or newer")
    plain: list[list[float]] = [[], []]
    noted: list[list[float]] = [[], []]
    for _ in range(5):
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir="/dev/shm") as rings:
            for name in ("chosen", "other"):
                (Path(folder) / f"{name}.py").write_text("def f():\n    pass\n")
            source = FOLDER.parent / "cockpit" / "node" / "probe" / "calls.py"
            words = [path, "-c", CALLS, folder, str(source), f"{rings}/0.1.calls"]
            said = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
            for place in (0, 1):
                plain[place].append(float(said[0].split()[place]))
                noted[place].append(float(said[1].split()[place]))
    version = subprocess.run([path, "-V"], capture_output=True, text=True, check=True).stdout.strip()
    return Result(
        "calls",
        f"run --trace-calls: an empty function called, {version}",
        {"noted": "--trace-calls chosen", "plain": "without"},
        [
            Figure("a call into a chosen package", noted[0], plain[0], "ns"),
            Figure("any other call", noted[1], plain[1], "ns"),
        ],
        [],
    )


@contextmanager
def training(ranks: int, *more: str) -> Iterator[tuple[str, dict[str, str]]]:
    """A run that trains, and how to ask for it.

    :param more: options of the run
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = {
            **os.environ,
            "XDG_STATE_HOME": f"{name}/state",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(FOLDER.parent),
        }
        (folder / "train.py").write_text(TRAIN)
        (folder / "hosts").write_text(f"localhost slots={ranks}\n")
        run = f"bench-{os.getpid()}-{ranks}"
        words = ["run", "--headless", "--transport", "local", "--launcher", "command", "--name", run]
        words += ["--cwd", name, "--node-dir", f"{name}/nodes", *more, str(folder / "hosts"), "--"]
        words += [sys.executable, str(folder / "train.py"), str(STEP_S)]
        with (folder / "said").open("w") as said:
            watching = subprocess.Popen(
                _cockpit(*words), env=env, stdout=said, stderr=said, stdin=subprocess.DEVNULL
            )
            try:
                _until_steps(run, env, watching)
                yield run, env
            finally:
                (folder / "end").touch()
                subprocess.run(_cockpit("stop", run, "--now"), env=env, capture_output=True, check=False)
                watching.wait(60)


def _until_steps(run: str, env: dict[str, str], watching: subprocess.Popen[bytes]) -> None:
    """Wait until it makes steps.

    :raises BenchmarkError: it does not
    """
    end = time.monotonic() + 180
    while time.monotonic() < end and watching.poll() is None:
        done = subprocess.run(
            _cockpit("ps", run, "--json"), env=env, capture_output=True, text=True, check=False
        )
        found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if any((one.get("step") or 0) >= 20 for one in found):
            return
        time.sleep(1)
    raise BenchmarkError("the training does not begin")


def profile(run: str, env: dict[str, str], *words: str) -> Taken:
    """Take one, to its end."""
    began = time.perf_counter()
    done = subprocess.run(
        _cockpit("profile", run, *words, "--json"), env=env, capture_output=True, text=True, check=False
    )
    wall = time.perf_counter() - began
    if done.returncode:
        raise BenchmarkError(f"cockpit profile ended with {done.returncode}: {done.stderr[-500:]}")
    return Taken(wall, json.loads(done.stdout.splitlines()[-1]))


def _cockpit(*words: str) -> list[str]:
    return [sys.executable, "-m", "cockpit", *words]
