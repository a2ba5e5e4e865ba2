"""The app on a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from cockpit.config import Config
from cockpit.core.watch.options import WatchOptions
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.session import Session
from cockpit.errors import CockpitError, Exit
from cockpit.plans.launch import PER_NODE
from cockpit.tui.base_app import BaseApp
from cockpit.tui.panes.finder import Item
from cockpit.tui.run.purpose import Flight, Joining, Replaying
from cockpit.tui.run.runs import run_items
from cockpit.tui.run.screen import RunScreen
from cockpit.tui.run.start import StartScreen

SOON_S = 0.2
"""A session that is made from what is here, within this time, needs no screen that says so."""


class CockpitApp(BaseApp):
    """The cockpit app: it begins with a start.

    :param flight: what it was opened for
    :param read_only: do nothing that changes the run
    :param notify: the command that gets calls; None: that of the settings
    """

    def __init__(
        self, flight: Flight, config: Config, *, read_only: bool = False, notify: str | None = None
    ) -> None:
        super().__init__(config, read_only=read_only)
        self.calls_by = notify
        self.flight = flight
        """What is shown: what it was opened for, or the run that was opened since."""

    def on_mount(self) -> None:
        """Start."""
        self._start()

    def _start(self) -> None:
        start = StartScreen(self.flight)
        if self.flight.launches:
            self.push_screen(start)
        else:
            self.run_worker(self._open(start), group="start", exit_on_error=False)

    async def _open(self, start: StartScreen) -> None:
        """Go straight to the run; a start that takes its time, or fails, is shown."""
        opening = start.take_off()
        try:
            await asyncio.wait([opening], timeout=SOON_S)
        except asyncio.CancelledError:
            opening.cancel()
            raise
        arrived = opening.done() and not opening.cancelled() and opening.exception() is None
        self.push_screen(start.arrived(opening.result()) if arrived else start)

    @property
    def leave_words(self) -> tuple[str, str]:
        """An ended run, or a replay, is only closed; another one may end with the app."""
        if isinstance(self.flight, Replaying) or (self.session is not None and self.session.model.over):
            return "close", "close"
        return ("quit; stops this run", "quit & stop") if self.flight.leaving else super().leave_words

    @property
    def leaving(self) -> str:
        """What leaving does to the run, which may have ended."""
        if self.session is not None and self.session.model.over:
            return "the run has ended"
        return self.flight.leaving or super().leaving

    def run_items(self, *, states: bool = False) -> Iterator[Item]:
        """The other runs known here; none can be opened where leaving this one would end it."""
        why_not = self.flight.leaving and f"on leaving, {self.flight.leaving}"
        return run_items(self.flight.name, self._show_run, why_not, states=states)

    def _show_run(self, folder: RunFolder) -> None:
        """Leave this run, which continues, and open another one."""
        if self.flight.leaving:
            self.notify(f"cannot open {folder.name}: on leaving, {self.flight.leaving}", severity="warning")
            return
        try:
            launcher = folder.manifest.launcher
        except CockpitError as error:
            self.complain(error)
            return
        # Options of the command line were for the run that it named.
        watch = self.config.watch
        on_hang = "note" if launcher == PER_NODE else watch.on_hang
        stalls = WatchOptions(watch.look, watch.hang_after, on_hang, watch.stop_after)
        self.run_worker(self._switch(Joining(folder, stalls=stalls)), group="leave", exclusive=True)

    async def _switch(self, flight: Flight) -> None:
        while len(self.screen_stack) > 1:
            await self.pop_screen()
        if self.session is not None:
            with self.contained():
                await self.part(self.session)
            self.session = None
        self.flight = flight
        self._start()

    def outcome(self, session: Session) -> Exit:
        """Looking at the past of a run says nothing of how it ended."""
        return Exit.OK if isinstance(self.flight, Replaying) else super().outcome(session)

    async def part(self, session: Session) -> None:
        """A run that is only looked at is not left."""
        if isinstance(self.flight, Replaying):
            await session.close()
        else:
            await super().part(session)

    async def _leave(self) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, StartScreen):
                await screen.take_back()
            elif isinstance(screen, RunScreen):
                screen.show_end()
        await super()._leave()
