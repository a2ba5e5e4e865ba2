"""The app for stacks only: those of a job that cockpit did not start, or of a snapshot from disk."""

from __future__ import annotations

from cockpit.config import Config
from cockpit.engine.stacks.take import Stacks
from cockpit.tui.base_app import BaseApp
from cockpit.tui.stacks.screen import StackScreen


class StacksApp(BaseApp):
    """Opens with the stack screen; leaving it ends the app.

    :param stacks: whose stacks are shown
    """

    def __init__(self, stacks: Stacks, config: Config) -> None:
        super().__init__(config, read_only=True)
        self._stacks = stacks

    def on_mount(self) -> None:
        """Show the screen."""
        self.push_screen(StackScreen(self._stacks, root=True))
