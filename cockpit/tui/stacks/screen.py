"""The stack screen: the verdict on top, classes of ranks, the tree of all stacks, one rank in full."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import ClassVar

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.widget import Widget
from textual.widgets import Static
from textual.worker import Worker

from cockpit.base.stacks.kinds import kind
from cockpit.core.masks import count, ranks_of
from cockpit.core.stacks.snapshot import Place
from cockpit.errors import CockpitError
from cockpit.tui.command_screen import CommandScreen, Handler, bindings, needs, title
from cockpit.tui.commands import STACKS, Id
from cockpit.tui.logs.filter_bar import FilterBar
from cockpit.tui.panes.bar import Bar
from cockpit.tui.panes.dialogs import Answer, Question
from cockpit.tui.panes.finder import Item
from cockpit.tui.panes.key_bar import Activity, KeyBar
from cockpit.tui.panes.list_pane import ListPane
from cockpit.tui.panes.text_pane import TextPane
from cockpit.tui.stacks import notices
from cockpit.tui.stacks.asked_alone import OPTIONS, AskedAlone
from cockpit.tui.stacks.class_list import ClassList
from cockpit.tui.stacks.diff import StackDiff, counterpart, has_stack, sides
from cockpit.tui.stacks.help import ABOUT
from cockpit.tui.stacks.lookout import Lookout
from cockpit.tui.stacks.samples import SampleCursor
from cockpit.tui.stacks.source import Source
from cockpit.tui.stacks.thread_list import RankPane, RankSight, ThreadList
from cockpit.tui.stacks.tree import StackTreePane
from cockpit.tui.stacks.verdict_bar import BarText, VerdictBar, told

__all__ = ["Source", "StackScreen"]

TICK_S = 0.1
"""Seconds between two looks at what has arrived."""

FIRST, INTERVAL_S = 2, 1.0
"""Samples taken as the screen opens, and seconds between them: one alone cannot show what moves."""

MIDDLE, NARROW, LOW, FLAT = 130, 100, 32, 16
"""Columns below which the left pane is narrower, or on top; rows below which less is said, and below which
panes do not fit one above the other."""

NO_RANK = "no rank is chosen"

RIGHT = ("tree", "rank", "diff")
"""The panes on the right, one at a time."""


class StackScreen(CommandScreen):
    """The stacks of one job, sample by sample.

    :param stacks: whose stacks; the first samples are taken as it opens, unless there are some
    :param root: there is no screen below this one to go back to
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

    def __init__(self, stacks: Source, *, root: bool = False) -> None:
        super().__init__()
        self.stacks = stacks
        self.root = root
        self.last_keys = ("leave" if root else "back", "help")
        self._samples = SampleCursor(stacks)
        self._sampling: Worker[None] | None = None
        self._alone = AskedAlone()
        self._asking = ""
        """What the chosen rank alone is being asked for."""
        self._lookout = Lookout(stacks, self._samples)
        self._chosen: int | None = None
        self._marked: int | None = None
        self._right = "tree"
        self._beneath = "tree"
        """What was on the right before the diff."""
        self._came_from: Widget | None = None
        """What had the focus before a pane replaced the tree."""
        self._low = False

    def compose(self) -> ComposeResult:
        yield Bar(id="top")
        yield VerdictBar(keys=self.app.keys.__getitem__, id="verdict")
        yield Static("", id="notice", markup=False)
        with Container(id="body"):
            with Vertical(id="left"):
                yield ClassList(id="classes")
                yield ThreadList(id="threads")
            with Vertical(id="right"):
                yield StackTreePane(id="tree")
                yield RankPane(id="rank")
                yield StackDiff(id="diff")
        yield FilterBar(self._set_filter, id="filter")
        yield KeyBar(ascii_only=self.app.glyphs.ascii, id="keys")
        yield Static("", id="small", markup=False)

    def on_mount(self) -> None:
        if self.app.glyphs.ascii:
            self.add_class("-ascii")
        self._show_right("tree")
        self._class_list.focus()
        if not self.stacks.recorded and not self.stacks.snapshot.samples:
            self._sampling = self._take(FIRST)
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
        self._one_pane(width < NARROW and height < FLAT)
        self.check_size(width, height)
        if self._lookout.ready:
            self._draw()

    def _one_pane(self, one: bool) -> None:
        """Show only the side with the focus, or both."""
        before = self.has_class("-one")
        self.set_class(one, "-one")
        if one:
            self._reveal(self.pane.id)
        elif before:
            self.unzoom()

    @property
    def _class_list(self) -> ClassList:
        return self.query_one(ClassList)

    @property
    def _tree_pane(self) -> StackTreePane:
        return self.query_one(StackTreePane)

    @property
    def _thread_list(self) -> ThreadList:
        return self.query_one(ThreadList)

    @property
    def rank(self) -> int | None:
        """The rank whose threads are shown: the chosen one, else that of the class under the cursor."""
        if self._chosen_there is not None:
            return self._chosen_there
        found = self._class_list.current
        return None if found is None else found.sample_rank

    @property
    def _chosen_there(self) -> int | None:
        """The chosen rank, if the snapshot has it."""
        return self._chosen if self._chosen in self.stacks.snapshot.ranks else None

    # What each command does, and why it may not

    def own_handlers(self) -> dict[Id, Handler]:
        """Those of the samples, of the chosen rank, and of the panes."""
        samples = self._samples
        in_class = needs(self._class_of_several, "the class has no other rank")
        return {
            "sample": Handler(self._do_sample, self._no_sample),
            "cancel": Handler(
                self._do_cancel,
                needs(lambda: self._is_sampling or self.stacks.busy, "no sample is being taken"),
            ),
            "previous_sample": Handler(
                lambda: samples.step(-1), needs(lambda: samples.number > 0, "no sample before this one")
            ),
            "next_sample": Handler(
                lambda: samples.step(1),
                needs(
                    lambda: samples.number < samples.last,
                    f"no sample after this one; {self.app.key_of('sample')} takes one",
                ),
            ),
            **{
                option: Handler(partial(self._toggle, option), partial(self._cannot_ask, option))
                for option in OPTIONS
            },
            "diff": Handler(self._do_diff, self._no_diff),
            "mark_rank": Handler(self._do_mark_rank, needs(self._has_rank, NO_RANK)),
            "library": Handler(self._tree_pane.fold_libraries),
            "filter_stacks": Handler(lambda: self.filter_bar.open(self._lookout.pattern)),
            "save": Handler(
                self._save, needs(lambda: self.stacks.snapshot.samples, "no sample has been taken")
            ),
            "previous_in_class": Handler(lambda: self._step(-1), in_class),
            "next_in_class": Handler(lambda: self._step(1), in_class),
            "classes": Handler(lambda: self._go("classes")),
            "tree": Handler(self._do_tree),
            "threads": Handler(lambda: self._go("threads")),
            "open": Handler(self._do_open, self._no_open),
            "next_pane": Handler(lambda: self._other_pane(self.focus_next)),
            "previous_pane": Handler(lambda: self._other_pane(self.focus_previous)),
            "zoom": Handler(
                self.zoom, needs(lambda: not self.has_class("-one"), "there is room for one pane only")
            ),
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

    def _no_sample(self) -> str:
        if self.stacks.recorded:
            return "this is a snapshot from disk; its ranks cannot be asked any more"
        if self._is_sampling:
            return f"a sample is being taken; {self.app.key_of('cancel')} ends it"
        return ""

    def _has_rank(self) -> bool:
        return self.rank is not None

    def _class_of_several(self) -> bool:
        found = self._class_list.current
        return found is not None and count(found.ranks) > 1

    def _cannot_ask(self, option: str) -> str:
        """Why the chosen rank cannot be asked for more."""
        rank, snapshot = self.rank, self.stacks.snapshot
        if rank is None:
            return NO_RANK
        if self.stacks.recorded:
            taken = bool(snapshot.options.get(option))
            return f"this snapshot was taken with{'' if taken else 'out'} {option}"
        if option in self._alone.wish:
            return ""
        newest = snapshot.dumps(rank)[-1:]
        ended = next((dump.what for dump in newest if dump.error in ("gone", "zombie")), "")
        why = snapshot.ranks[rank].why or ended
        return f"rank {rank}: {why}" if why else ""

    def _no_diff(self) -> str:
        if self._right == "diff":
            return ""
        if self.rank is None:
            return NO_RANK
        if not has_stack(self.stacks.snapshot, self.rank, self._samples.number):
            return f"there is no stack of rank {self.rank}"
        if self._counterpart(self.rank) is None:
            return "nothing to compare with: another sample, or mark a rank"
        return ""

    def _no_open(self) -> str:
        if self.pane.id in ("rank", "diff"):
            return "all of it is open"
        return "" if self._has_rank() else NO_RANK

    # Samples

    def _do_sample(self) -> None:
        self._samples.newest()
        self._alone.forget()
        self._sampling = self._take(1)

    @property
    def _is_sampling(self) -> bool:
        return self._sampling is not None and self._sampling.is_running

    @work(group="sample")
    async def _take(self, samples: int) -> None:
        for number in range(samples):
            if number:
                await asyncio.sleep(INTERVAL_S)
            try:
                await self.stacks.take()
            except CockpitError as error:
                self.app.complain(error)
                return

    def _do_cancel(self) -> None:
        if self.stacks.busy:
            self.stacks.cancel()
        elif self._sampling is not None:
            self._sampling.cancel()

    @work(group="save", exclusive=True)
    async def _save(self) -> None:
        try:
            path = await asyncio.to_thread(self.stacks.save)
        except CockpitError as error:
            self.app.complain(error)
            return
        text = f"the snapshot is in {path} · cockpit stacks FOLDER opens it again"
        self.notify(text, timeout=12)

    # The chosen rank

    def choose(self, rank: int, *, show: bool = False) -> None:
        """Show this rank's threads.

        :param show: in full, on the right
        """
        self._turn_to(rank)
        found = self._lookout.now.class_of(rank)
        if found is not None:
            self._class_list.put_on(self._class_list.key_of(found))
        if show:
            self._show_right("rank")
        self._draw()

    def _turn_to(self, rank: int) -> None:
        """Make this the chosen rank; requests to another one do not apply to it."""
        if rank != self.rank:
            self._alone.wish = ()
        self._chosen = rank

    def _toggle(self, option: str) -> None:
        """Ask the chosen rank for more, or show again what every rank was asked for."""
        rank = self.rank
        assert rank is not None
        self._alone.toggle(option)
        self._chosen = rank
        self._show_right("rank")
        if self._alone.wish and self._alone.answer(rank) is None:
            self._ask(rank)

    @work(group="look", exclusive=True)
    async def _ask(self, rank: int) -> None:
        asking = self._asking = f"asking rank {rank} for {' and '.join(self._alone.wish)}"
        try:
            await self._alone.ask(self.stacks, rank)
        except CockpitError as error:
            self._alone.wish = ()
            self.app.complain(error)
        finally:
            # One that took another's place may ask already.
            if self._asking is asking:
                self._asking = ""
        self._draw()

    def _step(self, step: int) -> None:
        found = self._class_list.current
        assert found is not None
        ranks = list(ranks_of(found.ranks))
        rank = self.rank
        at = ranks.index(rank) if rank in ranks else 0
        self._turn_to(ranks[(at + step) % len(ranks)])

    def _do_mark_rank(self) -> None:
        self._marked = None if self._marked == self.rank else self.rank

    def _counterpart(self, rank: int) -> tuple[int, int] | None:
        return counterpart(self._lookout.now, self._samples.number, rank, self._marked)

    def _do_diff(self) -> None:
        if self._right == "diff":
            self._show_right(self._beneath)
            return
        self._chosen = self.rank
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
            await self._lookout.work_out(self._tree_pane.folding)
        except CockpitError as error:
            self.app.complain(error)
            return
        self._draw()

    def _set_filter(self, pattern: str) -> None:
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
        self._tree_pane.empty, self._class_list.empty = empty[0], empty
        self._class_list.show(
            sight.classes,
            odd=sight.odd,
            moved=sight.moved,
            chosen=self._chosen_there,
            marked=self._marked,
            inferred=sight.snapshot.inferred,
            low=self._low,
        )
        self._tree_pane.show(sight, chosen=self.rank)
        self._draw_rank()
        self._draw_head()
        self._draw_verdict()
        self._draw_notice()
        self.draw_keys()
        self._draw_titles()

    def _draw_rank(self) -> None:
        """What is shown of the chosen rank alone."""
        sight = self._rank_sight()
        self._thread_list.show(sight)
        pane = self.query_one(RankPane)
        if sight is not None and self._right == "rank":
            kinds = [
                [kind(frame) for frame in thread.frames]
                for thread in (sight.dump.threads if sight.dump is not None else ())
            ]
            pane.show(sight, kinds, library=self._tree_pane.folding[1])
        if self._right == "diff" and self.rank is not None:
            other = self._counterpart(self.rank)
            self.query_one(StackDiff).show(
                *sides(self.stacks.snapshot, self.rank, self._samples.number, other)
            )

    def _rank_sight(self) -> RankSight | None:
        rank = self.rank
        if rank is None:
            return None
        place = self.stacks.snapshot.ranks.get(rank, Place(""))
        alone = self._alone.answer(rank)
        dump = alone or self._lookout.now.dump(rank)
        why = "" if dump is not None else self._lookout.now.snapshot.missing().get(rank, "")
        return RankSight(rank, place, dump, why, self._alone.wish if alone is not None else ())

    def _draw_head(self) -> None:
        self.query_one(Bar).tell(list(notices.head(self.stacks, self._samples)))

    def _draw_verdict(self) -> None:
        found = self._lookout.now.verdict
        self.query_one(VerdictBar).show(
            BarText(waiting=self._waiting()) if found is None else told(self._lookout.now, found),
            low=self._low,
        )

    def _waiting(self) -> str:
        key = self.app.key_of("sample")
        return notices.waiting_text(self.stacks, self._samples, sampling=self._is_sampling, key=key)

    def _draw_notice(self) -> None:
        self.draw_notice(" · ".join(notices.notices(self.stacks, self._lookout.now, low=self._low)))

    def _draw_titles(self) -> None:
        sight, rank = self._lookout.now, self.rank
        self._class_list.border_title = title(
            self.app.key_of("classes"), f"classes {len(sight.classes) or ''}"
        )
        self._class_list.border_subtitle = title(
            "", notices.filter_text(sight, self.stacks, self._lookout.pattern)
        )
        self._thread_list.border_title = title(
            self.app.key_of("threads"), "threads" if rank is None else f"rank {rank} threads"
        )
        names = {"tree": "stack tree", "rank": f"rank {rank}", "diff": "what differs"}
        movement = notices.movement_text(self.stacks, sight, self._samples.number)
        for name in RIGHT:
            pane = self.query_one(f"#{name}")
            pane.border_title = title(self.app.key_of("tree") if name == "tree" else "", names[name])
            beneath = "the tree" if self._beneath == "tree" else f"rank {rank}"
            back = "" if name == "tree" else f"{self.app.key_of('back')}: {beneath}"
            pane.border_subtitle = title("", back or movement)

    def activity(self) -> Activity | None:
        """A rank that is asked alone, else the sample under way."""
        if self._asking:
            return Activity(self._asking)
        samples = self.stacks.snapshot.samples
        if samples and self._samples.under_way(samples[-1]):
            sample = samples[-1]
            share = len(sample.dumps) / self.stacks.asked if self.stacks.asked else None
            return Activity(f"sample {len(samples)}: {self._samples.progress(sample)}", share)
        if self._is_sampling:
            return Activity(f"one more sample in a moment, {len(samples)} taken")
        return None

    # Panes

    @property
    def on_the_right(self) -> str:
        """The tree, or what has replaced it."""
        return self._right

    def _show_right(self, name: str) -> None:
        before, self._right = self._right, name
        if name != before:
            self._beneath = before if name == "diff" else "tree"
        for each in RIGHT:
            self.query_one(f"#{each}").set_class(each == name, "-shown")
        focused = self.focused
        goal: Widget | None = None
        if name != "tree":
            if before == "tree":
                self._came_from = focused
            goal = self.query_one(f"#{name}")
        elif before != name and focused is not None and focused.id in RIGHT:
            goal = self._came_from or self._class_list
        if goal is not None:
            self._reveal(goal.id)
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
            self._reveal(name)
        self.call_after_refresh(pane.focus)

    def _reveal(self, pane: str | None) -> None:
        """Show the side that a pane is on; the other one too, unless there is room for only one."""
        side, other = ("right", "left") if pane in RIGHT else ("left", "right")
        self.remove_class(f"-zoom-{other}")
        if self.has_class("-one"):
            self.add_class(f"-zoom-{side}")

    def _other_pane(self, focus: Callable[[str], object]) -> None:
        if self.has_class("-one"):
            self._go("classes" if self.pane.id in RIGHT else self._right)
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
            self._chosen = self.rank
            self._show_right("rank")
            if isinstance(pane, ThreadList):
                self._draw()
                self.query_one(RankPane).go_to(pane.place)

    def undoable(self) -> Sequence[tuple[object, Callable[[], object]]]:
        """What esc undoes, the nearest first."""
        return [
            (self._right != "tree", partial(self._show_right, self._beneath)),
            (self._lookout.pattern, partial(self._set_filter, "")),
            (self._samples.chosen is not None, self._samples.newest),
            (self._marked is not None, self._unmark),
            (self.zoomed and not self.has_class("-one"), self.unzoom),
            (not self.root, self._close),
        ]

    def _unmark(self) -> None:
        self._marked = None

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
            self._do_cancel()
        elif self.root:
            self.app.leave()
        else:
            answers = [Answer("stay", "stay", "c"), Answer("leave", "leave", "l")]
            question = Question("leave or stay?", ["Leaving: the run goes on."], answers)
            self.app.push_screen(question, self.left_or_not)

    # Messages of widgets

    @on(ListPane.Moved)
    def _moved(self, event: ListPane.Moved) -> None:
        if event.pane.id == "classes":
            self._chosen = None
            self._alone.wish = ()
            self._tree_pane.touched = False
        elif event.pane.id == "threads" and self._right == "rank":
            self.query_one(RankPane).go_to(self._thread_list.place)
            return
        elif event.pane.id != "tree":
            return
        self._draw()

    @on(ListPane.Opened)
    def _opened(self, event: ListPane.Opened) -> None:
        self.action_command("open")
