"""What each command of the registry does on the run's screen, and why one may not work now."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from textual import getters, work
from textual.screen import Screen
from textual.widget import Widget
from textual.worker import Worker

from cockpit.base.shell import join
from cockpit.core.logs.levels import Level
from cockpit.core.ranks import nodes_text, ranks_text
from cockpit.core.run.model import LIVE
from cockpit.core.text import RemoteText
from cockpit.engine.collect import Collected, collect
from cockpit.engine.links.link import Link
from cockpit.engine.logs.book import Row
from cockpit.engine.run.board import Board
from cockpit.engine.run.join import fleet_for
from cockpit.engine.run.session import Session
from cockpit.engine.stacks.parties import RunParty
from cockpit.engine.stacks.take import Ask, Stacks
from cockpit.errors import CockpitError
from cockpit.tui.base_app import Host
from cockpit.tui.logs.filter_bar import FilterBar
from cockpit.tui.logs.view import LogView
from cockpit.tui.panes.dialogs import Answer, Question
from cockpit.tui.panes.finder import Item, command_items
from cockpit.tui.panes.item_pane import ItemPane
from cockpit.tui.panes.key_bar import Activity
from cockpit.tui.run.command_list import Command as Ran
from cockpit.tui.run.command_list import CommandList
from cockpit.tui.run.event_list import EventList
from cockpit.tui.run.flight import Flight
from cockpit.tui.run.help import HERE
from cockpit.tui.run.launched import launched_commands
from cockpit.tui.run.rank_grid import RankGrid
from cockpit.tui.run.view import View
from cockpit.tui.stacks.screen import StackScreen

PAST_VIEWS = 50
"""Views that ``-`` can go back to."""


class RunActions(Screen[None], inherit_bindings=False):
    """The commands of the run's screen: ``_do_ID`` does one, ``_no_ID`` says why it cannot be done now.

    :param board: the session's board
    :param session: launched or joined, not yet watched; the app closes it
    """

    app = getters.app(Host)

    def __init__(self, board: Board, session: Session, flight: Flight) -> None:
        super().__init__()
        self.board = board
        self.session = session
        self._flight = flight
        self._collect: Worker[None] | None = None
        self._trouble: CockpitError | None = None
        self._activities: dict[str, Activity] = {}
        self._view = View()
        self._past: list[View] = []
        self._frozen = False
        self._ran: list[Ran] = launched_commands(board.manifest)

    @property
    def _log(self) -> LogView:
        return self.query_one(LogView)

    @property
    def _grid(self) -> RankGrid:
        return self.query_one(RankGrid)

    @property
    def _filter_bar(self) -> FilterBar:
        return self.query_one(FilterBar)

    # Of the screen itself

    def _show_view(self, view: View, *, remember: bool = True) -> None:
        raise NotImplementedError

    def _select(self, node: str, rank: int | None) -> None:
        raise NotImplementedError

    def _draw_keys(self) -> None:
        raise NotImplementedError

    def _say_status(self) -> None:
        raise NotImplementedError

    def _slow_tick(self) -> None:
        raise NotImplementedError

    def _resume(self) -> None:
        raise NotImplementedError

    # Commands

    def why_not(self, name: str) -> str:
        """Why a command cannot work now; empty if it can."""
        command = self.app.commands[name]
        if command.changes and self.app.read_only:
            return "read-only"
        check = getattr(self, f"_no_{name}", None)
        return str(check()) if check else ""

    def _no_stop(self) -> str:
        return "the run has ended" if self.board.model.over else ""

    def _no_keep(self) -> str:
        return "" if self.session.stops_at is not None else "nothing is about to be stopped"

    def _no_collect(self) -> str:
        return "" if self.board.manifest.profile else "the run was not profiled: cockpit run --profile nsys"

    def _no_stacks(self) -> str:
        if self.board.model.over:
            return "the run has ended: its processes are gone"
        return "" if self.board.model.alive() else "no rank runs yet"

    def _no_retry(self) -> str:
        return "" if self._trouble else "nothing went wrong here"

    def _no_back(self) -> str:
        return "" if self._steps_back() else "nothing to go back from"

    def _no_previous_view(self) -> str:
        return "" if self._past else "no view before this one"

    def _no_next_match(self) -> str:
        return "" if self._log.searched else "no filter yet: type / first"

    _no_previous_match = _no_next_match

    def action_command(self, name: str) -> None:
        """Run a command of the registry, or say why it cannot work."""
        why = self.why_not(name)
        if why:
            self.notify(
                f"{self.app.commands[name].title}: {why}", severity="warning", markup=False, timeout=4
            )
            return
        getattr(self, f"_do_{name}")()
        self._draw_keys()

    def items(self) -> Iterator[Item]:
        """The commands, as they can be found by name."""
        yield from command_items(self.app.commands.values(), self.why_not, self.action_command)

    def places(self) -> Iterator[Item]:
        """Nodes and ranks, to go to."""
        for node in self.board.manifest.nodes:
            about = f"ranks {ranks_text(node.ranks)}"
            yield Item(
                node.name, f"node {node.name}", partial(self._select, node.name, None), "", "Nodes", about
            )
        for node in self.board.manifest.nodes:
            for rank in node.ranks:
                go, about = partial(self._select, node.name, rank), f"on {node.name}"
                yield Item(str(rank), f"rank {rank}", go, "", "Ranks", about)

    # Run

    def _do_stop(self) -> None:
        model, run = self.board.model, self.board.folder.name
        nodes = [node.name for node in model.nodes.values() if not node.over]
        alive = [rank.rank for rank in model.ranks.values() if rank.node in nodes and rank.state in LIVE]
        lines = [
            f"run    {run}",
            f"nodes  {nodes_text(nodes)}",
            f"ranks  {ranks_text(alive) or 'none runs any more'}",
            "",
            "stop: SIGTERM, time to end, time for a profiler to write its report, then SIGKILL.",
        ]
        answers = [Answer("stay", "stay", "n"), Answer("stop", "stop the run", "s", grave=True)]
        if model.stop_reason:
            lines.append("It was asked to stop already. Killing loses a profiler's report.")
            answers.append(Answer("kill", "kill it now", "k", grave=True))
        self.app.push_screen(Question("stop this run?", lines, answers), self._stop_answered)

    def _stop_answered(self, answer: str | None) -> None:
        if answer in ("stop", "kill"):
            self._stop(hard=answer == "kill")

    @work(group="stop")
    async def _stop(self, hard: bool) -> None:
        self._note_command("stop", ["stop", *(["--now"] if hard else []), self.board.folder.name])
        for error in await self.session.stop("asked in the cockpit", hard=hard):
            self.app.complain(error)

    def _note_command(self, title: str, words: list[str]) -> None:
        """Add what was just done to the list of commands, as one would type it."""
        self._ran.append(Ran(time.time(), title, join(["cockpit", *words])))

    def _do_stacks(self) -> None:
        run = self.board.folder.name

        async def link(node: str) -> Link:
            return self.session.link(node)

        party = RunParty(self.board.manifest, self.board.model, link)
        self._note_command("stacks", ["stacks", run])
        self.app.push_screen(StackScreen(Stacks(party, Ask(), self.board.folder.path / "stacks")))

    def _do_keep(self) -> None:
        when = time.strftime("%H:%M:%S", time.localtime(self.session.stops_at))
        lines = [f"Otherwise they are stopped at {when}, since a rank has failed."]
        answers = [
            Answer("no", "no", "n"),
            Answer("keep", "keep them running", "k", grave=True),
        ]
        self.app.push_screen(Question("keep the other ranks running?", lines, answers), self._keep_answered)

    def _keep_answered(self, answer: str | None) -> None:
        if answer != "keep":
            return
        if self.session.stops_at is None:
            self.notify("too late: the other ranks are being stopped", severity="warning", markup=False)
            return
        self.session.keep()
        self.notify("the other ranks are left alone; x stops the run", markup=False)

    def _do_retry(self) -> None:
        self._resume()

    def _do_collect(self) -> None:
        if self._collect is not None and self._collect.is_running:
            self._collect.cancel()
            self._activities.pop("collect", None)
            self.notify("collecting was cancelled; c resumes it", markup=False)
            return
        self._collect = self._collect_reports()

    @work(group="collect")
    async def _collect_reports(self) -> None:
        folder = self.board.folder
        self._note_command("collect", ["collect", folder.name])
        fleet = fleet_for(folder.manifest)
        try:
            collected = await collect(folder, fleet, folder.path / "reports", self._collected)
        except CockpitError as error:
            self.app.complain(error)
            return
        finally:
            self._activities.pop("collect", None)
            await fleet.close()
        here = [report for report in collected.reports if report.state == "collected"]
        size = sum(report.size for report in here) / 1e6
        text = f"{len(here)} reports, {size:,.1f} MB, verified: {collected.folder}"
        problems = [
            f"{report.node}: {report.state} {report.why}"
            for report in collected.reports
            if report not in here
        ]
        problems += [f"{node}: no report: {why}" for node, why in collected.missing.items()]
        shown = RemoteText.of(" · ".join([text, *problems])).shown(limit=600)
        self.notify(shown, severity="warning" if problems else "information", markup=False, timeout=20)

    def _collected(self, collected: Collected) -> None:
        total = sum(report.size for report in collected.reports)
        here = sum(min(report.here, report.size) for report in collected.reports)
        under_way = [report.node for report in collected.reports if report.state == "fetching"]
        text = f"collecting {nodes_text(under_way)}" if under_way else "collecting"
        self._activities["collect"] = Activity(text, here / total if total else None)

    def _do_leave(self) -> None:
        self.app.leave()

    def _do_interrupt(self) -> None:
        selected = self.get_selected_text()
        if selected:
            self.app.copy(selected)
            return
        if self.board.model.over:
            self.app.leave()
            return
        answers = [Answer("stay", "stay", "c"), Answer("leave", "leave", "l")]
        if not self.app.read_only:
            answers.append(Answer("stop", "stop the run …", "s"))
        lines = [f"Leaving: {self._flight.leaving or 'the run goes on'}."]
        self.app.push_screen(Question("leave, stop or stay?", lines, answers), self._interrupted)

    def _interrupted(self, answer: str | None) -> None:
        if answer == "leave":
            self.app.leave()
        elif answer == "stop":
            self.action_command("stop")

    # Moving

    def _do_nodes(self) -> None:
        if self.has_class("-zoom-right"):
            self.remove_class("-zoom-right")
        self.query_one(RankGrid).focus()

    def _do_log(self) -> None:
        self._go("log")

    def _do_detail(self) -> None:
        self._go("detail")

    def _do_events(self) -> None:
        self._go("events")

    def _do_commands(self) -> None:
        self._go("commands")

    def _go(self, tab: str) -> None:
        if self.has_class("-zoom-left"):
            self.remove_class("-zoom-left")
        self._show_view(replace(self._view, tab=tab))
        self.query_one(f"#{tab}").focus()

    def _do_next_pane(self) -> None:
        self.focus_next(".pane")

    def _do_previous_pane(self) -> None:
        self.focus_previous(".pane")

    def _pane(self) -> Any:
        """The pane that movement keys act on: the one with the focus, else the one shown on the right."""
        focused = self.focused
        while focused is not None and not focused.has_class("pane"):
            focused = focused.parent if isinstance(focused.parent, Widget) else None
        return focused or self.query_one(f"#{self._view.tab}")

    def _do_down(self) -> None:
        self._pane().move(1)

    def _do_up(self) -> None:
        self._pane().move(-1)

    def _do_page_down(self) -> None:
        self._pane().page(1)

    def _do_page_up(self) -> None:
        self._pane().page(-1)

    def _do_first(self) -> None:
        self._pane().home()

    def _do_last(self) -> None:
        self._pane().end()

    def _do_next_rank(self) -> None:
        self._step_rank(1)

    def _do_previous_rank(self) -> None:
        self._step_rank(-1)

    def _step_rank(self, step: int) -> None:
        ranks = sorted(self.board.model.ranks)
        chosen = self._view.chosen
        if chosen is None:
            number = ranks[0 if step > 0 else -1]
        elif chosen[1] is None:
            own = self.board.model.nodes[chosen[0]].ranks
            number = own[0] if step > 0 else own[-1]
        else:
            number = ranks[(ranks.index(chosen[1]) + step) % len(ranks)]
        self._select(self.board.model.ranks[number].node, number)

    def _no_open(self) -> str:
        pane = self._pane()
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

    def _do_open(self) -> None:
        pane = self._pane()
        if isinstance(pane, RankGrid):
            chosen = pane.selected
            if chosen is not None:
                self._select(*chosen)
            self._go("log")
        elif isinstance(pane, LogView):
            pane.open_row()
        elif isinstance(pane, EventList):
            pane.open_item()
        elif isinstance(pane, CommandList):
            self._do_copy()

    def _open_row(self, row: Row) -> None:
        """Narrow the log to the source of a line: one rank, or for a launcher's line its node."""
        self._select(*row.sources[0])

    def _do_back(self) -> None:
        steps = self._steps_back()
        if steps:
            steps[0]()

    def _steps_back(self) -> list[Callable[[], object]]:
        """What esc undoes, the nearest first."""
        steps: list[Callable[[], object]] = []
        if self._filter_bar.display:
            steps.append(self._filter_bar.cancel)
        if self._log.searching:
            steps.append(self._log.cancel_search)
        if self._log.unfolded:
            steps.append(self._log.fold)
        if self._log.filter:
            steps.append(partial(self._set_filter, ""))
        if self._grid.marks:
            steps.append(self._grid.clear_marks)
        if self._view.chosen is not None:
            steps.append(partial(self._show_view, View(self._view.tab)))
        if self.has_class("-zoom-left") or self.has_class("-zoom-right"):
            steps.append(self._unzoom)
        return steps

    def _do_previous_view(self) -> None:
        view = self._past.pop()
        self._show_view(view, remember=False)

    def _do_mark(self) -> None:
        self._grid.toggle_mark()

    # Log

    def _do_filter(self) -> None:
        self._go("log")
        self._filter_bar.open(self._log.filter)

    def _do_next_match(self) -> None:
        self._log.next_match(1)

    def _do_previous_match(self) -> None:
        self._log.next_match(-1)

    def _do_failed_log(self) -> None:
        first = self.board.model.first_failure()
        if first is not None:
            self._select(first.node, first.rank)
            self._go("log")
            self._log.end()
            self._log.next_level(Level.ERROR, -1)

    def _no_failed_log(self) -> str:
        return "" if self.board.model.first_failure() else "no rank has failed"

    def _do_next_error(self) -> None:
        self._level(Level.ERROR, 1)

    def _do_previous_error(self) -> None:
        self._level(Level.ERROR, -1)

    def _do_next_warning(self) -> None:
        self._level(Level.WARNING, 1)

    def _do_previous_warning(self) -> None:
        self._level(Level.WARNING, -1)

    def _level(self, level: Level, step: int) -> None:
        self._go("log")
        self._log.next_level(level, step)

    def _do_follow(self) -> None:
        self._log.toggle_follow()

    def _do_wrap(self) -> None:
        self._log.toggle_wrap()

    def _do_timestamps(self) -> None:
        self._log.toggle_timestamps()

    def _do_copy(self) -> None:
        pane = self._pane()
        text = self.get_selected_text() or (
            pane.copy_text() if isinstance(pane, ItemPane) else self._log.copy_line()
        )
        if text:
            self.app.copy(text)

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

    # The display

    def _do_zoom(self) -> None:
        if self.has_class("-zoom-left") or self.has_class("-zoom-right"):
            self._unzoom()
            return
        pane = self._pane()
        left = self.query_one("#left")
        self.add_class("-zoom-left" if left in pane.ancestors else "-zoom-right")

    def _unzoom(self) -> None:
        self.remove_class("-zoom-left", "-zoom-right")

    def _set_filter(self, pattern: str) -> None:
        self._log.set_filter(pattern)
        self._say_status()

    def _do_freeze(self) -> None:
        self._frozen = not self._frozen
        self._log.freeze(self._frozen)
        self._slow_tick()

    def _do_palette(self) -> None:
        self.app.find("go to", [*self.items(), *self.app.theme_items(), *self.places()])

    def _do_help(self) -> None:
        self.app.find("keys", self.items())

    def _do_help_here(self) -> None:
        title, lines = HERE.get(str(self._pane().id), HERE["log"])
        self.app.push_screen(Question(title, lines, [Answer("ok", "close", "q")]))
