"""Drives the real app with hostile data, and looks at it after each case."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from cockpit import paths
from cockpit.tui.base_app import BaseApp
from cockpit.tui.run.screen import RunScreen
from cockpit.tui.stacks.screen import StackScreen
from tests.hostile.app_cases import Case, dumps
from tests.tui.scenes import EIGHT, Scene, choose, draw_now, played, text_of, until
from tests.tui.stack_scenes import Played, StackScene, stacked
from tests.tui.stage import Stage

SIZE = (80, 24)
EACH = 3
"""Cases on a node before all panes are looked at."""
PANES = {"3": "detail", "4": "events", "5": "commands", "2": "log"}

STACK_KEYS = ("enter", "down", "n", "l", "c", "d", "m", "down", "d", "L", "L", "v", "question_mark", "escape")


def bad_characters(shown: str) -> Iterator[str]:
    """Controls, bidi and invisible characters that a screen's text must not have."""
    if shown.replace("\n", "").isprintable():
        return  # as nearly always, and quick
    for char in shown:
        if char != "\n" and unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            yield f"U+{ord(char):04X}"


def lives(app: BaseApp, name: str) -> None:
    """The app goes on, nothing of it raised, and what it shows is text."""
    goes_on(app, name)
    bad = list(bad_characters(text_of(app)))
    assert not bad, f"{name}: on the screen: {bad}"


def goes_on(app: BaseApp, name: str) -> None:
    """The app goes on, and nothing of it raised."""
    assert app.is_running, f"{name}: the app ended"
    assert app.return_code is None, f"{name}: the app ends"
    assert app.error is None, f"{name}: {app.error}"
    details = [path.read_text() for path in paths.errors().glob("*.txt")]
    assert not details, f"{name}: " + "\n".join(details)


def eight() -> Stage:
    """Eight nodes of four ranks."""
    stage = Stage(EIGHT, 4)
    stage.runs()
    return stage


async def drive(cases: Iterable[Case], size: tuple[int, int] = SIZE) -> Counter[str]:
    """All cases in one app, on one node after the other; every pane is looked at once each node has had some.

    :return: how many there were of each name
    """
    done: Counter[str] = Counter()
    async with played(Scene(eight, lambda stage: None), size) as (app, pilot, stage):
        screen = next(each for each in app.screen_stack if isinstance(each, RunScreen))
        left = iter(cases)
        while some := list(islice(left, EACH * len(EIGHT))):
            for node, case in zip(EACH * EIGHT, some, strict=False):
                case.do(stage, node)
                draw_now(screen)
                await pilot.pause()
                goes_on(app, case.name)
                done[case.name] += 1
            name = " ".join(case.name for case in some)
            for key, pane in PANES.items():
                await pilot.press(key)
                await until(pilot, lambda pane=pane: screen.on_the_right == pane, f"{name}: {key} works")  # type: ignore[misc]
                for entry in stage.manifest.nodes if pane == "detail" else ():
                    choose(app, entry.name, entry.ranks[0] if done.total() % 16 else None)
                    await pilot.pause()
                    lives(app, f"{name}: {pane} of {entry.name}")
                draw_now(screen)
                await pilot.pause()
                lives(app, f"{name}: {pane}")
    return done


async def drive_stacks(seed: int, count: int, size: tuple[int, int] = SIZE) -> int:
    """So many hostile dumps in one stack screen; every pane of it is looked at.

    :return: how many ranks were looked at
    """
    found = list(dumps(seed, count))
    scene = StackScene(lambda: Played(count, lambda rank, at, sample: found[rank], per_node=8))
    seen = set()
    async with stacked(scene, size) as (app, pilot, _):
        lives(app, "stacks")
        screen = next(each for each in app.screen_stack if isinstance(each, StackScreen))
        for rank in range(count):
            screen.choose(rank, show=True)
            await pilot.pause()
            lives(app, f"stacks: rank {rank} of seed {seed}")
            seen.add(screen.rank)
        for key in STACK_KEYS:
            await pilot.press(key)
            await pilot.pause()
            lives(app, f"stacks: key {key} with seed {seed}")
    return len(seen)
