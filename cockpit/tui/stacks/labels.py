"""How stacks are written for people: rank sets and frames."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

from cockpit.base.stacks.dump import Frame
from cockpit.core.inferred import words
from cockpit.core.masks import count
from cockpit.core.stacks.snapshot import Place


def count_text(mask: int) -> str:
    """``1 rank``, ``1,023 ranks``."""
    number = count(mask)
    return f"{number:,} rank{'s' * (number != 1)}"


def frame_text(frame: Frame) -> str:
    """A frame as one line of text."""
    return f"{frame.name}  {frame.place}"


def home_text(place: Place) -> str:
    """Where a rank is: ``gpu02, local rank 5``; and that it is inferred, if it is."""
    home = place.node if place.local_rank is None else f"{place.node}, local rank {place.local_rank}"
    return f"{home}, inferred: {words(place.inferred)}" if place.inferred else home


def cut(text: str, width: int) -> str:
    """A text cut to at most this many columns."""
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)) + "…" * (width > 0)
