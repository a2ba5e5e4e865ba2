"""Stacks of all ranks: on real nodes, 1,024 recorded ones to the screen, and what training notices."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean

from benchmarks.here import Here, started, wait
from benchmarks.measure import FOLDER, BenchmarkError, client, interleave, timed
from benchmarks.table import Figure, Level, Result
from benchmarks.uilag import screens
from benchmarks.watched import rate, step
from tests.lab.lab import Lab

NODES, SLOTS = 16, 4
ROUNDS = 21
SCREENS = 5
CYCLES, WINDOW_S, EVERY_S = 4, 10.0, 5.0
_HUNG = FOLDER / "hung.py"


def run(rounds: int = ROUNDS) -> Result:
    """Measure ranks that hang on the nodes of a lab; needs the lab, and pdsh for the classic way."""
    spy = _spy()
    with Lab(nodes=NODES) as lab, _hung(lab):
        outside = [process.pid for node in lab.nodes for process in lab.processes(node) if _is_hung(process)]
        if len(outside) != NODES * SLOTS:
            raise BenchmarkError(f"{len(outside)} ranks, not {NODES * SLOTS}")
        cores = os.cpu_count() or 1
        line = f"pgrep -f {_HUNG.name} | xargs -n 1 {spy} dump --pid"
        sides: dict[str, Callable[[], float]] = {
            "cockpit": lambda: float(client(lab, "stacks", *lab.nodes).said["seconds"]),
            "py-spy": lambda: _alone(spy, outside, NODES * max(2, cores)),
        }
        if shutil.which("pdsh"):
            words = ["pdsh", "-R", "ssh", "-f", "64", "-w", ",".join(lab.nodes), line]
            sides["classic"] = lambda: timed(lab, words).wall
        interleave(sides, 1)  # files into the cache
        found = interleave(sides, rounds)
    ours = found.pop("cockpit")
    what = {"py-spy": "against the py-spy processes alone", "classic": "against the classic way"}
    return Result(
        "stacks",
        f"stacks of all ranks of {NODES} nodes with {SLOTS} ranks each, merged",
        {
            "cockpit": "links warm: find the ranks, dump, merge, until the last answer is in the snapshot",
            "py-spy": f"xargs -P {NODES * max(2, cores)} -n 1 py-spy dump --json --pid, without any ssh",
            "classic": f"pdsh -R ssh -f 64 -w NODES '{line.replace(spy, 'py-spy')}', text, not merged",
        },
        [
            Figure(what[name], ours, theirs, aim=1.3 if name == "py-spy" else None, missing=_SLOW)
            for name, theirs in found.items()
        ],
        notes=[
            "All nodes share the cores of one machine, so py-spy's own work bounds every side.",
            "The second sample of a snapshot, once the first one is on disk.",
            "On a busy machine this says something only from a control group of its own (cpu.shares): Linux "
            "shares cores out by session otherwise, and one side has a session for each node.",
        ],
    )


def screen() -> Result:
    """Measure 1,024 recorded dumps from the key to the screen; needs nothing."""
    found = screens("stacks", str(SCREENS))
    return Result(
        "stackscreen",
        "128 simulated nodes with 8 ranks each, recorded dumps: from the key to the tree on the screen",
        {"cockpit": "the app, headless, 140 x 45; each node's answer comes packed, as its agent sends it"},
        levels=[
            Level("key to the tree of all ranks and a first verdict", [found["tree_s"]], "s", 3.0),
            Level("key to the verdict of two samples, a second apart", [found["verdict_s"]], "s", 3.0),
            Level("longest time the loop stood still", [found["lag_ms"]], "ms"),
        ],
    )


def dumped() -> Result:
    """Measure steps a second of one training process with a dump each few seconds; needs torch."""
    program = ["env", "OMP_NUM_THREADS=1", sys.executable, "examples/train_torch.py"]
    with started(1, [*program, "--steps", "10000000", "--step-time", "0"]) as here:
        wait(lambda: step(here) > 0, "the first step")
        here.cockpit.kill()
        here.cockpit.wait()
        before, with_dumps, after = [], [], []
        for _ in range(CYCLES):
            before.append(rate(here, WINDOW_S))
            with_dumps.append(_dumped_rate(here))
            after.append(rate(here, WINDOW_S))
    without = [mean(pair) for pair in zip(before, after, strict=True)]
    band = Figure("without on both sides (A/A)", before, after, "steps/s")
    return Result(
        "dumped",
        f"steps a second of one training process, with a dump each {EVERY_S:g} s and without",
        {"dumped": f"a sample of the rank each {EVERY_S:g} s over a link that stands", "without": "nothing"},
        [Figure("dumped", with_dumps, without, "steps/s", min(band.ratios), True, _DISTURBED), band],
        notes=[
            "The aim is the lower end of the A/A band of the same minutes.",
            "Client and node are one machine here; in a cluster the client's share is elsewhere.",
        ],
    )


def _dumped_rate(here: Here) -> float:
    began = time.time()
    dumping = here.client("dumping", here.name, str(EVERY_S))
    try:
        wait(lambda: _newest(here) > began, "the first dump")
        return rate(here, WINDOW_S)
    finally:
        dumping.kill()
        dumping.wait()


def _newest(here: Here) -> float:
    """When the newest snapshot was written, unix seconds."""
    files = here.folder.glob("state/**/stacks/*/snapshot.json")
    return max((file.stat().st_mtime for file in files), default=0.0)


def _spy() -> str:
    found = shutil.which("py-spy", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if found is None:
        raise BenchmarkError("py-spy is not installed")
    return found


@contextmanager
def _hung(lab: Lab) -> Iterator[None]:
    """Ranks on every node, as a launcher would start them."""
    ranks = []
    try:
        for number, node in enumerate(lab.nodes):
            for local in range(SLOTS):
                env = {
                    "RANK": str(number * SLOTS + local),
                    "LOCAL_RANK": str(local),
                    "WORLD_SIZE": str(NODES * SLOTS),
                    "MASTER_ADDR": lab.nodes[0],
                    "MASTER_PORT": "29500",
                }
                words = [sys.executable, str(_HUNG)]
                ranks.append(lab.popen(words, node=node, env=env, stdout=subprocess.PIPE))
        for rank in ranks:
            assert rank.stdout is not None
            rank.stdout.readline()
        yield
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def _is_hung(process: object) -> bool:
    return str(_HUNG) in getattr(process, "cmdline", ())[1:2]


def _alone(spy: str, pids: list[int], at_once: int) -> float:
    words = ["xargs", "-P", str(at_once), "-n", "1", spy, "dump", "--json", "--pid"]
    began = time.perf_counter()
    text = "\n".join(map(str, pids))
    subprocess.run(words, input=text, text=True, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


_SLOW = (
    "less of our own Python beside each py-spy, 3 ms of CPU a rank: to find it, for what the kernel says of "
    "it, for secrets and packing, spread over many small reads of /proc; 16 agents share these cores"
)
_DISTURBED = "a dump that holds the rank for less time, or less often"
