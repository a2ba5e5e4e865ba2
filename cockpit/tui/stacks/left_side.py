"""The left side of the stack screen: classes of ranks, and the threads of the rank that is looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual import getters
from textual.app import ComposeResult
from textual.containers import Vertical

from cockpit.core.masks import count, ranks_of
from cockpit.core.stacks.classes import RankClass
from cockpit.engine.stacks.take import Stacks
from cockpit.tui.command_screen import title
from cockpit.tui.stacks import notices
from cockpit.tui.stacks.class_list import ClassList
from cockpit.tui.stacks.sight import Sight
from cockpit.tui.stacks.thread_list import RankSight, ThreadList


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
