"""The main screen: nodes and ranks, the log, details and what happened."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.widget import Widget
from textual.widgets import Static
from textual.worker import Worker

from cockpit.base.shell import join, quote
from cockpit.core.logs.batches import PATIENCE_S
from cockpit.core.logs.levels import Level
from cockpit.core.masks import ranks_of
from cockpit.core.ranks import ranks_text
from cockpit.core.run.model import Rank
from cockpit.core.text import one_line
from cockpit.engine.calls.caller import Caller, ways
from cockpit.engine.collect import Collected, collect
from cockpit.engine.doctor import examine, wanted_again, words_again
from cockpit.engine.facts import Facts
from cockpit.engine.keeper import keep_evidence
from cockpit.engine.logs.book import Row
from cockpit.engine.run.board import Board
from cockpit.engine.run.session import Session
from cockpit.engine.stacks.ask import Ask
from cockpit.engine.stacks.parties import RunParty
from cockpit.engine.stacks.take import ReplayedStacks, Sampler
from cockpit.engine.watching import watch_stalls
from cockpit.engine.works import watch_works
from cockpit.errors import CockpitError
from cockpit.plans.profilers.registry import PROFILERS
from cockpit.tui.command_screen import CommandScreen, Handler, Pane, bindings, needs, title
from cockpit.tui.commands import RUN, Id
from cockpit.tui.door import explained
from cockpit.tui.logs.filter_bar import FilterBar
from cockpit.tui.logs.view import LogView
from cockpit.tui.pace.lines import STRETCHES, Sight
from cockpit.tui.pace.pane import PacePane
from cockpit.tui.panes.finder import Item
from cockpit.tui.panes.key_bar import Activity, KeyBar
from cockpit.tui.panes.list_pane import ListPane
from cockpit.tui.run import notices, questions
from cockpit.tui.run.command_list import CommandList
from cockpit.tui.run.command_list import Ran as Ran
from cockpit.tui.run.detail import Detail
from cockpit.tui.run.detail_lines import About
from cockpit.tui.run.doctor_screen import DoctorScreen
from cockpit.tui.run.environs import Environs
from cockpit.tui.run.event_list import EventList
from cockpit.tui.run.failure_banner import FailureBanner
from cockpit.tui.run.flight import Flight
from cockpit.tui.run.help import ABOUT
from cockpit.tui.run.launched import launched_commands
from cockpit.tui.run.rank_grid import RankGrid
from cockpit.tui.run.stall import IDLE_S, Stall, standing, stands_still, watch_activity
from cockpit.tui.run.stall_banner import StallBanner
from cockpit.tui.run.tabs import Tabs
from cockpit.tui.run.top_bar import Head, TopBar
from cockpit.tui.run.view import TABS, View, stepped
from cockpit.tui.stacks.screen import StackScreen

TICK_S = 0.1
SLOW_TICK_S = 0.5
"""Seconds between two drawings of what changes quickly, and of what only ages."""

LAST = len(STRETCHES) - 1
NARROW, LOW = 100, 30
"""Columns below which panes are stacked; rows below which the left has only the grid."""

LAG_BYTES = 256 << 10
"""From this many outstanding bytes of logs, we are behind and not just polling."""


class RunScreen(CommandScreen):
    """One run.

    :param board: the session's board
    :param session: launched or joined, not yet watched; the app closes it
    :param notes: the notes of the start
    """

    SCOPE = RUN
    ABOUT = ABOUT
    BINDINGS: ClassVar[list[BindingType]] = bindings(RUN)

    DEFAULT_CSS = """
    RunScreen #left { width: 30%; min-width: 47; }
    RunScreen .pane:focus-within { border: round $key; }
    RunScreen #grid { height: auto; max-height: 60%; }
    RunScreen #glance { height: auto; max-height: 35%; }
    RunScreen #recent { height: 1fr; min-height: 3; }
    RunScreen #notice { background: $panel; }
    RunScreen #notice.-trouble { background: $notice; }

    RunScreen.-narrow #grid { max-height: 100%; }
    RunScreen.-narrow #glance, RunScreen.-narrow #recent { display: none; }
    RunScreen.-low #glance, RunScreen.-low #recent { display: none; }
    RunScreen.-low #grid { max-height: 100%; }
    """

    def __init__(self, board: Board, session: Session, flight: Flight, notes: Sequence[str] = ()) -> None:
        super().__init__()
        self.board = board
        self.session = session
        self._flight = flight
        self._notes = list(notes)
        board.book.reads_along = not session.writer
        self.recorded = session.model.done
        """Whether the run had ended, with all its output here, before this screen opened: nothing is live."""
        self._ranks_of = {node.name: node.ranks for node in board.manifest.nodes}
        self._environs = Environs(session, recorded=self.recorded)
        self._collect: Worker[None] | None = None
        self._trouble: CockpitError | None = None
        self._activities: dict[str, Activity] = {}
        self._frozen = False
        self._stretch = 0
        """How much of the past the pane of pace shows: a place in its stretches."""
        self._ran: list[Ran] = launched_commands(board.manifest)
        self._behind = notices.Since()
        self._stall = Stall()
        self._brought: tuple[View, Widget | None] | None = None
        """What was shown before a stall was shown, for as long as nothing else is chosen."""
        self._notice = notices.Notice(board, session, self.app.keys, recorded=self.recorded)

    def compose(self) -> ComposeResult:
        glyphs = self.app.glyphs
        ascii_only = glyphs.ascii
        yield TopBar(glyphs=glyphs, id="top")
        yield StallBanner(keys=self.app.keys.__getitem__, ascii_only=ascii_only, id="stall")
        yield FailureBanner(keys=self.app.keys.__getitem__, id="banner")
        yield Static("", id="notice", markup=False)
        with Container(id="body"):
            with Vertical(id="left"):
                yield RankGrid(self.board.model, glyphs=glyphs, id="grid")
                yield Detail(ascii_only=ascii_only, id="glance")
                yield EventList(ascii_only=ascii_only, id="recent")
            yield Tabs(self._ranks_of, self.app.keys, ascii_only=ascii_only, id="right")
        yield FilterBar(lambda pattern: self._tabs.filter(pattern), id="filter")
        yield KeyBar(ascii_only=ascii_only, id="keys")
        yield Static("", id="small", markup=False)

    def on_unmount(self) -> None:
        self.board.close()

    def on_mount(self) -> None:
        for pane in ("grid", "glance", "recent", *TABS):
            self.query_one(f"#{pane}").add_class("pane")
        self.query_one("#recent").border_title = title("", "events")
        self._log.back_key = self.app.key_of("back")
        if self.app.glyphs.ascii:
            self.add_class("-ascii")
        if not self.app.config.timestamps:
            self._log.toggle_timestamps()
        if self.app.config.wrap:
            self._log.toggle_wrap()
        self._log.open(self.board.book, {node: len(ranks) for node, ranks in self._ranks_of.items()})
        self._show_view(View(), remember=False)
        self._grid.focus()
        for note in self._notes:
            self.notify(one_line(note, limit=400), timeout=10)
        self._load()
        if not self.recorded:
            self._watch()
        self.set_interval(TICK_S, self._tick)
        self.set_interval(SLOW_TICK_S, self._slow_tick)
        self.call_after_refresh(self._slow_tick)

    def on_resize(self, event: events.Resize) -> None:
        width, height = event.size
        self.set_class(width < NARROW, "-narrow")
        self.set_class(height < LOW, "-low")
        self.check_size(width, height, f"\nThe run goes on; {self.app.key_of('leave')} leaves.")

    @property
    def _tabs(self) -> Tabs:
        return self.query_one(Tabs)

    @property
    def _log(self) -> LogView:
        return self._tabs.log_view

    @property
    def _view(self) -> View:
        return self._tabs.view

    @property
    def _grid(self) -> RankGrid:
        return self.query_one(RankGrid)

    # What each command does, and why it may not

    def own_handlers(self) -> dict[Id, Handler]:
        """Those of the run, of its panes, and of the log."""
        tabs, log = self._tabs, self._log
        matches = needs(lambda: log.searched, f"no filter yet: type {self.app.key_of('filter')} first")
        return {
            "stop": Handler(self._do_stop, self._no_stop),
            "keep": Handler(
                self._do_keep,
                needs(lambda: self.session.stops_at is not None, "nothing is about to be stopped"),
            ),
            "collect": Handler(
                self._do_collect,
                needs(
                    lambda: self.board.manifest.profile,
                    f"no profiler: for other files, cockpit collect {quote(self.board.folder.name)} FILE"
                    if self.board.manifest.foreign
                    else f"the run was not profiled: cockpit run --profile {'|'.join(PROFILERS)}",
                ),
            ),
            "stacks": Handler(self._do_stacks, self._no_stacks),
            "stall_stacks": Handler(self._do_stall_stacks, self._no_stall_stacks),
            "doctor": Handler(self._do_doctor, needs(lambda: not self.recorded, "the run has ended")),
            "retry": Handler(
                self._retry,
                needs(lambda: self._trouble or self.session.pool.waiting, "nothing went wrong here"),
            ),
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
                needs(lambda: self._stretch < LAST, "the whole run is shown already"),
            ),
            "shorter": Handler(
                lambda: self._stretch_by(-1), needs(lambda: self._stretch, "a column is a step already")
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
            "wrap": Handler(log.toggle_wrap),
            "timestamps": Handler(log.toggle_timestamps),
            "pager": Handler(self._do_pager),
            "copy_command": Handler(self._do_copy_command),
            "freeze": Handler(self._do_freeze),
        }

    def _no_stop(self) -> str:
        if self.board.manifest.foreign and not self.board.model.over:
            words = join(["cockpit", "stop", self.board.folder.name])
            return f"cockpit did not start this job: {words} says what stopping it would do"
        return "the run has ended" if self.board.model.over else ""

    def _no_stacks(self) -> str:
        if self.board.model.over:
            return "the run has ended: its processes are gone"
        return "" if self.board.model.alive() else "no rank runs yet"

    def _no_open(self) -> str:
        pane = self.pane
        if isinstance(pane, RankGrid):
            return ""
        if isinstance(pane, LogView):
            return self._no_row_to_open(pane.current_row())
        if isinstance(pane, CommandList):
            return "" if pane.current else "no command was run yet"
        if isinstance(pane, EventList):
            return "" if pane.current and pane.current.node else "no node or rank to go to"
        return "all of it is shown here"

    def _no_row_to_open(self, row: Row | None) -> str:
        if row is None:
            return "no line here"
        alone = self._view.chosen == row.sources[0] and not self._grid.marks
        return "the log shows no other rank already" if alone else ""

    def places(self) -> Iterator[Item]:
        """Nodes and ranks, to go to."""
        for node, ranks in self._ranks_of.items():
            go = partial(self._select, node, None)
            yield Item(
                node, f"node {node}", go, "", "Nodes", f"ranks {ranks_text(ranks)}" if ranks else "no ranks"
            )
        for node, ranks in self._ranks_of.items():
            for rank in ranks:
                yield Item(
                    str(rank), f"rank {rank}", partial(self._select, node, rank), "", "Ranks", f"on {node}"
                )

    # The session

    @work(group="load")
    async def _load(self) -> None:
        if not self.board.timeline.entries:
            await self.board.recall()
        self._loading(0.0)
        await self.board.load(self._loading)
        self._activities.pop("load", None)
        self._log.refresh_log()

    def _loading(self, share: float) -> None:
        self._activities["load"] = Activity("reading the log", share)

    @work(group="watch", exclusive=True)
    async def _watch(self, *, again: bool = False) -> None:
        try:
            if again:
                await self.session.resume()
            else:
                self.session.watch(policy=not self.app.read_only)
                watch_works(self.session)
                keep_evidence(self.session)
                stalls = self._flight.stalls
                watch_stalls(self.session, replace(stalls, on_hang="note") if self.app.read_only else stalls)
                self._call_from()
            while not self.session.model.done:
                await self.session.wait(1.0)
                await asyncio.sleep(TICK_S)
        except Exception as error:
            # Whatever it is, it stays on the screen until the watch goes on.
            self._trouble = explained(error)
            return
        if self._flight.collects and not self.app.read_only:
            self.action_command("collect")

    def _call_from(self) -> None:
        """Call a person when the run fails, stands still, or is over."""
        chosen = ways(self.app.calls_by, self.app.config, writer=self.session.writer)
        since = 0.0 if self._flight.launches else time.time()
        warn = partial(self.notify, severity="warning", timeout=15)
        Caller(self.session, chosen, self.app.ring, warn, since=since).start()

    def _retry(self) -> None:
        self.session.pool.again()
        if self._trouble is None:
            return
        self._trouble = None
        self._watch(again=True)

    def _note_command(self, title: str, words: list[str]) -> None:
        """Add what was just done to the list of commands, as one would type it."""
        self._ran.append(Ran(time.time(), title, join(["cockpit", *words])))

    def _do_stop(self) -> None:
        self.app.push_screen(
            questions.stop_question(self.board.folder.name, self.board.model), self._stop_answered
        )

    def _stop_answered(self, answer: str | None) -> None:
        if answer in ("stop", "kill"):
            self._stop(hard=answer == "kill")

    @work(group="stop")
    async def _stop(self, hard: bool) -> None:
        self._note_command("stop", ["stop", *(["--now"] if hard else []), self.board.folder.name])
        for error in await self.session.stop("asked in the cockpit", hard=hard):
            self.app.complain(error)

    def _do_keep(self) -> None:
        self.app.push_screen(questions.keep_question(self.session.stops_at), self._keep_answered)

    def _keep_answered(self, answer: str | None) -> None:
        if answer != "keep":
            return
        if self.session.stops_at is None:
            self.notify("too late: the other ranks are being stopped", severity="warning")
            return
        self.session.keep()
        self.notify(f"the other ranks are left alone; {self.app.key_of('stop')} stops the run")

    def ask_to_leave(self) -> None:
        """Leave at once if nothing runs any more, else ask."""
        if self.board.model.over:
            self.app.leave()
            return
        leaving = self._flight.leaving or "the run goes on"
        may_stop = not self.app.read_only and not self._no_stop()
        question = questions.leave_question(leaving, may_stop=may_stop)
        self.app.push_screen(question, self.left_or_not)

    def left_or_not(self, answer: str | None) -> None:
        """Leave, or ask whether to stop the run."""
        super().left_or_not(answer)
        if answer == "stop":
            self.action_command("stop")

    def _do_stacks(self) -> None:
        run = self.board.folder.name
        party = RunParty(self.board.manifest, self.board.model, self.session.pool.at_hand)
        self._note_command("stacks", ["stacks", run])
        root, more = self.board.folder.path / "stacks", Facts(party, self.session.pace)
        self.app.push_screen(StackScreen(Sampler(party, Ask(), root, more)))

    def _no_stall_stacks(self) -> str:
        return "" if self.board.model.watch.snapshot else "the run has not stood still"

    def _do_stall_stacks(self) -> None:
        """The look at all ranks that the watch has kept; its name is that of a folder of ours."""
        root, name = self.board.folder.path / "stacks", self.board.model.watch.snapshot
        try:
            if Path(name).name != name:
                raise CockpitError("no snapshot has such a name", where=name)
            taken = ReplayedStacks(root / name)
        except CockpitError as error:
            self.app.complain(error)
            return
        self._note_command("stacks of the stall", ["stacks", str(root / name)])
        self.app.push_screen(StackScreen(taken))

    def _do_doctor(self) -> None:
        manifest, pool = self.board.manifest, self.session.pool
        words = words_again(manifest)
        self._note_command("doctor", words)
        look = partial(examine, pool, wanted_again(manifest, self.session.model))
        self.app.push_screen(DoctorScreen(look, lambda: pool.roll, join(["cockpit", *words])))

    def _do_collect(self) -> None:
        if self._collect is not None and self._collect.is_running:
            self._collect.cancel()
            self._activities.pop("collect", None)
            key = self.app.key_of("collect")
            self.notify(f"collecting was cancelled; {key} resumes it")
            return
        self._collect = self._collect_reports()

    @work(group="collect")
    async def _collect_reports(self) -> None:
        folder = self.board.folder
        self._note_command("collect", ["collect", folder.name])

        def tell(collected: Collected) -> None:
            self._activities["collect"] = notices.collect_activity(collected)

        pool, target = self.session.pool, folder.path / "reports"
        try:
            collected = await collect(folder, pool, target, tell, self.app.complain)
        except CockpitError as error:
            self.app.complain(error)
            return
        finally:
            self._activities.pop("collect", None)
        text, problems = notices.collected_text(collected)
        shown = one_line(" · ".join([text, *problems]), limit=600)
        self.notify(shown, severity="warning" if problems else "information", timeout=20)

    # Drawing

    def _tick(self) -> None:
        """What changes quickly: the grid and the log."""
        if not self.app.holds(self):
            return
        new = False
        with self.app.contained():
            new = self.board.book.flush(time.time(), wait_s=PATIENCE_S)
        if self._frozen:
            return
        changed = self.board.take_changed()
        if changed:
            with self.app.contained():
                self._grid.update_model(self.board.model, changed, time.time())
        if new:
            self._log.refresh_log()

    def _slow_tick(self) -> None:
        """What changes slowly, and what ages."""
        if not self.app.holds(self):
            return
        if not self._frozen:
            now = time.time()
            for draw in (
                lambda _: self.board.find_cause(),
                self._mind_stall,
                self._draw_grid,
                self._draw_head,
                self._draw_details,
                self._say_what_is_waited_for,
                self._measure_lag,
            ):
                # Each by itself: one that cannot be drawn must not keep the others from it.
                with self.app.contained():
                    draw(now)
        self._draw_notice()
        self.draw_keys()

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

    def _draw_grid(self, now: float) -> None:
        board = self.board
        self._grid.missing, self._grid.held = (
            (frozenset(), frozenset()) if self.recorded else standing(board.model)
        )
        ended = self.recorded or board.model.over
        self._grid.slow = frozenset(() if ended else (slow.rank for slow in board.pace.slow()))
        self._grid.update_model(board.model, None, now)

    def _draw_head(self, now: float) -> None:
        board = self.board
        head = Head(
            board.folder.name,
            board.model,
            board.metrics,
            board.manifest.created,
            now,
            self.recorded,
            board.pace,
        )
        self.query_one(TopBar).show(head)
        self.query_one(StallBanner).show(board.model, now, low=self.has_class("-low"))
        self.query_one(FailureBanner).show(board.model, board.cause, self.session.stops_at, now)
        self._grid.border_title = title(
            f"{self.app.key_of('nodes')} nodes", f"{len(board.model.nodes)} · ranks {len(board.model.ranks)}"
        )

    def _draw_details(self, now: float) -> None:
        """The panes that are on the screen."""
        chosen = self._view.chosen or self._grid.selected or self._of_interest()
        for name in ("glance", "detail"):
            pane = self.query_one(f"#{name}", Detail)
            if chosen is not None and pane.is_on_screen:
                self._show_detail(pane, *chosen, now=now)
        for name in ("recent", "events"):
            events_pane = self.query_one(f"#{name}", EventList)
            if events_pane.is_on_screen:
                events_pane.show(list(self.board.timeline.entries))
        pace = self.query_one(PacePane)
        if pace.is_on_screen:
            pace.show(self._pace(now, None if chosen is None else chosen[1]))
        commands = self.query_one(CommandList)
        if commands.is_on_screen:
            commands.show(self._ran)

    def _pace(self, now: float, chosen: int | None) -> Sight:
        board = self.board
        ended = board.pace.last_at if self.recorded or board.model.over else None
        theme = self.app.current_theme
        return Sight(
            board.pace,
            board.metrics,
            self._ranks_of,
            now if ended is None else ended,
            chosen,
            every=self.has_class("-zoom-right"),
            stretch=tuple(STRETCHES)[self._stretch],
            plain=self.app.no_color or theme.ansi,
            ascii_only=self.app.glyphs.ascii,
            missing=self._grid.missing,
            stalled=not self.recorded and stands_still(board.model),
        )

    def _of_interest(self) -> tuple[str, int | None] | None:
        """What is shown before anything is chosen: who failed first, or holds others up, else the first."""
        first = self.board.model.first_failure()
        if first is None and self._grid.missing:
            first = self.board.model.ranks.get(min(self._grid.missing))
        return self._grid.first if first is None else (first.node, first.rank)

    def _show_detail(self, pane: Detail, node: str, rank: int | None, *, now: float) -> None:
        board = self.board
        process = None if rank is None else board.model.ranks[rank]
        if pane.id == "glance":
            pane.border_title = title("", f"rank {rank}" if process is not None else node)
        elif process is not None and self._environs.wants(process):
            self.run_worker(self._environs.fetch(process), group="environ")
        environ = None if process is None else self._environs.of(process)
        plan, entry = board.plan(node), board.entry(node)
        log = "" if rank is None else self.session.log_place(board.model.ranks[rank])
        pages = board.pages.named
        pane.show(
            About(
                node,
                rank,
                board.model,
                board.trends,
                board.metrics,
                entry,
                plan,
                environ,
                now,
                log,
                board.pace,
                pages,
            )
        )

    def _measure_lag(self, now: float) -> None:
        """How long we have been behind the nodes' logs, if it is worth mentioning."""
        behind = sum(self.session.behind.values())
        self._log.behind_s = self._behind.tell(behind >= LAG_BYTES, now)

    def _say_what_is_waited_for(self, now: float) -> None:
        """An empty log says what the run is doing."""
        if self.board.book.lines:
            return
        age = now - self.board.manifest.created
        foreign = self.board.manifest.foreign is not None
        text = notices.waiting_text(self.board.model, age, recorded=self.recorded, foreign=foreign)
        if text != self._log.empty_text:
            self._log.empty_text = text
            self._log.refresh()

    def _draw_notice(self) -> None:
        """One line that stays: trouble here, a recorded run, a frozen display."""
        self.query_one("#notice").set_class(self._trouble is not None, "-trouble")
        self.draw_notice(self._notice.text(self._trouble, frozen=self._frozen))

    def renamed(self, pane: Pane) -> Mapping[Id, str]:
        """What leaving and opening are called here."""
        leaving = "close" if self.board.model.over else "end it" if self._flight.leaving else "leave"
        here: dict[Id, str] = {"leave": leaving}
        return here | {"open": "copy"} if isinstance(pane, CommandList) else here

    def activity(self) -> Activity | None:
        """What we do, else what the nodes do."""
        if self._activities:
            return next(iter(self._activities.values()))
        busy = notices.nodes_activity(self.board, sum(self.session.behind.values()))
        return busy or (None if self.recorded else watch_activity(self.board.model))

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
        # To the source of the line: one rank, or for a launcher's line its node.
        self._select(*event.row.sources[0])

    @on(ListPane.Opened)
    def _item_opened(self, event: ListPane.Opened) -> None:
        if isinstance(event.pane, EventList):
            self._open_entry(event.pane)

    def _open_entry(self, events: EventList) -> None:
        """Go to the node or rank that an event is about."""
        entry = events.current
        if entry is not None and entry.node:
            self._select(entry.node, entry.rank)

    @on(StallBanner.Pressed)
    def _stall_pressed(self) -> None:
        self.action_command("stall_stacks")

    @on(FailureBanner.Pressed)
    def _banner_pressed(self) -> None:
        self.action_command("failed_log")

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
        self._draw_details(time.time())

    # Moving

    def _do_nodes(self) -> None:
        self.remove_class("-zoom-right")
        self._grid.focus()

    def _go(self, tab: str) -> None:
        self.remove_class("-zoom-left")
        self._show_view(replace(self._view, tab=tab))
        self.query_one(f"#{tab}").focus()

    def _stretch_by(self, step: int) -> None:
        self._stretch += step
        self._go("pace")
        self._draw_details(time.time())

    def _step_rank(self, step: int) -> None:
        self._select(*stepped(self._view.chosen, step, self._ranks_of))

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

    def undoable(self) -> Sequence[tuple[object, Callable[[], object]]]:
        """What esc undoes, the nearest first."""
        return [
            (self._brought, self._bring_back),
            (self._log.searching, self._log.cancel_search),
            (self._log.unfolded, self._log.fold),
            (self._log.filter, partial(self._tabs.filter, "")),
            (self._grid.marks, self._grid.clear_marks),
            (self._view.chosen, partial(self._show_view, View(self._view.tab))),
            (self.zoomed, self.unzoom),
        ]

    # The log

    def _do_filter(self) -> None:
        self._go("log")
        self.filter_bar.open(self._log.filter)

    def _failed(self) -> Rank | None:
        """The rank that failed first, or that is gone and seems to have failed."""
        model, cause = self.board.model, self.board.cause
        seems = cause.ranks.bit_length() - 1 if cause is not None and cause.id == "gone" else None
        return model.first_failure() or (model.ranks.get(seems) if seems is not None else None)

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
        """The item or line under the cursor."""
        pane = self.pane
        return pane.copy_text() if isinstance(pane, ListPane) else self._log.copy_line()

    def _do_copy_command(self) -> None:
        self.app.copy(join(["cockpit", *self._logs_words()]))

    def _logs_words(self) -> list[str]:
        """The words of the command that prints what the log shows."""
        return ["logs", self.board.folder.name, *self._log.wanted.words]

    def _do_pager(self) -> None:
        self._note_command("open the log", self._logs_words())
        words = [sys.executable, "-c", "from cockpit.cli.main import main; raise SystemExit(main())"]
        # Through `cockpit logs`, which makes the ranks' output harmless: a pager may not.
        self._page(f"{join([*words, *self._logs_words()])} | {os.environ.get('PAGER') or 'less -R'}")

    @work(group="pager", exclusive=True)
    async def _page(self, command: str) -> None:
        """Give the terminal to a pager; the links are still served meanwhile."""
        with self.app.batch_update(), self.app.suspend():
            pager = await asyncio.create_subprocess_exec("/bin/sh", "-c", command)
            await pager.wait()

    def _do_freeze(self) -> None:
        self._frozen = not self._frozen
        self._log.freeze(self._frozen)
        self._slow_tick()
