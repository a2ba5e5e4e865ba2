"""The main screen: nodes and ranks, the log, details and what happened."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.content import Content
from textual.widgets import Static

from cockpit.base.answers import EnvironAnswer
from cockpit.base.record import rank_environ
from cockpit.base.verbs import Environ
from cockpit.core.logs.batches import WAIT_S
from cockpit.core.logs.query import Query
from cockpit.core.ranks import nodes_text, ranks_text
from cockpit.core.run.model import RankState
from cockpit.core.run.summary import endings
from cockpit.core.text import RemoteText
from cockpit.engine.run.board import Board
from cockpit.engine.run.session import Session
from cockpit.transport.base import LinkError
from cockpit.tui.commands import COMMANDS, Command
from cockpit.tui.door import explained
from cockpit.tui.logs.filter_bar import FilterBar
from cockpit.tui.logs.view import LogView
from cockpit.tui.look.units import span_text
from cockpit.tui.panes.key_bar import SLOTS, Activity, KeyBar
from cockpit.tui.run.actions import PAST_VIEWS, RunActions
from cockpit.tui.run.command_list import CommandList
from cockpit.tui.run.detail import Detail
from cockpit.tui.run.event_list import EventList
from cockpit.tui.run.failure_banner import FailureBanner
from cockpit.tui.run.flight import Flight
from cockpit.tui.run.rank_grid import RankGrid
from cockpit.tui.run.top_bar import Head, TopBar
from cockpit.tui.run.view import TABS, View

TICK_S = 0.1
SLOW_TICK_S = 0.5
"""Seconds between two drawings of what changes quickly, and of what only ages."""

NARROW, LOW, SMALL = 100, 30, (50, 12)
"""Columns below which panes are stacked; rows below which the left has only the grid; the minimum of both."""

BEHIND = 1_000_000
"""If more bytes of logs than this are outstanding, it is shown."""

LAG_BYTES = 256 << 10
"""From this many outstanding bytes of logs, we are behind and not just polling."""

LACKING_S = 5.0
"""Seconds that the spool may lack what has arrived here before its writer is called silent."""

SHORT_STAGES = {
    "term": "stopping, SIGTERM sent",
    "finalising": "finalising the report",
    "kill": "killing what is left",
    "sweep": "sweeping",
}


class RunScreen(RunActions):
    """One run.

    :param board: the session's board
    :param session: launched or joined, not yet watched; the app closes it
    :param notes: the notes of the start
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(",".join(command.keys), f"command('{command.id}')", command.title, id=command.id, show=False)
        for command in COMMANDS
    ]

    DEFAULT_CSS = """
    RunScreen { layout: vertical; background: $background; }
    RunScreen #body { height: 1fr; layout: horizontal; }
    RunScreen #left { width: 30%; min-width: 47; height: 1fr; }
    RunScreen #right { width: 1fr; height: 1fr; }
    RunScreen .pane { border: round $frame; padding: 0 1; }
    RunScreen .pane { border-title-color: $dim; border-subtitle-color: $dim; }
    RunScreen.-ascii .pane, RunScreen.-ascii .pane:focus { border: ascii; }
    RunScreen .pane:focus, RunScreen .pane:focus-within { border: round $key; }
    RunScreen #grid { height: auto; max-height: 60%; }
    RunScreen #glance { height: auto; max-height: 35%; }
    RunScreen #recent { height: 1fr; min-height: 3; }
    RunScreen #right > .pane { display: none; height: 1fr; }
    RunScreen #right > .pane.-shown { display: block; }
    RunScreen FilterBar { dock: bottom; display: none; }
    RunScreen FilterBar.-open { display: block; }
    RunScreen #notice { height: auto; display: none; background: $panel; color: $foreground; padding: 0 1; }
    RunScreen #notice.-trouble { background: $notice; }
    RunScreen #notice.-shown { display: block; }

    RunScreen.-narrow #body { layout: vertical; }
    RunScreen.-narrow #left { width: 1fr; height: auto; max-height: 40%; }
    RunScreen.-narrow #grid { max-height: 100%; }
    RunScreen.-narrow #glance, RunScreen.-narrow #recent { display: none; }
    RunScreen.-low #glance, RunScreen.-low #recent { display: none; }
    RunScreen.-low #grid { max-height: 100%; }
    RunScreen.-zoom-left #right, RunScreen.-zoom-right #left { display: none; }
    RunScreen.-zoom-left #left { width: 1fr; max-height: 100%; height: 1fr; }
    RunScreen #small { display: none; }
    RunScreen.-small > * { display: none; }
    RunScreen.-small > #small { display: block; width: 1fr; height: 1fr; content-align: center middle; }
    """

    def __init__(self, board: Board, session: Session, flight: Flight, notes: Sequence[str] = ()) -> None:
        super().__init__(board, session, flight)
        self._notes = list(notes)
        board.reads_along = not session.writer
        self._environ: dict[tuple[int, int], EnvironAnswer | str] = {}
        """What each rank's environment is, or why it is not known, by rank and attempt."""
        self._asked: set[tuple[int, int]] = set()
        self._behind_since: float | None = None
        self._lacking_since: float | None = None
        self._outcome = ""
        self.recorded = session.model.done
        """Whether the run had ended, with all its output here, before this screen opened: nothing is live."""

    def compose(self) -> ComposeResult:
        glyphs = self.app.glyphs
        ascii_only = glyphs.ascii
        yield TopBar(glyphs=glyphs, id="top")
        yield FailureBanner(keys=self.app.key_of, id="banner")
        yield Static("", id="notice", markup=False)
        with Container(id="body"):
            with Vertical(id="left"):
                yield RankGrid(self.board.model, glyphs=glyphs, id="grid")
                yield Detail(ascii_only=ascii_only, id="glance")
                yield EventList(ascii_only=ascii_only, id="recent")
            with Vertical(id="right"):
                yield LogView(id="log")
                yield Detail(ascii_only=ascii_only, id="detail")
                yield EventList(ascii_only=ascii_only, id="events")
                yield CommandList(ascii_only=ascii_only, id="commands")
        yield FilterBar(self._set_filter, id="filter")
        yield KeyBar(ascii_only=ascii_only, id="keys")
        yield Static("", id="small", markup=False)

    def on_unmount(self) -> None:
        self.board.close()

    def on_mount(self) -> None:
        for pane in ("grid", "glance", "recent", *TABS):
            self.query_one(f"#{pane}").add_class("pane")
        self._name_tabs()
        if self.app.glyphs.ascii:
            self.add_class("-ascii")
            self._log.ellipsis = "~"
        if not self.app.config.timestamps:
            self._log.toggle_timestamps()
        if self.app.config.wrap:
            self._log.toggle_wrap()
        ranks = {entry.name: len(entry.ranks) for entry in self.board.manifest.nodes}
        self._log.open(self.board.book, ranks)
        self._show_view(View(), remember=False)
        self._grid.focus()
        for note in self._notes:
            self.notify(RemoteText.of(note).shown(limit=400), markup=False, timeout=10)
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
        self.set_class(width < SMALL[0] or height < SMALL[1], "-small")
        self.query_one("#small", Static).update(
            f"{width} x {height} is too small for cockpit.\nIt needs {SMALL[0]} x {SMALL[1]}.\n"
            f"The run goes on; {self.app.key_of('leave')} leaves."
        )

    # The session

    @work(group="load")
    async def _load(self) -> None:
        if not self.board.timeline.entries:
            await self.board.recall()
        self._activities["load"] = Activity("reading the log", 0.0)
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
            while not self.session.model.done:
                await self.session.wait(1.0)
                await asyncio.sleep(TICK_S)
        except Exception as error:
            # Whatever it is, it stays on the screen until the watch goes on.
            self._trouble = explained(error)
            return
        if self._flight.collects and not self.app.read_only:
            self.action_command("collect")

    def _resume(self) -> None:
        self._trouble = None
        self._watch(again=True)

    # Drawing

    def _tick(self) -> None:
        """What changes quickly: the grid and the log."""
        new = False
        with self.app.contained():
            new = self.board.book.flush(time.time(), wait_s=WAIT_S)
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
        if not self._frozen:
            now = time.time()
            for draw in (
                self._find_cause,
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
        self._draw_keys()

    def _find_cause(self, now: float) -> None:
        self.board.find_cause()

    def _draw_grid(self, now: float) -> None:
        self._grid.update_model(self.board.model, None, now)

    def _draw_head(self, now: float) -> None:
        board = self.board
        head = Head(board.folder.name, board.model, board.metrics, board.manifest.created, now, self.recorded)
        self.query_one(TopBar).show(head)
        self.query_one(FailureBanner).show(board.model, board.cause, self.session.stops_at, now)
        self._grid.border_title = _title(
            "1 nodes", f"{len(board.model.nodes)} · ranks {len(board.model.ranks)}"
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
        commands = self.query_one(CommandList)
        if commands.is_on_screen:
            commands.show(self._ran)

    def _of_interest(self) -> tuple[str, int | None] | None:
        """What is shown before anything is chosen: the rank that failed first, else the first one."""
        first = self.board.model.first_failure()
        return self._grid.first if first is None else (first.node, first.rank)

    def _show_detail(self, pane: Detail, node: str, rank: int | None, *, now: float) -> None:
        board = self.board
        what = f"rank {rank}" if rank is not None else node
        if pane.id == "glance":
            pane.border_title = _title("", what)
        elif rank is not None:
            self._ask_environ(node, rank)
        pane.show(
            node,
            rank,
            model=board.model,
            trends=board.trends,
            metrics=board.metrics,
            entry=board.entry(node),
            plan=board.plan(node),
            environ=None if rank is None else self._environ.get((rank, board.model.ranks[rank].attempt)),
            now=now,
        )

    def _ask_environ(self, node: str, rank: int) -> None:
        """Once per process, running or ended: what it was started with does not change."""
        now = self.board.model.ranks[rank]
        key = (rank, now.attempt)
        if key in self._asked or now.state in (RankState.WAITING, RankState.STARTING):
            return
        if self.recorded:
            path = f"{self.session.dir(node)}/{rank_environ(rank)}"
            self._environ[key] = f"not copied here; {node} may still have it: {path}"
        elif self.board.model.nodes[node].link == "ok":
            self._asked.add(key)
            self._fetch_environ(node, key)

    @work(group="environ")
    async def _fetch_environ(self, node: str, key: tuple[int, int]) -> None:
        try:
            answer = await self.session.ask(node, Environ(self.session.dir(node), key[0]))
            self._environ[key] = answer
        except Exception as error:
            self._environ[key] = RemoteText.of(explained(error).what).shown(limit=300)
            if isinstance(error, LinkError):
                self._asked.discard(key)  # asked again when the link is back

    def _measure_lag(self, now: float) -> None:
        """How long we have been behind the nodes' logs, if it is worth mentioning."""
        if sum(self.session.behind.values()) < LAG_BYTES:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = now
        self._log.behind_s = None if self._behind_since is None else now - self._behind_since

    def _say_what_is_waited_for(self, now: float) -> None:
        """An empty log says what the run is doing."""
        if self.board.book.lines:
            return
        model = self.board.model
        age = span_text(max(0.0, now - self.board.manifest.created))
        starting = [
            rank.rank
            for rank in model.ranks.values()
            if rank.state in (RankState.WAITING, RankState.STARTING)
        ]
        if self.recorded or model.over:
            text = "and none will come: the run has ended"
        elif starting:
            text = f"{age} after the launch: waiting for ranks {ranks_text(starting)} to start"
        else:
            children = sum(rank.sample.children or 0 for rank in model.ranks.values() if rank.sample)
            text = f"{age} after the launch: all ranks run"
            text += f", with {children} child processes" if children else "; imports may take a while"
        if text != self._log.empty_text:
            self._log.empty_text = text
            self._log.refresh()

    def _name_tabs(self) -> None:
        """Every pane on the right has the names of all of them on its frame, to read and to click."""
        for tab in TABS:
            names = []
            for number, name in enumerate(TABS, 2):
                action = "b $key" if name == tab else f"@click=screen.command('{name}')"
                names.append(f"[{action}]{number} {name}[/]")
            self.query_one(f"#{tab}").border_title = "  ".join(names)
        self.query_one("#recent").border_title = _title("", "events")

    def _say_status(self) -> None:
        """What the log shows, and whether it follows; a filter hides lines, so it must be noticeable."""
        pattern = RemoteText.of(self._log.filter).shown(limit=40)
        status = RemoteText.of(f"{self._log.title} · {self._log.status}").shown()
        kept = (f" /{pattern}/ ", "bold reverse") if pattern else ""
        self._log.border_subtitle = Content.assemble(kept, " " if pattern else "", status)

    def _draw_notice(self) -> None:
        """One line that stays: trouble here, a recorded run, a frozen display."""
        notice = self.query_one("#notice", Static)
        text = self._notice()
        notice.set_class(self._trouble is not None, "-trouble")
        notice.set_class(bool(text), "-shown")
        notice.update(text)

    def _notice(self) -> str:
        if self._trouble is not None:
            trouble = self._trouble
            where = f" ({trouble.where})" if trouble.where else ""
            hint = f"; {trouble.hint}" if trouble.hint else ""
            after = f" · {self.app.key_of('retry')} tries again; the run itself is not touched"
            return RemoteText.of(f"watching paused: {trouble.what}{where}{hint}").shown(limit=400) + after
        if self._frozen:
            return "FROZEN · the display is paused, the run goes on · p resumes"
        if self.recorded or self.board.model.over:
            if not self._outcome:
                self._outcome = self._tell_outcome()
            return self._outcome
        if not self.session.writer:
            return self._reading_along()
        return ""

    def _reading_along(self) -> str:
        """Who writes the spool instead of us, and whether it still does."""
        now = time.time()
        if not self.board.book.logs.lacks():
            self._lacking_since = None
        elif self._lacking_since is None:
            self._lacking_since = now
        silent = 0.0 if self._lacking_since is None else now - self._lacking_since
        if silent < LACKING_S:
            return "another cockpit keeps this run's spool: reading along"
        who = RemoteText.of(self.board.folder.writer.held()).shown(limit=200)
        return (
            f"{who}, but nothing for {span_text(silent)}: is it suspended? New lines are shown all the same"
        )

    def _tell_outcome(self) -> str:
        """How the run ended, in one line; this no longer changes."""
        model = self.board.model
        times = [model.ended_at(rank) for rank in model.ranks.values() if rank.ended_at]
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(max(times))) if times else "some time ago"
        how = RemoteText.of(endings(model)).shown(limit=400)
        if self.recorded:
            return f"RECORDED RUN · it ended {when} · nothing here is live · {how}"
        return f"ended {when} · {how} · {self.app.key_of('leave')} closes"

    def _draw_keys(self) -> None:
        """At most six keys that do something right now, each named by what it does here."""
        commands = [] if self._filter_bar.has_focus_within else list(filter(self._offers, self._commands()))
        must = [command for command in commands if command.id in ("help", "leave")]
        first = [command for command in commands if command not in must][: SLOTS - len(must)]
        self.query_one(KeyBar).show([*first, *must], self._activity())

    def _commands(self) -> list[Command]:
        """What the footer may offer, in its order."""
        here = {"leave": self._leaving()}
        if isinstance(self._pane(), CommandList):
            here["open"] = "copy"
        commands = (replace(c, short=here.get(c.id, c.short)) for c in self.app.commands.values())
        return sorted((c for c in commands if c.footer is not None), key=lambda c: c.footer or 0)

    def _offers(self, command: Command) -> bool:
        return (not command.panes or self._pane().id in command.panes) and not self.why_not(command.id)

    @on(events.DescendantFocus)
    def _focus_moved(self) -> None:
        self._draw_keys()

    def _leaving(self) -> str:
        """What leaving is called now."""
        if self.board.model.over:
            return "close"
        return "end it" if self._flight.leaving else "leave"

    def _activity(self) -> Activity | None:
        if self._activities:
            return next(iter(self._activities.values()))
        nodes = [node for node in self.board.model.nodes.values() if not node.over]
        # A node may say anything; only stages that we know are shown.
        stages = {node.name: node.stage for node in nodes if node.stage in SHORT_STAGES}
        if stages:
            stage = max(stages.values(), key=list(SHORT_STAGES).index)
            names = [name for name, each in stages.items() if each == stage]
            return Activity(f"{nodes_text(names)}: {SHORT_STAGES[stage]}")
        if self.board.building is not None:
            name, since = self.board.building
            return Activity(f"building op {name}, {time.time() - since:.0f} s")
        behind = sum(self.session.behind.values())
        if behind > BEHIND:
            return Activity(f"{behind / 1e6:,.1f} MB of logs behind")
        return None

    # Messages of widgets

    @on(RankGrid.Selected)
    def _selected(self, event: RankGrid.Selected) -> None:
        self._show_view(replace(self._view, chosen=(event.node, event.rank)))

    @on(RankGrid.Opened)
    def _opened(self, event: RankGrid.Opened) -> None:
        self._select(event.node, event.rank)
        self._go("log")

    @on(RankGrid.Marked)
    def _marked(self) -> None:
        self._narrow()

    @on(LogView.StatusChanged)
    def _status_changed(self) -> None:
        self._say_status()

    @on(LogView.RowOpened)
    def _row_opened(self, event: LogView.RowOpened) -> None:
        self._open_row(event.row)

    @on(EventList.Opened)
    def _entry_opened(self, event: EventList.Opened) -> None:
        if event.entry.node:
            self._select(event.entry.node, event.entry.rank)

    @on(KeyBar.Pressed)
    def _key_pressed(self, event: KeyBar.Pressed) -> None:
        self.action_command(event.command)

    @on(FailureBanner.Pressed)
    def _banner_pressed(self) -> None:
        self.action_command("failed_log")

    # Views

    def _select(self, node: str, rank: int | None) -> None:
        self._grid.select(node, rank)
        self._show_view(replace(self._view, chosen=(node, rank)))

    def _show_view(self, view: View, *, remember: bool = True) -> None:
        """Show a pane on the right, narrowed to what is chosen or marked."""
        if view == self._view and remember:
            return
        if remember and (view.tab, view.chosen) != (self._view.tab, self._view.chosen):
            self._past = [*self._past[-PAST_VIEWS:], self._view]
        self._view = view
        for tab in TABS:
            self.query_one(f"#{tab}").set_class(tab == view.tab, "-shown")
        if view.chosen is None:
            self._grid.unselect()
        self._narrow()
        self._draw_details(time.time())

    def _narrow(self) -> None:
        """Make the log show the right sources."""
        self._log.show(*self._narrowed())
        self._say_status()

    def _narrowed(self) -> tuple[Query, str]:
        """Whose lines the log shows, and what that is called."""
        marks = self._grid.marks
        if marks:
            wanted = frozenset(number for mark in marks for number in self._ranks(*mark))
            # Nodes have consoles, ranks have not: a set is of the ones or the others.
            whole = all(rank is None for _, rank in marks)
            query = Query(nodes=frozenset(node for node, _ in marks)) if whole else Query(wanted)
            return query, f"marked: ranks {ranks_text(wanted)}"
        if self._view.chosen is None:
            return Query(), "all ranks, merged by time"
        node, rank = self._view.chosen
        if rank is not None:
            return Query(frozenset({rank})), f"rank {rank} · {node}"
        return Query(nodes=frozenset({node})), f"{node} · ranks {ranks_text(self._ranks(node, None))}"

    def _ranks(self, node: str, rank: int | None) -> Sequence[int]:
        return self.board.entry(node).ranks if rank is None else [rank]


def _title(number: str, text: str) -> Content:
    """A title for a frame; nothing in it is markup."""
    return Content.assemble((f"{number} ", "bold") if number else "", RemoteText.of(text).shown())
