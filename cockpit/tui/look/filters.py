"""The last looks at every line before the terminal gets it: in ASCII alone, or in the 256 colours of xterm.

Rounding each part of a colour by itself, as is usual, turns a dark blue-grey into navy and a dark red-brown
into pure red. Here a background becomes no more colourful than it was (often a grey), and text on it stays as
readable as before.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import dist, hypot
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.color import Color as RichColor
from rich.color import ColorType
from rich.segment import Segment
from rich.style import Style
from textual.color import Color, Lab, rgb_to_lab
from textual.filter import LineFilter

from cockpit.tui.look.glyphs import ASCII, STATES, UNICODE

LEVELS = (4.5, 7.0)
"""Contrast ratios of WCAG 2.2 (AA, AAA): a text that reaches one of them keeps it."""

CHROMA = 3.0
"""How much more colourful (CIE L*a*b*) a background may become: less is invisible."""


class _Seen(NamedTuple):
    """A colour as eyes see it: for likeness, and how much light it is, 0 to 1."""

    number: int
    lab: Lab
    light: float


@lru_cache(maxsize=1024)
def _seen(colour: Color, number: int = 0) -> _Seen:
    parts = [part / 255 for part in colour.rgb]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return _Seen(number, rgb_to_lab(colour), 0.2126 * red + 0.7152 * green + 0.0722 * blue)


@lru_cache(maxsize=1)
def _palette() -> dict[int, _Seen]:
    """What xterm has: a cube of six by six by six, and 24 greys.

    The first sixteen depend on the terminal's settings.
    """
    every = ((number, RichColor.from_ansi(number).get_truecolor()) for number in range(16, 256))
    return {number: _seen(Color(*triplet), number) for number, triplet in every}


def _contrast(one: _Seen, other: _Seen) -> float:
    dark, light = sorted((one.light, other.light))
    return (light + 0.05) / (dark + 0.05)


def _nearest(wanted: _Seen, among: Iterable[_Seen]) -> int:
    return min(among, key=lambda each: dist(each.lab, wanted.lab)).number


@lru_cache(maxsize=1024)
def ground(colour: Color) -> int:
    """The number of the colour that replaces this one behind a text."""
    wanted = _seen(colour)
    most = hypot(wanted.lab.a, wanted.lab.b) + CHROMA
    return _nearest(wanted, (each for each in _palette().values() if hypot(each.lab.a, each.lab.b) <= most))


@lru_cache(maxsize=4096)
def text(colour: Color, behind: Color | None) -> int:
    """The number of the colour that replaces this one in a text."""
    wanted, every = _seen(colour), _palette()
    if behind is None:
        return _nearest(wanted, every.values())
    before = _contrast(wanted, _seen(behind))
    least = max((level for level in LEVELS if level <= before), default=before)
    drawn = every[ground(behind)]
    clear = [each for each in every.values() if _contrast(each, drawn) >= least]
    return _nearest(wanted, clear or every.values())


def _ours(colour: RichColor | None) -> Color | None:
    """A colour to change; None: it is one of the terminal's own."""
    if colour is None or colour.type is not ColorType.TRUECOLOR or colour.triplet is None:
        return None
    return Color(*colour.triplet)


@lru_cache(maxsize=1024)
def _styled(style: Style) -> Style:
    colour, behind = _ours(style.color), _ours(style.bgcolor)
    return style + Style.from_color(
        RichColor.from_ansi(text(colour, behind)) if colour else None,
        RichColor.from_ansi(ground(behind)) if behind else None,
    )


class FewColours(LineFilter):
    """The last look at the colours of every line before the terminal gets it."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The line in available colours."""
        return [
            Segment(segment.text, _styled(segment.style), segment.control) if segment.style else segment
            for segment in segments
        ]


SIGNS = str.maketrans(
    {
        **{getattr(UNICODE, state): getattr(ASCII, state) for state in STATES},
        # Ours, and those of Textual's borders.
        **dict.fromkeys("◆★", "*"),
        **dict.fromkeys("◇┌┐└┘├┤┬┴┼╭╮╰╯╔╗╚╝┏┓┗┛", "+"),
        **dict.fromkeys("─━═╌╍┄┅┈┉–—‐‑−▔", "-"),
        **dict.fromkeys("│┃║╎╏▌▐▎▍▊▋▕▏", "|"),
        **dict.fromkeys("→▶▸›", ">"),
        **dict.fromkeys("←◀◂‹", "<"),
        **dict.fromkeys("‘’", "'"),
        **dict.fromkeys("“”", '"'),
        # Ends of scroll bars: their colour draws them.
        **dict.fromkeys("▁▂▃▄▅▆▇\u00a0", " "),
        "█": "#",
        "…": "~",
        "×": "x",
        "•": "*",
        "↑": "^",
        "↓": "v",
    }
)
"""The ASCII sign for each of our signs; all are one cell wide."""


def in_ascii(text: str) -> str:
    """A text in ASCII, equally wide: our signs as similar ones, anything else as ``?``."""
    if text.isascii():
        return text
    known = text.translate(SIGNS)
    drawn = "".join(sign if sign.isascii() else "?" * cell_len(sign) for sign in known)
    # Characters that join into one (emoji) are narrower together than one by one.
    return set_cell_size(drawn, cell_len(text))


class AsciiFilter(LineFilter):
    """The last look at every line before the terminal gets it."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The line in ASCII."""
        return [
            Segment(in_ascii(segment.text), segment.style, segment.control) if segment.text else segment
            for segment in segments
        ]
