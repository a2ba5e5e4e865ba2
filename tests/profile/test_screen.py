"""The profile screen over real training: asked for by a key, taken, read, fetched, shown again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cockpit.config import Config
from cockpit.engine.records.folder import RunFolder
from cockpit.tui.app import CockpitApp
from cockpit.tui.profile.form import ProfileForm
from cockpit.tui.profile.screen import ProfileScreen
from cockpit.tui.run.purpose import Joining
from cockpit.tui.run.screen import RunScreen
from tests import needs
from tests.profile.training import training
from tests.tui.scenes import text_of, until

pytestmark = [pytest.mark.slow, pytest.mark.launch]


@pytest.mark.long
def test_a_key_takes_a_profile_of_real_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs.require_module("torch")
    with training(tmp_path, kind="gloo") as ranks:
        monkeypatch.setenv("XDG_STATE_HOME", str(ranks.verbs.state))
        asyncio.run(_watched())
        one = ranks.collection(1)
        assert one.missing == {}
        assert [len(result.summary.steps) for result in one.results.values() if result.summary] == [5, 5]
        stacks = ranks.collection(2)
        assert stacks.kind == "cpu"
        assert all("train.py" in result.folded for result in stacks.results.values())
        for rank in (0, 1):
            ranks.steps_on(rank)


async def _watched() -> None:
    app = CockpitApp(Joining(RunFolder.find("r")), Config(ascii=False))
    async with app.run_test(size=(140, 45)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "the run's screen")
        await until(pilot, lambda: "links ok" in text_of(app), "its links")
        await pilot.press("P")
        await until(pilot, lambda: isinstance(app.screen, ProfileForm), "the question")
        await until(pilot, lambda: "5 steps of ranks 0-1" in text_of(app), "what it would meet")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ProfileScreen), "the screen")
        screen = app.screen
        assert isinstance(screen, ProfileScreen)
        await until(pilot, lambda: screen.taking is None and screen.settled, "it is over")
        await until(pilot, lambda: "2 ranks" in text_of(app), "both are here")
        print(text_of(app))
        await pilot.press("c")
        await until(pilot, lambda: "2 of 2 files here" in text_of(app), "the traces")
        await pilot.press("P")
        await until(pilot, lambda: isinstance(app.screen, ProfileForm), "the question again")
        await until(pilot, lambda: "or open" in text_of(app) and "5 steps" in text_of(app), "the earlier one")
        await pilot.press("right", "down", "down", "left")
        await until(pilot, lambda: "of ranks 0-1, by py-spy" in text_of(app), "stacks")
        await pilot.press("enter")
        await until(pilot, lambda: screen.taking is not None, "it begins")
        await until(pilot, lambda: screen.taking is None and screen.settled, "it is over")
        await until(pilot, lambda: "train.py" in text_of(app), "where ranks are")
        print(text_of(app))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "the run")
        await pilot.press("q")
        await until(pilot, lambda: app.return_code is not None, "left")
