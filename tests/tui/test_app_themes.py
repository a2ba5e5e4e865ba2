"""Themes in the real app: those of the settings, and a person's own while they are edited."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.color import Color
from textual.pilot import Pilot

from cockpit import paths
from cockpit.config import Config
from cockpit.config import load as load_config
from cockpit.tui.app import CockpitApp
from cockpit.tui.logs.view import LogView
from cockpit.tui.look import themes
from cockpit.tui.panes.dialogs import Question
from cockpit.tui.panes.finder import Finder
from cockpit.tui.run.screen import RunScreen
from tests.tui.scenes import SCENES, notes, played, settled, strips_of, text_of, until

SIZE = (140, 45)
NAMES = sorted(path.stem for path in themes.SHIPPED.glob("*.toml"))


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def save(name: str, text: str) -> Path:
    """Write a theme of a person's own."""
    folder = paths.themes()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def notices(app: CockpitApp) -> list[str]:
    """What the app has said about themes and still shows."""
    return [each.message for each in notes(app) if each.title == "theme"]


def running(app: CockpitApp) -> Color:
    """The colour that running ranks are drawn in."""
    for strip in strips_of(app):
        if "gpu01 " not in strip.text:
            continue
        for segment in strip:
            if segment.text.startswith("●") and segment.style is not None and segment.style.color is not None:
                return Color.from_rich_color(segment.style.color)
    raise AssertionError("no rank runs")


def config(theme: str) -> Config:
    return Config(theme=theme, ascii=False)


@pytest.mark.few(2, "campaign")
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_screen_is_drawn_in_every_theme(name: str) -> None:
    above = {"question_mark": Finder, "colon": Finder, "x": Question}
    wanted = Color.parse(themes.read(themes.SHIPPED / f"{name}.toml").variables["rank-running"])

    async def test() -> None:
        async with played(SCENES["running"], SIZE, config(name)) as (app, pilot, _):
            assert app.theme == name
            assert running(app).rich_color == wanted.rich_color
            for key, kind in above.items():
                await pilot.press(key)
                await settled(pilot)
                assert isinstance(app.screen, kind)
                await pilot.press("escape")
            assert app.theme == name
            assert notices(app) == []

    run(test())


@pytest.mark.few(3)
@pytest.mark.parametrize("scene", ["failed", "cannot-start"])
@pytest.mark.parametrize("name", NAMES)
def test_every_other_screen_is_too(name: str, scene: str) -> None:
    async def test() -> None:
        async with played(SCENES[scene], SIZE, config(name)) as (app, _, _):
            assert app.theme == name
            assert notices(app) == []

    run(test())


def test_a_theme_that_is_not_there_is_said_once() -> None:
    async def test() -> None:
        async with played(SCENES["running"], SIZE, config("drak")) as (app, pilot, _):
            await looked(pilot, 1)
            assert app.theme == "dark"
            assert notices(app) == ["no theme 'drak', did you mean 'dark'?"]

    run(test())


def test_a_theme_is_drawn_anew_when_its_file_is_saved() -> None:
    save("mine", "[rank]\nrunning = '#ff0001'\n")

    async def test() -> None:
        async with played(SCENES["running"], SIZE, config("mine")) as (app, pilot, _):
            assert running(app).hex == "#FF0001"
            save("mine", "[rank]\nrunning = '#00ff02'\n")
            await changed(pilot, app, "#00FF02")
            assert notices(app) == []

    run(test())


@pytest.mark.slow
def test_a_wrong_file_is_said_once_and_drawn_when_it_is_right() -> None:
    path = save("mine", "[rank]\nrunning = 'rot'\n")

    async def test() -> None:
        async with played(SCENES["running"], SIZE, config("mine")) as (app, pilot, _):
            for _ in range(3):
                await looked(pilot, 1)
            assert app.theme == "dark"
            assert notices(app) == [
                f"{path}: key 'rank.running': must be a colour, not 'rot'; see: cockpit help themes"
            ]
            save("mine", "[rank]\nrunning = '#00ff03'\n")
            await changed(pilot, app, "#00FF03")
            assert app.theme == "mine"
            assert len(notices(app)) == 1

    run(test())


async def looked(pilot: Pilot[Any], times: int) -> None:
    """Wait for so many of the app's own looks at its files."""
    looks: list[object] = []
    refresh = themes.Themes.refresh

    def noted(self: themes.Themes, app: Any) -> list[str]:
        looks.append(app)
        return refresh(self, app)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(themes.Themes, "refresh", noted)
        await until(pilot, lambda: len(looks) >= times, "it has looked")


async def changed(pilot: Pilot[Any], app: CockpitApp, colour: str) -> None:
    """Wait for the app's own look at its files."""
    await until(pilot, lambda: running(app).hex == colour, f"drawn in {colour}")


async def remember(app: CockpitApp, pilot: Pilot[Any]) -> str:
    """Choose it in the palette; return what is said."""
    before = len(notes(app))
    assert isinstance(app.screen, RunScreen)
    app.screen.action_command("remember")
    await until(pilot, lambda: len(notes(app)) > before, "where it was saved")
    return notes(app)[-1].message


def test_a_log_stays_where_it_opens_if_that_is_wanted() -> None:
    async def main() -> None:
        config = Config(follow=False, fold=False, units="decimal")
        async with played(SCENES["running"], SIZE, config) as (app, pilot, _):
            log = app.screen.query_one(LogView)
            await until(pilot, lambda: not log.following, "it stays")
            assert not log.folds
            await pilot.press("3")
            await until(pilot, lambda: " GB" in text_of(app), "sizes in GB")
            assert "GiB" not in text_of(app)

    run(main())


def test_what_was_chosen_is_remembered_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def main() -> None:
        async with played(SCENES["running"], SIZE, notices=True) as (app, pilot, _):
            app.theme = "light"
            await pilot.press("t", "v", "b", "f", "a", "u")
            await remember(app, pilot)
            log = Config("light", timestamps=False, wrap=True, follow=False, fold=False)
            assert load_config() == replace(log, units="decimal", bell=False)
            assert await remember(app, pilot) == "nothing to save"
            # Of a project's own it says so, and leaves the file alone.
            (tmp_path / "cockpit.toml").write_text('theme = "dark"\n')
            app.theme = "high-contrast"
            assert "overrides theme" in await remember(app, pilot)
            assert (tmp_path / "cockpit.toml").read_text() == 'theme = "dark"\n'

    run(main())


def test_what_nobody_changed_is_not_saved() -> None:
    async def main() -> None:
        project = Config("light", wrap=True)
        async with played(SCENES["running"], SIZE, project, notices=True) as (app, pilot, _):
            assert await remember(app, pilot) == "nothing to save"
            assert not paths.config().exists()
            await pilot.press("b")
            assert "bell" in await remember(app, pilot)
            assert paths.config().read_text() == "bell = false\n"

    run(main())
