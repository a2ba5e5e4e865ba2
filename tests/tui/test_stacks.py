"""The stack screen: every state as designed, every key, and what changes while samples come in."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from textual.binding import Binding
from textual.pilot import Pilot

from cockpit import paths
from cockpit.base.stacks.dump import Frame, Thread
from cockpit.config import Config
from cockpit.core.finding import Finding
from cockpit.core.ranks import mask_within
from cockpit.core.stacks.collectives import Collectives
from cockpit.core.stacks.progress import Done, Progress, SlowRank
from cockpit.core.stacks.snapshot import Snapshot
from cockpit.errors import CockpitError
from cockpit.tui.command_screen import Handler
from cockpit.tui.commands import EVERY, RUN, STACKS, Id, in_scope, keymap
from cockpit.tui.panes.dialogs import Question
from cockpit.tui.panes.finder import Finder
from cockpit.tui.panes.key_bar import Activity
from cockpit.tui.panes.text_pane import TextPane
from cockpit.tui.stacks import recompute
from cockpit.tui.stacks.app import StacksApp
from cockpit.tui.stacks.samples import SampleCursor
from cockpit.tui.stacks.screen import StackScreen
from cockpit.tui.stacks.thread_list import ThreadList
from cockpit.tui.stacks.tree import StackTreePane
from cockpit.tui.stacks.verdict_bar import BarText, VerdictBar
from cockpit.tui.stacks.view_model import filtered, look
from tests.tui.pictures import LARGE, PICTURES, SMALL, as_designed, file_of
from tests.tui.scenes import Scene, notes, played, text_of, until
from tests.tui.stack_scenes import (
    MAIN,
    STACK_SCENES,
    Played,
    StackScene,
    at_rest,
    dump,
    moves,
    odd_one,
    stacked,
    waits,
)
from tests.tui.stage import Stage
from tests.waiting import PATIENCE_S

SAYS = {
    "stacks-inferred": ("gpu02, local rank 0, inferred", "rank 2 is inferred: process 41002 on gpu02"),
    "stacks-one-sample": ("rank 13 is not in all_reduce, where 63 ranks are", "unsure", "sample 1 of 1"),
    "stacks-same": (
        "all 64 ranks wait in all_reduce",
        "Stacks do not show what they wait for",
        "n: what the library",
    ),
    "stacks-moved": ("63 ranks in all_reduce for 52 s, some of them moving", "likely", "8 ranks moved: 0-7"),
    "stacks-loader": ("its process 61001 (pt_data_worker) is dead", "next  gpu02: dmesg -T | grep -i oom"),
    "stacks-asking": ("asking every rank what it is doing", "no rank has answered yet", "x end it"),
    "stacks-none": ("no rank could be inspected", "gpu01: no answer to the connection", "no rank answered"),
    "stacks-recorded": ("RECORDED SNAPSHOT · taken 2026-11-21 04:04:42", " d diff  enter open  / filter"),
    "stacks-native": ("rank 13  gpu02, local rank 5", "asked alone, with C frames", "__libc_read  libc.so.6"),
    "stacks-diff-samples": ("what differs", "- rank 0, sample 1 · 04:04:41.0", "esc: the tree"),
    "stacks-library": (
        "└ allreduce_gradients  deepspeed/runtime/engine.py:2061",
        "wrapped_fn  deepspeed/utils/nvtx",
    ),
    "stacks-filter": ("1 classes 1", "/ read_sh", "enter keeps · esc clears"),
}
"""What is shown of scenes that are kept as no picture."""


async def drawn(name: str, size: tuple[int, int]) -> str:
    async with stacked(STACK_SCENES[name], size) as (app, _, _):
        return text_of(app)


@pytest.mark.few(6)
@pytest.mark.parametrize("name", [name for name in STACK_SCENES if name in PICTURES])
def test_it_looks_as_designed(name: str) -> None:
    as_designed(name, asyncio.run(drawn(name, PICTURES[name])))


@pytest.mark.few(4)
@pytest.mark.parametrize("name", [name for name in STACK_SCENES if name not in PICTURES])
def test_it_says_what_matters(name: str) -> None:
    shown = asyncio.run(drawn(name, LARGE))
    assert [words for words in SAYS[name] if words not in shown] == [], shown


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "name", [name for name, scene in STACK_SCENES.items() if not scene.keys and PICTURES.get(name) == LARGE]
)
def test_what_is_worked_out_after_the_layout_is_drawn_in_one_go(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid_out = threading.Event()
    monkeypatch.setattr(recompute, "look", lambda *args, **kinds: laid_out.wait() and look(*args, **kinds))

    async def main() -> str:
        stacks = STACK_SCENES[name].make()
        for _ in range(STACK_SCENES[name].samples):
            stacks.add()
        app = StacksApp(stacks, Config(ascii=False))
        async with app.run_test(size=LARGE) as pilot:
            await until(pilot, lambda: isinstance(app.screen, StackScreen), "the stack screen")
            await until(pilot, lambda: app.screen.query_one(StackTreePane).size.width > 0, "the layout")
            await pilot.pause()
            laid_out.set()
            await at_rest(pilot)
            return text_of(app)

    assert asyncio.run(main()) == file_of(name).read_text()


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

BINDINGS = list(Binding.make_bindings(StackScreen.BINDINGS))


def screen(app: StacksApp) -> StackScreen:
    """The stack screen, whatever is above it."""
    return next(each for each in app.screen_stack if isinstance(each, StackScreen))


def focused(app: StacksApp) -> str:
    return str(app.focused.id) if app.focused is not None else ""


def said(app: StacksApp, text: str) -> bool:
    return any(text in note.message for note in notes(app))


Check = Callable[[StacksApp], object]

# One app for all, one after the other: keys before, and what must be true afterwards but is not before.
EFFECTS: dict[Id, tuple[tuple[str, ...], Check]] = {
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
    "back": ((), lambda app: screen(app).on_the_right == "tree"),
    "native": ((), lambda app: "__libc_read" in text_of(app)),
    "locals": ((), lambda app: "ShardReader at 0x7f3c" in text_of(app)),
    "children": ((), lambda app: "pt_data_worker" in text_of(app)),
    "mark_rank": (("escape",), lambda app: "13 marked" in text_of(app)),
    "diff": (("down",), lambda app: "what differs" in text_of(app)),
    "library": (("escape", "escape"), lambda app: "buffered_allreduce_fallback" in text_of(app)),
    "threads": (("L",), lambda app: focused(app) == "threads"),
    "next_pane": (("1",), lambda app: focused(app) == "threads"),
    "previous_pane": ((), lambda app: focused(app) == "classes"),
    "screenshot": ((), lambda app: list(paths.screenshots().glob("*.txt"))),
    "zoom": ((), lambda app: not screen(app).query_one("#right").display),
    "previous_sample": (("z",), lambda app: "sample 1 of 2" in text_of(app)),
    "next_sample": ((), lambda app: "sample 2 of 2" in text_of(app)),
    "sample": ((), lambda app: "sample 3 of 3" in text_of(app)),
    "copy": (("1", "g"), lambda app: "read_shard" in app.clipboard),
    "copy_command": ((), lambda app: app.clipboard == "cockpit stacks 20261121-0412-otter"),
    "verdict": ((), lambda app: said(app, "all of it is shown here")),
    "save": ((), lambda app: said(app, "the snapshot is in /home/ada")),
    "filter_stacks": ((), lambda app: screen(app).filter_bar.display),
    "palette": (("escape",), lambda app: isinstance(app.screen, Finder)),
    "help": (("escape",), lambda app: isinstance(app.screen, Finder)),
    "help_here": (("escape",), lambda app: isinstance(app.screen, Question)),
    "cancel": (("escape",), lambda app: screen(app).stacks.snapshot.samples[-1].took_s is not None),
    "leave": ((), lambda app: app.return_code is not None),
}

ELSEWHERE = {"interrupt": "test_ctrl_c_ends_the_sample_then_leaves"}
"""Commands with a test of their own."""


def test_texts_name_the_keys_in_force() -> None:
    config = Config(ascii=False, keys={"native": "u", "classes": "9", "library": "M"})

    async def main() -> None:
        async with stacked(STACK_SCENES["stacks-same"], LARGE, config) as (app, pilot, _):
            assert "next  u: what the library waits for · s: what moves" in text_of(app)
            assert "9 classes" in text_of(app)
            await pilot.press("2", "f1")
            await until(pilot, lambda: "M shows or folds frames" in text_of(app), "help on the tree")

    asyncio.run(main())


def test_no_command_is_left_out() -> None:
    assert set(EFFECTS) | set(ELSEWHERE) == {command.id for command in in_scope(STACKS)}


def test_every_command_has_a_handler_and_every_handler_a_command() -> None:
    async def main() -> None:
        async with stacked(StackScene(lambda: Played(8, odd_one(3))), LARGE) as (app, _, _):
            assert set(screen(app).handlers) == {command.id for command in in_scope(STACKS)}

    asyncio.run(main())


@pytest.mark.slow
def test_the_key_does_it() -> None:
    keys = keymap({})

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
                    bound = [each.action for each in BINDINGS if each.key == key]
                    assert bound == [f"command('{name}')"]
                assert not done(app), f"{name}: true before the key was pressed: the test cannot fail"
                await pilot.press(keys[name].keys[0])
                await until(pilot, lambda done=done: done(app), name)  # type: ignore[misc]

    asyncio.run(main())


@pytest.mark.parametrize("recorded", [False, True])
def test_a_key_that_cannot_work_says_why(recorded: bool) -> None:
    why = {"left": "no other rank", "x": "no sample is being taken"}
    if recorded:
        why = {"s": "a snapshot from disk", "n": "taken without C frames", "l": "taken with local variables"}
    else:
        why |= {"right_square_bracket": "no sample after this one; s takes one"}

    async def main() -> None:
        scene = StackScene(lambda: Played(64, odd_one(13), recorded=recorded))
        async with stacked(scene, LARGE) as (app, pilot, stacks):
            stacks.snapshot.options = {"locals": recorded}
            for key, says in why.items():
                assert not said(app, says)
                await pilot.press(key)
                await until(pilot, lambda says=says: said(app, says), says)  # type: ignore[misc]

    asyncio.run(main())


def test_from_what_was_recorded_of_a_live_run_a_key_leads_to_its_ranks() -> None:
    async def main() -> None:
        async with stacked(STACK_SCENES["stacks-64"], SMALL) as (app, pilot, _):
            below, now = app.screen, StackScreen(Played(64, odd_one(13)))
            recorded = Played(64, odd_one(13), recorded=True)
            recorded.snapshot.samples += screen(app).stacks.snapshot.samples
            app.push_screen(StackScreen(recorded, live=Handler(lambda: app.push_screen(now))))
            await until(pilot, lambda: "s asks the ranks now" in text_of(app), "that they can be asked")
            assert "v verdict" in text_of(app)
            await pilot.press("n")
            why = "taken without C frames; s asks the ranks now"
            await until(pilot, lambda: said(app, why), "why not here")
            await pilot.press("right_square_bracket")
            await until(pilot, lambda: said(app, "no sample after this one"), "there is none")
            assert not said(app, "s takes one")
            await pilot.press("s")
            await until(pilot, lambda: app.screen is now and now.stacks.snapshot.samples, "they are asked")
            await pilot.press("escape")
            await until(pilot, lambda: app.screen is below, "esc goes where it went before")

    asyncio.run(main())


def test_of_a_recorded_snapshot_no_key_is_the_next_step_that_it_refuses() -> None:
    async def next_of(recorded: bool) -> str:
        scene = StackScene(lambda: Played(4, lambda rank, at, _: waits(rank, at), recorded=recorded))
        async with stacked(scene, LARGE) as (app, _, _):
            return next((line for line in text_of(app).splitlines() if "▌ next" in line), "")

    assert "n: what the library waits for" in asyncio.run(next_of(recorded=False))
    assert not asyncio.run(next_of(recorded=True))


def test_what_is_shown_already_is_no_next_step() -> None:
    async def main() -> None:
        scene = StackScene(lambda: Played(4, lambda rank, at, _: waits(rank, at)))
        async with stacked(scene, LARGE) as (app, pilot, _):
            assert "n: what the library waits for" in text_of(app)
            await pilot.press("n")
            await until(pilot, lambda: "asked alone, with C frames" in text_of(app), "its C frames")
            assert "n: what the library waits for" not in text_of(app)

    asyncio.run(main())


def test_without_evidence_the_certainty_is_beside_the_headline() -> None:
    async def main() -> None:
        over = Finding("ended", "rank 3 exited 1", 1 << 3, certainty="sure")
        async with StacksApp(Played(4, odd_one(3)), Config()).run_test(size=SMALL) as pilot:
            bar = pilot.app.screen.query_one(VerdictBar)
            bar.show(BarText(over, "gpu02"))
            lines = [bar.render_line(y).text.split() for y in range(bar.get_content_height(None, None, 80))]
            assert lines == [["▌", "rank", "3", "exited", "1", "gpu02", "sure"]]

    asyncio.run(main())


def test_leaving_is_called_what_it_does_to_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stage, "leaving", "the demo ends")

    async def main() -> None:
        async with played(Scene(), SMALL) as (app, pilot, *_):
            app.push_screen(StackScreen(Played(4, odd_one(3), recorded=True)))
            await until(pilot, lambda: "RECORDED" in text_of(app), "its stacks")
            await pilot.press("ctrl+c")
            await until(pilot, lambda: "Leaving: the demo ends." in text_of(app), "the question")

    asyncio.run(main())


def test_the_name_of_a_thread_is_cut_only_where_it_does_not_fit() -> None:
    thread = Thread("Thread-1 (_count_steps)", 7, False, False, (Frame("_heard", "./train.py", 3),))
    (line,) = ThreadList().item_lines(thread, None, 44)
    assert line.text == "Thread-1 (_count_steps) sleeps _heard"
    (line,) = ThreadList().item_lines(thread, None, 34)
    assert len(line.text) <= 34


def test_in_a_low_terminal_a_key_shows_the_whole_verdict() -> None:
    async def main() -> None:
        async with stacked(STACK_SCENES["stacks-64"], (80, 24)) as (app, pilot, _):
            assert "rank 13 has not moved either" not in text_of(app)
            await pilot.press("v")
            await until(pilot, lambda: "rank 13 has not moved either" in text_of(app), "all of it")
            assert "a network file system." in text_of(app)
            await pilot.press("v")
            await until(pilot, lambda: "rank 13 has not moved either" not in text_of(app), "in short")

    asyncio.run(main())


def test_ctrl_c_ends_the_sample_then_leaves() -> None:
    async def main() -> None:
        async with stacked(STACK_SCENES["stacks-taking"], LARGE) as (app, pilot, stacks):
            assert stacks.busy
            await pilot.press("ctrl+c")
            await until(pilot, lambda: not stacks.busy, "the sample is over")
            assert app.return_code is None
            assert stacks.snapshot.samples[0].dumps, "what had come stays"
            await pilot.press("x")
            await at_rest(pilot)
            await pilot.press("ctrl+c")
            await until(pilot, lambda: app.return_code is not None, "the app has ended")

    asyncio.run(main())


def test_one_key_may_mean_one_thing_here_and_another_there() -> None:
    both = [command for command in EVERY if command.keys and command.keys[0] == "n"]
    assert {command.scope for command in both} == {RUN, STACKS}
    assert keymap({"native": "N"})["native"].keys == ("N",), "N is taken on the other screen alone"
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


def test_a_pane_that_is_hidden_comes_back_with_its_cursor_in_view() -> None:
    async def main() -> None:
        async with stacked(STACK_SCENES["stacks-64"], (80, 24)) as (app, pilot, _):
            tree = screen(app).query_one(StackTreePane)
            await pilot.press("2", "G", "enter")
            await until(pilot, lambda: focused(app) == "rank", "the tree is hidden")
            row, few = tree.current, len(tree.items)
            await pilot.press("L")
            await at_rest(pilot)
            assert len(tree.items) > few
            await pilot.press("escape")
            await at_rest(pilot)
            assert tree.current is not None
            assert row is not None
            assert tree.current.key == row.key
            at = tree.items.index(tree.current)
            assert 0 <= at - tree.scroll_offset.y < tree.scrollable_size.height

    asyncio.run(main())


def test_what_a_rank_was_asked_for_is_not_asked_of_the_next_one() -> None:
    async def main() -> None:
        async with stacked(STACK_SCENES["stacks-64"], LARGE) as (app, pilot, stacks):
            await pilot.press("down", "n")
            await until(pilot, lambda: "__libc_read" in text_of(app), "C frames of rank 0")
            await pilot.press("right")
            await until(pilot, lambda: "__libc_read" not in text_of(app), "rank 1 as it was")
            await pilot.press("n")
            await until(pilot, lambda: "__libc_read" in text_of(app), "C frames of rank 1")
            assert stacks.asked_alone == [(0, ("native",)), (1, ("native",))]

    asyncio.run(main())


def test_while_a_rank_is_asked_for_more_still_that_is_said() -> None:
    async def main() -> None:
        async with stacked(STACK_SCENES["stacks-64"], LARGE) as (app, pilot, stacks):
            asked: list[set[str]] = []
            closed, ended = asyncio.Event(), asyncio.Event()

            async def slowly(rank: int, **wanted: bool) -> Any:
                asked.append(set(wanted))
                try:
                    await asyncio.Event().wait()
                finally:
                    await closed.wait()  # as a link does before it is left
                    ended.set()

            stacks.look = slowly  # type: ignore[method-assign]
            await pilot.press("n")
            await until(pilot, lambda: asked == [{"native"}], "it is asked")
            await pilot.press("l")
            await until(pilot, lambda: len(asked) == 2, "it is asked for both")
            closed.set()
            await until(pilot, ended.is_set, "the first one is over")
            await pilot.pause()
            assert screen(app).activity() == Activity("asking rank 13 for C frames and local variables")

    asyncio.run(main())


def test_esc_goes_from_what_differs_to_where_one_was() -> None:
    async def main() -> None:
        async with stacked(STACK_SCENES["stacks-64"], LARGE) as (app, pilot, _):
            await pilot.press("enter", "d")
            await until(pilot, lambda: "esc: rank 13" in text_of(app), "what differs")
            await pilot.press("escape")
            await until(pilot, lambda: focused(app) == "rank", "the rank in full")
            await pilot.press("escape")
            await until(pilot, lambda: focused(app) == "classes", "the tree, and the list")
            await pilot.press("d", "d")
            await until(pilot, lambda: screen(app).on_the_right == "tree", "there was no rank below")

    asyncio.run(main())


def test_what_differs_stays_when_a_filter_leaves_no_rank() -> None:
    async def main() -> None:
        async with stacked(STACK_SCENES["stacks-64"], LARGE) as (app, pilot, _):
            await pilot.press("d", "1", "down", "slash", *"nowhere")
            await at_rest(pilot)
            assert screen(app).rank is None
            assert "what differs" in text_of(app)
            await pilot.press("escape")
            await until(pilot, lambda: screen(app).rank is not None, "all ranks again")

    asyncio.run(main())


def test_where_there_is_no_room_for_two_panes_the_one_in_use_is_shown() -> None:
    async def main() -> None:
        async with stacked(STACK_SCENES["stacks-missing"], (50, 12)) as (app, pilot, _):
            assert "1 classes" in text_of(app)
            assert "stack tree" not in text_of(app)
            for key, pane, title in (
                ("2", "tree", "stack tree"),
                ("tab", "classes", "1 classes"),
                ("enter", "rank", "─ rank"),
                ("shift+tab", "classes", "1 classes"),
                ("tab", "rank", "─ rank"),
                ("escape", "classes", "1 classes"),
            ):
                await pilot.press(key)
                await until(pilot, lambda pane=pane: focused(app) == pane, pane)  # type: ignore[misc]
                await at_rest(pilot)
                assert title in text_of(app)
                assert app.focused is not None
                assert app.focused.scrollable_size.height > 2
            await pilot.resize_terminal(*SMALL)
            await at_rest(pilot)
            assert "1 classes" in text_of(app)
            assert "stack tree" in text_of(app)

    asyncio.run(main())


def test_the_first_line_says_who_answered_however_long_the_jobs_title_is() -> None:
    async def main() -> None:
        stacks = Played(4, odd_one(2))
        stacks.snapshot.title = "torchrun job at gpu01:29500, 4 ranks on 2 nodes, since 11:09"
        async with stacked(StackScene(lambda: stacks), (100, 30)) as (app, pilot, _):
            for size, says in (((100, 30), "4/4 answered"), ((140, 45), "since 11:09")):
                await pilot.resize_terminal(*size)
                await at_rest(pilot)
                first = text_of(app).splitlines()[0]
                assert "torchrun job at gpu01:29500" in first
                assert says in first

    asyncio.run(main())


def test_what_a_class_does_is_not_cut_where_there_are_few() -> None:
    words = "in backward, where gradients of all ranks are joined"
    frames = (*MAIN, Frame("_engine_run_backward", "torch/autograd/graph.py", 979))

    async def main() -> None:
        scene = StackScene(lambda: Played(4, lambda rank, at, _: dump(rank, frames, at)))
        for size in ((100, 30), LARGE):
            async with stacked(scene, size) as (app, _, _stacks):
                left = " ".join(line[1:45].split("│")[0] for line in text_of(app).splitlines()[4:14])
                assert words in " ".join(left.split())

    asyncio.run(main())


@pytest.mark.parametrize("recorded", [False, True])
def test_where_nobody_answered_any_more_the_sample_before_is_named(recorded: bool) -> None:
    async def main() -> None:
        once = Played(4, lambda rank, at, number: None if number else waits(rank, at), recorded=recorded)
        async with stacked(StackScene(lambda: once), LARGE) as (app, pilot, _):
            assert "no rank answered; [ shows the sample before" in text_of(app)
            await pilot.press("left_square_bracket")
            await until(pilot, lambda: "4 of 4 ranks answered" in text_of(app), "the one before")

    asyncio.run(main())


def test_a_rank_without_children_is_said_to_have_none() -> None:
    async def main() -> None:
        async with stacked(STACK_SCENES["stacks-64"], LARGE) as (app, pilot, stacks):
            alone = stacks.look

            async def childless(rank: int, **wanted: bool) -> Any:
                return await alone(rank, **{**wanted, "children": False})

            stacks.look = childless  # type: ignore[method-assign]
            await pilot.press("enter")
            await at_rest(pilot)
            assert "no child processes" not in text_of(app), "nobody has asked for them"
            await pilot.press("c")
            await until(pilot, lambda: "it has no child processes" in text_of(app), "that there are none")

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
    begun, gone = threading.Event(), threading.Event()

    def slowly(*args: Any, **kwargs: Any) -> Any:
        begun.set()
        assert gone.wait(PATIENCE_S)
        return look(*args, **kwargs)

    async def main() -> None:
        async with stacked(STACK_SCENES["stacks-64"], LARGE) as (app, pilot, _):
            below, above = app.screen, StackScreen(Played(64, odd_one(13)))
            monkeypatch.setattr("cockpit.tui.stacks.recompute.look", slowly)
            app.push_screen(above)
            await until(pilot, begun.is_set, "the first sight is worked out")
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


def test_the_verdict_uses_what_is_known_only_after_the_last_stack() -> None:
    async def main() -> None:
        async with stacked(STACK_SCENES["stacks-64"], LARGE) as (app, pilot, stacks):
            now = time.time()
            steps = {rank: Done(100, now) for rank in range(64)}
            slow = (SlowRank(40, 1.5, 0.5, 0.6),)
            stacks.snapshot.progress = Progress(now, 0.5, True, steps, slow, 99)
            await until(pilot, lambda: "rank 40 is slow" in text_of(app), "the verdict with steps")

    asyncio.run(main())


MORE: dict[str, Callable[[Snapshot], object]] = {
    "recorders": lambda taken: setattr(taken, "collectives", Collectives(1000.0, 0b11, 0b10, ())),
    "problems": lambda taken: setattr(taken, "problems", ("two processes are rank 1",)),
    "twice": lambda taken: setattr(taken, "twice", {1: "two processes are rank 1"}),
    "an earlier look": lambda taken: setattr(taken, "stood", {1: 940.0}),
    "a closer look": lambda taken: taken.closer.update({1: waits(1, 1000.0)}),
    "an end": lambda taken: taken.ranks.update({1: replace(taken.ranks[1], ended_at=999.0)}),
}


@pytest.mark.parametrize("name", MORE)
def test_whatever_is_learned_after_the_stacks_have_come_is_looked_at(name: str) -> None:
    stacks = Played(4, odd_one(2))
    stacks.add()
    looking = recompute.Lookout(stacks, SampleCursor(stacks))
    assert looking.begin()
    asyncio.run(looking.work_out((frozenset(), False)))
    assert looking.settled
    MORE[name](stacks.snapshot)
    assert not looking.settled


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
            assert "read_shard" not in TextPane.copy_text(screen(app).query_one(StackTreePane))
            await pilot.press("slash", "left_parenthesis")
            await until(pilot, lambda: "missing )" in _sees(pilot), "what is wrong")
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


def test_a_timer_that_fires_while_the_screen_is_removed_is_ignored() -> None:
    async def main() -> None:
        async with stacked(STACK_SCENES["stacks-4"], LARGE) as (app, _, _stacks):
            stack_screen = screen(app)
            await app._prune(stack_screen)
            assert not stack_screen.query("*"), "its widgets are gone, itself not yet"
            assert stack_screen in app.screen_stack
            stack_screen._tick()

    asyncio.run(main())
