"""How the columns of the pane of ranks × time are shared out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cockpit.core.pace.heat import Window


@dataclass(frozen=True)
class Frame:
    """What is where.

    :param label: columns of names and ranks
    :param window: of the map
    :param columns: of the table at the right, by their names, and how wide each is
    :param shades: the sign of a cell of each level; empty: colours tell
    :param ascii_only: nothing but ASCII is drawn
    """

    label: int
    window: Window
    columns: Mapping[str, int]
    shades: str
    ascii_only: bool
