"""The right side of the stack screen: the tree, or in its place one rank in full or what differs."""

from __future__ import annotations

from collections.abc import Mapping

from textual import getters
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget

from cockpit.base.stacks.kinds import kind
from cockpit.engine.stacks.take import Stacks
from cockpit.tui.command_screen import title
from cockpit.tui.stacks import notices
from cockpit.tui.stacks.diff import StackDiff, counterpart, sides
from cockpit.tui.stacks.samples import SampleCursor
from cockpit.tui.stacks.sight import Sight
from cockpit.tui.stacks.thread_list import RankPane, RankSight
from cockpit.tui.stacks.tree import StackTreePane

PANES = ("tree", "rank", "diff")


class RightSide(Vertical):
    """Three panes, one at a time.

    :param samples: which sample is shown
    :param keys: the key of each command, by its name
    """

    tree_pane = getters.query_one(StackTreePane)
    """The tree."""

    rank_pane = getters.query_one(RankPane)
    """The rank in full."""

    def __init__(
        self, stacks: Stacks, samples: SampleCursor, keys: Mapping[str, str], *, id: str | None = None
    ) -> None:
        super().__init__(id=id)
        self._stacks = stacks
        self._samples = samples
        self._keys = keys
        self.shown = "tree"
        """The pane that is shown."""
        self.beneath = "tree"
        """The one that it was shown in the place of."""
        self._came_from: Widget | None = None
        """What had the focus before a pane replaced the tree."""

    def compose(self) -> ComposeResult:
        yield StackTreePane(id="tree")
        yield RankPane(id="rank")
        yield StackDiff(id="diff")

    def show(self, name: str, focused: Widget) -> Widget | None:
        """Show a pane.

        :param focused: what has the focus now
        :return: what the focus is to move to; None: it stays
        """
        before, self.shown = self.shown, name
        if name != before:
            self.beneath = before if name == "diff" else "tree"
        for each in PANES:
            self.query_one(f"#{each}").set_class(each == name, "-shown")
        if name != "tree":
            if before == "tree":
                self._came_from = focused
            return self.query_one(f"#{name}")
        return self._came_from if before != name and focused.id in PANES else None

    def draw(self, sight: Sight, rank: RankSight | None, *, empty: str, marked: int | None) -> None:
        """Draw the tree, and the pane that is in its place.

        :param rank: what is looked at
        :param empty: why there is no stack
        :param marked: the rank that a person marked
        """
        self.tree_pane.empty = (empty,)
        self.tree_pane.show(sight, chosen=None if rank is None else rank.rank)
        if rank is not None and self.shown == "rank":
            self._draw_rank(rank)
        if rank is not None and self.shown == "diff":
            number = self._samples.number
            other = counterpart(sight, number, rank.rank, marked)
            self.query_one(StackDiff).show(*sides(self._stacks.snapshot, rank.rank, number, other))
        self._draw_titles(sight, None if rank is None else rank.rank)

    def _draw_rank(self, rank: RankSight) -> None:
        threads = rank.dump.threads if rank.dump is not None else ()
        kinds = [[kind(frame) for frame in thread.frames] for thread in threads]
        self.rank_pane.show(rank, kinds, library=self.tree_pane.folding[1])

    def _draw_titles(self, sight: Sight, rank: int | None) -> None:
        movement = notices.movement_text(self._stacks, sight, self._samples.number)
        beneath = "the tree" if self.beneath == "tree" else f"rank {rank}"
        names = {"tree": "stack tree", "rank": f"rank {rank}", "diff": "what differs"}
        for pane, name in names.items():
            widget = self.query_one(f"#{pane}")
            widget.border_title = title(self._keys["tree"] if pane == "tree" else "", name)
            back = "" if pane == "tree" else f"{self._keys['back']}: {beneath}"
            widget.border_subtitle = title("", back or movement)
