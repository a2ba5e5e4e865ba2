"""One line of styled parts, of which the least important go first when there is no room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size


@dataclass(frozen=True)
class Part:
    """A part of a line.

    :param pieces: (text, style name) each, from left to right
    :param rank: how important it is, 0 most: the others make room first
    """

    pieces: tuple[tuple[str, str], ...]
    rank: int = 0

    @property
    def width(self) -> int:
        """Columns it takes."""
        return sum(cell_len(text) for text, _ in self.pieces)


def fit(parts: Sequence[Part], width: int, gap: int = 2) -> list[tuple[str, str]]:
    """The pieces of a line of at most ``width`` columns; what stays keeps its order."""
    kept = list(parts)
    while kept and sum(part.width for part in kept) + gap * (len(kept) - 1) > width:
        if len(kept) == 1:
            return _cut(kept[0], width)
        worst = max(range(len(kept)), key=lambda index: (kept[index].rank, index))
        del kept[worst]
    pieces: list[tuple[str, str]] = []
    for part in kept:
        pieces += ([(" " * gap, "")] if pieces else []) + list(part.pieces)
    return pieces


def _cut(part: Part, width: int) -> list[tuple[str, str]]:
    pieces: list[tuple[str, str]] = []
    for text, style in part.pieces:
        if cell_len(text) > width:
            return [*pieces, (set_cell_size(text, max(0, width)), style)]
        pieces.append((text, style))
        width -= cell_len(text)
    return pieces
