"""The stack screen: the verdict on top, classes of ranks, the tree of all stacks, one rank in full."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from cockpit.base.stacks.kinds import kind
from cockpit.core.masks import count, ranks_of
from cockpit.core.ranks import mask_text, nodes_text
from cockpit.core.stacks.snapshot import Place, Sample
from cockpit.core.text import RemoteText
from cockpit.errors import CockpitError
from cockpit.tui.commands import STACKS, in_scope
from cockpit.tui.logs.filter_bar import FilterBar
from cockpit.tui.look.units import clock_text, span_text
from cockpit.tui.panes.bar import Bar
from cockpit.tui.panes.cursor_pane import CursorPane
from cockpit.tui.panes.key_bar import SLOTS, Activity, KeyBar
from cockpit.tui.panes.line import Part
from cockpit.tui.stacks.actions import FIRST, RIGHT, StackActions
from cockpit.tui.stacks.class_list import ClassList
from cockpit.tui.stacks.diff import Side, StackDiff
from cockpit.tui.stacks.sight import Sight, look, problem
from cockpit.tui.stacks.source import Source
from cockpit.tui.stacks.thread_list import RankPane, RankSight, ThreadList
from cockpit.tui.stacks.tree import StackTreePane
from cockpit.tui.stacks.verdict_bar import Told, VerdictBar
from cockpit.tui.stacks.words import count_text

__all__ = ["Source", "StackScreen"]

TICK_S = 0.1
"""Seconds between two looks at what has arrived."""

PATIENCE_S = 2.0
"""Seconds after which an incomplete sample is shown and judged as it is."""

MIDDLE, NARROW, LOW, FLAT, SMALL = 130, 100, 32, 16, (50, 12)
"""Columns below which the left pane is narrower, or on top; rows below which less is said, and below which
panes do not fit one above the other; the minimum of both."""


class StackScreen(StackActions):
    """The stacks of one job, sample by sample.

    :param stacks: whose stacks; the first samples are taken as it opens, unless there are some
    :param root: there is no screen below this one to go back to
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(",".join(command.keys), f"command('{command.id}')", command.title, id=command.id, show=False)
        for command in in_scope(STACKS)
    ]

    DEFAULT_CSS = """
    StackScreen { layout: vertical; background: $background; }
    StackScreen #body { height: 1fr; layout: horizontal; }
    StackScreen #left { width: 46; height: 1fr; }
    StackScreen #right { width: 1fr; height: 1fr; }
    StackScreen .pane { border: round $frame; padding: 0 1; }
    StackScreen .pane { border-title-color: $dim; border-subtitle-color: $dim; }
    StackScreen.-ascii .pane, StackScreen.-ascii .pane:focus { border: ascii; }
    StackScreen .pane:focus { border: round $key; }
    StackScreen #threads { height: auto; max-height: 40%; }
    StackScreen #right > .pane { display: none; height: 1fr; }
    StackScreen #right > .pane.-shown { display: block; }
    StackScreen FilterBar { dock: bottom; display: none; }
    StackScreen FilterBar.-open { display: block; }
    StackScreen #notice { height: auto; max-height: 4; display: none; padding: 0 1; }
    StackScreen #notice { background: $notice; color: $foreground; }
    StackScreen #notice.-shown { display: block; }

    StackScreen.-middle #left { width: 38; }
    StackScreen.-narrow #body { layout: vertical; }
    StackScreen.-narrow #left { width: 1fr; height: auto; max-height: 40%; }
    StackScreen.-narrow #classes { height: auto; max-height: 100%; }
    StackScreen.-narrow #threads { display: none; }
    StackScreen.-flat #threads { display: none; }
    StackScreen.-flat #notice { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    StackScreen.-zoom-left #right, StackScreen.-zoom-right #left { display: none; }
    StackScreen.-zoom-left #left { width: 1fr; max-height: 100%; height: 1fr; }
    StackScreen.-zoom-left #classes { height: 1fr; }
    StackScreen #small { display: none; }
    StackScreen.-small > * { display: none; }
    StackScreen.-small > #small { display: block; width: 1fr; height: 1fr; content-align: center middle; }
    """

    def __init__(self, stacks: Source, *, root: bool = False) -> None:
        super().__init__(stacks, root=root)
        self._done: object = None
        """What the current sight was computed from."""
        self._working = False
        self._not_before = 0.0
        self._low = False
        self._came_from: Widget | None = None
        """What had the focus before a pane replaced the tree."""

    def compose(self) -> ComposeResult:
        ascii_only = self.app.glyphs.ascii
        yield Bar(id="top")
        yield VerdictBar(keys=self.key_of, id="verdict")
        yield Static("", id="notice", markup=False)
        with Container(id="body"):
            with Vertical(id="left"):
                yield ClassList(ascii_only=ascii_only, id="classes")
                yield ThreadList(ascii_only=ascii_only, id="threads")
            with Vertical(id="right"):
                yield StackTreePane(ascii_only=ascii_only, id="tree")
                yield RankPane(ascii_only=ascii_only, id="rank")
                yield StackDiff(ascii_only=ascii_only, id="diff")
        yield FilterBar(self._set_filter, id="filter")
        yield KeyBar(ascii_only=ascii_only, id="keys")
        yield Static("", id="small", markup=False)

    def on_mount(self) -> None:
        for pane in ("classes", "threads", *RIGHT):
            self.query_one(f"#{pane}").add_class("pane")
        if self.app.glyphs.ascii:
            self.add_class("-ascii")
        self.app.update_keymap({c.id: ",".join(c.keys) for c in self.commands.values()})
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
        self.set_class(width < SMALL[0] or height < SMALL[1], "-small")
        self.query_one("#small", Static).update(
            f"{width} x {height} is too small for cockpit.\nIt needs {SMALL[0]} x {SMALL[1]}."
        )
        if self._done is not None:
            self._draw()

    def _one_pane(self, one: bool) -> None:
        """Show only the side with the focus, or both."""
        before = self.has_class("-one")
        self.set_class(one, "-one")
        if one:
            self._reveal(self._pane())
        elif before:
            self._unzoom()

    # Working out what is shown

    @property
    def settled(self) -> bool:
        """Whether everything that has arrived is drawn."""
        return not self._working and self._done == self._wanted()

    @property
    def _left(self) -> bool:
        """Whether the screen has been left: its panes are gone before its workers end."""
        return not self.is_attached or self not in self.app.screen_stack

    @property
    def number(self) -> int:
        """The sample that is shown, from 0; -1 if there is none.

        The newest one, unless a person chose another; an unfinished one only once it is clear that some rank
        keeps us waiting, since the screen would otherwise be empty for a moment.
        """
        samples = self.stacks.snapshot.samples
        last = len(samples) - 1
        if self._at is not None:
            return min(self._at, last)
        if last > 0 and self._under_way(samples[last]) and not self._waited_long(samples[last]):
            return last - 1
        return last

    def _under_way(self, sample: Sample) -> bool:
        return sample.took_s is None and not self.stacks.recorded

    def _waited_long(self, sample: Sample) -> bool:
        return time.time() - sample.at > PATIENCE_S

    def _wanted(self) -> object:
        """What a sight depends on."""
        number, snapshot = self.number, self.stacks.snapshot
        if number < 0:
            return number, len(snapshot.ranks)
        sample = snapshot.samples[number]
        told = len(sample.dumps), len(sample.silent), sample.took_s, self._judges(sample)
        gone = sum(bool(place.why) for place in snapshot.ranks.values())
        return number, told, len(snapshot.ranks), gone, self._pattern

    def _judges(self, sample: Sample) -> bool:
        """Whether it is time for a verdict: not while answers are about to arrive."""
        return not self._under_way(sample) or self._waited_long(sample)

    def _tick(self) -> None:
        wanted = self._wanted()
        if wanted != self._done and not self._working and time.monotonic() >= self._not_before:
            self._working = True
            self._work_out(wanted)
        else:
            self._draw_head()
            self._draw_keys()
            if self._sight.verdict is None:
                self._draw_verdict()

    @work(group="sight")
    async def _work_out(self, wanted: object) -> None:
        """In a thread: thousands of ranks take longer than a frame."""
        if self._left:
            return
        began = time.monotonic()
        snapshot, number, pattern = self.stacks.snapshot.copy(), self.number, self._pattern
        judged = number >= 0 and self._judges(snapshot.samples[number])
        folding = self._tree_pane.folding
        try:
            self._sight = await asyncio.to_thread(look, snapshot, number, pattern, folding, judge=judged)
        except CockpitError as error:
            self._pattern = ""
            self.app.complain(error)
            return
        finally:
            self._working = False
            # A third of the time at most, however many ranks there are.
            self._not_before = time.monotonic() + 2 * (time.monotonic() - began)
        self._done = wanted
        self._draw()

    def _set_filter(self, pattern: str) -> None:
        """Narrow to what matches a pattern.

        :raises CockpitError: it is not a regular expression
        """
        wrong = problem(pattern)
        if wrong:
            raise CockpitError(wrong)
        self._pattern = pattern
        self._not_before = 0.0
        self._tick()

    # Drawing

    def _draw(self) -> None:
        """Everything."""
        if self._left:
            return
        sight = self._sight
        self._draw_classes(sight)
        self._tree_pane.empty = self._why_empty()[0]
        self._tree_pane.show(sight, chosen=self.rank)
        self._draw_rank()
        self._draw_head()
        self._draw_verdict()
        self._draw_notice()
        self._draw_keys()
        self._draw_titles()

    def _draw_classes(self, sight: Sight) -> None:
        self._class_list.empty = self._why_empty()
        self._class_list.show(
            sight.classes,
            odd=sight.odd,
            moved=sight.moved,
            chosen=self.rank,
            marked=self._marked,
            low=self._low,
        )

    def _why_empty(self) -> Sequence[str]:
        if self._pattern:
            return (f"nothing matches {self._pattern!r}", f"{self.key_of('back')} shows all ranks again")
        if self.stacks.busy or not (self.stacks.recorded or self.stacks.snapshot.samples):
            return ("no rank has answered yet",)
        before = self.stacks.snapshot.samples[: max(0, self.number)]
        if any(sample.answered for sample in before):
            return (f"no rank answered; {self.key_of('previous_sample')} shows the sample before",)
        if self.stacks.recorded:
            return ("this snapshot holds no answer",)
        return ("no rank answered",)

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
            self.query_one(StackDiff).show(*self._sides(self.rank))

    def _rank_sight(self) -> RankSight | None:
        rank = self.rank
        if rank is None:
            return None
        place = self.stacks.snapshot.ranks.get(rank, Place(""))
        alone = self._looks.get((rank, self._wish)) if self._wish else None
        dump = alone or self._sight.dump(rank)
        why = "" if dump is not None else self._sight.snapshot.missing().get(rank, "")
        return RankSight(rank, place, dump, why, self._wish if alone is not None else ())

    def _sides(self, rank: int) -> tuple[Side, Side]:
        """What is compared: first the other one, then the chosen rank in the sample shown."""
        number, other = self.number, self._diff_with()
        if other is None:
            return self._side(rank, number, True), self._side(rank, number, True)
        both = other[1] != number
        return self._side(*other, both), self._side(rank, number, both)

    def _side(self, rank: int, number: int, with_sample: bool) -> Side:
        sample = self.stacks.snapshot.samples[number]
        name = f"rank {rank}"
        if with_sample:
            name += f", sample {number + 1} · {clock_text(sample.at, 10)}"
        else:
            name += f"  {self.stacks.snapshot.ranks[rank].node}"
        dump = sample.dumps.get(rank)
        return Side(name, dump, dump.what if dump is not None else "no answer")

    def _draw_head(self) -> None:
        snapshot, number = self.stacks.snapshot, self.number
        parts = [_whose(RemoteText.of(snapshot.title).shown())]
        if number < 0:
            self.query_one(Bar).tell([*parts, Part((("stacks", "strong"),), 1)])
            return
        sample = snapshot.samples[number]
        when = ("stacks ", "dim"), (clock_text(sample.at, 8), "strong")
        parts.append(Part(when, 1))
        if len(snapshot.samples) > 1:
            parts.append(
                Part((("sample ", "dim"), (f"{number + 1} of {len(snapshot.samples)}", "strong")), 3)
            )
        parts.append(self._answered(sample))
        self.query_one(Bar).tell(parts)

    def _answered(self, sample: Sample) -> Part:
        world = len(self.stacks.snapshot.ranks)
        answered = count(self._answered_mask(sample))
        style = "good" if answered == world else "warn" if answered else "bad"
        if self._under_way(sample):
            style = "strong"
        took = f" in {span_text(sample.took_s)}" if sample.took_s is not None else ""
        short = Part(((f"{answered:,}/{world:,} answered", style),), 2)
        return Part(((f"{answered:,} of {world:,} ranks answered", style), (took, "dim")), 2, short)

    def _answered_mask(self, sample: Sample) -> int:
        """Cached for each state of a sample: a thousand ranks must not be counted ten times a second."""
        key = id(sample), len(sample.dumps), sample.took_s
        if self._counted is None or self._counted[0] != key:
            self._counted = key, sample.answered
        return self._counted[1]

    _counted: tuple[Any, int] | None = None

    def _draw_verdict(self) -> None:
        sight = self._sight
        found = sight.verdict
        bar = self.query_one(VerdictBar)
        if found is None:
            bar.show(Told(waiting=self._waiting()), low=self._low)
            return
        place = source = ""
        if count(found.ranks) > 1:
            place = nodes_text(found.nodes) if len(found.nodes) < len(sight.snapshot.ranks) else ""
        elif found.ranks:
            rank = found.ranks.bit_length() - 1
            where = sight.snapshot.ranks.get(rank, Place(""))
            local = "" if where.local_rank is None else f", local rank {where.local_rank}"
            place = f"{where.node}{local}"
            dump = sight.dump(rank)
            source = dump.source if dump is not None else ""
        tone = "odd" if found.ranks else "good" if found.severity == "info" else ""
        bar.show(Told(found, place, source, tone), low=self._low)

    def _waiting(self) -> str:
        """Why there is no verdict yet."""
        samples = self.stacks.snapshot.samples
        if not samples:
            if self.stacks.recorded:
                return "this snapshot holds no sample"
            if self._sampling is not None and self._sampling.is_running:
                return f"asking {self.stacks.asked:,} ranks\nwhat each of them is doing right now"
            return f"nobody has been asked yet\n{self.key_of('sample')} takes a sample of all ranks"
        sample = samples[-1]
        if not self._under_way(sample):
            return "working it out"
        text = self._progress(sample)
        late = Counter(
            place.node
            for rank, place in self.stacks.snapshot.ranks.items()
            if not place.why and rank not in sample.dumps and place.node and place.node not in sample.silent
        )
        if not sample.dumps or not late:
            return f"asking every rank what it is doing\n{text}"
        return f"asking every rank what it is doing\n{text}; still to come: {nodes_text(late)}"

    def _progress(self, sample: Sample) -> str:
        age = max(0.0, time.time() - sample.at)
        return f"{len(sample.dumps):,} of {self.stacks.asked:,} ranks, {age:.1f} s"

    def _draw_notice(self) -> None:
        """What stays on the screen: a recorded snapshot, a refusal, a snapshot that cannot be kept."""
        text = " · ".join(self._notices())
        notice = self.query_one("#notice", Static)
        notice.set_class(bool(text), "-shown")
        notice.update(text)

    def _notices(self) -> list[str]:
        texts = []
        snapshot = self.stacks.snapshot
        if self.stacks.recorded:
            taken = snapshot.samples[0].at if snapshot.samples else 0.0
            day = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(taken)) if taken else snapshot.name
            texts.append(f"RECORDED SNAPSHOT · taken {day} · nothing here is live")
        trouble = self.stacks.trouble
        if trouble:
            texts.append(RemoteText.of(f"not kept on disk: {trouble}").shown(limit=300))
        sample = self._sight.sample
        if sample is not None:
            # In a terminal with few rows the verdict leaves out what to do next.
            steps = self._sight.verdict.steps if self._sight.verdict is not None and not self._low else ()
            told = [step.command for step in steps]
            hints: dict[str, int] = {}
            for rank, dump in sample.dumps.items():
                if dump.error == "denied" and dump.hint and dump.hint not in told:
                    hints[dump.hint] = hints.get(dump.hint, 0) | 1 << rank
            for hint, ranks in hints.items():
                nodes = dict.fromkeys(snapshot.ranks[rank].node for rank in ranks_of(ranks))
                texts.append(f"{count_text(ranks)} on {nodes_text(nodes)} may not be looked at · {hint}")
        return texts

    def _draw_titles(self) -> None:
        sight, rank = self._sight, self.rank
        self._class_list.border_title = _title("1", f"classes {len(sight.classes) or ''}")
        self._class_list.border_subtitle = _title("", self._filter_text())
        self._thread_list.border_title = _title("3", "threads" if rank is None else f"rank {rank} threads")
        names = {"tree": "stack tree", "rank": f"rank {rank}", "diff": "what differs"}
        for name in RIGHT:
            pane = self.query_one(f"#{name}")
            pane.border_title = _title("2" if name == "tree" else "", names[name])
            beneath = "the tree" if self._beneath == "tree" else f"rank {rank}"
            back = "" if name == "tree" else f"{self.key_of('back')}: {beneath}"
            pane.border_subtitle = _title("", back or self._movement_text())

    def _filter_text(self) -> str:
        if not self._pattern:
            return ""
        shown, world = count(self._sight.shown), len(self.stacks.snapshot.ranks)
        return f"/{self._pattern} · {shown:,} of {world:,} ranks"

    def _movement_text(self) -> str:
        """What moved since the previous sample."""
        number = self.number
        if number < 0:
            return ""
        text = f"sample {number + 1} of {len(self.stacks.snapshot.samples)}"
        if number == 0 or not self._sight.tree.ranks:
            return text
        moved = self._sight.moved
        if not moved:
            return f"{text} · nothing moved"
        which = mask_text(moved)
        return f"{text} · {count_text(moved)} moved" + (f": {which}" if len(which) < 24 else "")

    def _draw_keys(self) -> None:
        """At most six keys that work right now: while a filter is typed none, each is a letter of it."""
        here = () if self._filter_bar.has_focus_within else self.commands.values()
        commands = [c for c in here if c.footer is not None and not self.why_not(c.id)]
        commands.sort(key=lambda command: command.footer or 0)
        last = "leave" if self.root else "back"
        must = [c for name in (last, "help") for c in commands if c.id == name]
        first = [c for c in commands if c not in must and c.id != "leave"][: SLOTS - len(must)]
        self.query_one(KeyBar).show([*first, *must], self._activity())

    def _activity(self) -> Activity | None:
        if self._activities:
            return next(iter(self._activities.values()))
        samples = self.stacks.snapshot.samples
        if samples and self._under_way(samples[-1]):
            sample = samples[-1]
            share = len(sample.dumps) / self.stacks.asked if self.stacks.asked else None
            return Activity(f"sample {len(samples)}: {self._progress(sample)}", share)
        if self._sampling is not None and self._sampling.is_running:
            return Activity(f"one more sample in a moment, {len(samples)} taken")
        return None

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
            self._reveal(goal)
            self.call_after_refresh(goal.focus)
        # A pane has no width before it is laid out.
        self.call_after_refresh(self._draw)

    # Messages of widgets

    @on(CursorPane.Moved)
    def _moved(self, event: CursorPane.Moved) -> None:
        if event.pane.id == "classes":
            self._chosen = None
            self._wish = ()
            self._tree_pane.touched = False
        elif event.pane.id == "threads" and self._right == "rank":
            self.query_one(RankPane).go_to(self._thread_list.place)
            return
        elif event.pane.id != "tree":
            return
        self._draw()

    @on(CursorPane.Opened)
    def _opened(self, event: CursorPane.Opened) -> None:
        self.action_command("open")

    @on(KeyBar.Pressed)
    def _key_pressed(self, event: KeyBar.Pressed) -> None:
        self.action_command(event.command)


def _whose(title: str) -> Part:
    """The job; the part after a comma is dropped first if there is no room."""
    long, short = (
        Part((("cockpit ", "name"), (text, "strong")), 0) for text in (title, title.partition(",")[0])
    )
    return replace(long, less=short) if short != long else long


def _title(number: str, text: str) -> Content:
    """A title for a frame; nothing in it is markup."""
    return Content.assemble((f"{number} ", "bold") if number else "", text)
