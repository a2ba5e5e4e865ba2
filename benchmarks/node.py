"""What all of cockpit costs a node that trains, with everything on: its own processes, and the ranks' share.

The ranks of three runs train side by side, so that all meet the same machine: one is watched, with the probe
in its ranks; of the others, which have no probe, the cockpit was killed. What a rank of the first takes more
is ours, as is what agent, supervisor, wrappers and their helpers take.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import mean

import psutil

from benchmarks.footprint import ours
from benchmarks.here import Here, started, wait
from benchmarks.table import Figure, Level, Result
from benchmarks.watched import step
from cockpit.engine.work_sampler import EVERY_S

RANKS = 4
WINDOWS = 3
WINDOW_S = 1.0 * EVERY_S
"""As long as from one look at all recorders to the next: each window has one."""
STEP_S = 0.5
SETTLE_S = 10.0
"""Past the start: the agent's imports, py-spy's way to the node, compilation of bytecode."""

SIDES = {
    "on": ["--probe", "on", "--notify", "true"],
    "off": ["--probe", "off"],
    "off again": ["--probe", "off"],
}
_PROGRAM = ["env", "OMP_NUM_THREADS=1", sys.executable, "examples/train_torch.py", "--steps", "10000000"]


def run() -> Result:
    """Measure; needs torch."""
    with ExitStack() as stack:
        program = [*_PROGRAM, "--step-time", str(STEP_S)]
        sides = {name: stack.enter_context(started(RANKS, program, more)) for name, more in SIDES.items()}
        for here in sides.values():
            wait(lambda here=here: step(here) > 2, "some steps", 600)  # type: ignore[misc]
        for name in ("off", "off again"):
            sides[name].cockpit.kill()
            sides[name].cockpit.wait()
        ranks = {name: _ranks(here) for name, here in sides.items()}
        agent, supervisor, wrappers = ours(sides["on"], RANKS)
        own = [agent, supervisor, *wrappers]
        time.sleep(SETTLE_S)
        taken: dict[str, list[list[float]]] = {name: [] for name in sides}
        processes = []
        for _ in range(WINDOWS):
            began, before = time.monotonic(), {name: _cpu_s(each) for name, each in ranks.items()}
            own_before = sum(_cpu_s(own, helpers=True))
            time.sleep(WINDOW_S)
            passed = time.monotonic() - began
            for name, each in ranks.items():
                pairs = zip(_cpu_s(each), before[name], strict=True)
                taken[name].append([100 * (now - then) / passed for now, then in pairs])
            processes.append(100 * (sum(_cpu_s(own, helpers=True)) - own_before) / passed)
    means = {name: [mean(window) for window in windows] for name, windows in taken.items()}
    more = [RANKS * (on - (off + again) / 2) for on, off, again in zip(*means.values(), strict=True)]
    band = Figure("a rank, off, against off again (A/A)", means["off"], means["off again"], "% of a core")
    cores = os.cpu_count() or 1
    whole = [(process + max(0.0, rank)) / cores for process, rank in zip(processes, more, strict=True)]
    return Result(
        "node",
        f"a node with {RANKS} ranks that make a step in {STEP_S:g} s and print a line, everything on",
        {
            "cockpit": "cockpit run … --headless --probe on --notify true (looks at recorders each minute)",
            "other": "cockpit run … --probe off, and that cockpit killed",
        },
        [Figure("a rank, on, against off", means["on"], means["off"], "% of a core"), band],
        [
            Level("agent, supervisor, wrappers and their helpers", processes, "% of a core"),
            Level("what its ranks take more than those without", more, "% of a core"),
            Level(f"all of it together, of the node's {cores} cores", whole, "% of the node", 1.0, _LESS),
            Level("for comparison: the ranks, off against off again", _apart(means), "% of a core"),
        ],
        [
            f"{WINDOWS} windows of {WINDOW_S:g} s; the three runs train side by side.",
            "What ranks take more is as exact as off and off again agree.",
        ],
    )


def _ranks(here: Here) -> list[psutil.Process]:
    """The training processes of a run."""
    starts = sorted(here.folder.glob("node/**/rank-*.start.json"))
    return [psutil.Process(int(json.loads(start.read_text())["pid"])) for start in starts]


def _cpu_s(processes: Sequence[psutil.Process], *, helpers: bool = False) -> list[float]:
    """CPU seconds of each so far.

    :param helpers: those of its children that have ended, too
    """
    found = []
    for process in processes:
        times = process.cpu_times()
        found.append(times.user + times.system)
        found[-1] += times.children_user + times.children_system if helpers else 0.0
    return found


def _apart(means: dict[str, list[float]]) -> list[float]:
    pairs = zip(means["off"], means["off again"], strict=True)
    return [RANKS * abs(off - again) for off, again in pairs]


_LESS = "see which of the rows above it is: longer intervals on the node, or recorders looked at less often."
