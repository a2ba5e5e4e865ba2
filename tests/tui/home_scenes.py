"""The home screen with made-up runs, for pictures: as on an evening with much going on."""

from __future__ import annotations

import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from unittest import mock

from cockpit import slurm
from cockpit.base.events import GpuSample, NodeSample, Sample
from cockpit.config import Config
from cockpit.core.pace.measured import measured
from cockpit.core.run.brief import Brief
from cockpit.engine import known_runs
from cockpit.engine.briefs import brief_here
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.join import Pools
from cockpit.engine.run.measures import FILE
from cockpit.slurm import QueuedJob
from cockpit.tui.home.app import HomeApp
from cockpit.tui.home.screen import HomeScreen
from tests.engine.knownruns import KnownRun
from tests.tui.scenes import until

H = 3600.0
EIGHT = tuple(f"gpu{number:02d}" for number in range(1, 9))
STALLED, SHOWN = "20261121-0412-otter", "20261120-2318-lynx"

JOBS = [
    QueuedJob("418790", "RUNNING", "1:53:12", "gpu[09-12]", "4", "None", "N/A", "llama-1b"),
    QueuedJob("418823", "RUNNING", "38:04", "gpu[15-16]", "2", "None", "N/A", "ablate-3"),
    QueuedJob("418911", "PENDING", "0:00", "", "16", "Priority", "06:10", "llama-1b"),
]


def write(now: float) -> None:
    """Runs of three days."""
    stalled = ("train.py", "--config", "c4-1b.json", "--micro-batch", "24")
    KnownRun(STALLED, now - 46 * 60, end="", steps=1216, nodes=EIGHT, ranks=2, program=stalled).write()
    KnownRun("20261121-0305-heron", now - 1.9 * H, end="", steps=18402, total=40000, nodes=EIGHT[:4]).write()
    failed = (*stalled[:-1], "26")
    measure(KnownRun(SHOWN, now - 5.7 * H, 2486, "failed", EIGHT, 8, 1102, program=failed).write())
    KnownRun("20261120-2114-robin", now - 8 * H, 720, "stopped", EIGHT, 2, 310).write()
    KnownRun("20261120-1102-crane", now - 18 * H, 3 * H + 120, "ended", EIGHT, 2, 900, 900).write()
    KnownRun("20261119-0921-swift", now - 42 * H, 4140, "ended", EIGHT[:4], 2, 400, 400).write()
    KnownRun("20261118-1907-stoat", now - 66 * H, 3900, "lost", EIGHT[:4], 2, 344, 2000).write()


def measure(folder: RunFolder) -> None:
    """The memory of a GPU, which fills up."""
    began, gib = folder.manifest.created, 1 << 30
    samples = (
        Sample(NodeSample(), {}, (GpuSample(6, memory_bytes=round(used * gib), memory_total_bytes=80 * gib),))
        for used in (70.1, 70.3, 71.2, 72.0, 73.4, 74.8, 76.1, 77.2, 78.6, 79.8)
    )
    lines = [measured(began + 240 * at, "gpu03", sample).line() for at, sample in enumerate(samples, 1)]
    (folder.path / FILE).write_bytes(b"".join(lines))


async def _now(folder: RunFolder, pools: Pools | None) -> Brief:
    brief = replace(brief_here(folder), asked=time.time())
    if brief.run == STALLED:
        cause = "rank 13 has not reached all_reduce #4211 · sure"
        return replace(brief, word="stalled", since=time.time() - 48, cause=cause)
    return replace(brief, step_t=time.time() - 1, step_s=0.37) if brief.open else brief


@asynccontextmanager
async def at_home(size: tuple[int, int], config: Config) -> AsyncIterator[tuple[HomeApp]]:
    """The app with these runs, once all of them are drawn."""
    write(time.time())
    with (
        mock.patch.object(known_runs, "brief_now", _now),
        mock.patch.object(shutil, "which", lambda name: name),
        mock.patch.object(slurm, "jobs_of", return_value=JOBS),
    ):
        app = HomeApp(config, chosen=SHOWN)
        async with app.run_test(size=size) as pilot:

            def whole() -> bool:
                screen = app.screen
                if not isinstance(screen, HomeScreen) or screen.known.asked_at is None:
                    return False
                return screen.current.run == SHOWN and screen._preview.glance is not None

            await until(pilot, whole, "all of it")
            await pilot.press("down", "up")
            await until(pilot, whole, "all of it")
            yield (app,)
