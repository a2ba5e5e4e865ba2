"""The stack screen: the verdict on top, classes of ranks, the tree of all stacks, one rank in full."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from textual import events, getters, on, work
from textual.app import ComposeResult
from textual.binding import BindingType

from cockpit.core.stacks.snapshot import Place
from cockpit.engine.stacks.take import Stacks
from cockpit.errors import CockpitError
from cockpit.tui.command_screen import CommandScreen, Handler, bindings, needs
from cockpit.tui.commands import STACKS, Id
from cockpit.tui.panes.bar import Bar
from cockpit.tui.panes.dialogs import Answer, Question
from cockpit.tui.panes.finder import Item
from cockpit.tui.panes.key_bar import Activity
from cockpit.tui.panes.list_pane import ListPane
from cockpit.tui.panes.text_pane import TextPane
from cockpit.tui.stacks import notices
from cockpit.tui.stacks.class_list import ClassList
from cockpit.tui.stacks.diff import counterpart, has_stack
from cockpit.tui.stacks.help import ABOUT
from cockpit.tui.stacks.recompute import Lookout
from cockpit.tui.stacks.samples import SampleCursor
from cockpit.tui.stacks.sides import PANES, LeftSide, RightSide
from cockpit.tui.stacks.taking import OPTIONS, Taking
from cockpit.tui.stacks.thread_list import RankSight, ThreadList
from cockpit.tui.stacks.tree import StackTreePane
from cockpit.tui.stacks.verdict_bar import BarText, VerdictBar, told

TICK_S = 0.1
"""Seconds between two looks at what has arrived."""

FIRST = 2
"""Samples taken as the screen opens: one alone cannot show what moves."""

MIDDLE, NARROW, LOW, FLAT = 130, 100, 32, 16
"""Columns below which the left pane is narrower, or on top; rows below which less is said, and below which
panes do not fit one above the other."""

NO_RANK = "no rank is chosen"


class StackScreen(CommandScreen):
    """The stacks of one job, sample by sample.

    :param stacks: whose stacks; the first samples are taken as it opens, unless there are some
    :param root: there is no screen below this one to go back to
    :param live: for a snapshot from disk: asks the ranks of its run, on a screen in place of this one; None:
        they are not known here
    """

    SCOPE = STACKS
    ABOUT = ABOUT
    BINDINGS: ClassVar[list[BindingType]] = bindings(STACKS)

    DEFAULT_CSS = """
    StackScreen #left { width: 46; }
    StackScreen #threads { height: auto; max-height: 40%; }
    StackScreen #notice { max-height: 4; background: $notice; }

    StackScreen.-middle #left { width: 38; }
    StackScreen.-narrow #classes { height: auto; max-height: 100%; }
    StackScreen.-narrow #threads { display: none; }
    StackScreen.-flat #threads { display: none; }
    StackScreen.-flat #notice { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    StackScreen.-zoom-left #classes { height: 1fr; }
    """

    _left_side = getters.query_one(LeftSide)
    _right_side = getters.query_one(RightSide)

    def __init__(self, stacks: Stacks, *, root: bool = False, live: Handler | None = None) -> None:
        super().__init__()
        self.stacks = stacks
        self.root = root
        self.last_keys = ("leave" if root else "back", "help")
        self._samples = SampleCursor(stacks)
        self._live = live
        self._taking = Taking(self, stacks, self._samples, self._why_not_live)
        self._lookout = Lookout(stacks, self._samples)
        self._low = False
        self._whole = False

    def head(self) -> ComposeResult:
        """See :meth:`CommandScreen.head`."""
        yield from super().head()
        yield VerdictBar(keys=self.app.keys.__getitem__, id="verdict")

    def panes(self) -> ComposeResult:
        """See :meth:`CommandScreen.panes`."""
        yield LeftSide(self.stacks, self.app.keys, id="left")
        yield RightSide(self.stacks, self._samples, self.app.keys, id="right")

    def on_mount(self) -> None:
        self._show_right("tree")
        self._left_side.class_list.focus()
        if not self.stacks.recorded and not self.stacks.snapshot.samples:
            self._taking.take(FIRST)
        self.set_interval(TICK_S, self._tick)
        self.call_after_refresh(self._tick)

    def on_unmount(self) -> None:
        if self.stacks.busy:
            self.stacks.cancel()

    def on_resize(self, event: events.Resize) -> None:
        width, height = event.size
        self._low = height < LOW
        self.set_class(width < NARROW, "-narrow")
        self.set_class(NARROW <= width < MIDDLE, "-middle")
        self.set_class(height < FLAT, "-flat")
        self.make_one_sided(width < NARROW and height < FLAT)
        self.check_size(width, height)
        if self._lookout.ready:
            self._draw()

    @property
    def rank(self) -> int | None:
        """The rank whose threads are shown: the chosen one, else that of the class under the cursor."""
        return self._left_side.rank

    # What each command does, and why it may not

    def own_handlers(self) -> dict[Id, Handler]:
        """Those of the samples, of the chosen rank, and of the panes."""
        samples, taking = self._samples, self._taking
        in_class = needs(lambda: self._left_side.class_has_others, "the class has no other rank")
        return {
            "sample": Handler(self._do_sample, taking.why_no_sample),
            "cancel": Handler(
                taking.cancel, needs(lambda: taking.goes_on or self.stacks.busy, "no sample is being taken")
            ),
            "previous_sample": Handler(
                lambda: samples.step(-1), needs(lambda: samples.number > 0, "no sample before this one")
            ),
            "next_sample": Handler(
                lambda: samples.step(1),
                needs(
                    lambda: samples.number < samples.last,
                    "no sample after this one"
                    + ("" if self.stacks.recorded else f"; {self.app.key_of('sample')} takes one"),
                ),
            ),
            **{
                option: Handler(partial(self._toggle, option), partial(self._cannot_ask, option))
                for option in OPTIONS
            },
            "diff": Handler(self._do_diff, self._no_diff),
            "mark_rank": Handler(self._do_mark_rank, needs(self._has_rank, NO_RANK)),
            "library": Handler(self._right_side.tree_pane.fold_libraries),
            "filter_stacks": Handler(lambda: self.filter_bar.open(self._lookout.pattern)),
            "verdict": Handler(self._show_whole, needs(lambda: self._low, "all of it is shown here")),
            "save": Handler(
                taking.save, needs(lambda: self.stacks.snapshot.samples, "no sample has been taken")
            ),
            "previous_in_class": Handler(lambda: self._step(-1), in_class),
            "next_in_class": Handler(lambda: self._step(1), in_class),
            "classes": Handler(lambda: self._go("classes")),
            "tree": Handler(self._do_tree),
            "threads": Handler(lambda: self._go("threads")),
            "open": Handler(self._do_open, self._no_open),
            "next_pane": Handler(lambda: self._other_pane(self.focus_next)),
            "previous_pane": Handler(lambda: self._other_pane(self.focus_previous)),
            "zoom": Handler(self.zoom, needs(lambda: not self.one_sided, "there is only room for one pane")),
            "copy_command": Handler(lambda: self.app.copy(self.stacks.command)),
        }

    def draw_after_command(self) -> None:
        """Everything."""
        self._draw()

    def places(self) -> Iterator[Item]:
        """Ranks, to go to."""
        for rank, place in sorted(self.stacks.snapshot.ranks.items()):
            go = partial(self.choose, rank, show=True)
            about = f"on {place.node}{', inferred' * bool(place.inferred)}"
            yield Item(str(rank), f"rank {rank}", go, "", "Ranks", about)

    def _has_rank(self) -> bool:
        return self.rank is not None

    def _cannot_ask(self, option: str) -> str:
        """Why the chosen rank cannot be asked for more."""
        return NO_RANK if self.rank is None else self._taking.why_no_asking(self.rank, option)

    def _no_diff(self) -> str:
        if self._right == "diff":
            return ""
        if self.rank is None:
            return NO_RANK
        if not has_stack(self.stacks.snapshot, self.rank, self._samples.number):
            return f"there is no stack of rank {self.rank}"
        left = self._left_side
        if counterpart(self._lookout.now, self._samples.number, self.rank, left.marked) is None:
            return "nothing to compare with: another sample, or mark a rank"
        return ""

    def _no_open(self) -> str:
        if self.pane.id in ("rank", "diff"):
            return "all of it is open"
        return "" if self._has_rank() else NO_RANK

    def _show_whole(self) -> None:
        self._whole = not self._whole

    def _why_not_live(self) -> str:
        if self._live is None:
            return "this is a snapshot from disk: no rank can be asked here"
        return self._live.why_not()

    def _do_sample(self) -> None:
        if self._live is not None:
            self._close()
            self._live.do()
            return
        self._samples.newest()
        self._taking.alone.forget()
        self._taking.take()

    # The chosen rank

    def choose(self, rank: int, *, show: bool = False) -> None:
        """Show this rank's threads.

        :param show: in full, on the right
        """
        self._turn_to(rank)
        found = self._lookout.now.class_of(rank)
        if found is not None:
            self._left_side.put_on(found)
        if show:
            self._show_right("rank")
        self._draw()

    def _turn_to(self, rank: int) -> None:
        """Make this the chosen rank; requests to another one do not apply to it."""
        if rank != self.rank:
            self._taking.alone.wish = ()
        self._left_side.chosen = rank

    def _toggle(self, option: str) -> None:
        """Ask the chosen rank for more, or show again what every rank was asked for."""
        rank = self.rank
        assert rank is not None
        self._left_side.chosen = rank
        self._show_right("rank")
        self._taking.toggle(rank, option, self._draw)

    def _step(self, step: int) -> None:
        ranks, rank = self._left_side.class_ranks, self.rank
        at = ranks.index(rank) if rank in ranks else 0
        self._turn_to(ranks[(at + step) % len(ranks)])

    def _do_mark_rank(self) -> None:
        left = self._left_side
        left.marked = None if left.marked == self.rank else self.rank

    def _unmark(self) -> None:
        self._left_side.marked = None

    def _do_diff(self) -> None:
        if self._right == "diff":
            self._show_right(self._right_side.beneath)
            return
        self._left_side.chosen = self.rank
        self._show_right("diff")

    # Working out what is shown

    @property
    def settled(self) -> bool:
        """Whether everything that has arrived is drawn."""
        return self._lookout.settled

    def _tick(self) -> None:
        if not self.app.holds(self):
            return
        if self._lookout.begin():
            self._work_out()
        else:
            self._draw_head()
            self.draw_keys()
            if self._lookout.now.verdict is None:
                self._draw_verdict()

    @work(group="sight")
    async def _work_out(self) -> None:
        if not self.app.holds(self):
            return
        try:
            await self._lookout.work_out(self._right_side.tree_pane.folding)
        except CockpitError as error:
            self.app.complain(error)
            return
        self._draw()

    def filter_by(self, pattern: str) -> None:
        """Narrow to what matches a pattern.

        :raises CockpitError: it is not a regular expression
        """
        self._lookout.narrow(pattern)
        self._tick()

    # Drawing

    def _draw(self) -> None:
        """Everything."""
        if not self.app.holds(self):
            return
        sight = self._lookout.now
        empty = notices.why_empty(
            self.stacks, self._samples, pattern=self._lookout.pattern, keys=self.app.keys
        )
        left = self._left_side
        left.draw_classes(sight, empty, pattern=self._lookout.pattern, low=self._low)
        rank = self._rank_sight()
        left.draw_threads(rank)
        self._right_side.draw(sight, rank, empty=empty[0], marked=left.marked)
        self._draw_head()
        self._draw_verdict()
        self._draw_notice()
        self.draw_keys()

    def _rank_sight(self) -> RankSight | None:
        rank = self.rank
        if rank is None:
            return None
        place = self.stacks.snapshot.ranks.get(rank, Place(""))
        alone = self._taking.alone.answer(rank)
        dump = alone or self._lookout.now.dump(rank)
        why = "" if dump is not None else self._lookout.now.snapshot.missing().get(rank, "")
        return RankSight(rank, place, dump, why, self._taking.alone.wish if alone is not None else ())

    def _draw_head(self) -> None:
        self.query_one(Bar).tell(list(notices.head(self.stacks, self._samples)))

    def _draw_verdict(self) -> None:
        found = self._lookout.now.verdict
        text = BarText(waiting=self._waiting())
        if found is not None:
            steps = tuple(step for step in found.steps if not step.action or self._helps(step.action))
            text = told(self._lookout.now, replace(found, steps=steps))
        self.query_one(VerdictBar).show(text, low=self._low and not self._whole)

    def _helps(self, action: str) -> bool:
        """Whether a key is a next step: it is not refused, and what it asks for is not shown already."""
        return not self.why_not(action) and action not in self._taking.alone.wish

    def _waiting(self) -> str:
        key = self.app.key_of("sample")
        return notices.waiting_text(self.stacks, self._samples, sampling=self._taking.goes_on, key=key)

    def _draw_notice(self) -> None:
        told = notices.notices(self.stacks, self._lookout.now, low=self._low, again=self._taking.again)
        self.draw_notice(" · ".join(told))

    def activity(self) -> Activity | None:
        """What the ranks are being asked for."""
        return self._taking.activity()

    # Panes

    @property
    def _right(self) -> str:
        return self._right_side.shown

    @property
    def on_the_right(self) -> str:
        """The tree, or what has replaced it."""
        return self._right

    def _show_right(self, name: str) -> None:
        goal = self._right_side.show(name, self.focused or self._left_side.class_list)
        if goal is not None:
            self.reveal(goal.id)
            self.call_after_refresh(goal.focus)
        # A pane has no width before it is laid out.
        self.call_after_refresh(self._draw)

    def _do_tree(self) -> None:
        self._show_right("tree")
        self._go("tree")

    def _go(self, name: str) -> None:
        pane = self.query_one(f"#{name}")
        if not pane.is_on_screen and name == "threads":
            # If there is no room for the list, the pane that has more replaces it.
            self._show_right("rank")
            pane = self.query_one("#rank")
        else:
            self.reveal(name)
        self.call_after_refresh(pane.focus)

    def _other_pane(self, focus: Callable[[str], object]) -> None:
        if self.one_sided:
            self._go("classes" if self.pane.id in PANES else self._right)
        else:
            focus(".pane")

    def _do_open(self) -> None:
        pane = self.pane
        if isinstance(pane, StackTreePane):
            if not pane.toggle() and pane.current is not None:
                ranks = pane.current.ranks
                rank = self.rank
                if rank is None or not ranks >> rank & 1:
                    rank = (ranks & -ranks).bit_length() - 1
                self.choose(rank, show=True)
        elif isinstance(pane, ClassList | ThreadList) and self.rank is not None:
            self._left_side.chosen = self.rank
            self._show_right("rank")
            if isinstance(pane, ThreadList):
                self._draw()
                self._right_side.rank_pane.go_to(pane.place)

    def undoable(self) -> Sequence[tuple[object, Callable[[], object]]]:
        """What esc undoes, the nearest first."""
        return [
            (self._right != "tree", partial(self._show_right, self._right_side.beneath)),
            (self._lookout.pattern, partial(self.filter_by, "")),
            (self._samples.chosen is not None, self._samples.newest),
            (self._left_side.marked is not None, self._unmark),
            (self.zoomed and not self.one_sided, self.unzoom),
            (not self.root, self._close),
        ]

    def _close(self) -> None:
        if self.stacks.busy:
            self.stacks.cancel()
        self.dismiss(None)

    def text_to_copy(self) -> str:
        """The item under the cursor, or all of a pane without one."""
        pane = self.pane
        return pane.copy_text() if isinstance(pane, TextPane) else ""

    def ask_to_leave(self) -> None:
        """End the sample under way; else leave at once if nothing is below, else ask."""
        if not self.why_not("cancel"):
            self._taking.cancel()
        elif self.root:
            self.app.leave()
        else:
            answers = [Answer("stay", "stay", "c"), Answer("leave", "leave", "l")]
            question = Question("leave or stay?", [f"Leaving: {self.app.leaving}."], answers)
            self.app.push_screen(question, self.left_or_not)

    # Messages of widgets

    @on(ListPane.Moved)
    def _moved(self, event: ListPane.Moved) -> None:
        if event.pane.id == "classes":
            self._left_side.chosen = None
            self._taking.alone.wish = ()
            self._right_side.tree_pane.touched = False
        elif event.pane.id == "threads" and self._right == "rank":
            self._right_side.rank_pane.go_to(self._left_side.thread_list.place)
            return
        elif event.pane.id != "tree":
            return
        self._draw()

    @on(ListPane.Opened)
    def _opened(self, event: ListPane.Opened) -> None:
        self.action_command("open")
