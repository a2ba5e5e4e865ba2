"""A long run replayed: what it costs to open it, to go somewhere, and how much memory that takes."""

from __future__ import annotations

import asyncio
import json
import random
import resource
import subprocess
import sys
import tempfile
import time

from benchmarks.reports import BEGAN, HOURS, NODES, SLOTS, STEP_S, _made, _state
from benchmarks.table import Level, Result
from cockpit.base.events import NodeSample, Notice, RankSample, Sample
from cockpit.core.pace.measured import EVERY_S, measured
from cockpit.core.run.events import Event
from cockpit.engine.records.folder import RunFolder

EVENTS = 100_000
"""Of the journal."""
SEEKS = 20


def run() -> Result:
    """Measure; needs nothing."""
    with tempfile.TemporaryDirectory() as place, _state(place):
        folder = _made(int(HOURS * 3600 / STEP_S))
        _more(folder)
        words = [sys.executable, "-m", "benchmarks.replay", folder.name]
        told = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
    return Result(
        "replay",
        f"{NODES * SLOTS} ranks, {HOURS} h, {EVENTS:,} events",
        {"cockpit": "cockpit replay RUN"},
        levels=[
            Level("opened: CPU", [told["opened_s"]], "s", 20),
            Level("going to a random moment: states, CPU", told["states_s"], "s", 0.1),
            Level("the same, pace and measurements", told["pace_s"], "s", 5),
            Level("memory, all of it", [told["rss_mb"]], "MB", 400),
            Level("memory before", [told["before_mb"]], "MB"),
        ],
        notes=[
            f"Made up: as `reports`, {EVENTS:,} notices and a measurement each {EVERY_S:.0f} s more.",
            "CPU is of the process, one core; memory is the peak of its resident set.",
        ],
    )


def _more(folder: RunFolder) -> None:
    """Notices without end, and measurements."""
    seconds = HOURS * 3600
    with (folder.path / "journal.jsonl").open("a") as journal:
        for number in range(EVENTS):
            at = BEGAN + seconds * number / EVENTS
            of = f"gpu{number % NODES + 1:02d}"
            notice = Notice("disk", of, "its disk is nearly full", at, nodes=(of,), over=number % 5 == 0)
            journal.write(json.dumps(Event(at, "", notice).as_json()) + "\n")
    with (folder.path / "measured.jsonl").open("wb") as file:
        for moment in range(round(seconds / EVERY_S)):
            for entry in folder.manifest.nodes:
                node = NodeSample(8.0, 32, 300 << 30, 512 << 30, 900 << 30, 1 << 40)
                sample = Sample(node, {rank: RankSample(98.0, 31 << 30) for rank in entry.ranks})
                file.write(measured(BEGAN + moment * EVERY_S, entry.name, sample).line())


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def _go(name: str) -> dict[str, object]:
    from cockpit.engine.replay.recorded import Recorded

    before, began = _peak_mb(), time.process_time()
    recorded = await Recorded.read(RunFolder.find(name))
    told: dict[str, object] = {"before_mb": before, "opened_s": time.process_time() - began}
    chance, states, paces = random.Random(1), list[float](), list[float]()
    for _ in range(SEEKS):
        at = chance.uniform(recorded.begin, recorded.end)
        began = time.process_time()
        model = recorded.model_at(at)
        states.append(time.process_time() - began)
        began = time.process_time()
        await recorded.pace_at(at)
        list(recorded.samples(at, model))
        paces.append(time.process_time() - began)
    return told | {"states_s": states, "pace_s": paces, "rss_mb": _peak_mb()}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_go(sys.argv[1]))))
