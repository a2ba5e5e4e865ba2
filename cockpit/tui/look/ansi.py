"""Turns the colours a program printed into styles: reads the SGR sequences that ``sanitise`` passes."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from rich.color import Color
from rich.style import Style

_SGR = re.compile("\x1b\\[([0-9;:]*)m")

_ON = {
    1: "bold",
    2: "dim",
    3: "italic",
    4: "underline",
    7: "reverse",
    9: "strike",
    21: "underline2",
    53: "overline",
}
_OFF = {
    22: ("bold", "dim"),
    23: ("italic",),
    24: ("underline", "underline2"),
    27: ("reverse",),
    29: ("strike",),
    55: ("overline",),
}


class Span(NamedTuple):
    """A piece of a text in one style.

    :param start: index of its first character
    :param end: index after its last
    """

    start: int
    end: int
    style: Style


class _Pen(NamedTuple):
    colour: Color | None = None
    background: Color | None = None
    attributes: frozenset[str] = frozenset()


def read_colours(text: str) -> tuple[str, list[Span]]:
    """Split a text into characters and their styles.

    Blinking is dropped: nothing here blinks.

    :param text: what :func:`cockpit.core.text.sanitise` made with ``colour=True``
    :return: the text without its SGR sequences, and the spans of it that have a style, in order
    """
    if "\x1b" not in text:
        return text, []
    pieces: list[str] = []
    spans: list[Span] = []
    pen = _Pen()
    size = at = 0
    for match in _SGR.finditer(text):
        piece = text[at : match.start()]
        if piece:
            pieces.append(piece)
            if pen != _Pen():
                spans.append(Span(size, size + len(piece), _style(pen)))
            size += len(piece)
        pen = _moved(pen, match[1])
        at = match.end()
    # A reset ends every coloured text, so no style is left for what follows the last sequence.
    pieces.append(text[at:])
    return "".join(pieces), spans


@lru_cache(maxsize=4096)
def _style(pen: _Pen) -> Style:
    return Style.parse(" ".join(pen.attributes)) + Style(color=pen.colour, bgcolor=pen.background)


@lru_cache(maxsize=4096)
def _moved(pen: _Pen, parameters: str) -> _Pen:
    """The pen after one SGR sequence."""
    colour, background, attributes = pen
    words = parameters.split(";")
    at = 0
    while at < len(words):
        parts = [int(part) if part else 0 for part in words[at].split(":")]
        at += 1
        code = parts[0]
        if code == 0:
            colour, background, attributes = _Pen()
        elif code in (38, 48, 58):
            if len(parts) == 1:
                take = 2 if words[at] == "5" else 4
                parts += map(int, words[at : at + take])
                at += take
            # The last ones: a colour space may stand before the three values of RGB.
            found = Color.from_ansi(parts[-1]) if parts[1] == 5 else Color.from_rgb(*parts[-3:])
            if code == 38:
                colour = found
            elif code == 48:
                background = found
        elif code == 4 and parts[1:] == [0]:
            attributes -= {"underline", "underline2"}
        elif code in _ON:
            attributes |= {_ON[code]}
        elif code in _OFF:
            attributes -= set(_OFF[code])
        elif 30 <= code <= 37 or 90 <= code <= 97:
            colour = Color.from_ansi(code - 30 if code < 90 else code - 82)
        elif 40 <= code <= 47 or 100 <= code <= 107:
            background = Color.from_ansi(code - 40 if code < 100 else code - 92)
        elif code == 39:
            colour = None
        elif code == 49:
            background = None
    return _Pen(colour, background, attributes)
