"""Themes: every text can be read, states are told apart, and a person's own files are read as they change."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
from collections.abc import Callable, Coroutine, Iterator
from math import dist
from pathlib import Path
from typing import Any

import pytest
from textual.app import App, ComposeResult
from textual.color import Color
from textual.pilot import Pilot
from textual.theme import Theme
from textual.widgets import Static

from cockpit import config, paths
from cockpit.core.pace.phases import NAMES as NAMES_OF_PHASES
from cockpit.core.run.model import Rank, RankState
from cockpit.errors import CockpitError
from cockpit.tui.look import themes
from cockpit.tui.look.glyphs import ASCII, STATES, UNICODE, state_name
from cockpit.tui.look.themes import SHIPPED, Themes
from tests.tui.scenes import strips_of

DOCS = Path(__file__).parent.parent.parent / "docs" / "themes.md"
FILES = sorted(SHIPPED.glob("*.toml"))
NAMES = [path.stem for path in FILES]
COLOURED = [name for name in NAMES if name != "ansi"]
OURS = {
    name if table == "ui" else f"{table}-{name}"
    for table, names in themes.TABLES.items()
    if table != "base"
    for name in names
}
CELLS = tuple(f"pace-{name}" for name in themes.TABLES["pace"])
"""Cells of ranks × time, from *no step* to *twice as long*."""

PHASES = tuple(f"phase-{name}" for name in themes.TABLES["phase"])
"""Cells of the phases of a step."""

PROFILE = tuple(f"profile-{name}" for name in themes.TABLES["profile"])
"""Cells of where a profiled step goes."""

BEHIND = ("frame", "notice", "stall", *CELLS, *PROFILE, "phase-wait", "phase-other")
"""Variables that no text is drawn in."""


def shipped(name: str) -> Theme:
    return themes.read(SHIPPED / f"{name}.toml")


def linear(colour: Color) -> list[float]:
    """A colour's parts as amounts of light (sRGB, IEC 61966-2-1)."""
    parts = [part / 255 for part in colour.rgb]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def contrast(one: Color, other: Color) -> float:
    """The contrast ratio of WCAG 2.2, from 1 to 21."""
    dark, light = sorted(
        sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))
        for colour in (one, other)
    )
    return (light + 0.05) / (dark + 0.05)


# Machado, Oliveira, Fernandes 2009, "A Physiologically-based Model for Simulation of Color Vision
# Deficiency", severity 1.0.
EYES = {
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
    "all colours": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
}


def seen(colour: Color, eyes: str) -> tuple[float, float, float]:
    """How eyes see a colour, in CIE L*a*b* (D65)."""
    light = linear(colour)
    r, g, b = (min(1.0, max(0.0, sum(a * b for a, b in zip(row, light, strict=True)))) for row in EYES[eyes])
    x, y, z = (
        value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116
        for value in (
            (0.4124564 * r + 0.3575761 * g + 0.1804375 * b) / 0.95047,
            0.2126729 * r + 0.7151522 * g + 0.0721750 * b,
            (0.0193339 * r + 0.1191920 * g + 0.9503041 * b) / 1.08883,
        )
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def test_there_is_one_for_everybody() -> None:
    assert NAMES == ["ansi", "colour-blind", "dark", "high-contrast", "light"]
    assert {name: (shipped(name).dark, shipped(name).ansi) for name in NAMES} == {
        "ansi": (True, True),
        "colour-blind": (True, False),
        "dark": (True, False),
        "high-contrast": (True, False),
        "light": (False, False),
    }


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_a_shipped_theme_leaves_nothing_out(path: Path) -> None:
    data = config.read(path, themes.SEE)
    given = {table: set(data[table]) for table in themes.TABLES}
    assert given == {table: set(names) for table, names in themes.TABLES.items()}
    assert set(shipped(path.stem).variables) >= OURS
    assert config.read(path, themes.SEE, themes._table) == data


@pytest.mark.parametrize("name", COLOURED)
def test_every_text_can_be_read_on_everything_behind_it(name: str) -> None:
    theme = shipped(name)
    base = {part: Color.parse(getattr(theme, part)) for part in themes.TABLES["base"]}
    texts = {part: colour for part, colour in base.items() if part not in ("background", "surface", "panel")}
    texts |= {part: Color.parse(theme.variables[part]) for part in OURS if part not in BEHIND}
    behind = {part: base[part] for part in ("background", "surface", "panel")}
    behind |= {part: Color.parse(theme.variables[part]) for part in ("notice", "stall")}
    behind["the line with the cursor"] = base["surface"].blend(base["foreground"], 0.12)
    least = 7.0 if name == "high-contrast" else 4.5
    weak = [
        f"{text} on {ground}: {ratio:.2f}"
        for (text, one), (ground, other) in itertools.product(texts.items(), behind.items())
        if (ratio := contrast(one, other)) < least
    ]
    assert weak == []


@pytest.mark.parametrize("eyes", EYES)
def test_no_two_states_of_the_colour_blind_theme_look_alike(eyes: str) -> None:
    colours = {
        name: seen(Color.parse(shipped("colour-blind").variables[f"rank-{name}"]), eyes)
        for name in themes.TABLES["rank"]
        if name != "stale"  # has waiting's colour: neither tells of now
    }
    alike = [
        f"{one} and {other}: {distance:.0f}"
        for one, other in itertools.combinations(colours, 2)
        # Twenty times what is told apart side by side.
        if (distance := sum((a - b) ** 2 for a, b in zip(colours[one], colours[other], strict=True)) ** 0.5)
        < 20
    ]
    assert alike == []


@pytest.mark.parametrize("name", COLOURED)
def test_cells_of_a_map_can_be_told_apart(name: str) -> None:
    cells = [Color.parse(shipped(name).variables[cell]) for cell in CELLS]
    for eyes in EYES:
        places = [seen(cell, eyes) for cell in cells]
        near = [
            f"{CELLS[at]} and {CELLS[at + 1]}, {eyes}: {distance:.0f}"
            for at, (one, other) in enumerate(itertools.pairwise(places))
            if (distance := sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5) < 10
        ]
        assert near == []


@pytest.mark.parametrize("parts", [PHASES, PROFILE], ids=["phases", "profile"])
@pytest.mark.parametrize("name", COLOURED)
def test_parts_of_a_step_can_be_told_apart(name: str, parts: tuple[str, ...]) -> None:
    theme = shipped(name)
    colours = {part: Color.parse(theme.variables[part]) for part in parts}
    colours["background"] = Color.parse(str(theme.background))
    # Any two may be side by side: what is not known of a rank is left out.
    least = 20 if name == "colour-blind" else 16
    near = [
        f"{one} and {other}, {eyes}: {distance:.0f}"
        for eyes in EYES
        for one, other in itertools.combinations(colours, 2)
        if (distance := dist(seen(colours[one], eyes), seen(colours[other], eyes))) < least
    ]
    assert near == []


def test_each_phase_has_a_colour() -> None:
    assert tuple(themes.TABLES["phase"]) == NAMES_OF_PHASES
    for parts in (PHASES, PROFILE):
        assert len({shipped("ansi").variables[part] for part in parts}) == len(parts)


def test_the_terminals_own_theme_has_no_colour_of_ours() -> None:
    theme = shipped("ansi")
    colours = [getattr(theme, part) for part in themes.TABLES["base"]]
    colours += [colour for name, colour in theme.variables.items() if name in {*OURS, *themes.SCROLLBARS}]
    assert [colour for colour in colours if not colour.startswith("ansi_")] == []


@pytest.fixture
def folder() -> Path:
    """The folder of a person's own themes."""
    path = paths.themes()
    path.mkdir(parents=True)
    return path


CASES = {
    "[base]\nprimary = 'nocolour'\n": ["key 'base.primary': must be a colour, not 'nocolour'; SEE"],
    "[rank]\nfailed = 1\n": ["key 'rank.failed': must be a colour, not 1; SEE"],
    "[rank]\nfaild = 'red'\n": ["key 'rank.faild': unknown; did you mean 'failed'?"],
    "[ui]\nzzz = 'red'\n": ["key 'ui.zzz': unknown; known are key, dim, frame, notice, stall"],
    "[rnak]\n": ["key 'rnak': unknown; did you mean 'rank'?"],
    "rank = 'red'\n": ["key 'rank': must be a table: [rank], not 'red'; SEE"],
    "dark = 'no'\n": ["key 'dark': must be true or false, not 'no'; SEE"],
    "dark = 1\n[log]\ntime = ''\n": [
        "key 'dark': must be true or false, not 1; SEE",
        "key 'log.time': must be a colour, not ''; SEE",
    ],
}


@pytest.mark.parametrize("text", CASES)
def test_all_that_is_wrong_with_a_file_is_said_at_once(text: str, folder: Path) -> None:
    path = folder / "bad.toml"
    path.write_text(text)
    with pytest.raises(CockpitError) as caught:
        themes.read(path)
    wanted = [f"{path}: {line}" for line in CASES[text]]
    assert str(caught.value).replace("see: cockpit help themes", "SEE").splitlines() == wanted


def test_a_file_that_cannot_be_read_is_said_to_be(folder: Path) -> None:
    (folder / "bytes.toml").write_bytes(b"\xff")
    (folder / "folder.toml").mkdir()
    (folder / "half.toml").write_text("dark =\n")
    said = {
        "bytes": ", byte 0: is not UTF-8: inv",
        "folder": ": cannot be read: ",
        "half": ":1: is not TOML: inv",
    }
    for name, what in said.items():
        with pytest.raises(CockpitError, match=re.escape(f"{name}.toml{what}")):
            themes.read(folder / f"{name}.toml")


@pytest.mark.parametrize(
    ("text", "like"),
    [("", "dark"), ("dark = false\n", "light"), ("ansi = true\n", "ansi")],
)
def test_an_empty_theme_is_like_the_shipped_one_of_its_kind(text: str, like: str, folder: Path) -> None:
    (folder / "mine.toml").write_text(text)
    theme, other = themes.read(folder / "mine.toml"), shipped(like)
    parts = [*themes.TABLES["base"], "dark", "ansi"]
    assert [getattr(theme, part) for part in parts] == [getattr(other, part) for part in parts]
    assert set(theme.variables) == set(other.variables)


def test_what_is_left_out_follows_from_what_is_there(folder: Path) -> None:
    (folder / "mine.toml").write_text(
        "[base]\nbackground = '#101010'\nforeground = '#f0f0f0'\nerror = '#ff0000'\nsuccess = '#00ff00'\n"
        "[rank]\ndone = '#0000ff'\n[ui]\ndim = '#999999'\n"
    )
    theme = themes.read(folder / "mine.toml")
    got = {name: theme.variables[name] for name in ("rank-failed", "rank-running", "rank-done", "log-time")}
    assert got == {
        "rank-failed": "#ff0000",
        "rank-running": "#00ff00",
        "rank-done": "#0000ff",
        "log-time": "#999999",
    }
    assert theme.surface == "#101010"
    assert theme.variables["scrollbar-background"] == "#101010"
    assert theme.variables["notice"] == Color.parse("#101010").blend(Color.parse("#ff0000"), 0.25).hex
    assert theme.warning == shipped("dark").warning


def test_the_theme_of_the_docs_can_be_read_well(folder: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    (folder / "nord.toml").write_text(example)
    theme = themes.read(folder / "nord.toml")
    background = Color.parse(str(theme.background))
    ratios = {name: contrast(background, Color.parse(theme.variables[name])) for name in OURS - {*BEHIND}}
    assert [name for name, ratio in ratios.items() if ratio < 4.5] == []


def test_the_docs_name_every_colour() -> None:
    named = set(re.findall(r"`([\w-]+)`", DOCS.read_text()))
    assert {name for names in themes.TABLES.values() for name in names} <= named
    assert {*NAMES, *themes.FLAGS} <= named


class Bench(App[None]):
    """An app of one line in the colour of a failed rank."""

    CSS = "Static { color: $rank-failed; background: $notice; border: round $frame; }"

    def __init__(self) -> None:
        super().__init__()
        self.themes = Themes()
        self.problems: list[str] = []

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.defaults()

    def compose(self) -> ComposeResult:
        yield Static("failed", markup=False)

    def on_mount(self) -> None:
        self.look()

    def look(self) -> None:
        """Read what has changed."""
        self.problems = self.themes.refresh(self)

    @property
    def colour(self) -> str:
        """The colour of the line as it is drawn."""
        return self.query_one(Static).styles.color.hex


Script = Callable[[Pilot[None], Bench], Coroutine[Any, Any, None]]


def play(script: Script) -> None:
    """Run an app through a script."""

    async def main() -> None:
        app = Bench()
        async with app.run_test(size=(40, 6)) as pilot:
            await script(pilot, app)

    asyncio.run(main())


@pytest.fixture
def save(folder: Path) -> Callable[[str, str], Path]:
    """Save a theme of a person's own; each time is later than the one before."""
    times: Iterator[int] = itertools.count(1_700_000_000)

    def write(name: str, text: str) -> Path:
        path = folder / f"{name}.toml"
        path.write_text(text)
        at = next(times)
        os.utime(path, (at, at))
        return path

    return write


Save = Callable[[str, str], Path]


@pytest.mark.parametrize("name", NAMES)
def test_an_app_is_drawn_in_each(name: str) -> None:
    async def script(pilot: Pilot[None], app: Bench) -> None:
        assert app.problems == []
        assert app.themes.names == NAMES
        assert app.themes.use(app, name) == ""
        await pilot.pause()
        assert app.colour == Color.parse(shipped(name).variables["rank-failed"]).hex

    play(script)


@pytest.mark.parametrize("name", NAMES)
def test_text_that_is_selected_can_be_read(name: str) -> None:
    async def script(pilot: Pilot[None], app: Bench) -> None:
        app.themes.use(app, name)
        await pilot.pause()
        style = app.screen.get_component_rich_style("screen--selection")
        assert style.color is not None
        assert style.bgcolor is not None
        if name == "ansi":
            assert (style.color.name, style.bgcolor.name) == ("color(0)", "color(6)"), "black on cyan"
            return
        text, behind = (Color(*colour.get_truecolor()) for colour in (style.color, style.bgcolor))
        assert contrast(text, behind) >= (7.0 if name == "high-contrast" else 4.5)
        assert behind.hex != Color.parse(str(shipped(name).background)).hex

    play(script)


def test_a_theme_that_is_not_there_is_said_and_the_default_is_used() -> None:
    async def script(pilot: Pilot[None], app: Bench) -> None:
        assert app.themes.use(app, "drak") == "no theme 'drak', did you mean 'dark'?"
        assert app.theme == "dark"
        assert app.themes.use(app, "x") == f"no theme 'x', known are {', '.join(NAMES)}"
        # One of Textual's own: states have no colours in it.
        assert app.themes.use(app, "monokai").startswith("no theme 'monokai'")

    play(script)


def test_a_saved_file_changes_the_app_and_a_wrong_one_is_said_once(save: Save) -> None:
    save("mine", "[rank]\nfailed = '#ff0001'\n")

    async def script(pilot: Pilot[None], app: Bench) -> None:
        app.themes.use(app, "mine")
        await pilot.pause()
        assert app.colour == "#FF0001"
        save("mine", "[rank]\nfailed = '#ff0002'\n")
        app.look()
        await pilot.pause()
        assert (app.colour, app.problems) == ("#FF0002", [])
        path = save("mine", "[rank]\nfailed = 'rot'\n")
        app.look()
        await pilot.pause()
        wanted = f"{path}: key 'rank.failed': must be a colour, not 'rot'; see: cockpit help themes"
        assert (app.colour, app.problems) == ("#FF0002", [wanted])
        app.look()
        assert app.problems == []

    play(script)


def test_a_file_with_the_name_of_a_shipped_theme_takes_its_place_while_it_is_there(save: Save) -> None:
    path = save("dark", "[rank]\nfailed = '#ff0003'\n")

    async def script(pilot: Pilot[None], app: Bench) -> None:
        app.themes.use(app, "dark")
        await pilot.pause()
        assert app.colour == "#FF0003"
        path.unlink()
        app.look()
        await pilot.pause()
        assert app.colour == Color.parse(shipped("dark").variables["rank-failed"]).hex

    play(script)


def test_a_wrong_file_with_the_name_of_a_shipped_theme_leaves_that_alone(save: Save) -> None:
    save("dark", "[rank]\nfailed = 'rot'\n")

    async def script(pilot: Pilot[None], app: Bench) -> None:
        assert len(app.problems) == 1
        assert app.themes.use(app, "dark") == ""
        await pilot.pause()
        assert app.colour == Color.parse(shipped("dark").variables["rank-failed"]).hex

    play(script)


def test_a_theme_whose_file_has_gone_can_no_longer_be_chosen(save: Save) -> None:
    path = save("mine", "")

    async def script(pilot: Pilot[None], app: Bench) -> None:
        assert "mine" in app.themes.names
        path.unlink()
        app.look()
        assert "mine" not in app.themes.names
        assert "mine" not in app.available_themes

    play(script)


def test_the_theme_in_use_stays_when_its_file_goes(save: Save) -> None:
    path = save("mine", "[rank]\nfailed = '#ff0004'\n")

    async def script(pilot: Pilot[None], app: Bench) -> None:
        app.themes.use(app, "mine")
        path.unlink()
        app.look()
        await pilot.pause()
        assert (app.theme, app.colour) == ("mine", "#FF0004")

    play(script)


def test_without_colours_the_app_is_grey_and_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def script(pilot: Pilot[None], app: Bench) -> None:
        assert "ansi" not in app.themes.names
        assert (
            app.themes.use(app, "ansi") == "theme 'ansi' is the terminal's own colours, and NO_COLOR is set"
        )
        for name in app.themes.names:
            app.themes.use(app, name)
            await pilot.pause()
            segments = [s for strip in strips_of(app) for s in strip]
            (style,) = {s.style for s in segments if s.text.strip() == "failed"}
            assert style is not None
            assert style.color is not None
            assert style.bgcolor is not None
            text, ground = (Color.from_rich_color(c) for c in (style.color, style.bgcolor))
            assert len(set(text.rgb)) == len(set(ground.rgb)) == 1
            assert contrast(text, ground) > 4

    play(script)


RANKS = {
    "waiting": Rank(0, "n"),
    "starting": Rank(0, "n", RankState.STARTING),
    "running": Rank(0, "n", RankState.RUNNING),
    "done": Rank(0, "n", RankState.EXITED, code=0),
    "failed": Rank(0, "n", RankState.EXITED, code=1),
    "killed": Rank(0, "n", RankState.KILLED, signal=9),
    "lost": Rank(0, "n", RankState.LOST),
}


def test_every_state_has_a_colour() -> None:
    assert [state_name(rank) for rank in RANKS.values()] == list(RANKS) == list(STATES)
    assert {f"rank-{state}" for state in STATES} <= OURS


def test_the_docs_show_the_signs() -> None:
    lines = DOCS.read_text().splitlines()
    for title, glyphs in (("sign", UNICODE), ("in ASCII", ASCII)):
        signs = [glyphs.of(rank) for rank in RANKS.values()]
        assert f"| {title} | {' | '.join(f'`{sign}`' for sign in signs)} |" in lines
