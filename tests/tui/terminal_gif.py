"""An asciicast drawn as a GIF: what a terminal would show, at most ten times a second."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyte
from PIL import Image, ImageChops, ImageDraw, ImageFont

FONTS = Path("/usr/share/fonts/truetype/dejavu")
SIZE = 15
CELL = (9, 18)
TICK_S = 0.1
COLOURS = 255
"""One of 256 is left to Pillow, for what a frame does not change."""

DARK, BRIGHT = "121212", "e0e0e0"
"""The terminal's own background and foreground, where a program sets none."""

_NAMED = {
    "black": "121212",
    "red": "d75f5f",
    "green": "87af5f",
    "brown": "d7af5f",
    "blue": "5f87d7",
    "magenta": "af87d7",
    "cyan": "5fafaf",
    "white": "e0e0e0",
}
"""The eight colours, as pyte calls them."""

_ARMS = {"─": "lr", "│": "ud", "├": "udr", "┤": "udl", "└": "ur", "╰": "ur", "╭": "dr", "╮": "dl", "╯": "ul"}
"""Lines of the box drawing characters from the cell's middle: left, right, up, down."""

_NOT_UNDERSTOOD = re.compile(r"\x1b\[[<>=][0-9;]*[a-zA-Z]|\x1b\[\??[0-9;]*\$[a-z]|\x1b[P_^][^\x1b]*\x1b\\")
"""Questions to the terminal and the like, which pyte would print."""


class Look(NamedTuple):
    """How a cell is drawn."""

    char: str
    ink: str
    paper: str
    bold: bool
    italic: bool
    line: bool


class Font:
    """A monospace font, and the cells drawn with it so far."""

    def __init__(self, folder: Path) -> None:
        self._fonts = {
            (bold, italic): ImageFont.truetype(folder / f"DejaVuSansMono{style}.ttf", SIZE)
            for (bold, italic), style in {
                (False, False): "",
                (True, False): "-Bold",
                (False, True): "-Oblique",
                (True, True): "-BoldOblique",
            }.items()
        }
        self._cells: dict[Look, Image.Image] = {}

    @classmethod
    def find(cls) -> Font:
        """The font of this machine.

        :raises SystemExit: it is not installed
        """
        try:
            return cls(FONTS)
        except OSError:
            raise SystemExit(f"no DejaVu Sans Mono in {FONTS}; on Debian: apt install fonts-dejavu") from None

    def cell(self, look: Look) -> Image.Image:
        """A cell."""
        if look not in self._cells:
            self._cells[look] = self._drawn(look)
        return self._cells[look]

    def _drawn(self, look: Look) -> Image.Image:
        image = Image.new("RGB", CELL, f"#{look.paper}")
        draw = ImageDraw.Draw(image)
        ink = f"#{look.ink}"
        if not _geometric(draw, look.char, ink, f"#{look.paper}"):
            font = self._fonts[look.bold, look.italic]
            mask = Image.new("L", CELL)
            ImageDraw.Draw(mask).text((0, 14), look.char, 255, font, anchor="ls")
            # Few shades, so that all colours of the picture find room in one palette.
            mask = mask.point([round(value / 51) * 51 for value in range(256)])
            image.paste(ink, (0, 0), mask)
        if look.line:
            draw.line((0, 16, CELL[0], 16), ink)
        return image


def _geometric(draw: ImageDraw.ImageDraw, char: str, ink: str, paper: str) -> bool:
    """Draw what is to meet at the cells' edges: blocks, dots, lines; False: it is none of these."""
    width, height = CELL
    code = ord(char)
    if 0x2581 <= code <= 0x2588:
        draw.rectangle((0, height - round(height * (code - 0x2580) / 8), width - 1, height - 1), ink)
    elif 0x2589 <= code <= 0x258F:
        draw.rectangle((0, 0, round(width * (0x2590 - code) / 8) - 1, height - 1), ink)
    elif char == "▀":
        draw.rectangle((0, 0, width - 1, height // 2 - 1), ink)
    elif char == "▐":
        draw.rectangle((width // 2, 0, width - 1, height - 1), ink)
    elif 0x2800 <= code <= 0x28FF:
        dots = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))
        for bit, (across, down) in enumerate(dots):
            if (code - 0x2800) >> bit & 1:
                x, y = 1 + across * 5, 2 + down * 4
                draw.rectangle((x, y, x + 1, y + 1), ink)
    elif char in _ARMS:
        x, y = width // 2, height // 2
        ends = {"l": (0, y), "r": (width - 1, y), "u": (x, 0), "d": (x, height - 1)}
        for arm in _ARMS[char]:
            draw.line((*ends[arm], x, y), ink)
        if char in "╭╮╯╰":
            draw.point((x, y), paper)
    else:
        return False
    return True


def understood(text: str) -> str:
    """What of a program's output the emulator makes sense of."""
    return _NOT_UNDERSTOOD.sub("", text)


def look_of(char: Any) -> Look:
    ink = BRIGHT if char.fg == "default" else _NAMED.get(char.fg, char.fg)
    paper = DARK if char.bg == "default" else _NAMED.get(char.bg, char.bg)
    if char.reverse:
        ink, paper = paper, ink
    return Look(char.data[:1] or " ", ink, paper, char.bold, char.italics, char.underscore)


def frames(cast: Path, font: Font) -> Iterator[tuple[Image.Image, float]]:
    """Every picture that differs from the one before, and for how many seconds it stays."""
    header, *lines = map(json.loads, cast.read_text().splitlines())
    columns, rows = header["width"], header["height"]
    screen = pyte.Screen(columns, rows)
    stream = pyte.Stream(screen)
    image = Image.new("RGB", (columns * CELL[0], rows * CELL[1]), f"#{DARK}")
    drawn: dict[tuple[int, int], Look] = {}
    shown, since = image.copy(), 0.0
    screen.dirty.update(range(rows))
    for index, (at, kind, text) in enumerate(lines):
        if kind == "o":
            stream.feed(understood(text))
        due = (int(at / TICK_S) + 1) * TICK_S
        if index + 1 < len(lines) and lines[index + 1][0] < due:
            continue
        for y in screen.dirty:
            for x in range(columns):
                look = look_of(screen.buffer[y][x])
                if drawn.get((x, y)) != look:
                    drawn[x, y] = look
                    image.paste(font.cell(look), (x * CELL[0], y * CELL[1]))
        screen.dirty.clear()
        if ImageChops.difference(image, shown).getbbox():
            if due - TICK_S > since:
                yield shown, due - TICK_S - since
            shown, since = image.copy(), due - TICK_S
    yield shown, max(TICK_S, lines[-1][0] - since)


def write(gif: Path, cast: Path, font: Font) -> None:
    """Draw a cast, in one palette for all frames."""
    drawn = list(frames(cast, font))
    counts: dict[Any, int] = {}
    for image, _ in drawn:
        for count, colour in image.getcolors(1 << 24) or ():
            counts[colour] = counts.get(colour, 0) + count
    often = sorted(counts, key=lambda colour: -counts[colour])[:COLOURS]
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for colour in often for part in colour])
    flat = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image, _ in drawn]
    lasts = [round(seconds * 1000) for _, seconds in drawn]
    flat[0].save(
        gif, save_all=True, append_images=flat[1:], duration=lasts, loop=0, optimize=True, disposal=1
    )
