"""The app on a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.command import Provider

from cockpit.tui.host import Host
from cockpit.tui.palette import CockpitProvider
from cockpit.tui.screens.start import StartScreen


class CockpitApp(Host):
    """The cockpit: it begins with a start."""

    # Textual's own commands are left out: its "Quit" would not close the links.
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {CockpitProvider}

    def on_mount(self) -> None:
        """Start."""
        self.push_screen(StartScreen(self.flight))
