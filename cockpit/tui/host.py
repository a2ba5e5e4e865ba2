"""What every screen needs of the app: settings, keys, themes, the clipboard, a way out."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.filter import LineFilter

from cockpit import paths
from cockpit.base.events import Left
from cockpit.config import Config
from cockpit.core.events import Event
from cockpit.engine.session import Session
from cockpit.errors import CockpitError, Exit
from cockpit.tui import themes
from cockpit.tui.ascii_filter import AsciiFilter
from cockpit.tui.commands import keymap, shown
from cockpit.tui.glyphs import Glyphs, choose

RELOAD_S = 1.0
"""How often theme files are looked at for changes."""


class Host(App[int]):
    """The app without its screens.

    :param read_only: nothing that changes the run
    """

    TITLE = "cockpit"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "leave", "leave", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", "to the shell", show=False, priority=True),
    ]

    def __init__(self, config: Config, *, read_only: bool = False) -> None:
        super().__init__()
        self.config = config
        self.read_only = read_only or config.read_only
        self.commands = keymap(config.keys, config.where)
        self.glyphs: Glyphs = choose(config.ascii)
        self._running_loop: asyncio.AbstractEventLoop | None = None
        self.session: Session | None = None
        self.error: CockpitError | None = None
        """Why there is no session."""
        self._themes = themes.Themes()
        self._ascii = AsciiFilter(enabled=self.glyphs.ascii)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Colours of states that a theme may leave out."""
        return themes.defaults()

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's own filters, then ours: in ASCII where the terminal shows nothing else."""
        return [*super().get_line_filters(), *([self._ascii] if self._ascii.enabled else [])]

    def on_mount(self) -> None:
        self._load_themes()
        if problem := self._themes.use(self, self.config.theme):
            self._warn(problem)
        self.set_keymap({c.id: ",".join(c.keys) for c in self.commands.values()})
        self.set_interval(RELOAD_S, self._load_themes)
        self._running_loop = asyncio.get_running_loop()

    def _load_themes(self) -> None:
        """Register what is new among the themes, and say once what is wrong with one."""
        for problem in self._themes.refresh(self):
            self._warn(problem)

    def _warn(self, problem: str) -> None:
        self.notify(problem, title="theme", severity="warning", markup=False, timeout=15)

    def key_of(self, name: str) -> str:
        """The key of a command, as people write it."""
        return shown(self.commands[name].keys[0])

    def joined(self, session: Session) -> None:
        """A session was made: it is closed when the app ends."""
        self.session = session

    def copy(self, text: str) -> None:
        """Put text on the clipboard (OSC 52) and into a file, since not every terminal takes it."""
        self.copy_to_clipboard(text)
        path = paths.private_dir(paths.state()) / "copied.txt"
        try:
            number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(number, "w") as file:
                file.write(text)
        except OSError as error:
            self.notify(f"copied, but not to {path}: {error.strerror}", severity="warning", markup=False)
            return
        lines = text.count("\n") + 1
        self.notify(f"copied {lines} line{'s' * (lines > 1)}; also in {path}", markup=False, timeout=4)

    def leave(self) -> None:
        """Close the app; the run goes on."""
        self.run_worker(self._leave(), group="leave", exclusive=True, exit_on_error=False)

    async def _leave(self) -> None:
        session = self.session
        if session is None:
            self.exit(int(Exit.LEFT))
            return
        over = session.model.over
        if not over and not session.model.done:
            with suppress(OSError):  # a full disk must not keep anybody here
                session.folder.write(Event(time.time(), "", Left()))
        await session.close()
        self.exit(int(session.model.exit_code() if over else Exit.LEFT))

    def leave_soon(self) -> None:
        """As :meth:`leave`, from a signal handler."""
        if self._running_loop is not None:
            self._running_loop.call_soon_threadsafe(self.leave)

    def action_leave(self) -> None:
        """Of ctrl+q, which Textual would quit at once with."""
        self.leave()
