"""Whatever a node sends, within the bounds of its definitions or not: the app goes on, and shows text."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cockpit.base.answers import EnvironAnswer
from cockpit.base.events import NodeLost, Planned, RankStarted
from cockpit.core.logs.metrics import Metrics
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.core.run.trends import Trends
from cockpit.core.text import RemoteText
from cockpit.core.time_text import span_text
from cockpit.engine.records.manifest import NodeEntry
from cockpit.tui.look.units import BINARY, clock_text, day_text, number_text
from cockpit.tui.run.detail import detail_lines
from cockpit.tui.run.detail_paper import About
from cockpit.tui.run.screen import RunScreen
from tests.hostile.app import PANES, SIZE, bad_characters, drive, drive_stacks, lives
from tests.hostile.app_cases import EVIL, FACTS, MUTATIONS, cases, dumps
from tests.tui.scenes import Scene, choose, played, settled, text_of, until
from tests.tui.stage import Stage

COUNT = 168


@pytest.mark.slow
def test_every_part_of_what_a_node_sends_in_every_way() -> None:
    done = asyncio.run(drive(cases(8, COUNT)))
    assert done.total() == COUNT
    assert {tuple(name.split("/")) for name in done} == {
        (what, mutation) for what in (*FACTS, "log", "environ") for mutation in MUTATIONS
    }


def test_cases_are_the_same_for_a_seed() -> None:
    assert [case.name for case in cases(1, 50)] == [case.name for case in cases(1, 50)]


@pytest.mark.slow
def test_stacks_of_every_kind() -> None:
    found = list(dumps(11, 32))
    assert sum(bool(dump.threads) for dump in found) > 10, "hardly any dump comes through the gate"
    assert sum(dump.deputy is not None for dump in found) > 5
    assert sum(dump.lock is not None for dump in found) > 5
    assert asyncio.run(drive_stacks(11, 32)) == 32


@pytest.mark.slow
@pytest.mark.usefixtures("without_the_last_wall")
def test_a_negative_control(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the sanitiser and the last wall the same cases are found out."""
    monkeypatch.setattr("cockpit.core.text._clean", lambda text, colour: text)
    with pytest.raises(AssertionError):
        asyncio.run(drive(cases(8, 16)))


NAMES = ["gpu01[/x]", "[@click=app.quit]gpu", "\x1b]0;title\x07", "\u202egpu", "e" + "\u0301" * 60, "宽" * 20]


@pytest.mark.slow
def test_names_and_plans_of_a_recorded_run() -> None:
    """A run that was taken over may be named and planned in any way."""

    def stage() -> Stage:
        plans = [
            {
                "node": name,
                "cwd": evil,
                "setup": evil,
                "argv": [evil, "train.py"],
                "env": {evil or "A": evil, "B": evil},
                "slots": [10**9, -1],
            }
            for name, evil in zip(NAMES, EVIL[:6], strict=False)
        ]
        made = Stage(NAMES, 2, plans=plans, program=list(EVIL), cwd=EVIL[5])
        made.runs()
        for entry in made.manifest.nodes:
            entry.facts.update(dict(zip(("python", "torch", "cores"), EVIL, strict=False)))
        return made

    async def main() -> None:
        async with played(Scene(stage, lambda _: None), SIZE) as (app, pilot, made):
            screen = app.screen
            assert isinstance(screen, RunScreen)
            made.fails_first(1, cause="".join(EVIL[:12]))
            for key, pane in PANES.items():
                await pilot.press(key)
                await until(pilot, lambda pane=pane: screen.on_the_right == pane, key)  # type: ignore[misc]
                for entry in made.manifest.nodes:
                    choose(app, entry.name, None)
                    await settled(pilot)
                    lives(app, f"{entry.name!a}: {pane}")
            for key in ("x", "escape", "question_mark", "escape", "colon", "escape", "y", "Y", "F"):
                await pilot.press(key)
                await pilot.pause()
                lives(app, key)

    asyncio.run(main())


@pytest.mark.usefixtures("without_the_last_wall")
def test_how_a_run_ended_is_text_whatever_its_nodes_say() -> None:
    evil = "\x9b31m\x85" + "".join(EVIL)

    async def main() -> None:
        scene = Scene(lambda: Stage(["gpu01", "gpu02"], 2))
        async with played(scene, (400, 40)) as (app, pilot, made):
            made.runs()
            made.told(Event(time.time(), "gpu01", NodeLost(f"lost {evil}")))
            for rank in (2, 3):
                made.happens("gpu02", kind="rank_exited", rank=rank, code=0, signal=None)
            for node in ("gpu01", "gpu02"):
                made.happens(node, kind="ended")
            await until(pilot, lambda: "ranks 2-3 exited 0; ranks 0-1 lost: lost " in text_of(app), "the end")
            assert "<U+009B>31m<U+0085>" in text_of(app)
            lives(app, "the end")

    asyncio.run(main())


# What draws numbers and texts, without an app: many more values.

NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True), st.integers(min_value=-(1 << 63), max_value=1 << 63)
)


WORDS = (span_text, clock_text, day_text, number_text, BINARY.text)


@given(NUMBERS)
@pytest.mark.parametrize(
    "words", [span_text, clock_text, day_text, number_text, BINARY.text], ids=lambda f: f.__name__
)
def test_any_number_has_words(words: Callable[[Any], str], number: float) -> None:
    assert len(words(number)) < 400


@given(NUMBERS, NUMBERS)
def test_any_part_of_anything_has_words(part: float, whole: float) -> None:
    assert "/" in BINARY.part(part, whole)


@given(st.dictionaries(st.text(), st.text(max_size=200), max_size=8), st.integers(1, 200), st.booleans())
@example({"A": "\u0600\u08e2\U000110bd"}, 80, False)
def test_any_environment_is_lines_of_harmless_text(got: dict[str, str], width: int, ascii_only: bool) -> None:
    got = json.loads(json.dumps(got))
    model = RunModel()
    model.apply(Event(0.0, "", Planned({"gpu01": (0,)})))
    model.apply(Event(0.0, "gpu01", RankStarted(0, pid=1)))
    entry = NodeEntry("gpu01", "/tmp/x", [0], host="gpu01")
    sight = About("gpu01", 0, model, Trends(), Metrics(), entry, {}, EnvironAnswer(got, 3), 10.0)
    lines = [line.text for line in detail_lines(sight, width, ascii_only)]
    assert list(bad_characters("\n".join(lines))) == []
    for name in got:
        assert not name or RemoteText.of(name).shown(limit=200)[:3] in "".join(lines)
