"""What the probe costs training: steps, memory and CPU of the same toy with it and without."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.footprint import cpu_s, megabytes, ours
from benchmarks.here import Here, started, wait
from benchmarks.measure import FOLDER, interleave
from benchmarks.table import Figure, Level, Result

RANKS = 2
ROUNDS = 12
STEPS = 40
STEP_S = 0.03
RECORD_BYTES = 32
"""Of a step in the ring."""

SIDES = {"on": "auto", "off": "off", "off again": "off"}
_TRAIN = FOLDER.parent / "tests/slowpool/train.py"


def run() -> Result:
    """Measure; needs torch."""
    with ExitStack() as stack:
        sides = {name: _Training(stack, probe) for name, probe in SIDES.items()}
        for each in sides.values():
            wait(each.ready, "the ranks", 150)
        began, before = time.monotonic(), {name: each.ours() for name, each in sides.items()}
        windows = interleave({name: each.window for name, each in sides.items()}, ROUNDS)
        passed = time.monotonic() - began
        percent = {
            name: [100 * (each.ours() - before[name]) / passed / RANKS] for name, each in sides.items()
        }
        memory = {name: [megabytes(rank, "rss") for rank in each.ranks()] for name, each in sides.items()}
        own = {name: [megabytes(rank, "uss") for rank in each.ranks()] for name, each in sides.items()}
        rings = [ring.stat().st_size for ring in sides["on"].rings()]
    found, cpu = ({name: [one[at] for one in each] for name, each in windows.items()} for at in (0, 1))
    usual_s = median(found["on"]) / 1000
    band = Figure("off, against off again (A/A)", found["off"], found["off again"], "ms")
    step = Figure(
        "a step, probe on, against off", found["on"], found["off"], "ms", max(band.ratios), False, _SLOW
    )
    cpu_band = Figure("its CPU, off, against off again (A/A)", cpu["off"], cpu["off again"], "ms")
    most = max(cpu_band.ratios)
    cpu_step = Figure(
        "CPU of a rank in a step, on, against off", cpu["on"], cpu["off"], "ms", most, False, _SLOW
    )
    levels = [
        *(Level(f"a rank, RSS, probe {name}", memory[name], "MB") for name in SIDES),
        *(Level(f"a rank, its own pages alone, probe {name}", own[name], "MB") for name in SIDES),
        Level("its ring, which does not grow", rings, "bytes"),
        Level("written to the ring in an hour of such steps", [RECORD_BYTES * 3600 / usual_s], "bytes"),
        *(
            Level(f"our processes: CPU for each rank, probe {name}", percent[name], "% of a core")
            for name in SIDES
        ),
    ]
    return Result(
        "probe",
        f"{RANKS} ranks of a DDP toy, {ROUNDS} windows of {STEPS} steps in turn, watched",
        {"cockpit": "cockpit run … --probe auto", "other": "cockpit run … --probe off"},
        [step, band, cpu_step, cpu_band],
        levels,
        [
            "The CPU of ranks is as exact as a clock tick of 10 ms in a window allows; see also: node.",
            "Our processes are agent, supervisor and wrappers.",
            "The aim is the upper end of the A/A band of these minutes. While one trains, the others wait.",
        ],
    )


_SLOW = "the busy machine, or the hook: a longer run on a quiet one would tell."


class _Training:
    """A DDP toy of two ranks that runs a number of steps on request."""

    def __init__(self, stack: ExitStack, probe: str) -> None:
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cockpit-bench-")))
        plan = {"step_s": STEP_S, "layers": 4, "steps": STEPS, "phases": [None] * ROUNDS}
        (self.folder / "plan.json").write_text(json.dumps(plan))
        program = [sys.executable, str(_TRAIN), "ddp", "1", str(self.folder)]
        self.here: Here = stack.enter_context(started(RANKS, program, ["--probe", probe]))
        self._phase = 0

    def ready(self) -> bool:
        """Whether it waits to be told."""
        return all(f"phase {self._phase}\n" in self.here.log(rank).read_text() for rank in range(RANKS))

    def window(self) -> tuple[float, float]:
        """Milliseconds of a step, and those of CPU that a rank takes in it."""
        ranks = self.ranks()
        began, before = time.perf_counter(), sum(map(cpu_s, ranks))
        (self.folder / f"{self._phase}.go").touch()
        self._phase += 1
        wait(self.ready, "some steps")
        cpu = (sum(map(cpu_s, ranks)) - before) / RANKS
        return 1000 * (time.perf_counter() - began) / STEPS, 1000 * cpu / STEPS

    def ranks(self) -> list[Any]:
        """Its training processes."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if str(self.folder) in words and words[1:2] == [str(_TRAIN)]:
                found.append(process)
        return found

    def rings(self) -> list[Path]:
        """The rings of its ranks."""
        pids = {str(rank.pid) for rank in self.ranks()}
        found = Path("/dev/shm").glob("cockpit-*/*.ring")
        return [ring for ring in found if pids & set(ring.name.split("."))]

    def ours(self) -> float:
        """CPU seconds of our processes on the node so far."""
        agent, supervisor, wrappers = ours(self.here, RANKS)
        return sum(cpu_s(process) for process in [agent, supervisor, *wrappers])
