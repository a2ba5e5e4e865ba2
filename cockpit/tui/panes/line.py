"""One line of styled parts: if room is short, the least important are shortened first, then left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from cockpit.core.cutting import cut_sentence

GAP = 2
"""Columns between two parts."""


@dataclass(frozen=True)
class Part:
    """A part of a line.

    :param pieces: (text, style name) each, from left to right
    :param rank: how important it is; 0 is the most important: the others make room first
    :param less: what to say instead if there is less room
    """

    pieces: tuple[tuple[str, str], ...]
    rank: int = 0
    less: Part | None = None

    @property
    def width(self) -> int:
        """Columns it takes."""
        return sum(cell_len(text) for text, _ in self.pieces)


def fit(parts: Sequence[Part], width: int) -> list[tuple[str, str]]:
    """The pieces of a line of at most ``width`` columns; what stays keeps its order.

    Each part is shortened before any is left out.
    """
    kept = list(parts)
    while kept and sum(part.width for part in kept) + GAP * (len(kept) - 1) > width:
        worst = max(
            range(len(kept)), key=lambda index: (kept[index].less is not None, kept[index].rank, index)
        )
        less = kept[worst].less
        if less is not None:
            kept[worst] = less
        elif len(kept) == 1:
            return _cut(kept[0], width)
        else:
            del kept[worst]
    pieces: list[tuple[str, str]] = []
    for part in kept:
        pieces += ([(" " * GAP, "")] if pieces else []) + list(part.pieces)
    return pieces


def _cut(part: Part, width: int) -> list[tuple[str, str]]:
    pieces: list[tuple[str, str]] = []
    for text, style in part.pieces:
        if cell_len(text) > width:
            text = cut_sentence(text, width)
            # The app gives rare characters other widths than terminals do.
            return [*pieces, (text if cell_len(text) <= width else set_cell_size(text, width), style)]
        pieces.append((text, style))
        width -= cell_len(text)
    return pieces
