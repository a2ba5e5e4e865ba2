"""The run's past above its log: when it is there, and what it says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from cockpit.core.logs.metrics import Metrics
from cockpit.core.pace.pace import Pace
from cockpit.tui.pace.strip import strip_height, strip_lines
from cockpit.tui.pace.view_model import WHOLE, Sight
from tests.tui.scenes import (
    SCENES,
    Scene,
    choose,
    goes_well,
    healthy,
    nothing,
    paces,
    played,
    settled,
    text_of,
)
from tests.tui.stage import NOW, Stage

WIDTH = 90


def sight(slow: range = range(0), saves: tuple[int, ...] = (), works: bool = True) -> Sight:
    """Four ranks that have done 200 steps of 2 s; rank 3 is slow in some of them."""
    pace, at, saved = Pace(range(4)), NOW - 420.0, []
    for step in range(1, 201):
        saved += [at + 1] * (step in saves)
        at += (3.0 if step in slow else 2.0) + 12 * (step in saves)
        for rank in range(4):
            pace.stepped(rank, step, at)
            if works:
                pace.worked(rank, step, 3.0 if rank == 3 and step in slow else 2.0 + rank / 100)
    return Sight(pace, Metrics(), {"a": range(4)}, at, saves=saved, stretch=WHOLE, tall=9)


def said(of: Sight, height: int = 9) -> list[str]:
    return [line.text for line in strip_lines(of, WIDTH, height)]


@pytest.mark.parametrize(("rows", "lines"), [(24, 0), (29, 0), (30, 3), (35, 3), (36, 7), (45, 11), (90, 13)])
def test_it_is_as_high_as_there_is_room(rows: int, lines: int) -> None:
    assert strip_height(sight(), rows) == lines
    assert len(said(sight(), lines)) == lines or not lines


def test_it_ends_in_one_sentence_of_what_is_known() -> None:
    assert said(sight())[-1] == " 2.00 s a step; ranks alike within 2 %"
    whole = said(sight(works=False))[-1]
    assert whole == " steps alike within 1 %", "how long one takes is beside the bars"
    assert said(sight(saves=(60, 160)))[-1].endswith("; a checkpoint takes 12 s")
    slow = said(sight(range(150, 201)))
    assert slow[-1] == " 3.00 s a step; rank 3 works 49 % longer since step 150"
    assert any("3 slow" in line for line in slow)


def test_what_was_slow_is_marked_and_higher_and_checkpoints_are_hatched() -> None:
    lines = said(sight(range(50, 100), saves=(150,)))
    mark = next(line for line in lines if "▲ rank 3" in line)
    top = next(line for line in lines if line.startswith(" work"))
    at = mark.index("▲")
    assert top[at + 2] == "█"
    assert top[at - 2] == " "
    assert mark[top.index("░")] in "▾ "
    plain = said(replace(sight(range(50, 100), saves=(150,)), ascii_only=True))
    assert "! rank 3" in "".join(plain)
    assert ":" in "".join(line[12:60] for line in plain[:-3])
    assert "".join(plain).isascii()


@pytest.mark.parametrize("took", [0.14, 0.5, 0.66, 3.0])
def test_of_steps_that_only_logs_tell_none_is_left_out(took: float) -> None:
    pace = Pace(range(4))
    for step in range(1, 81):
        for rank in range(4):
            pace.stepped(rank, step, NOW + took * step, exact=False)
    seen = Sight(pace, Metrics(), {"a": range(4)}, NOW + took * 80, stretch=WHOLE, tall=9)
    bars = next(line for line in said(seen) if line.startswith(" step time"))[11:72]
    assert " " not in bars.strip()
    assert len(bars.strip()) > 40


def told(*spans: float) -> Sight:
    """Four ranks whose logs alone tell of steps that took so long."""
    pace, at = Pace(range(4)), NOW
    for step, span in enumerate(spans, 1):
        at += span
        for rank in range(4):
            pace.stepped(rank, step, at, exact=False)
    return Sight(pace, Metrics(), {"a": range(4)}, at, stretch=WHOLE, tall=9)


def test_how_long_steps_take_is_said_where_only_logs_tell() -> None:
    alike = " steps alike, as far as the times of log lines tell"
    assert said(told(*[0.5] * 60))[-1] == alike
    assert said(told(*[0.42, 0.58] * 30))[-1] == alike, "lines are read up to 0.1 s late"
    for before, now, how in ((0.5, 1.5, "200 % longer"), (3.0, 2.0, "33 % shorter"), (2.0, 2.2, "alike")):
        steps = told(*[before] * 20, *[now] * 20)
        assert f" steps {how}" in said(steps)[-1]
        assert not steps.pace.slow()
    assert said(told(*[2.0] * 20, *[3.0] * 20))[-1].endswith(" since step 21")
    assert said(told(*[3.0] * 20, *[2.0] * 12, 2.5))[-1].endswith(" shorter since step 21"), "but the last"
    assert said(told(*[2.0] * 20, 30.0, *[2.0] * 9))[-1] == alike, "but for a pause"
    assert said(told(*[2.0, 3.0] * 10))[-1] == " the last 10 steps took ~2.00 s to 3.00 s"


def test_it_is_there_as_soon_as_there_are_some_steps() -> None:
    assert [strip_height(told(*[1.0] * steps), 45) for steps in (0, 1, 3, 5)] == [0, 0, 0, 11]
    assert [strip_height(told(*[60.0] * steps), 45) for steps in (1, 2, 3)] == [0, 0, 11]


def test_beside_the_bars_is_what_a_step_usually_takes() -> None:
    pace = sight(works=False).pace
    for rank in range(4):
        pace.stepped(rank, 201, NOW + 0.9)
    last = replace(sight(), pace=pace, now=NOW + 0.9)
    for height in (1, 3, 9, 11):
        assert any(" 2.00 s" in line[-20:] for line in said(last, height)), "not what the last one took"


def test_work_is_not_said_to_be_longer_than_a_step() -> None:
    seen = sight()
    for step in range(190, 201):
        for rank in range(4):
            seen.pace.worked(rank, step, 2.03)
    lines = said(seen)
    assert any(line.startswith(" work") and line.rstrip().endswith(" 2.00 s median") for line in lines)


def shown(scene: Scene, size: tuple[int, int], *keys: str) -> list[str]:
    """What is on the screen, and what is after each key."""

    async def main() -> list[str]:
        async with played(scene, size) as (app, pilot, _):
            texts = [text_of(app)]
            for key in keys:
                await pilot.press(key)
                await settled(pilot)
                texts.append(text_of(app))
            return texts

    return asyncio.run(main())


@pytest.mark.few(1)
@pytest.mark.parametrize(("size", "there"), [((140, 45), True), ((140, 29), False), ((80, 45), False)])
def test_it_is_above_the_log_where_there_is_room(size: tuple[int, int], there: bool) -> None:
    log, detail = shown(SCENES["running"], size, "3")
    assert ("a step; ranks alike" in log) == there
    assert "a step; ranks alike" not in detail


def test_where_panes_are_stacked_it_is_one_line() -> None:
    log, pace = shown(SCENES["running"], (80, 24), "6")
    line = next(line for line in log.splitlines() if line.startswith("  loss "))
    assert line.split()[2:4] == ["2.968", "work"]
    assert line.endswith(" 1.98 s")
    assert not any(line.startswith("  loss ") for line in pace.splitlines())


TABS = "2 log  3 detail  4 events  5 commands  6 pace"


def test_the_names_of_the_panes_stand_on_the_topmost_one_at_each_size() -> None:
    async def main() -> None:
        async with played(SCENES["running"], (80, 24)) as (app, pilot, _):
            for size in ((140, 45), (80, 24), (100, 30)):
                await pilot.resize_terminal(*size)
                await settled(pilot)
                assert text_of(app).count(TABS) == 1, size
            assert text_of(app).index(TABS) < text_of(app).index("─ 2 log ─")

    asyncio.run(main())


@pytest.mark.parametrize("tab", ["2", "6"])
def test_words_on_frames_are_whole_where_there_is_little_room(tab: str) -> None:
    _, text = shown(SCENES["running"], (100, 30), tab)
    words = [line for line in text.splitlines() if line.endswith("╯")]
    assert words[-1].endswith(" lines ─╯")
    assert tab == "2" or words[-2].endswith(" no step   ─╯")


def test_the_key_of_pace_makes_it_the_map_and_that_of_the_log_the_strip_again() -> None:
    strip, pace, again = shown(SCENES["running"], (140, 45), "6", "2")
    assert "gpu01   0-7 ▇▇▇" in pace
    assert "ranks alike" not in pace
    assert again == strip


def test_the_rank_that_failed_is_marked_in_the_map() -> None:
    _, pace = shown(SCENES["failed"], (140, 45), "6")
    (row,) = [line for line in pace.splitlines() if "✖" in line[46:] and line.rstrip("│ ").endswith("failed")]
    assert row[46:].split()[2] == "13"


def launched() -> Stage:
    stage = Stage(["gpu01", "gpu02"], 8, created=time.time() - 34)
    for entry in stage.manifest.nodes:
        stage.happens(entry.name, kind="supervisor_started", at=time.time() - 30, probe="auto")
        stage.happens(entry.name, kind="link", at=time.time() - 34, state="ok")
    for rank in range(8):
        stage.happens("gpu01", kind="rank_started", at=time.time() - 12, rank=rank, pid=7 + rank)
    return stage


def test_before_the_first_step_it_says_what_ranks_do() -> None:
    def imports(stage: Stage) -> None:
        for rank in range(7):
            stage.prints(rank, "FutureWarning: pynvml is deprecated\n")

    (text,) = shown(Scene(launched, imports), (140, 45))
    assert "◌ starting" in text.splitlines()[0]
    assert "starting, 34 s after the launch" in text
    assert "ranks 0-6: started 12 s ago, torch not imported  " in text
    assert "rank 7: started 12 s ago, torch not imported, no output yet" in text
    assert "ranks 8-15: waiting for the launcher" in text
    assert "FutureWarning" in text


def test_that_nobody_has_printed_anything_is_said_once() -> None:
    (text,) = shown(Scene(launched, nothing), (140, 45))
    assert "ranks 0-7: started 12 s ago, torch not imported" in text
    assert text.count("no output") == 1


def test_the_log_of_a_rank_without_output_says_what_is_true_now() -> None:
    async def main() -> None:
        async with played(Scene(launched, nothing), (140, 45)) as (app, pilot, stage):
            assert "ranks 8-15: waiting for the launcher" in text_of(app)
            stage.prints(0, "hello\n")
            for rank in range(8, 16):
                stage.happens("gpu02", kind="rank_started", rank=rank, pid=99 + rank)
            choose(app, "gpu01", 7)
            await settled(pilot)
            assert "no output" in text_of(app)
            assert "waiting for the launcher" not in text_of(app)
            assert stage.board is not None
            for rank in range(16):
                stage.board.pace.stepped(rank, 3, time.time())
            await settled(pilot)
            assert "others have printed" in text_of(app)
            assert "after the launch" not in text_of(app)

    asyncio.run(main())


def is_slow(stage: Stage) -> None:
    paces(stage, 1100, 1217, slow=(13,), since=1170)


def is_late(stage: Stage) -> None:
    paces(stage, 1100, 1217, slow=(), since=1217, ago=30.0)


def waits(stage: Stage) -> None:
    assert stage.board is not None
    at = time.time() - 61.0
    for step in range(30):
        for rank in stage.model.ranks:
            stage.board.pace.stepped(rank, step, at + 2 * step, phases=(0.05, 0.35, 1.5, 0.1))
            stage.board.pace.worked(rank, step, 0.9)


def tells_little(stage: Stage) -> None:
    stage.prints(0, "hello\n")


@pytest.mark.few(1)
@pytest.mark.parametrize("play", [goes_well, is_slow, is_late, waits, tells_little])
def test_that_nothing_is_wrong_is_said_only_where_it_is_known(play: Callable[[Stage], None]) -> None:
    (text,) = shown(Scene(healthy, play), (140, 45))
    assert ("no stall · no slow rank" in text) == (play is goes_well)
    assert ("no stall" in text) == (play in (goes_well, waits))
