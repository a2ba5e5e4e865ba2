"""The home screen with made-up runs, for pictures: as on an evening with much going on."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
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
from tests.engine import knownruns
from tests.engine.knownruns import KnownRun
from tests.tui import lively
from tests.tui.scenes import until
from tests.tui.stage import NOW

H = 3600.0
EIGHT = tuple(f"gpu{number:02d}" for number in range(1, 9))
STALLED, SHOWN = lively.name(NOW - lively.AGE_S - 61), lively.name(NOW - 5.7 * H, "lynx")

JOBS = [
    QueuedJob("418790", "RUNNING", "1:53:12", "gpu[09-12]", "4", "None", "N/A", "llama-1b"),
    QueuedJob("418823", "RUNNING", "38:04", "gpu[15-16]", "2", "None", "N/A", "ablate-3"),
    QueuedJob("418911", "PENDING", "0:00", "", "16", "Priority", "06:10", "llama-1b"),
]


def known(word: str, hours: float, *more: Any, **named: Any) -> RunFolder:
    """A run that began so many hours ago."""
    began = NOW - hours * H
    return KnownRun(lively.name(began, word), began + 0.382, *more, **named).write()


def write() -> None:
    """Runs of three days."""
    stalled = ("train.py", "--config", "c4-1b.json", "--micro-batch", "24")
    known("otter", (lively.AGE_S + 61) / H, end="", steps=1216, nodes=EIGHT, ranks=8, program=stalled)
    known("heron", 1.9, end="", steps=18402, total=40000, nodes=("gpu13", "gpu14"))
    failed = (*stalled[:-1], "26")
    measure(known("lynx", 5.7, 2486.3, "failed", EIGHT, 8, 1102, program=failed))
    known("robin", 8.13, 720, "stopped", EIGHT, 2, 310)
    known("crane", 18.63, 3 * H + 120, "ended", EIGHT, 2, 5000)
    known("swift", 42.08, 4140, "ended", EIGHT[:4], 2, 1800, 1800)
    known("stoat", 66.31, 3900, "lost", EIGHT[:4], 2, 1720)


def measure(folder: RunFolder) -> None:
    """The memory of a GPU, which fills up."""
    began, gib, dice = folder.manifest.created, 1 << 30, random.Random("vram")
    for at in range(1, 42):
        used = 130 + 0.24 * at - dice.uniform(0, 0.4) * (at < 41)
        gpu = GpuSample(0, memory_bytes=round(used * gib), memory_total_bytes=140 * gib)
        with (folder.path / FILE).open("ab") as file:
            file.write(measured(began + 60 * at, "gpu01", Sample(NodeSample(), {}, (gpu,))).line())


async def _now(folder: RunFolder, pools: Pools | None) -> Brief:
    brief = replace(brief_here(folder), asked=time.time())
    if brief.run == STALLED:
        cause = f"{lively.FOUND['what']} · sure"
        return replace(brief, word="stalled", since=time.time() - lively.STOOD_S, cause=cause)
    return replace(brief, step_t=time.time() - 1, step_s=0.37) if brief.open else brief


@asynccontextmanager
async def at_home(size: tuple[int, int], config: Config) -> AsyncIterator[tuple[HomeApp]]:
    """The app with these runs, once all of them are drawn."""
    with mock.patch.object(knownruns, "loss", lively.loss):
        write()
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
