"""Draws everything in ASCII, for terminals that can show only that."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from cockpit.tui.look.glyphs import ASCII, STATES, UNICODE

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
