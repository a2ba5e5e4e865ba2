"""Two runs side by side, and a run played again, for pictures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cockpit.config import Config
from cockpit.tui.run.purpose import Joining
from tests.compare.pairs import FAILED, HEALTHY, run, usual
from tests.replay.test_screen import at_rest, lived, opened, press
from tests.tui.scenes import text_of, until
from tests.tui.test_compare import App

STEPS, PARTS = 400, 200
"""How long both runs are, and from where on their losses part."""

LAST_LINES = """\
Traceback (most recent call last):
  File "/home/ada/job/train.py", line 88, in <module>
    loss = engine(batch).loss
RuntimeError: loss is not finite at step 400
"""


@asynccontextmanager
async def side_by_side(size: tuple[int, int], config: Config) -> AsyncIterator[tuple[App]]:
    """A run that failed beside the last good one of the same command, once both are drawn."""
    healthy = run(HEALTHY, steps=STEPS)
    failed = run(
        FAILED,
        days=1,
        healthy=False,
        program=("train.py", "--lr", "0.2"),
        slower=1.3,
        steps=STEPS,
        commit="90c1d3e5aaaa" + "1" * 28,
        loss=lambda step: usual(step) + max(0, step - PARTS) * 0.004,
    )
    (failed.path / "spool" / "0001-gpu02" / "rank-3.log").write_text(LAST_LINES)
    app = App(healthy, failed, config)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: "after, above it" in text_of(app), "curves are drawn")
        yield (app,)


@asynccontextmanager
async def played_again(size: tuple[int, int], config: Config) -> AsyncIterator[tuple[Any]]:
    """A recorded run at the moment of a checkpoint."""
    folder = await asyncio.to_thread(lived, pytest.MonkeyPatch())
    async with opened(Joining(folder), size, theme=config.theme) as (app, screen, pilot):
        await press(pilot, "shift+left", "]")
        await at_rest(pilot, screen)
        yield (app,)
