"""Pictures of the docs that the demo cannot give: GPUs, 1,024 ranks, nodes that differ: ``make screenshots``.

They are of the same scenes as the snapshots; all others are taken by :mod:`tests.tui.stills`.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from cockpit.config import Config
from tests.tui import lively, stack_scenes, test_doctor
from tests.tui.scenes import SCENES, played, text_of, until
from tests.tui.stack_scenes import STACK_SCENES, stacked
from tests.tui.stage import NOW, Stage
from tests.tui.stills import THEMES, still
from tests.tui.terminal import SIZE

PLAYED = {"gpus": SCENES["running"], **{name: SCENES[name] for name in ("stale", "finalising", "pace-1024")}}
"""Scenes of a live run."""

SHOTS = (
    ("gpus", SIZE),
    ("stale", SIZE),
    ("finalising", SIZE),
    ("stacks-missing", SIZE),
    ("doctor", SIZE),
    ("pace-1024", (80, 24)),
    ("pace-1024", (140, 45)),
)
"""Names, with the size in columns and rows."""


async def _shoot(folder: Path, name: str, theme: str, size: tuple[int, int]) -> None:
    async with _shown(name, size, Config(ascii=False, theme=theme)) as (app, *_):
        path = still(folder, name, theme, size)
        path.write_text(app.export_screenshot(title="cockpit"))
        print(path, file=sys.stderr)


def _shown(name: str, size: tuple[int, int], config: Config) -> AbstractAsyncContextManager[tuple[Any, ...]]:
    """A scene, whichever screen it is of."""
    if name == "doctor":
        return _examined(size, config)
    if name in STACK_SCENES:
        return stacked(STACK_SCENES[name], size, config)
    return played(PLAYED[name], size, config)


@asynccontextmanager
async def _examined(size: tuple[int, int], config: Config) -> AsyncIterator[tuple[Any]]:
    """Nodes that are not alike."""
    app = test_doctor.App(test_doctor.saying(test_doctor.sick()), config=config)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: "gpu[03,07]" in text_of(app), "gpu[03,07]")
        yield (app,)


def main(folder: Path) -> None:
    """Write every picture."""
    os.environ["TZ"], os.environ["COLORTERM"] = "UTC", "truecolor"
    time.tzset()
    time.time = lambda: NOW
    Stage.lively = True
    stack_scenes.RUN = lively.name(NOW - lively.AGE_S - 61)
    for theme in THEMES:
        for name, size in SHOTS:
            with tempfile.TemporaryDirectory() as home:
                os.environ["XDG_STATE_HOME"] = os.environ["XDG_CONFIG_HOME"] = home
                asyncio.run(_shoot(folder, name, theme, size))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
