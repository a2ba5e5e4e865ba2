"""The app on a terminal."""

from __future__ import annotations

from cockpit.tui.host import Host
from cockpit.tui.palette import CockpitProvider
from cockpit.tui.screens.start import StartScreen


class CockpitApp(Host):
    """The cockpit: it begins with a start."""

    COMMANDS = Host.COMMANDS | {CockpitProvider}

    def on_mount(self) -> None:
        """Start."""
        self.push_screen(StartScreen(self.flight))
