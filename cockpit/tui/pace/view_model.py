"""What the pane of ranks × time is asked to show, and how its columns are shared out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cockpit.core.logs.metrics import Metrics
from cockpit.core.pace.heat import Window
from cockpit.core.pace.pace import Pace

WHOLE = math.inf
STRETCHES: Mapping[float | None, str] = {
    None: "",
    600.0: "last 10 min",
    3600.0: "last hour",
    WHOLE: "whole run",
}
"""How much of the past the pane shows, in seconds, shortest first, and its name; None: a step a column."""


@dataclass(frozen=True)
class Sight:
    """What the pane shows.

    :param nodes: the ranks of each node
    :param chosen: the rank under the cursor
    :param now: unix seconds; of a run that is over, when its last step ended
    :param ended: the run is over: nothing gets older
    :param every: a row for each rank, or as near to that as there is room for
    :param stretch: how much of the past, one of :data:`STRETCHES`
    :param plain: shades instead of colours
    :param missing: ranks for which the others wait, while the run stands still
    :param stalled: whether it does
    :param saves: when logs named a checkpoint, unix seconds
    :param tall: lines of the strip above the log, which the pane is then; 0: it is the map
    :param doing: what ranks do before the first step, for the strip
    :param dead: ranks that have ended
    :param failed: the one of those that failed first
    :param left: seconds until the last step, as the log says; None: not known, or the run is over
    """

    pace: Pace
    metrics: Metrics
    nodes: Mapping[str, Sequence[int]]
    now: float
    chosen: int | None = None
    every: bool = False
    stretch: float | None = None
    plain: bool = False
    ascii_only: bool = False
    missing: frozenset[int] = frozenset()
    stalled: bool = False
    saves: Sequence[float] = ()
    tall: int = 0
    doing: Sequence[str] = ()
    dead: frozenset[int] = frozenset()
    failed: int | None = None
    left: float | None = None
    ended: bool = False


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
