"""A run that stands still on the screen: it is shown by itself, disturbs nobody, and one key goes back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from cockpit.config import Config
from cockpit.core.run.model import RunModel
from cockpit.tui.app import CockpitApp
from cockpit.tui.look.glyphs import ASCII
from cockpit.tui.run.rank_grid import RankGrid
from cockpit.tui.run.screen import RunScreen
from cockpit.tui.run.stall import Stall, standing, watch_activity
from cockpit.tui.run.stall_banner import StallBanner
from cockpit.tui.run.tabs import Tabs
from tests.tui.models import NOW, Around, happens, running
from tests.tui.scenes import (
    READS,
    Scene,
    nobody_is_named,
    nothing,
    played,
    settled,
    stands_still,
    text_of,
    until,
)

SIZE = (140, 45)


def screen(app: CockpitApp) -> RunScreen:
    return next(each for each in app.screen_stack if isinstance(each, RunScreen))


def play(*keys: str, scene: Scene, size: tuple[int, int] = SIZE, config: Config | None = None) -> list[Any]:
    """The text after each key; before all of them, and after the scene began."""

    async def main() -> list[Any]:
        async with played(scene, size, config) as (app, pilot, _):
            seen: list[Any] = [
                (screen(app).query_one(Tabs).view, app.focused and app.focused.id, text_of(app))
            ]
            for key in keys:
                await pilot.press(key)
                await settled(pilot)
                seen.append((screen(app).query_one(Tabs).view, app.focused and app.focused.id, text_of(app)))
            return seen

    return asyncio.run(main())


def test_it_is_shown_without_a_key_and_esc_is_one_step_back() -> None:
    shown, back = play("escape", scene=Scene(play=stands_still))
    assert (shown[0].tab, shown[0].chosen, shown[1]) == ("pace", ("gpu02", 13), "pace")
    assert "● stalled 48 s" in shown[2]
    assert "rank 13 has not reached all_reduce #4211" in shown[2]
    assert (back[0].tab, back[0].chosen, back[1]) == ("log", None, "grid")
    assert "rank 13 has not reached all_reduce #4211" in back[2]  # the banner stays


def test_who_types_is_not_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cockpit.tui.run.screen.IDLE_S", 1e6)

    async def main() -> None:
        async with played(Scene(play=nothing), SIZE) as (app, pilot, stage):
            await pilot.press("down")
            await settled(pilot)
            stands_still(stage)
            await settled(pilot)
            assert screen(app).on_the_right == "log"
            assert app.focused is not None
            assert app.focused.id == "grid"
            assert "rank 13 has not reached all_reduce #4211" in text_of(app)

    asyncio.run(main())


def test_what_is_chosen_afterwards_is_what_esc_undoes() -> None:
    *_, back = play("1", "down", "escape", scene=Scene(play=stands_still))
    assert back[0].tab == "pace"
    assert back[0].chosen is None


def test_only_the_missing_rank_is_amber() -> None:
    async def main() -> None:
        async with played(Scene(play=stands_still), SIZE) as (app, _, _):
            grid = screen(app).query_one(RankGrid)
            amber = grid.style_of("slow").color
            marked = [
                segment.text
                for y in range(1, grid.size.height)
                for segment in grid.render_line(y)
                if segment.style is not None and segment.style.color == amber
            ]
            assert marked == ["▲"]

    asyncio.run(main())


def test_without_colours_the_wall_says_it_in_signs() -> None:
    (shown,) = play(scene=Scene(play=stands_still), config=Config(ascii=True))
    rows = [line for line in shown[2].splitlines() if "missing" in line and "!!!!" in line]
    assert len(rows) == 1
    assert shown[2].count("!!!!") == rows[0].count("!!!!")
    assert "wwww wwww" in shown[2]
    assert f"w{ASCII.look}ww" in shown[2]


def test_a_pause_in_which_ranks_move_is_grey_and_moves_nothing() -> None:
    (shown,) = play(scene=Scene(play=nobody_is_named))
    assert "no step for 48 s · in evaluate.py:31" in shown[2]
    assert "stalled" not in shown[2]
    assert "○" not in shown[2]
    assert (shown[0].tab, shown[1]) == ("log", "grid")


def test_a_small_screen_has_three_lines_of_it() -> None:
    (shown,) = play(scene=Scene(play=stands_still), size=(80, 24))
    lines = shown[2].splitlines()[1:5]
    assert [line[:1] for line in lines] == ["▌", "▌", "▌", "╭"]
    assert "gpu02, local rank 5" in lines[0]
    assert lines[0].endswith("  sure"), "that it is stuck is likely: there is no room for what a word is of"


def stalled(about: Mapping[str, Any] | None = None, **found: Any) -> RunModel:
    """Two nodes with two ranks each that stand still.

    :param about: more of what the watch says
    """
    model = running(2, 2)
    happens(
        model,
        "",
        kind="watch",
        at=NOW,
        state="stalled",
        since=NOW - 48,
        still_s=48.0,
        step=7,
        next_at=NOW + 30,
        found={**READS, "ranks": [1], "nodes": ["gpu01"], **found},
        **(about or {}),
    )
    return model


def test_a_stall_is_new_once_and_again_with_another_rank() -> None:
    stall = Stall()
    model = stalled()
    assert stall.tell(model)
    assert not stall.tell(model)
    assert stall.tell(stalled(ranks=[2]))
    assert not stall.tell(running(2, 2))
    assert stall.tell(model)


def test_whom_it_marks() -> None:
    missing, held = standing(stalled())
    assert missing == {1}
    assert 1 not in held
    assert held  # nobody says who waits: none of them makes a step
    assert standing(running(2, 2)) == (frozenset(), frozenset())
    activity = watch_activity(stalled())
    assert activity is not None
    assert activity.text.startswith("inspecting again at ")


def test_the_banner_says_where_it_is_and_what_it_does_there() -> None:
    about = {"waiting": [0, 2, 3], "looks": 2, "snapshot": "20261121-040401"}
    model = stalled(about, where="faults.py:82 hang", detail="It sleeps.", evidence=[])
    app = Around(StallBanner(keys=lambda command: {"stall_stacks": "S"}.get(command, "")))

    async def main() -> list[str]:
        async with app.run_test(size=(140, 10)) as pilot:
            app.widget.show(model, NOW, low=False)
            await pilot.pause()
            return app.lines()

    text = "\n".join(asyncio.run(main()))
    assert "3 others are waiting for it" in text
    assert "it is in  hang (faults.py:82), sleeping" in text
    assert "inspected all ranks twice" in text
    assert "S shows the saved stacks" in text


NASTY = "\x1b]52;c;eA==\x07\x1b[2J[bold]rank\u202e 13\n" + "x" * 500


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("low", [False, True])
def test_what_a_node_said_cannot_drive_the_terminal(width: int, low: bool) -> None:
    model = stalled(what=NASTY, where=NASTY, detail=NASTY, evidence=[NASTY, NASTY], nodes=[])
    app = Around(StallBanner())

    async def main() -> list[str]:
        async with app.run_test(size=(width, 10)) as pilot:
            app.widget.show(model, NOW, low=low)
            await pilot.pause()
            return app.lines()

    lines = asyncio.run(main())
    bar = [line for line in lines if line.startswith("▌")]
    assert len(bar) == (3 if low else {80: 12, 140: 10}[width])
    assert all(len(line) > 3 for line in bar)
    assert all(line.isprintable() for line in lines)
    assert "[bold]" in "".join(lines)


def test_in_a_narrow_terminal_the_map_takes_the_place_of_the_nodes_until_they_are_asked_for() -> None:
    async def main() -> None:
        async with played(Scene(keys=("6",)), (80, 24)) as (app, pilot, _):
            left, log = app.screen.query_one("#left"), app.screen.query_one("#log")
            assert not left.display
            assert log.display
            await pilot.press("1")
            await until(pilot, lambda: left.display and not log.display, "the nodes are back")
            assert app.focused is not None
            assert app.focused.id == "grid"
            await pilot.press("6", "z")
            await until(pilot, lambda: not left.display and not log.display, "the map has all lines")

    asyncio.run(main())
