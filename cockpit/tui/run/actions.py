"""What the run's screen does with the run: watch, stop, collect, page its log."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from textual.worker import Worker

from cockpit.base.shell import join
from cockpit.core.text import one_line
from cockpit.engine.run.arrival import arrived
from cockpit.engine.run.board import Board
from cockpit.engine.run.session import Session
from cockpit.errors import CockpitError
from cockpit.tui.command_screen import CommandScreen
from cockpit.tui.error_reporting import explained
from cockpit.tui.panes.key_bar import Activity
from cockpit.tui.run import notices
from cockpit.tui.run.command_list import Ran, launched_commands
from cockpit.tui.run.purpose import Flight

if TYPE_CHECKING:
    from cockpit.engine.collect import Collected
    from cockpit.tui.run.looks import Looks

TICK_S = 0.1
"""Seconds between two looks at whether the run is over."""

MISSED_S = 600.0
"""How long what was missed is awaited, so that it is in the log by the time at which it was printed."""


class Deeds:
    """What is done with one run, for its screen.

    :param screen: asks, tells, and holds the workers
    """

    def __init__(self, screen: CommandScreen, board: Board, session: Session, flight: Flight) -> None:
        self._screen = screen
        self._board = board
        self._session = session
        self._flight = flight
        self._collecting: Worker[None] | None = None
        self.trouble: CockpitError | None = None
        """Why nobody watches any more."""
        self.activities: dict[str, Activity] = {}
        """What goes on now, by what it is for."""
        self.ran: list[Ran] = launched_commands(board.manifest)
        """What was done, as one would type it."""

    def noted(self, title: str, words: Sequence[str]) -> None:
        """Add what was just done to the list of commands."""
        self.ran.append(Ran(time.time(), title, join(["cockpit", *words])))

    # Loading and watching

    def load(self, last: Callable[[], object], loaded: Callable[[], object], *, missed: bool = False) -> None:
        """Read what is on the disk.

        :param last: called once the last lines can be shown, where it takes a while
        :param loaded: called at the end
        :param missed: whether nodes, which are watched, have what was printed while nobody did
        """
        self._screen.run_worker(self._load(last, loaded, missed), group="load")

    async def _load(self, last: Callable[[], object], loaded: Callable[[], object], missed: bool) -> None:
        if missed:
            self._board.await_missed()
        if not self._board.timeline.entries:
            await self._board.recall()
        if not missed:
            self._loading(0.0)
        if await self._board.load_last():
            last()
        if missed:
            with suppress(CockpitError, asyncio.TimeoutError):  # the watch says what is wrong
                await asyncio.wait_for(arrived(self._session), MISSED_S)
        await self._board.load(self._loading)
        self.activities.pop("load", None)
        loaded()
        # Not needed for the first frame.
        with suppress(CockpitError):
            await self._board.recall_numbers()

    def _loading(self, share: float) -> None:
        self.activities["load"] = Activity("reading the log", share)

    def watch(self, *, again: bool = False) -> None:
        """Watch the run until it is over.

        :param again: it was watched, and something went wrong
        """
        self._screen.run_worker(self._watch(again), group="watch", exclusive=True)

    async def _watch(self, again: bool) -> None:
        app, session = self._screen.app, self._session
        try:
            if again:
                await session.resume()
            else:
                session.watch(policy=not app.read_only)
                session.stand_by()
                self._look_out()
                self._call_from()
            while not session.model.done:
                await session.wait(1.0)
                await asyncio.sleep(TICK_S)
        except Exception as error:
            # Whatever it is, it stays on the screen until the watch goes on.
            self.trouble = explained(error)
            return
        if self._flight.collects and not app.read_only:
            self._screen.action_command("collect")

    def _look_out(self) -> None:
        """Notice what goes wrong, and keep evidence of it."""
        # Imported once a run is watched: these bring all that looks at stacks along.
        from cockpit.engine.evidence_fetcher import keep_evidence
        from cockpit.engine.profile.known import note_profiles
        from cockpit.engine.watching import watch_stalls
        from cockpit.engine.work_sampler import watch_works

        session, stalls = self._session, self._flight.stalls
        if session.model.done:
            return
        watch_works(session)
        keep_evidence(session)
        watch_stalls(session, replace(stalls, on_hang="note") if self._screen.app.read_only else stalls)
        note_profiles(session)

    def _call_from(self) -> None:
        """Call a person when the run fails, stands still, or is over."""
        from cockpit.engine.calls.caller import Caller, ways

        app = self._screen.app
        chosen = ways(app.calls_by, app.config)
        since = 0.0 if self._flight.launches else time.time()
        warn = partial(self._screen.notify, severity="warning", timeout=15)
        Caller(self._session, chosen, app.ring, warn, since=since).start()

    def retry(self) -> None:
        """Try again what went wrong: a login, or the watch."""
        self._session.pool.again()
        if self.trouble is not None:
            self.trouble = None
            self.watch(again=True)

    # Stopping

    def stop(self) -> None:
        """Ask whether to stop the run."""
        question = notices.stop_question(
            self._board.folder.name, self._board.model, controls=self._session.writer
        )
        self._screen.app.push_screen(question, self._stop_answered)

    def _stop_answered(self, answer: str | None) -> None:
        if answer in ("stop", "kill"):
            self._screen.run_worker(self._stop(hard=answer == "kill"), group="stop")

    async def _stop(self, hard: bool) -> None:
        self.noted("stop", ["stop", *(["--now"] if hard else []), self._board.folder.name])
        for error in await self._session.stop("requested in the app", hard=hard):
            self._screen.app.complain(error)

    def keep(self) -> None:
        """Ask whether to leave the other ranks alone after a failure."""
        self._screen.app.push_screen(notices.keep_question(self._session.stops_at), self._keep_answered)

    def _keep_answered(self, answer: str | None) -> None:
        if answer != "keep":
            return
        screen = self._screen
        if self._session.stops_at is None:
            screen.notify("too late: the other ranks are being stopped", severity="warning")
            return
        self._session.keep()
        screen.notify(f"the other ranks keep running; {screen.app.key_of('stop')} stops the run")

    @property
    def looks(self) -> Looks:
        """Opens the screens that look at ranks or nodes."""
        from cockpit.tui.run.looks import Looks

        return Looks(self._screen, self._board, self._session, self.noted)

    def compare(self) -> None:
        """Let a person choose a run to compare this one with."""
        from cockpit.tui.run.comparing import choose

        self._screen.run_worker(
            choose(self._screen, self._board.folder, self.noted), group="runs", exclusive=True
        )

    def list_runs(self) -> None:
        """Let a person choose another run to look at."""
        self._screen.run_worker(self._list_runs(), group="runs", exclusive=True)

    async def _list_runs(self) -> None:
        app = self._screen.app
        try:
            # What was recorded of runs that are not in the index takes a while to read.
            items = await asyncio.to_thread(lambda: list(app.run_items(states=True)))
        except CockpitError as error:
            app.complain(error)
            return
        if items:
            app.find("runs", items, enter="opens it")
        else:
            self._screen.notify("no other run is known here", severity="warning")

    # Files

    def collect(self) -> None:
        """Collect the profiler's reports; stop that if it goes on already."""
        if self._collecting is not None and self._collecting.is_running:
            self._collecting.cancel()
            self.activities.pop("collect", None)
            key = self._screen.app.key_of("collect")
            self._screen.notify(f"collecting was cancelled; {key} resumes it")
            return
        self._collecting = self._screen.run_worker(self._collect_reports(), group="collect")

    async def _collect_reports(self) -> None:
        from cockpit.engine.collect import collect

        folder, app = self._board.folder, self._screen.app
        self.noted("collect", ["collect", folder.name])

        def tell(collected: Collected) -> None:
            self.activities["collect"] = notices.collect_activity(collected)

        try:
            collected = await collect(folder, self._session.pool, folder.path / "reports", tell, app.complain)
        except CockpitError as error:
            app.complain(error)
            return
        finally:
            self.activities.pop("collect", None)
        text, problems = notices.collected_text(collected)
        shown = one_line(" · ".join([text, *problems]), limit=600)
        self._screen.notify(shown, severity="warning" if problems else "information", timeout=20)

    def page(self, logs: Sequence[str]) -> None:
        """Give the terminal to a pager; the links are still served meanwhile.

        :param logs: the words of the command whose output it shows
        """
        self.noted("open the log", logs)
        words = [sys.executable, "-c", "from cockpit.cli.main import main; raise SystemExit(main())"]
        # Through `cockpit logs`, which makes the ranks' output harmless: a pager may not.
        # A ctrl+c is meant for the pager, which decides whether it ends: neither the shell nor the app does.
        command = f"trap : INT; {join([*words, *logs])} | {os.environ.get('PAGER') or 'less -R'}"
        self._screen.run_worker(self._page(command), group="pager", exclusive=True)

    async def _page(self, command: str) -> None:
        with self._screen.app.batch_update(), self._screen.app.suspend():
            before = signal.signal(signal.SIGINT, lambda number, frame: None)
            try:
                pager = await asyncio.create_subprocess_exec("/bin/sh", "-c", command)
                await pager.wait()
            finally:
                signal.signal(signal.SIGINT, before)
