"""The app on a terminal."""

from __future__ import annotations

import asyncio

from cockpit.config import Config
from cockpit.tui.base_app import BaseApp
from cockpit.tui.run.purpose import Flight
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
        self._flight = flight

    def on_mount(self) -> None:
        """Start."""
        start = StartScreen(self._flight)
        if self._flight.launches:
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

    async def _leave(self) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, StartScreen):
                await screen.take_back()
        await super()._leave()
