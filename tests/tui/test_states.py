"""Every state is drawn as it was designed: text snapshots at two sizes (``make snapshots`` writes them)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.tui.scenes import SCENES, played, text_of, until

SNAPSHOTS = Path(__file__).parent / "snapshots"
SIZES = {"80x24": (80, 24), "140x45": (140, 45)}


@pytest.mark.usefixtures("frozen_clock")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SCENES)
def test_it_looks_as_designed(name: str, size: str, tmp_path: Path) -> None:
    async def main() -> str:
        async with played(SCENES[name], SIZES[size]) as (app, _, _):
            return text_of(app)

    # Folders of this test's own are not the same twice.
    shown = asyncio.run(main()).replace(str(tmp_path), "/home/ada")
    path = SNAPSHOTS / f"{name}-{size}.txt"
    if os.environ.get("COCKPIT_SNAPSHOTS") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown)
    assert shown == path.read_text()


@pytest.mark.parametrize(("size", "says"), [((49, 24), "50 x 12"), ((80, 11), "50 x 12"), ((50, 12), "")])
def test_a_terminal_too_small_says_so(size: tuple[int, int], says: str) -> None:
    async def main() -> str:
        async with played(SCENES["running"], size) as (app, _, _):
            return text_of(app)

    shown = asyncio.run(main())
    assert ("is too small for cockpit" in shown) == bool(says)
    assert says in shown


@pytest.mark.usefixtures("frozen_clock")
@pytest.mark.parametrize(("width", "left"), [(140, 47), (200, 60), (300, 90)])
def test_a_wide_screen_gives_the_left_column_its_share(width: int, left: int) -> None:
    async def main() -> None:
        async with played(SCENES["running"], (width, 50)) as (app, pilot, _):
            await until(pilot, lambda: app.screen.query_one("#left").size.width == left, "its share")
            await until(pilot, lambda: "mem 59 %" in text_of(app), "what nodes have alike is said")
            await until(pilot, lambda: "threads    42" in text_of(app), "what is known of the rank is there")

    asyncio.run(main())
