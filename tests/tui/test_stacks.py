"""The stack screen: every state as designed, every key, and what changes while samples come in."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.command import CommandPalette
from textual.pilot import Pilot

from cockpit.config import Config
from cockpit.errors import CockpitError
from cockpit.tui.commands import EVERY, RUN, STACKS, in_scope, keymap
from cockpit.tui.screens.dialogs import Question
from cockpit.tui.screens.help import HelpScreen
from cockpit.tui.screens.stacks import StackScreen
from cockpit.tui.stack_sight import filtered, look
from cockpit.tui.stack_words import cut_start, mask_within
from cockpit.tui.stacks_app import StacksApp
from cockpit.tui.widgets.stack_tree import StackTreePane
from tests.tui.scenes import text_of, until
from tests.tui.stack_scenes import STACK_SCENES, Played, StackScene, at_rest, moves, odd_one, stacked
from tests.tui.stage import NOW

SNAPSHOTS = Path(__file__).parent / "snapshots"
LARGE, SMALL = (140, 45), (80, 24)

BOTH = ("stacks-4", "stacks-64", "stacks-1024", "stacks-missing", "stacks-denied", "stacks-taking")
"""Scenes that are kept at both sizes."""


@pytest.fixture
def frozen_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """One moment, in one time zone."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr(time, "time", lambda: NOW)


@pytest.mark.usefixtures("frozen_clock")
@pytest.mark.parametrize("name", STACK_SCENES)
def test_it_looks_as_designed(name: str, tmp_path: Path) -> None:
    async def main() -> dict[str, str]:
        drawn = {}
        async with stacked(STACK_SCENES[name], LARGE) as (app, pilot, _):
            drawn["140x45"] = text_of(app)
            if name in BOTH:
                await pilot.resize_terminal(*SMALL)
                await at_rest(pilot)
                drawn["80x24"] = text_of(app)
        return drawn

    for size, shown in asyncio.run(main()).items():
        path = SNAPSHOTS / f"{name}-{size}.txt"
        if os.environ.get("COCKPIT_SNAPSHOTS") == "write":
            path.write_text(shown)
        assert shown == path.read_text()


@pytest.mark.parametrize(("world", "odd"), [(4, 2), (64, 13), (1024, 421)])
@pytest.mark.parametrize("size", [LARGE, SMALL])
def test_the_odd_rank_is_the_first_thing_one_sees(world: int, odd: int, size: tuple[int, int]) -> None:
    async def main() -> str:
        async with stacked(StackScene(lambda: Played(world, odd_one(odd))), size) as (app, _, _stacks):
            return text_of(app)

    lines = asyncio.run(main()).splitlines()
    assert f"rank {odd} " in lines[1], "the verdict is right below the first line"
    assert "data.py:118" in lines[2]
    first = next(line for line in lines if "1 rank" in line)
    assert str(odd) in first, "its class stands first"
    assert any("read_shard" in line and str(odd) in line for line in lines), (
        "its frame in the tree is in view"
    )


# Keys


def screen(app: StacksApp) -> StackScreen:
    """The stack screen, whatever is above it."""
    return next(each for each in app.screen_stack if isinstance(each, StackScreen))


def focused(app: StacksApp) -> str:
    return str(app.focused.id) if app.focused is not None else ""


def said(app: StacksApp, text: str) -> bool:
    return any(text in note.message for note in app._notifications)


Check = Callable[[StacksApp], object]

# One app for all, one after the other: keys before, and what must be true afterwards but is not before.
EFFECTS: dict[str, tuple[tuple[str, ...], Check]] = {
    "tree": ((), lambda app: focused(app) == "tree"),
    "classes": ((), lambda app: focused(app) == "classes"),
    "down": ((), lambda app: screen(app).rank == 0),
    "up": ((), lambda app: screen(app).rank == 13),
    "last": ((), lambda app: screen(app).rank == 0),
    "next_in_class": ((), lambda app: screen(app).rank == 1),
    "previous_in_class": ((), lambda app: screen(app).rank == 0),
    "first": ((), lambda app: screen(app).rank == 13),
    "page_down": ((), lambda app: screen(app).rank == 0),
    "page_up": ((), lambda app: screen(app).rank == 13),
    "open": ((), lambda app: "of CPU time" in text_of(app)),
    "back": ((), lambda app: screen(app)._right == "tree"),
    "native": ((), lambda app: "__libc_read" in text_of(app)),
    "locals": ((), lambda app: "ShardReader at 0x7f3c" in text_of(app)),
    "children": ((), lambda app: "pt_data_worker" in text_of(app)),
    "mark_rank": (("escape",), lambda app: "13 marked" in text_of(app)),
    "diff": (("down",), lambda app: "what differs" in text_of(app)),
    "library": (("escape", "escape"), lambda app: "buffered_allreduce_fallback" in text_of(app)),
    "threads": (("L",), lambda app: focused(app) == "threads"),
    "next_pane": (("1",), lambda app: focused(app) == "threads"),
    "previous_pane": ((), lambda app: focused(app) == "classes"),
    "zoom": ((), lambda app: not screen(app).query_one("#right").display),
    "previous_sample": (("z",), lambda app: "sample 1 of 2" in text_of(app)),
    "next_sample": ((), lambda app: "sample 2 of 2" in text_of(app)),
    "sample": ((), lambda app: "sample 3 of 3" in text_of(app)),
    "copy": (("1", "g"), lambda app: "read_shard" in app.clipboard),
    "copy_command": ((), lambda app: app.clipboard == "cockpit stacks 20261121-0412-otter"),
    "save": ((), lambda app: said(app, "the snapshot is in /home/ada")),
    "filter_stacks": ((), lambda app: screen(app)._filter_bar.display),
    "palette": (("escape",), lambda app: isinstance(app.screen, CommandPalette)),
    "help": (("escape",), lambda app: isinstance(app.screen, HelpScreen)),
    "help_here": (("escape",), lambda app: isinstance(app.screen, Question)),
    "cancel": (("escape",), lambda app: screen(app).stacks.snapshot.samples[-1].took_s is not None),
    "leave": ((), lambda app: app._exit),
}

ELSEWHERE = {"interrupt": "test_ctrl_c_ends_the_sample_then_leaves"}
"""Commands with a test of their own."""


def test_no_command_is_left_out() -> None:
    assert set(EFFECTS) | set(ELSEWHERE) == {command.id for command in in_scope(STACKS)}


def test_the_key_does_it() -> None:
    keys = keymap({}, scope=STACKS)

    async def main() -> None:
        async with stacked(StackScene(lambda: Played(64, odd_one(13))), LARGE) as (app, pilot, stacks):
            for name, (before, done) in EFFECTS.items():
                for each in before:
                    await pilot.press(each)
                await at_rest(pilot)
                if name == "cancel":
                    stacks.slow = set(range(64))
                    await pilot.press("s")
                    await until(pilot, lambda: stacks.busy, "a sample is under way")
                for key in keys[name].keys:
                    # A pane with the focus may have a binding of its own for an arrow key.
                    bound = screen(app)._bindings.key_to_bindings[key]
                    assert [binding.action for binding in bound] == [f"command('{name}')"]
                assert not done(app), f"{name}: true before the key was pressed: the test cannot fail"
                await pilot.press(keys[name].keys[0])
                await until(pilot, lambda done=done: done(app), name)  # type: ignore[misc]

    asyncio.run(main())


@pytest.mark.parametrize("recorded", [False, True])
def test_a_key_that_cannot_work_says_why(recorded: bool) -> None:
    why = {"escape": "nothing to go back from", "left": "no other rank", "x": "no sample is being taken"}
    if recorded:
        why = {"s": "a snapshot from disk", "n": "taken without native"}
    else:
        why |= {"right_square_bracket": "no sample after this one; s takes one"}

    async def main() -> None:
        scene = StackScene(lambda: Played(64, odd_one(13), recorded=recorded))
        async with stacked(scene, LARGE) as (app, pilot, _):
            for key, says in why.items():
                assert not said(app, says)
                await pilot.press(key)
                await until(pilot, lambda says=says: said(app, says), says)  # type: ignore[misc]

    asyncio.run(main())


@pytest.mark.usefixtures("frozen_clock")
def test_ctrl_c_ends_the_sample_then_leaves() -> None:
    async def main() -> None:
        async with stacked(STACK_SCENES["stacks-taking"], LARGE) as (app, pilot, stacks):
            assert stacks.busy
            await pilot.press("ctrl+c")
            await until(pilot, lambda: not stacks.busy, "the sample is over")
            assert app._exit is False
            assert stacks.snapshot.samples[0].dumps, "what had come stays"
            await pilot.press("x")
            await at_rest(pilot)
            await pilot.press("ctrl+c")
            await until(pilot, lambda: app._exit, "the app has ended")

    asyncio.run(main())


def test_one_key_may_mean_one_thing_here_and_another_there() -> None:
    both = [command for command in EVERY if command.keys and command.keys[0] == "n"]
    assert {command.scope for command in both} == {RUN, STACKS}
    assert keymap({"native": "N"}, scope=STACKS)["native"].keys == ("N",), (
        "N is taken on the other screen alone"
    )
    with pytest.raises(CockpitError, match="'d' is for"):
        keymap({"native": "d"})
    with pytest.raises(CockpitError, match="'q' is for"):
        keymap({"native": "q"})


def test_own_keys_work_here_too() -> None:
    async def main() -> None:
        config = Config(ascii=False, keys={"diff": "D", "sample": "d"})
        async with stacked(STACK_SCENES["stacks-64"], LARGE, config) as (app, pilot, stacks):
            assert "D diff" in text_of(app)
            await pilot.press("d")
            await until(pilot, lambda: len(stacks.snapshot.samples) == 3, "another sample")

    asyncio.run(main())


def test_a_pane_that_takes_the_trees_place_has_the_focus_and_gives_it_back() -> None:
    async def main() -> None:
        async with stacked(STACK_SCENES["stacks-64"], LARGE) as (app, pilot, _):
            await pilot.press("3", "enter")
            await until(pilot, lambda: focused(app) == "rank", "the rank in full")
            await pilot.press("escape")
            await until(pilot, lambda: focused(app) == "threads", "back where it was")
            await pilot.press("2", "down", "enter")
            await until(pilot, lambda: focused(app) == "rank", "the rank of the branch")
            assert screen(app).rank == 0

    asyncio.run(main())


def test_above_another_screen_esc_goes_back_to_it_and_ends_the_sample() -> None:
    async def main() -> None:
        async with stacked(STACK_SCENES["stacks-64"], LARGE) as (app, pilot, _):
            below, above = app.screen, Played(64, odd_one(13), slow=range(64))
            app.push_screen(StackScreen(above))
            await until(pilot, lambda: above.busy, "its first sample is under way")
            await until(pilot, lambda: "esc back" in text_of(app), "its footer")
            await pilot.press("escape")
            await until(pilot, lambda: app.screen is below, "the screen below")
            await until(pilot, lambda: not above.busy, "nobody is asked any more")

    asyncio.run(main())


def test_leaving_while_it_is_worked_out_what_to_show(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = threading.Event()

    def slowly(*args: Any, **kwargs: Any) -> Any:
        assert gone.wait(20)
        return look(*args, **kwargs)

    async def main() -> None:
        async with stacked(STACK_SCENES["stacks-64"], LARGE) as (app, pilot, _):
            below, above = app.screen, StackScreen(Played(64, odd_one(13)))
            monkeypatch.setattr("cockpit.tui.screens.stacks.look", slowly)
            app.push_screen(above)
            await until(pilot, lambda: above._working, "the first sight is worked out")
            await pilot.press("escape")
            await until(pilot, lambda: app.screen is below, "the screen below")
            # Its panes are gone, and what was being worked out has not been told.
            above._draw()
            gone.set()

    asyncio.run(main())


def test_it_is_drawn_in_every_theme() -> None:
    async def main() -> None:
        async with stacked(STACK_SCENES["stacks-missing"], LARGE) as (app, pilot, _):
            before = text_of(app)
            for name in ("light", "high-contrast", "colour-blind", "ansi"):
                app.theme = name
                await at_rest(pilot)
                assert text_of(app) == before

    asyncio.run(main())


# While samples come in


@pytest.mark.usefixtures("frozen_clock")
def test_what_has_come_is_shown_while_others_are_waited_for() -> None:
    async def main() -> None:
        async with stacked(STACK_SCENES["stacks-taking"], LARGE) as (app, pilot, stacks):
            shown = text_of(app)
            assert "17 of 64 ranks" in shown
            assert "still to come: gpu[03-08]" in shown
            assert "read_shard" in shown
            stacks.release()
            await until(pilot, lambda: "64 of 64 ranks answered" in text_of(app), "all of them")
            await until(pilot, lambda: len(stacks.snapshot.samples) == 2, "the second sample by itself")
            await at_rest(pilot)
            assert "sample 2 of 2" in text_of(app)

    asyncio.run(main())


@pytest.mark.usefixtures("frozen_clock")
def test_the_sample_before_stays_until_the_next_one_is_there() -> None:
    async def main() -> None:
        async with stacked(STACK_SCENES["stacks-64"], LARGE) as (app, pilot, stacks):
            stacks.slow = set(range(20, 64))
            await pilot.press("s")
            await until(pilot, lambda: stacks.busy, "a sample is under way")
            await at_rest(pilot)
            assert "sample 3: 20 of 64 ranks" in text_of(app)
            assert "63 ranks" in text_of(app), "what is known of all ranks is not taken away"
            sample = stacks.snapshot.samples[-1]
            sample.at -= 60
            await until(pilot, lambda: "44 ranks" in text_of(app), "who does not answer is listed")
            stacks.release()
            await until(pilot, lambda: "sample 3 of 3" in text_of(app), "the new one")
            await at_rest(pilot)
            assert "63 ranks" in text_of(app)

    asyncio.run(main())


def test_the_cursor_stays_on_its_class_when_others_come() -> None:
    def told(rank: int, at: float, number: int) -> Any:
        return moves(rank, at, 1 - number)

    async def main() -> None:
        async with stacked(StackScene(lambda: Played(64, told), samples=1), LARGE) as (app, pilot, _):
            await pilot.press("G")
            await at_rest(pilot)
            assert screen(app).rank == 0
            await pilot.press("s")
            await until(pilot, lambda: "sample 2 of 2" in text_of(app), "another sample")
            await at_rest(pilot)
            assert screen(app).rank == 0
            assert "8 ranks moved: 0-7" in text_of(app)

    asyncio.run(main())


# Words


def _sees(pilot: Pilot[Any]) -> str:
    return text_of(pilot.app)


def test_the_filter_narrows_classes_and_tree() -> None:
    async def main() -> None:
        async with stacked(STACK_SCENES["stacks-64"], LARGE) as (app, pilot, _):
            await pilot.press("slash", *"gpu01", "enter")
            await until(pilot, lambda: "8 of 64 ranks" in _sees(pilot), "eight ranks")
            assert "read_shard" not in screen(app).query_one(StackTreePane).copy_all()
            await pilot.press("slash", "left_parenthesis")
            await until(pilot, lambda: "not a regular expression" in _sees(pilot), "what is wrong")
            await pilot.press("escape")
            await until(pilot, lambda: "63 ranks" in _sees(pilot), "all of them again")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("pattern", "ranks"),
    [
        ("13", {13}),
        ("8-10, 60-90", {8, 9, 10, 60, 61, 62, 63}),
        ("!1-63", {0}),
        ("read_sh", {13}),
        ("DATA.PY", set()),
        (r"data\.py:118", {13}),
        ("!all_reduce", {13}),
        ("gpu08", set(range(56, 64))),
        ("", set(range(64))),
    ],
)
def test_what_a_filter_is_about(pattern: str, ranks: set[int]) -> None:
    stacks = Played(64, odd_one(13))
    stacks.add()
    every = look(stacks.snapshot, 0, "", (frozenset(), False), judge=False).classes
    assert filtered(pattern, stacks.snapshot, every) == sum(1 << rank for rank in ranks)


def test_numbers_that_do_not_fit_are_not_cut_in_half() -> None:
    assert mask_within(0b1011_0000_0000_0001, 20) == "0,12-13,15"
    assert mask_within(0b1011_0000_0000_0001, 9) == "0,12-13,…"
    assert mask_within(0b1011_0000_0000_0001, 6) == "0,…"
    assert cut_start("torch/nn/functional.py:12", 12) == "…ional.py:12"
