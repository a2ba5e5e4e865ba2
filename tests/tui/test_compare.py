"""Two runs on the screen: curves over each other, what differs beside them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from cockpit.config import Config, Quotas
from cockpit.core.compare.comparing import compare
from cockpit.core.report.model import STEP_TIME, Course, Curve, RunReport, What, Why
from cockpit.engine.launch.code import DIFF
from cockpit.engine.launch.code import FILE as CODE
from cockpit.engine.profile.known import store_of
from cockpit.engine.records.folder import RunFolder
from cockpit.tui.base_app import BaseApp
from cockpit.tui.commands import COMPARE, in_scope
from cockpit.tui.compare.curves import drawn, legend
from cockpit.tui.compare.screen import CompareScreen
from cockpit.tui.panes.finder import Finder
from tests.compare.pairs import FAILED, HEALTHY, run, usual
from tests.core.profiled import Work, collection
from tests.report.made import HOSTILE, TREE
from tests.tui.scenes import Scene, healthy, played, text_of, until

SIZES = [(80, 24), (140, 45), (60, 16)]


class App(BaseApp):
    """The screen, above another one."""

    def __init__(self, before: RunFolder, after: RunFolder, config: Config | None = None) -> None:
        super().__init__(config or Config())
        self.both = CompareScreen(before, after)

    def on_mount(self) -> None:
        """Show it."""
        self.push_screen(self.both)


def pair(**more: object) -> tuple[RunFolder, RunFolder]:
    after = run(
        FAILED,
        days=1,
        healthy=False,
        program=("train.py", "--lr", "0.2", "--tag", HOSTILE),
        slower=1.3,
        commit="90c1d3e5aaaa" + "1" * 28,
        loss=lambda step: usual(step) + (0.4 if step > 20 else 0.0),
    )
    return run(HEALTHY), after


@pytest.mark.few(1)
@pytest.mark.parametrize("size", SIZES)
def test_curves_and_differences(size: tuple[int, int]) -> None:
    before, after = pair()

    async def main() -> None:
        app = App(before, after)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: "what differs" in text_of(app) or size[1] < 24, "both were read")
            await until(pilot, lambda: "after, above it" in text_of(app), "curves are drawn")
            shown = text_of(app)
            assert "loss" in shown
            assert "<script" not in shown or "\x1b" not in shown
            assert set(app.both.handlers) == {command.id for command in in_scope(COMPARE)}
            await pilot.press("Y")
            assert app.clipboard == f"cockpit compare {HEALTHY} {FAILED}"
            await pilot.press("G")
            await until(
                pilot, lambda: "rank-3.log" in text_of(app) or "failed" in text_of(app), "the end is in view"
            )
            await pilot.press("z")
            await until(pilot, lambda: "after, above it" not in text_of(app), "the list alone")
            await pilot.press("z", "escape")
            await until(pilot, lambda: app.both not in app.screen_stack, "one step back")

    asyncio.run(main())


def test_profiles_are_side_by_side() -> None:
    """Where a step goes, and operations, of the newest profiles of both: known by how they were made."""
    before, after = pair()
    for folder, forward in ((before, 80), (after, 160)):
        store = store_of(folder)
        number = store.begin(Quotas())
        work = Work(forward=forward)
        made_up = collection(4, lambda _, __, work=work: work)  # type: ignore[misc]
        store.save(replace(made_up, number=number, run=folder.name))

    async def main() -> None:
        app = App(before, after)
        async with app.run_test(size=(140, 45)) as pilot:
            await until(pilot, lambda: app.both._list.items, "both were read")
            told = [(entry.part, entry.text) for entry in app.both._list.items if "profiles" in entry.part]
            steps = [text for part, text in told if part == "profiles: a step of the median rank"]
            assert "step: 0.30 s → 0.38 s  +80.0 ms  ×1.27" in steps
            operations = [text for part, text in told if part.startswith("profiles: operations of rank ")]
            assert any("→" in text and "+" in text for text in operations), told
            await pilot.press("z")
            await until(pilot, lambda: "a step of the median rank" in text_of(app), "they are in view")

    asyncio.run(main())


def test_working_trees_are_in_the_list() -> None:
    before, after = run(HEALTHY), run(FAILED, days=1)
    (after.path / DIFF).write_text(TREE)
    (after.path / CODE).write_text(json.dumps({"commit": "4f2a90c1d3e5" + "0" * 28, "diff": "a" * 64}))

    async def main() -> None:
        app = App(before, after)
        async with app.run_test(size=(140, 45)) as pilot:
            await until(pilot, lambda: "working tree: as committed → train.py +2 -1" in text_of(app), "named")
            await until(pilot, lambda: "++    lr = 0.2" in text_of(app), "its lines")

    asyncio.run(main())


def test_what_shows_more_is_copied() -> None:
    before, after = pair()

    async def main() -> None:
        app = App(before, after)
        async with app.run_test(size=(140, 45)) as pilot:
            await until(pilot, lambda: "see: git" in text_of(app), "the commits")
            for _ in range(20):
                await pilot.press("down")
                if app.both._list.current and app.both._list.current.see:
                    break
            await pilot.press("enter")
            assert app.clipboard == "git -C /home/ada diff 4f2a90c1d3e5 90c1d3e5aaaa"

    asyncio.run(main())


def test_a_run_that_cannot_be_read_is_said() -> None:
    before, after = pair()
    (before.path / "manifest.json").write_text("{")

    async def main() -> None:
        app = App(RunFolder(before.path), after)
        async with app.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: "is not JSON" in text_of(app), "why")

    asyncio.run(main())


def report(name: str, values: list[float], steps: range) -> RunReport:
    points = tuple(zip(map(float, steps), values, strict=True))
    curve = Curve("loss", "", points, values[0], values[-1], min(values), max(values), 1.0)
    what = What((), ("train.py",), "torchrun", "/", (), 4, (), (), ())
    return RunReport(name, 2.0, "1", "ended", 0, 1.0, 2.0, what, (), Why(), Course(), (curve,))


@pytest.mark.parametrize("ascii_only", [False, True])
def test_which_is_which_without_colours(ascii_only: bool) -> None:
    """One falls, the other one rises: each has signs of its own, and the legend has both."""
    rises, falls = [float(value) for value in range(100)], [float(99 - value) for value in range(100)]
    made = compare(report("a", falls, range(100)), report("b", rises, range(100)))
    lines = [line.text for line in drawn(made, "loss", 60, 6, ascii_only=ascii_only)]
    top, bottom = lines[1], lines[-2]
    signs = ("b", "a") if ascii_only else ("˙", "⠉")
    first = top[10:20].strip()
    last = top[-10:].strip()
    assert first[0] in ("b" if ascii_only else "˙·.")
    assert last[-1] == "a" if ascii_only else "⠀" < last[-1] <= "⣿"
    assert bottom[10:20].strip()[0] == "a" if ascii_only else "⠀" < bottom[10:20].strip()[0] <= "⣿"
    assert signs[0] in legend(ascii_only=ascii_only).text or "·" in legend(ascii_only=ascii_only).text
    assert all(line.isascii() for line in lines[1:]) is ascii_only


def test_curves_of_numbers_that_are_odd() -> None:
    """One point, huge values, nothing at all: drawn, or left out."""
    one = report("a", [1e308], range(5, 6))
    for other in (report("b", [-1e308, 1e308], range(2)), replace(one, curves=())):
        made = compare(one, other)
        assert list(drawn(made, "loss", 40, 4, ascii_only=False))
        assert not list(drawn(made, STEP_TIME, 40, 4, ascii_only=False))


def test_from_the_screen_of_a_run() -> None:
    """The last good run of the same command is proposed first."""
    good = run(
        HEALTHY, program=("train.py", "--steps", "400"), launcher="deepspeed", cwd="/home/ada/job", days=-1
    )
    run("z-other", days=-0.5)

    async def main() -> None:
        async with played(Scene(healthy), (140, 45)) as (app, pilot, _):
            await pilot.press("equals_sign")
            await until(pilot, lambda: isinstance(app.screen, Finder), "the other runs")
            assert "Last good run of this command" in text_of(app)
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(app.screen, CompareScreen), "both")
            await until(pilot, lambda: good.name in text_of(app), "they were read")
            assert "--steps: 400 → 5000" in text_of(app)

    asyncio.run(main())
