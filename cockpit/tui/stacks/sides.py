"""The two sides of the stack screen.

On the left classes of ranks, and the threads of the rank that is looked at; on the right the tree, or in its
place one rank in full or what differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual import getters
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget

from cockpit.base.stacks.kinds import kind
from cockpit.core.masks import count, ranks_of
from cockpit.core.stacks.classes import RankClass
from cockpit.engine.stacks.take import Stacks
from cockpit.tui.command_screen import title
from cockpit.tui.stacks import notices
from cockpit.tui.stacks.class_list import ClassList
from cockpit.tui.stacks.diff import StackDiff, counterpart, sides
from cockpit.tui.stacks.samples import SampleCursor
from cockpit.tui.stacks.thread_list import RankPane, RankSight, ThreadList
from cockpit.tui.stacks.tree import StackTreePane
from cockpit.tui.stacks.view_model import Sight


class LeftSide(Vertical):
    """Two lists, and which rank was chosen in them.

    :param keys: the key of each command, by its name
    """

    class_list = getters.query_one(ClassList)
    """The upper one."""

    thread_list = getters.query_one(ThreadList)
    """The lower one."""

    def __init__(self, stacks: Stacks, keys: Mapping[str, str], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._stacks = stacks
        self._keys = keys
        self.chosen: int | None = None
        """The rank that a person chose."""
        self.marked: int | None = None
        """The rank that a person marked, to compare others with it."""

    def compose(self) -> ComposeResult:
        yield ClassList(id="classes")
        yield ThreadList(id="threads")

    @property
    def rank(self) -> int | None:
        """The rank whose threads are shown: the chosen one, else that of the class under the cursor."""
        if self._chosen_there is not None:
            return self._chosen_there
        found = self.class_list.current
        return None if found is None else found.sample_rank

    @property
    def _chosen_there(self) -> int | None:
        """The chosen rank, if the snapshot has it."""
        return self.chosen if self.chosen in self._stacks.snapshot.ranks else None

    @property
    def class_ranks(self) -> list[int]:
        """The ranks of the class under the cursor."""
        found = self.class_list.current
        return [] if found is None else list(ranks_of(found.ranks))

    @property
    def class_has_others(self) -> bool:
        """Whether the class under the cursor has more than one rank."""
        found = self.class_list.current
        return found is not None and count(found.ranks) > 1

    def put_on(self, found: RankClass) -> None:
        """Move the cursor to a class."""
        self.class_list.put_on(self.class_list.key_of(found))

    def draw_classes(self, sight: Sight, empty: Sequence[str], *, pattern: str, low: bool) -> None:
        """Draw the classes of a sample; this may change :attr:`rank`.

        :param empty: why there is none, line by line
        :param pattern: what the sight is narrowed to
        :param low: there is little room
        """
        classes = self.class_list
        classes.empty = empty
        classes.show(
            sight.classes,
            odd=sight.odd,
            moved=sight.moved,
            chosen=self._chosen_there,
            marked=self.marked,
            inferred=sight.snapshot.inferred,
            low=low,
        )
        classes.border_title = title(self._keys["classes"], f"classes {len(sight.classes) or ''}")
        classes.border_subtitle = title("", notices.filter_text(sight, self._stacks, pattern))

    def draw_threads(self, rank: RankSight | None) -> None:
        """Draw the threads of a rank."""
        threads = self.thread_list
        threads.show(rank)
        name = "threads" if rank is None else f"rank {rank.rank} threads"
        threads.border_title = title(self._keys["threads"], name)


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
