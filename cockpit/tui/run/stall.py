"""What the run's screen makes of a run that stands still: whom it marks, and when it shows that by itself."""

from __future__ import annotations

from cockpit.core.masks import ranks_of
from cockpit.core.run.model import RankState, RunModel
from cockpit.tui.look.units import clock_text
from cockpit.tui.panes.key_bar import Activity

IDLE_S = 10.0
"""Seconds without a key after which a stall may move the focus."""


def stands_still(model: RunModel) -> bool:
    """Whether it is known that the run stands still now."""
    return model.watch.stalled and not model.over and model.first_failure() is None


def standing(model: RunModel) -> tuple[frozenset[int], frozenset[int]]:
    """The ranks for which the others wait, and the others; both empty if the run does not stand still."""
    if not stands_still(model):
        return frozenset(), frozenset()
    missing = frozenset(ranks_of(model.watch.culprits))
    held = frozenset(ranks_of(model.watch.waiting)) - missing
    if not held:
        # Nobody says who waits for what: no rank makes a step.
        held = (
            frozenset(rank.rank for rank in model.ranks.values() if rank.state is RankState.RUNNING) - missing
        )
    return missing, held


def watch_activity(model: RunModel) -> Activity | None:
    """What the watch does, or when it will look again."""
    watch = model.watch
    if watch.state not in ("quiet", "stalled") or model.over:
        return None
    if watch.looking:
        return Activity("inspecting all ranks")
    return None if watch.next_at is None else Activity(f"inspecting again at {clock_text(watch.next_at, 8)}")


class Stall:
    """Says once of each stall that it is there."""

    def __init__(self) -> None:
        self._known: tuple[float, int] | None = None

    def tell(self, model: RunModel) -> bool:
        """Whether the run stands still, and did not when this was last asked, or because of others."""
        about = (model.watch.since, model.watch.culprits) if stands_still(model) else None
        new = about is not None and about != self._known
        self._known = about
        return new
