"""On a terminal of 256 colours every theme stays as calm, and can be read as well, as it was made."""

from __future__ import annotations

from math import hypot

import pytest
from rich.color import Color as RichColor
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.color import Color, rgb_to_lab

from cockpit.config import Config
from cockpit.tui.base_app import BaseApp
from cockpit.tui.look import themes
from cockpit.tui.look.filters import FewColours
from tests.tui.test_themes import BEHIND, COLOURED, OURS, contrast, shipped


class Terminal:
    """What a terminal makes of the app's colours."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, term: str, colours: str = "") -> None:
        monkeypatch.setenv("TERM", term)
        monkeypatch.setenv("COLORTERM", colours)
        self.app = BaseApp(Config(ascii=False))

    def style(self, style: Style) -> Style:
        """A style after the app's filters."""
        segments = [Segment("x", style)]
        for each in self.app.get_line_filters():
            segments = each.apply(segments, Color(0, 0, 0))
        assert segments[0].style is not None
        return segments[0].style

    def shown(self, text: str, behind: str) -> tuple[Color, Color]:
        """A text and what is behind it, as they are lit on the screen."""
        style = self.style(Style.from_color(_rich(text), _rich(behind)))
        return _lit(style.color), _lit(style.bgcolor)


def _rich(colour: str) -> RichColor:
    return Color.parse(colour).rich_color


def _lit(colour: RichColor | None) -> Color:
    assert colour is not None
    return Color(*colour.downgrade(ColorSystem.EIGHT_BIT).get_truecolor())


def chroma(colour: Color) -> float:
    """How colourful it is; greys are 0."""
    lab = rgb_to_lab(colour)
    return hypot(lab.a, lab.b)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(monkeypatch, "xterm-256color")


def grounds(name: str) -> dict[str, str]:
    """What is behind texts."""
    theme = shipped(name)
    surface, foreground = Color.parse(str(theme.surface)), Color.parse(str(theme.foreground))
    return {
        "background": str(theme.background),
        "panel": str(theme.panel),
        "notice": theme.variables["notice"],
        "selection": theme.variables["screen-selection-background"],
        "the line with the cursor": surface.blend(foreground, 0.12).hex,
    }


@pytest.mark.parametrize("name", COLOURED)
def test_no_bar_becomes_more_colourful(name: str, terminal: Terminal) -> None:
    for ground, colour in grounds(name).items():
        _, lit = terminal.shown(str(shipped(name).foreground), colour)
        assert chroma(lit) <= chroma(Color.parse(colour)) + 4, f"{ground}: {colour} is drawn as {lit.hex}"


@pytest.mark.parametrize("name", COLOURED)
def test_every_text_can_still_be_read(name: str, terminal: Terminal) -> None:
    least = 7.0 if name == "high-contrast" else 4.5
    colours = {"foreground": str(shipped(name).foreground)}
    colours |= {part: shipped(name).variables[part] for part in OURS if part not in BEHIND}
    weak = [
        f"{text} on {ground}: {ratio:.2f}"
        for text, colour in colours.items()
        for ground, behind in grounds(name).items()
        if ground != "selection"
        if (ratio := contrast(*terminal.shown(colour, behind))) < least
    ]
    assert weak == []
    selected = terminal.shown(colours["foreground"], grounds(name)["selection"])
    assert contrast(*selected) >= least


@pytest.mark.parametrize("name", COLOURED)
def test_bars_and_states_stay_apart(name: str, terminal: Terminal) -> None:
    theme = shipped(name)
    background = str(theme.background)
    lit = {part: terminal.shown(background, colour)[1].hex for part, colour in grounds(name).items()}
    assert lit["background"] not in (lit["panel"], lit["notice"], lit["selection"])
    own = {part: theme.variables[f"rank-{part}"] for part in themes.TABLES["rank"]}
    shown = {part: terminal.shown(colour, background)[0].hex for part, colour in own.items()}
    assert len(set(shown.values())) == len(set(own.values()))


@pytest.mark.parametrize(
    "style", [Style.from_color(RichColor.from_ansi(6), RichColor.default()), Style(bold=True), Style()]
)
def test_the_terminals_own_colours_are_left_to_it(style: Style) -> None:
    (drawn,) = FewColours().apply([Segment("x", style)], Color(0, 0, 0))
    assert drawn.style == style


def test_with_all_colours_there_is_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    style = Style.from_color(_rich("#8d94ba"), _rich("#1f2335"))
    assert Terminal(monkeypatch, "xterm-256color", "truecolor").style(style) == style


def test_what_a_style_carries_stays(terminal: Terminal) -> None:
    style = Style.from_color(_rich("#8d94ba")) + Style(bold=True, meta={"offset": (1, 2)})
    drawn = terminal.style(style)
    assert drawn.bold
    assert drawn.meta == {"offset": (1, 2)}
