"""How stacks are written for people: rank sets, frames, states."""

from __future__ import annotations

from functools import lru_cache

from rich.cells import cell_len, set_cell_size

from cockpit.base.masks import count, ranks_of
from cockpit.base.stacks import Frame
from cockpit.core.ranks import ranks_text

STATES = {
    "D": "cannot be interrupted (D)",
    "T": "stopped (T)",
    "t": "stopped by a debugger (t)",
    "Z": "dead, not reaped (Z)",
    "X": "dead",
}
"""States of a process that are worth a word."""

USUAL = {"R": "runs (R)", "S": "sleeps (S)"}
"""The other ones."""


def state_text(state: str) -> str:
    """What the kernel says of a process: ``sleeps (S)``."""
    return STATES.get(state) or USUAL.get(state, f"state {state}")


@lru_cache(maxsize=4096)
def mask_text(mask: int) -> str:
    """A set of ranks: ``0-12,14-63``."""
    return ranks_text(ranks_of(mask))


def mask_within(mask: int, width: int) -> str:
    """A set of ranks in at most so many columns: its beginning where there is no room for all."""
    text = mask_text(mask)
    if len(text) <= width:
        return text
    kept = text[: max(0, width - 1)]
    # Half a number would be another rank.
    if "," in kept:
        kept = kept[: kept.rindex(",") + 1]
    return f"{kept}…"


def count_text(mask: int) -> str:
    """``1 rank``, ``1,023 ranks``."""
    number = count(mask)
    return f"{number:,} rank{'s' * (number != 1)}"


def frame_text(frame: Frame) -> str:
    """A frame as one line of text."""
    return f"{frame.name}  {frame.place}"


def cut(text: str, width: int) -> str:
    """At most so many columns of a text."""
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)) + "…" * (width > 0)


def cut_start(text: str, width: int) -> str:
    """The end of a path in at most so many columns: that is the part that tells."""
    while text and cell_len(text) > width:
        text = "…" + text.lstrip("…")[1:] if width > 0 else ""
        if text == "…":
            break
    return text
