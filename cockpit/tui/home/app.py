"""The app of the home screen: it ends with what a person wants next."""

from __future__ import annotations

from cockpit.config import Config
from cockpit.tui.base_app import BaseApp
from cockpit.tui.home.requested_verb import Wish
from cockpit.tui.home.screen import HomeScreen


class HomeApp(BaseApp):
    """Opens with the home screen.

    :param chosen: the run that the cursor is on at first; empty: the first one
    :param said: what became of the wish before, if that is worth a word
    """

    def __init__(self, config: Config, *, chosen: str = "", said: str = "", read_only: bool = False) -> None:
        super().__init__(config, read_only=read_only)
        self.wish: Wish | None = None
        """What a person wants next; None: to leave."""
        self.chosen = chosen
        self._said = said

    def on_mount(self) -> None:
        """Show the screen."""
        self.push_screen(HomeScreen(self.want, self.chosen))
        if self._said:
            self.notify(self._said, severity="error", timeout=30)

    def want(self, wish: Wish, chosen: str) -> None:
        """End the app with a wish.

        :param chosen: the run that it is about; empty: none
        """
        self.wish = wish
        self.chosen = chosen or self.chosen
        self.exit(0)
