"""Pictures of the app for the docs, played by the same scenes as the snapshots: ``make screenshots``."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from cockpit.config import Config
from tests.tui import lively, profile_scenes, stack_scenes
from tests.tui.home_scenes import at_home
from tests.tui.profile_scenes import SCENES as PROFILE_SCENES
from tests.tui.profile_scenes import profiled
from tests.tui.recorded_scenes import examined, kept, played_again, side_by_side
from tests.tui.scenes import SCENES, Scene, goes_well, played
from tests.tui.stack_scenes import STACK_SCENES, stacked
from tests.tui.stage import NOW, Stage

SHOTS = (
    "running",
    "failed",
    "rank-chosen",
    "detail",
    "stale",
    "finalising",
    "stop-question",
    "help",
    "palette",
    "events",
    "pace",
    "phases",
    "stalled",
)
"""The scenes that are worth a picture."""

PLAYED = {
    **SCENES,
    "events": Scene(SCENES["running"].make, goes_well, keys=("4",)),
    "palette": Scene(keys=("colon", *"sta")),
}
"""Scenes of a live run."""

PACE_SHOTS = ("pace-4", "pace", "pace-1024")
"""Ranks × time of 4, 64 and 1,024 ranks: each at the least and at a usual size."""

PACE_SIZES = ((80, 24), (140, 45))

STACK_SHOTS = ("stacks-64", "stacks-rank", "stacks-missing")
"""Those of the stack screen."""

PROFILE_SHOTS = ("profile-goes-on",)
"""Those of the profile screen; :data:`PROFILES`: each at the least and at a usual size."""

PROFILES = ("profile-4", "profile-64")

WHOLE: dict[str, Callable[..., AbstractAsyncContextManager[tuple[Any, ...]]]] = {
    "home": at_home,
    "compare": side_by_side,
    "replay": played_again,
    "doctor": examined,
    "evidence": kept,
}
"""Screens other than that of a live run: home, two runs side by side, a run played again, the doctor's,
and what was saved."""

THEMES = ("dark", "light")
SIZE = (140, 40)


async def _shoot(folder: Path, name: str, theme: str, size: tuple[int, int] | None = None) -> None:
    config = Config(ascii=False, theme=theme)
    async with _shown(name, size or SIZE, config) as (app, *_):
        more = "" if theme == THEMES[0] else f"-{theme}"
        wide = "" if size is None else f"-{size[0]}x{size[1]}"
        path = folder / f"{name}{wide}{more}.svg"
        path.write_text(app.export_screenshot(title="cockpit"))
        print(path)


def _shown(name: str, size: tuple[int, int], config: Config) -> AbstractAsyncContextManager[tuple[Any, ...]]:
    """A scene, whichever screen it is of."""
    if name in WHOLE:
        return WHOLE[name](size, config)
    if name in STACK_SHOTS:
        return stacked(STACK_SCENES[name], size, config)
    if name in (*PROFILE_SHOTS, *PROFILES):
        return profiled(PROFILE_SCENES[name], size, config.theme)
    return played(PLAYED[name], size, config)


def main(folder: Path) -> None:
    """Write every picture."""
    os.environ["TZ"], os.environ["COLORTERM"] = "UTC", "truecolor"
    time.tzset()
    time.time = lambda: NOW
    Stage.lively = True
    stack_scenes.RUN = profile_scenes.RUN = lively.name(NOW - lively.AGE_S - 61)
    folder.mkdir(parents=True, exist_ok=True)
    usual = [
        (name, theme, None) for theme in THEMES for name in (*WHOLE, *SHOTS, *STACK_SHOTS, *PROFILE_SHOTS)
    ]
    for what in (
        *usual,
        *(
            (name, theme, size)
            for theme in THEMES
            for name in (*PACE_SHOTS, *PROFILES)
            for size in PACE_SIZES
        ),
    ):
        with tempfile.TemporaryDirectory() as home:
            os.environ["XDG_STATE_HOME"] = os.environ["XDG_CONFIG_HOME"] = home
            asyncio.run(_shoot(folder, *what))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
