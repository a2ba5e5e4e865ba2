"""What a terminal shows, as an SVG whose text can be selected."""

from __future__ import annotations

import io
from itertools import groupby

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

from tests.tui.terminal_gif import Look, look_of


def drawn(screen: pyte.Screen, title: str) -> str:
    """The screen in a window with a title."""
    console = Console(
        width=screen.columns,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
        record=True,
    )
    for y in range(screen.lines):
        line = Text(no_wrap=True)
        looks = (look_of(screen.buffer[y][x]) for x in range(screen.columns))
        for look, alike in groupby(looks, key=lambda look: look._replace(char="")):
            line.append("".join(cell.char for cell in alike), _style(look))
        console.print(line)
    return console.export_svg(title=title)


def _style(look: Look) -> Style:
    return Style(
        color=f"#{look.ink}",
        bgcolor=f"#{look.paper}",
        bold=look.bold,
        italic=look.italic,
        underline=look.line,
    )
