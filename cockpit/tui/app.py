"""The app on a terminal."""

from __future__ import annotations

from cockpit.config import Config
from cockpit.tui.base_app import BaseApp
from cockpit.tui.run.purpose import Flight
from cockpit.tui.run.start import StartScreen


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
        self.push_screen(StartScreen(self._flight))

    async def _leave(self) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, StartScreen):
                await screen.take_back()
        await super()._leave()
