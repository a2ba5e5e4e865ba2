"""Classes: ranks that are at the same place, the odd ones first."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from rich.cells import cell_len

from cockpit.base.stacks.kinds import WAITING
from cockpit.core.cutting import cut_sentence
from cockpit.core.inferred import with_mark
from cockpit.core.stacks.classes import RankClass
from cockpit.core.stacks.words import STATES
from cockpit.tui.panes.list_pane import ListPane
from cockpit.tui.panes.text_pane import Line, Piece, hanging
from cockpit.tui.stacks.labels import count_text, cut, frame_text

CLOSE = 12
"""With this many classes or more, there are no empty lines between them."""


class ClassList(ListPane[RankClass]):
    """The classes of a sample; one of their ranks is the chosen one."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._named = 0
        self._chosen: int | None = None
        self._marked: int | None = None
        self._moved = 0
        self._inferred = 0
        self._few = True
        self._low = False

    def show(
        self,
        classes: Sequence[RankClass],
        *,
        odd: int,
        moved: int,
        chosen: int | None,
        marked: int | None,
        inferred: int,
        low: bool,
    ) -> None:
        """Draw these.

        :param odd: ranks that the verdict names
        :param moved: ranks that are elsewhere than in the previous sample
        :param chosen: the rank whose threads are shown; None for that of the class under the cursor
        :param marked: the rank that a person marked
        :param inferred: ranks whose environment does not say which they are
        :param low: there is little room
        """
        self._named, self._moved, self._chosen, self._marked = odd, moved, chosen, marked
        self._inferred = inferred
        self._few, self._low = len(classes) < CLOSE, low
        self.show_items(classes)

    def key_of(self, item: RankClass) -> Hashable:
        """Its lowest rank: what it does may change."""
        return item.ranks & -item.ranks

    def drawn_from(self, item: RankClass, before: RankClass | None, width: int) -> tuple[object, ...]:
        """What concerns its ranks of all that was told."""
        chosen, marked = self._shown, self._marked
        return (
            item,
            width,
            self._few,
            self._low,
            item.ranks & self._named,
            item.ranks & self._moved,
            item.ranks & self._inferred,
            chosen if chosen is not None and item.ranks >> chosen & 1 else None,
            marked if marked is not None and item.ranks >> marked & 1 else None,
        )

    def item_lines(self, item: RankClass, before: RankClass | None, width: int) -> Iterator[Line]:
        """Which ranks, what they do, how."""
        role = "odd" if item.ranks & self._named else "title"
        number = f"{count_text(item.ranks)}  "
        ranks = with_mark(self._inferred, item.ranks, max(4, width - len(number)))
        pieces = [Piece(number, role), Piece(ranks, role)]
        left = width - len(number) - len(ranks)
        extra = self._extra(item)
        if extra and len(extra) <= left:
            pieces.append(Piece(extra, "label"))
            left -= len(extra)
        facts = list(self._facts(item))
        if self._low and facts and sum(len(fact.text) + 3 for fact in facts) <= left:
            pieces += _joined(facts, left)
            facts = []
        yield Line(tuple(pieces))
        yield from self._doing(item, width)
        if facts:
            yield Line(tuple(_joined(facts, width)), 2)
        if self._few and not self._low:
            yield Line(heading=True)

    @property
    def _shown(self) -> int | None:
        """The rank whose threads are shown, of these items: it is theirs from the first draw on."""
        found = self.current
        return found.sample_rank if self._chosen is None and found is not None else self._chosen

    def _extra(self, item: RankClass) -> str:
        """Which of several ranks is the chosen one, and whether one is marked."""
        words = ""
        shown = self._shown
        if shown is not None and item.ranks >> shown & 1 and item.ranks & (item.ranks - 1):
            words += f"  showing rank {shown}"
        if self._marked is not None and item.ranks >> self._marked & 1:
            words += f"  {self._marked} marked"
        return words

    def _doing(self, item: RankClass, width: int) -> Iterator[Line]:
        doing, does = item.doing, item.does
        frame = doing.frame
        role = "waits" if doing.kind in WAITING else ""
        if self._few and (frame is None or cell_len(does) > width - 2):
            # Why there is no stack may take a sentence.
            yield from hanging((Piece("  "),), does, width, role)
            if frame is not None:
                yield Line((Piece("  "), Piece(cut_sentence(frame_text(frame), width - 2), "label")), 2)
            return
        text = cut(does, width - 2)
        where = "" if frame is None else frame_text(frame)
        if where and len(text) + len(where) + 4 <= width:
            yield Line((Piece("  "), Piece(text, role), Piece(f"  {where}", "label")), 2)
            return
        yield Line((Piece("  "), Piece(text, role)), 2)
        if where:
            yield Line((Piece("  "), Piece(cut_sentence(where, width - 2), "label")), 2)

    def _facts(self, item: RankClass) -> Iterator[Piece]:
        if item.state in STATES:
            yield Piece(STATES[item.state], "warning")
        if item.ranks & self._moved:
            yield Piece("moved since the sample before", "running")
        elif item.moves:
            yield Piece(item.moves, "warning" if item.ranks & self._named else "label")


def _joined(facts: Sequence[Piece], width: int) -> Iterator[Piece]:
    yield Piece("  ")
    room = width - 2
    for number, fact in enumerate(facts):
        gap = " · " if number else ""
        if len(gap) + len(fact.text) > room:
            break
        room -= len(gap) + len(fact.text)
        yield Piece(gap, "label")
        yield fact
