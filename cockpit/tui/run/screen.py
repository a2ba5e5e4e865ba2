"""The main screen: nodes and ranks, the log, details and what happened."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from textual import events, getters, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widget import Widget

from cockpit.base.shell import join, quote
from cockpit.core.logs.levels import Level
from cockpit.core.logs.sources import rank_of
from cockpit.core.masks import ranks_of
from cockpit.core.ranks import ranks_named, ranks_text
from cockpit.core.run.failure import blamed
from cockpit.core.run.model import Rank
from cockpit.core.text import one_line
from cockpit.engine.logs.book import Row
from cockpit.engine.run.board import Board
from cockpit.engine.run.session import Session
from cockpit.tui.command_screen import CommandScreen, Handler, Pane, bindings, entitle, needs
from cockpit.tui.commands import RUN, Id
from cockpit.tui.logs.view import LogView
from cockpit.tui.pace.view_model import STRETCHES
from cockpit.tui.panes.column import Column
from cockpit.tui.panes.finder import Item
from cockpit.tui.panes.key_bar import Activity
from cockpit.tui.panes.list_pane import ListPane
from cockpit.tui.run import notices
from cockpit.tui.run.actions import Deeds
from cockpit.tui.run.command_list import CommandList
from cockpit.tui.run.detail import Detail
from cockpit.tui.run.drawing import Drawing
from cockpit.tui.run.event_list import EventList
from cockpit.tui.run.failure_banner import FailureBanner
from cockpit.tui.run.grid_lines import Mark
from cockpit.tui.run.help import ABOUT
from cockpit.tui.run.purpose import Flight
from cockpit.tui.run.rank_grid import RankGrid
from cockpit.tui.run.stall import IDLE_S, Stall, watch_activity
from cockpit.tui.run.stall_banner import StallBanner
from cockpit.tui.run.tabs import TABS, Tabs, View, stepped
from cockpit.tui.run.top_bar import TopBar

TICK_S = 0.1
SLOW_TICK_S = 0.5
"""Seconds between two drawings of what changes quickly, and of what only ages."""

LAST = len(STRETCHES) - 1

LEFT = {"grid": 0.5, "glance": 0.3, "recent": 0.2}
"""The parts of the left side that its panes have at least, if there are not enough rows for all of it."""

TWINS = {"glance": "detail", "recent": "events"}
"""Small panes on the left, and the tabs that show the same."""
NARROW, LOW, FLAT = 100, 30, 20
"""Columns below which panes are stacked; rows below which banners are short, and below which the left has
only the grid and no log is beneath the map."""


class RunScreen(CommandScreen):
    """One run.

    :param board: the session's board
    :param session: launched or joined, not yet watched; the app closes it
    :param notes: the notes of the start
    :param recorded: it is looked at from what is here, whether or not it has ended
    """

    SCOPE = RUN
    ABOUT = ABOUT
    BINDINGS: ClassVar[list[BindingType]] = bindings(RUN)

    DEFAULT_CSS = """
    RunScreen #left { width: 30%; min-width: 47; }
    RunScreen .pane:focus-within { border: round $key; }
    RunScreen #grid, RunScreen #glance { height: auto; }
    RunScreen #notice { background: $panel; }
    RunScreen #notice.-trouble { background: $notice; }

    RunScreen #right > #log.-below, RunScreen #right > #pace.-strip { display: block; }
    RunScreen.-narrow #right > #pace.-strip { border: none; padding: 0 1; }
    RunScreen.-zoom-right #right > #log.-below, RunScreen.-flat #right > #log.-below { display: none; }

    RunScreen.-narrow #right > #log.-below { display: none; }
    RunScreen.-narrow.-paced #right > #log.-below { display: block; }
    RunScreen.-narrow.-paced.-zoom-right #right > #log.-below { display: none; }
    RunScreen.-narrow.-paced.-flat #right > #log.-below { display: none; }
    RunScreen.-narrow.-paced #left { display: none; }
    RunScreen.-zoom-left #glance, RunScreen.-zoom-left #recent { display: none; }
    RunScreen.-narrow #glance, RunScreen.-narrow #recent { display: none; }
    RunScreen.-narrow #left { max-height: 45%; }
    RunScreen.-zoom-left #left { max-height: 100%; }
    RunScreen.-flat #glance, RunScreen.-flat #recent { display: none; }
    """

    _tabs = getters.query_one(Tabs)
    _grid = getters.query_one(RankGrid)
    _log = getters.query_one(LogView)

    def __init__(
        self,
        board: Board,
        session: Session,
        flight: Flight,
        notes: Sequence[str] = (),
        *,
        recorded: bool = False,
    ) -> None:
        super().__init__()
        self.board = board
        self.session = session
        self.deeds = Deeds(self, board, session, flight)
        self._flight = flight
        self._notes = list(notes)
        board.book.reads_along = not session.writer
        self.recorded = session.model.done or recorded
        """Whether the run had ended, with all its output here, before this screen opened: nothing is live."""
        self._ranks_of = {node.name: node.ranks for node in board.manifest.nodes}
        self._drawing = Drawing(self, board, session, self.deeds, self.recorded)
        self._stall = Stall()
        self._brought: tuple[View, Widget | None] | None = None
        """What was shown before a stall was shown, for as long as nothing else is chosen."""

    def head(self) -> ComposeResult:
        """See :meth:`CommandScreen.head`."""
        glyphs, keys = self.app.glyphs, self.app.keys.__getitem__
        yield TopBar(glyphs=glyphs, id="top")
        yield StallBanner(keys=keys, ascii_only=glyphs.ascii, id="stall")
        yield FailureBanner(run=self.board.folder.name, keys=keys, lang=self.app.config.language, id="banner")

    def panes(self) -> ComposeResult:
        """See :meth:`CommandScreen.panes`."""
        glyphs = self.app.glyphs
        with Column(LEFT, id="left"):
            yield RankGrid(self.board.model, glyphs=glyphs, id="grid")
            yield Detail(ascii_only=glyphs.ascii, id="glance")
            yield EventList(ascii_only=glyphs.ascii, id="recent")
        yield Tabs(self._ranks_of, self.app.keys, ascii_only=glyphs.ascii, id="right")

    def filter_by(self, pattern: str) -> None:
        """See :meth:`CommandScreen.filter_by`."""
        self._tabs.filter(pattern)

    def show_end(self) -> None:
        """Show all that is known of the run, if it is anything else that is shown."""

    def on_unmount(self) -> None:
        self.board.close()

    def on_mount(self) -> None:
        entitle(self.query_one("#recent"), "", "events")
        self._log.back_key = self.app.key_of("back")
        for pane in self.query(EventList):
            pane.open_key, pane.back_key = self.app.key_of("open"), self.app.key_of("back")
        if not self.app.config.timestamps:
            self._log.toggle_timestamps()
        if self.app.config.wrap:
            self._log.toggle_wrap()
        if not self.app.config.fold:
            self._log.toggle_fold()
        self._log.open(self.board.shown, {node: len(ranks) for node, ranks in self._ranks_of.items()})
        self._show_view(View(), remember=False)
        self._grid.focus()
        for note in self._notes:
            self.notify(one_line(note, limit=400), timeout=10)
        missed = not self.recorded and not self._flight.launches
        self.deeds.load(self._show_log, self._loaded, missed=missed)
        if not self.recorded:
            self.deeds.watch()
        self.set_interval(TICK_S, self._tick)
        self.set_interval(SLOW_TICK_S, self._slow_tick)
        self._slow_tick()

    def _show_log(self) -> None:
        if self.app.holds(self):
            self._log.exchange(self.board.shown)

    def _loaded(self) -> None:
        if not self.app.holds(self):
            return
        self._log.exchange(self.board.book)
        self.board.show_all()
        self._log.refresh_log()
        if not self.app.config.follow and self._log.follows:
            self._log.toggle_follow()
        self.call_after_refresh(self.app.settled)

    def on_resize(self, event: events.Resize) -> None:
        width, height = event.size
        self.set_class(width < NARROW, "-narrow")
        self._tabs.entitle()  # in a narrow terminal the strip has no frame for names
        self.set_class(height < LOW, "-low")
        self.set_class(height < FLAT, "-flat")
        self.check_size(width, height, f"\n{self.app.key_of('leave')}: {self.app.leave_words[0]}")

    @property
    def _view(self) -> View:
        return self._tabs.view

    # What each command does, and why it may not

    def own_handlers(self) -> dict[Id, Handler]:
        """Those of the run, of its panes, and of the log."""
        tabs, log = self._tabs, self._log
        matches = needs(lambda: log.searched, f"no filter yet: type {self.app.key_of('filter')} first")
        return {
            "stop": Handler(self.deeds.stop, self._no_stop),
            "keep": Handler(
                self.deeds.keep,
                needs(lambda: self.session.stops_at is not None, "nothing is about to be stopped"),
            ),
            "collect": Handler(
                self.deeds.collect,
                needs(
                    lambda: self.board.manifest.profile,
                    f"no profiler: for other files, cockpit collect {quote(self.board.folder.name)} FILE"
                    if self.board.manifest.foreign
                    else "the run was not profiled (cockpit run --profile)",
                ),
            ),
            "stacks": Handler(lambda: self.deeds.looks.stacks(), self._no_stacks),
            "stall_stacks": Handler(
                lambda: self.deeds.looks.stall_stacks(),
                needs(lambda: self.board.model.watch.snapshot, "the run has not stalled"),
            ),
            "evidence": Handler(lambda: self.deeds.looks.evidence(), self._no_evidence),
            "profile": Handler(
                lambda: self.deeds.looks.profile(self._marked_ranks, self._no_new_profile), self._no_profile
            ),
            "doctor": Handler(
                lambda: self.deeds.looks.doctor(), needs(lambda: not self.recorded, "the run has ended")
            ),
            "retry": Handler(
                self.deeds.retry,
                needs(lambda: self.deeds.trouble or self.session.pool.waiting, "nothing went wrong here"),
            ),
            "runs": Handler(
                lambda: self.deeds.list_runs(),
                lambda: self._flight.leaving and f"on leaving, {self._flight.leaving}",
            ),
            "compare": Handler(self.deeds.compare),
            "open": Handler(self._do_open, self._no_open),
            "previous_view": Handler(
                lambda: self._show_view(tabs.past.pop(), remember=False),
                needs(lambda: tabs.past, "no view before this one"),
            ),
            "nodes": Handler(self._do_nodes),
            **{tab: Handler(partial(self._go, tab)) for tab in TABS},
            "previous_rank": Handler(lambda: self._step_rank(-1)),
            "next_rank": Handler(lambda: self._step_rank(1)),
            "longer": Handler(
                lambda: self._stretch_by(1),
                needs(lambda: self._drawing.stretch < LAST, "the whole run is shown already"),
            ),
            "shorter": Handler(
                lambda: self._stretch_by(-1),
                needs(lambda: self._drawing.stretch, "already the shortest span"),
            ),
            "mark": Handler(self._grid.toggle_mark),
            "filter": Handler(self._do_filter),
            "next_match": Handler(lambda: log.next_match(1), matches),
            "previous_match": Handler(lambda: log.next_match(-1), matches),
            "failed_log": Handler(self._do_failed_log, needs(self._failed, "no rank has failed")),
            "next_error": Handler(lambda: self._level(Level.ERROR, 1)),
            "previous_error": Handler(lambda: self._level(Level.ERROR, -1)),
            "next_warning": Handler(lambda: self._level(Level.WARNING, 1)),
            "previous_warning": Handler(lambda: self._level(Level.WARNING, -1)),
            "follow": Handler(log.toggle_follow),
            "fold": Handler(log.toggle_fold),
            "wrap": Handler(log.toggle_wrap),
            "timestamps": Handler(log.toggle_timestamps),
            "pager": Handler(lambda: self.deeds.page(self._logs_words())),
            "copy_command": Handler(self._do_copy_command),
            "freeze": Handler(self._do_freeze),
            "units": Handler(self._do_units),
            "bell": Handler(self._do_bell),
            "remember": Handler(self._do_remember),
        }

    def _no_stop(self) -> str:
        if self.board.manifest.foreign and not self.board.model.over:
            words = join(["cockpit", "stop", self.board.folder.name])
            return f"cockpit did not start this job: {words} says what stopping it would do"
        return "the run has ended" if self.board.model.over else ""

    def _no_evidence(self) -> str:
        """Why there is none."""
        model = self.board.model
        if model.watch.snapshot or any(node.evidence for node in model.nodes.values()):
            return ""
        return "" if (self.board.folder.path / "stacks").is_dir() else "no rank stalled, and none failed"

    def _no_stacks(self) -> str:
        if self.board.model.over:
            return "the run has ended: its processes are gone"
        return "" if self.board.model.alive() else "no rank runs yet"

    def _no_new_profile(self) -> str:
        if not self.board.model.over and self.app.read_only:
            return "read-only"
        return self._no_stacks()

    def _no_profile(self) -> str:
        why = self._no_new_profile()
        return "" if why and (self.board.folder.path / "profiles").is_dir() else why

    def _marked_ranks(self) -> dict[str, frozenset[int]]:
        """The marked ranks, and those under the cursor, by what they are called."""
        found = {}
        chosen = self._view.chosen or self._grid.selected
        for name, marks in (("marked", self._grid.marks), ("", {chosen} if chosen else ())):
            ranks = {
                each
                for node, rank in marks
                for each in ((rank,) if rank is not None else self._ranks_of.get(node, ()))
            }
            if ranks:
                found[f"{name} {ranks_named(ranks)}".strip()] = frozenset(ranks)
        return found

    def _no_open(self) -> str:
        pane = self.pane
        if isinstance(pane, RankGrid):
            return ""
        if isinstance(pane, LogView):
            return self._no_row_to_open(pane.current_row())
        if isinstance(pane, CommandList):
            return "" if pane.current else "no command has been run yet"
        if isinstance(pane, EventList):
            if pane.current and pane.current.evidence:
                return self._no_evidence()
            return "" if pane.current and pane.current.node else "no node or rank to go to"
        if pane.id == "glance":
            return ""
        return "all of it is shown here"

    def _no_row_to_open(self, row: Row | None) -> str:
        if row is None:
            return "no line here"
        alone = self._view.chosen == _mark(row) and not self._grid.marks
        return "the log already shows only this rank" if alone else ""

    def places(self) -> Iterator[Item]:
        """Nodes, ranks and profiles, to go to."""
        for node, ranks in self._ranks_of.items():
            go = partial(self._select, node, None)
            title = node if node.startswith("node") else f"node {node}"
            about = f"ranks {ranks_text(ranks)}" if ranks else "no ranks"
            yield Item(node, title, go, "", "Nodes", about)
        for node, ranks in self._ranks_of.items():
            for rank in ranks:
                yield Item(
                    str(rank), f"rank {rank}", partial(self._select, node, rank), "", "Ranks", f"on {node}"
                )
        if self.board.model.profiles:
            yield from self.deeds.looks.profiles(self._no_new_profile)
        name = self.board.folder.name
        told = partial(self.notify, f"run {name} is open", timeout=4)
        yield Item(name, f"run {name}", told, "", "Runs", why_not="this run, open already")

    def _do_bell(self) -> None:
        self.app.rings = not self.app.rings
        self.notify(f"bell {'on' if self.app.rings else 'off'}", timeout=4)

    def _do_units(self) -> None:
        self.app.units = "decimal" if self.app.units == "binary" else "binary"
        self._draw_panes(self.board.now)

    def _do_remember(self) -> None:
        app, log = self.app, self._log
        look = {"timestamps": log.timestamps, "wrap": log.wrapped, "follow": log.follows, "fold": log.folds}
        app.remember({"theme": app.theme, **look, "units": app.units, "bell": app.rings})

    # Drawing

    def _tick(self) -> None:
        """What changes quickly."""
        if self.app.holds(self):
            self._drawing.quickly()

    def _slow_tick(self) -> None:
        """What changes slowly, and what ages."""
        if not self.app.holds(self):
            return
        if not self._drawing.frozen:
            now = self.board.now
            for draw in (
                lambda _: self.board.find_cause(),
                self._mind_stall,
                self._drawing.draw_grid,
                self._drawing.draw_head,
                self._draw_panes,
                self._drawing.say_what_is_waited_for,
                self._drawing.measure_lag,
            ):
                # Each by itself: one that cannot be drawn must not keep the others from it.
                with self.app.contained():
                    draw(now)
        book = self.board.book
        book.reads_along = not self.session.writer or (book.reads_along and book.logs.lacks())
        self._drawing.draw_notice()
        self.draw_keys()

    def _draw_panes(self, now: float) -> None:
        self._drawing.draw_panes(self._view.chosen, now)
        self._tabs.fit()

    def _mind_stall(self, now: float) -> None:
        """Once for each stall: show where it is, unless somebody is at work here."""
        stall = self._stall.tell(self.board.model)
        idle = time.monotonic() - self.app.used_at > IDLE_S
        if stall and not self.recorded and idle and self.app.screen is self:
            before = self._view, self.focused
            rank = next(ranks_of(self.board.model.watch.culprits), None)
            if rank in self.board.model.ranks:
                self._select(self.board.model.ranks[rank].node, rank)
            self._go("pace")
            self._brought = before

    def _bring_back(self) -> None:
        """To what was shown before the stall."""
        assert self._brought is not None
        (view, focused), self._brought = self._brought, None
        self._show_view(view, remember=False)
        (focused if focused is not None and focused.is_attached else self._grid).focus()

    def renamed(self, pane: Pane) -> Mapping[Id, str]:
        """What zooming and opening are called here."""
        here: dict[Id, str] = {}
        if pane.id == "pace":
            here["zoom"] = "all panes" if self.zoomed else f"all {len(self.board.model.ranks):,} ranks"
        return here | {"open": "copy"} if isinstance(pane, CommandList) else here

    def activity(self) -> Activity | None:
        """What we do, else what the nodes do; else, where there is room, that nothing is wrong."""
        if self.deeds.activities:
            return next(iter(self.deeds.activities.values()))
        busy = notices.nodes_activity(self.board, sum(self.session.behind.values()))
        if busy or self.recorded:
            return busy
        calm = None if self.has_class("-narrow") else notices.calm_activity(self.board, self.board.now)
        return watch_activity(self.board.model) or calm

    # Messages of widgets

    @on(RankGrid.Selected)
    def _selected(self, event: RankGrid.Selected) -> None:
        self._show_view(replace(self._view, chosen=(event.node, event.rank)))

    @on(RankGrid.Opened)
    def _opened(self, event: RankGrid.Opened) -> None:
        self._select(event.node, event.rank)
        self._go("log")

    @on(RankGrid.Marked)
    def _marked(self, event: RankGrid.Marked) -> None:
        self._tabs.narrow(event.marks)

    @on(LogView.RowOpened)
    def _row_opened(self, event: LogView.RowOpened) -> None:
        self._select(*_mark(event.row))

    @on(ListPane.Opened)
    def _item_opened(self, event: ListPane.Opened) -> None:
        if isinstance(event.pane, EventList):
            self._open_entry(event.pane)

    def _open_entry(self, events: EventList) -> None:
        """Go to the evidence, the node or the rank that an event is about."""
        entry = events.current
        if entry is not None and entry.evidence:
            self.action_command("evidence")
        elif entry is not None and entry.node:
            self._select(entry.node, entry.rank)

    @on(StallBanner.Pressed)
    def _stall_pressed(self) -> None:
        self.action_command("stall_stacks")

    @on(FailureBanner.Pressed)
    def _banner_pressed(self) -> None:
        self.action_command("failed_log")

    def ask_to_leave(self) -> None:
        """Leave at once if nothing runs any more, else ask."""
        if self.board.model.over:
            self.app.leave()
            return
        may_stop = not self.app.read_only and not self._no_stop()
        question = notices.leave_question(self.app.leaving, may_stop=may_stop)
        self.app.push_screen(question, self.left_or_not)

    def left_or_not(self, answer: str | None) -> None:
        """Leave, or ask whether to stop the run."""
        super().left_or_not(answer)
        if answer == "stop":
            self.action_command("stop")

    # Views

    @property
    def on_the_right(self) -> str:
        """One of the tabs."""
        return self._view.tab

    def _select(self, node: str, rank: int | None) -> None:
        self._grid.select(node, rank)
        self._show_view(replace(self._view, chosen=(node, rank)))

    def _show_view(self, view: View, *, remember: bool = True) -> None:
        """Show a pane on the right, narrowed to what is chosen or marked."""
        if view == self._view and remember:
            return
        self._brought = None
        if view.chosen is None:
            self._grid.unselect()
        self._tabs.show(view, remember=remember)
        self._make_room(view.tab == "pace")
        self._draw_panes(self.board.now)

    def _make_room(self, paced: bool) -> None:
        """In a narrow terminal the map takes the place of the nodes."""
        # Styles of the whole screen cost as much as drawing it: in a wide one this class changes none.
        self.set_class(paced, "-paced", update=self.has_class("-narrow"))

    # Moving

    def _do_nodes(self) -> None:
        self._make_room(paced=False)
        self.reveal("grid")
        self._grid.focus()

    def _go(self, tab: str) -> None:
        self.reveal(tab)
        self._make_room(tab == "pace")
        self._show_view(replace(self._view, tab=tab))
        self.query_one(f"#{tab}").focus()

    def zoom(self) -> None:
        """The pane alone; of a small one on the left the large one of the same."""
        twin = TWINS.get(str(self.pane.id))
        if twin is not None and not self.zoomed:
            self._go(twin)
        super().zoom()
        self._drawing.draw_grid(self.board.now)

    def _stretch_by(self, step: int) -> None:
        self._drawing.stretch += step
        self._go("pace")
        self._draw_panes(self.board.now)

    def _step_rank(self, step: int) -> None:
        odd = self._drawing.odd if self._view.chosen is None else None
        self._select(*(odd or stepped(self._view.chosen, step, self._ranks_of)))

    def _do_open(self) -> None:
        pane = self.pane
        if isinstance(pane, RankGrid):
            chosen = pane.selected
            if chosen is not None:
                self._select(*chosen)
            self._go("log")
        elif isinstance(pane, LogView):
            pane.open_row()
        elif isinstance(pane, EventList):
            self._open_entry(pane)
        elif isinstance(pane, CommandList):
            self.action_command("copy")
        else:
            self._go("detail")

    def undoable(self) -> Sequence[tuple[object, Callable[[], object]]]:
        """What esc undoes, the nearest first."""
        return [
            (self._brought, self._bring_back),
            (self._log.searching, self._log.cancel_search),
            (self._log.unfolded, self._log.fold),
            (self._log.shifted, self._log.unshift),
            (self._tabs.filtered.filter, partial(self._tabs.filter, "")),
            (self._log.filter, partial(self._tabs.filter, "", self._log)),
            (self._drawing.narrowed.text, partial(self._drawing.narrow_grid, "")),
            (self._grid.marks, self._grid.clear_marks),
            (self._view.chosen, partial(self._show_view, View(self._view.tab))),
            (self.zoomed, self.unzoom),
        ]

    # The log

    def _do_filter(self) -> None:
        if isinstance(self.pane, RankGrid):
            self.filter_bar.open(self._drawing.narrowed.text, self._drawing.narrow_grid)
            return
        self._go("events" if isinstance(self.pane, EventList) else "log")
        self.filter_bar.open(self._tabs.filtered.filter, self._tabs.filter)

    def _failed(self) -> Rank | None:
        """The rank that failed first, or that is gone and seems to have failed."""
        return blamed(self.board.model, self.board.model.judged)

    def _do_failed_log(self) -> None:
        first = self._failed()
        if first is not None:
            self._select(first.node, first.rank)
            self._go("log")
            self._log.end()
            self._log.next_level(Level.ERROR, -1)

    def _level(self, level: Level, step: int) -> None:
        self._go("log")
        self._log.next_level(level, step)

    def text_to_copy(self) -> str:
        """The item or line under the cursor, or all of a detail."""
        pane = self.pane
        return pane.copy_text() if isinstance(pane, ListPane | Detail) else self._log.copy_line()

    def _do_copy_command(self) -> None:
        self.app.copy(join(["cockpit", *self._logs_words()]))

    def _logs_words(self) -> list[str]:
        """The words of the command that prints what the log shows."""
        return ["logs", self.board.folder.name, *self._log.wanted.words]

    def _do_freeze(self) -> None:
        self._drawing.frozen = not self._drawing.frozen
        self._log.freeze(self._drawing.frozen)
        self._slow_tick()


def _mark(row: Row) -> Mark:
    """Whose line it is: a rank's, or for a launcher's its node's."""
    node, writer = row.sources[0]
    return node, rank_of(writer)
