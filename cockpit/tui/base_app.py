"""What every screen needs from the app: settings, keys, themes, the clipboard, a way out."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual._context import active_message_pump
from textual.app import App
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.driver import Driver
from textual.filter import LineFilter
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget

from cockpit import paths
from cockpit.base.events import Left
from cockpit.config import Config
from cockpit.core.calls.alert import alert
from cockpit.core.run.events import Event
from cockpit.engine.files import create
from cockpit.errors import CockpitError, Exit, os_error
from cockpit.private import private_dir
from cockpit.transport.login_prompts import DESK, Prompter
from cockpit.tui.commands import REPLAY, Id, in_scope, keymap
from cockpit.tui.driver import ours
from cockpit.tui.error_reporting import Door, explained, notice, wall
from cockpit.tui.look import themes
from cockpit.tui.look.filters import AsciiFilter, FewColours
from cockpit.tui.look.glyphs import Glyphs, choose
from cockpit.tui.panes.finder import Finder, Item
from cockpit.tui.panes.login import LoginPrompter
from cockpit.tui.typeahead import Typeahead

if TYPE_CHECKING:
    from cockpit.core.calls.calls import Call
    from cockpit.engine.run.session import Session  # home watches no run

URGENT = ("ctrl+q", "ctrl+z")
"""Keys that always work."""

READ_S, READ_ERROR_S = 1.5, 5.0
"""Seconds that a message, and an error, stay whatever is typed."""

RELOAD_S = 1.0
"""How often theme files are checked for changes."""


class BaseApp(App[int]):
    """The app without its screens.

    :param read_only: do nothing that changes the run
    """

    TITLE = "cockpit"
    ENABLE_COMMAND_PALETTE = False  # ours is a Finder
    # Messages leave the last lines free: the input, the keys, and the status of the pane above them.
    CSS = "ToastRack { margin-bottom: 2; } Toast { width: auto; min-width: 40; max-width: 90%; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "leave", priority=True),
        Binding("ctrl+z", "suspend_process", priority=True),
    ]

    def __init__(self, config: Config, *, read_only: bool = False) -> None:
        super().__init__()
        self.config = config
        self.read_only = read_only or config.read_only
        self.commands = keymap(config.keys, config.where)
        self.keys: dict[str, str] = {name: command.key for name, command in self.commands.items()}
        """The key of each command, as people write it."""
        self.rings = config.bell
        """Whether the terminal rings when somebody is called."""
        self.units = config.units
        """Of sizes: a name in :data:`cockpit.tui.look.units.SIZES`."""
        self.glyphs: Glyphs = choose(config.ascii)
        self._running_loop: asyncio.AbstractEventLoop | None = None
        self.typeahead = Typeahead(self, super().on_event, self._dropped_keys)
        self._keys_served: asyncio.Task[None] | None = None
        self._unread_until = 0.0
        self.settled: Callable[[], object] = lambda: None
        """Is called once a run and its logs are on the screen: most of what there is then stays."""
        self.used_at = -math.inf
        """When a key or the mouse was last used, on a clock that nobody sets."""
        self._asked_before: Prompter | None = None
        self.session: Session | None = None
        """Closed when the app ends."""
        self.calls_by: str | None = None
        """The command that gets calls; None: that of the settings."""
        self.error: CockpitError | None = None
        """Why there is no session, or why the app could not go on."""
        self._door = Door()
        self._ending = False
        self._broken: object = None
        """A screen that could not be built."""
        self._themes = themes.Themes()
        self._filters_of_ours: list[LineFilter] = [
            AsciiFilter(enabled=self.glyphs.ascii),
            FewColours(enabled=self.console.color_system == "256"),
        ]
        # Now, while there are no widgets yet whose styles another theme would change.
        self._theme_problems = self._themes.refresh(self)
        if problem := self._themes.use(self, config.theme):
            self._theme_problems.append(problem)
        self.config = replace(config, theme=self.theme)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Colours of states that a theme may leave out."""
        return themes.defaults()

    def get_driver_class(self) -> type[Driver]:
        """Textual's driver, with our ways."""
        return ours(super().get_driver_class())

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's own filters, then ours: in signs and colours that the terminal can show."""
        return [*super().get_line_filters(), *(each for each in self._filters_of_ours if each.enabled)]

    def on_mount(self) -> None:
        for problem in self._theme_problems:
            self._warn(problem)
        keys = {c.id: c.bound for c in self.commands.values()}
        self.set_keymap(
            keys | {f"{REPLAY}.{c.id}": c.bound for c in in_scope(REPLAY, self.commands.values())}
        )
        self.set_interval(RELOAD_S, self._load_themes)
        self._running_loop = asyncio.get_running_loop()
        self._keys_served = asyncio.create_task(self.typeahead.serve())
        self._asked_before, DESK.prompter = DESK.prompter, LoginPrompter(self)

    def on_unmount(self) -> None:
        if self._asked_before is not None:
            DESK.prompter, self._asked_before = self._asked_before, None
        if self._keys_served is not None:
            self._keys_served.cancel()

    async def on_event(self, event: events.Event) -> None:
        """Keys and pastes are queued; the keys that leave the app are not."""
        typed = isinstance(event, (events.Key, events.Paste)) and not event.is_forwarded
        if typed or isinstance(event, (events.MouseDown, events.MouseScrollDown, events.MouseScrollUp)):
            self.used_at = time.monotonic()
        if typed and self._notifications and time.monotonic() >= self._unread_until:
            self.clear_notifications()
        if typed and getattr(event, "key", "") not in URGENT:
            self.typeahead.put(event)
        else:
            await super().on_event(event)

    def _load_themes(self) -> None:
        """Register new and changed themes, and say once what is wrong with one."""
        for problem in self._themes.refresh(self):
            self._warn(problem)

    def _warn(self, problem: str) -> None:
        self.notify(problem, title="theme", severity="warning", timeout=15)

    def key_of(self, name: Id) -> str:
        """The key of a command, as people write it."""
        return self.keys[name]

    @property
    def leave_words(self) -> tuple[str, str]:
        """What leaving is called: in the help, and in the last line."""
        command = self.commands["leave"]
        return command.title, command.short

    def copy(self, text: str) -> None:
        """Put text on the clipboard (OSC 52) and into a file, since not every terminal takes it."""
        self.copy_to_clipboard(text)
        path = paths.copied()
        try:
            private_dir(path.parent)
            with create(path) as file:
                file.write(text.encode(errors="replace"))
        except OSError as error:
            self.notify(f"copied, but not to {path}: {error.strerror}", severity="warning")
            return
        lines = text.count("\n") + 1
        self.notify(f"copied {lines} line{'s' * (lines > 1)}; also in {path}", timeout=4)

    def screenshot(self) -> None:
        """Keep what is on the screen, and say where."""
        from cockpit.tui.screenshot import take  # few ever do

        try:
            path = take(self)
        except OSError as error:
            self.complain(os_error("no screenshot: it cannot be written", paths.screenshots(), error))
            return
        self.notify(f"screenshot: {path}, and as text {path.with_suffix('.txt').name}", timeout=12)

    def ring(self, call: Call) -> None:
        """Let the terminal call somebody who does not look."""
        if self.rings and self._driver is not None and not self.is_headless:
            self._driver.write(alert(call, os.environ))
            self._driver.flush()

    def _dropped_keys(self, count: int) -> None:
        self.notify(f"busy: {count} key{'s' * (count > 1)} ignored", severity="warning")

    def notify(self, message: str, **how: Any) -> None:
        """Show a message without any markup; the first key after there was time to read it removes it.

        One that is on the screen already is not shown twice.
        """
        if any(message == shown.message for shown in self._notifications):
            return
        seconds = READ_ERROR_S if how.get("severity") == "error" else READ_S
        self._unread_until = max(self._unread_until, time.monotonic() + seconds)
        super().notify(message, **{**how, "markup": False})

    def find(self, title: str, items: Iterable[Item], enter: str = "runs it") -> None:
        """Let a person choose one of many by name, and run it.

        :param enter: what that does
        """

        def run(chosen: Callable[[], object] | None) -> None:
            if chosen is not None:
                chosen()

        self.push_screen(Finder(title, items, enter), run)

    def holds(self, screen: Screen[Any]) -> bool:
        """Whether a screen is neither left nor being removed: its widgets go before its timers do."""
        return screen.is_attached and screen.display and screen in self.screen_stack

    def theme_items(self) -> Iterator[Item]:
        """The themes to choose from."""
        for name, theme in sorted(self.available_themes.items()):
            if theme.variables.get("rank-running"):
                use = partial(setattr, self, "theme", name)
                yield Item(name, f"theme: {name}", use, "", "Themes", "Colours.")

    def remember(self, shown: Mapping[str, Any]) -> None:
        """Save what was changed since the start, or the last save; say where, and what a project overrides.

        :param shown: settings by name, as they are in effect now
        """
        from cockpit import config, config_file  # few do this

        chosen = {name: value for name, value in shown.items() if value != getattr(self.config, name)}
        if not chosen:
            self.notify("nothing to save", timeout=4)
            return
        try:
            config_file.remember(paths.config(), chosen)
            others = config.load()
        except CockpitError as error:
            self.complain(error)
            return
        self.config = replace(self.config, **chosen)
        said = f"saved in {paths.config()}: {', '.join(chosen)}"
        if other := [name for name, value in chosen.items() if getattr(others, name) != value]:
            said += f"; here, {config.LOCAL} overrides {', '.join(other)}"
        self.notify(said, timeout=8)

    @property
    def leaving(self) -> str:
        """What leaving does to the run."""
        return "the run continues"

    def leave(self) -> None:
        """Close the app; the run continues."""
        self.run_worker(self._leave(), group="leave", exclusive=True, exit_on_error=False)

    async def _leave(self) -> None:
        code = Exit.LEFT
        try:
            if (session := self.session) is not None:
                code = self.outcome(session)
                await self.part(session)
        except Exception as error:
            # Said once the terminal is back: nothing must delay leaving.
            self.error = self.error or explained(error)
        finally:
            self.exit(int(code))

    def outcome(self, session: Session) -> Exit:
        """The exit code where the app is left."""
        return Exit(session.model.exit_code()) if session.model.over else Exit.LEFT

    async def part(self, session: Session) -> None:
        """Close a session; the run continues, and notes that it was left."""
        if not session.model.over and not session.model.done:
            with suppress(OSError, CockpitError):  # a full disk must not keep anybody here
                session.folder.write(Event(time.time(), "", Left()))
        await session.close()

    def run_items(self, *, states: bool = False) -> Iterator[Item]:
        """The other runs known here, to open one.

        :param states: say how each is, which takes reading all that was recorded of it
        :raises CockpitError: they cannot be read
        """
        return iter(())

    def leave_soon(self) -> None:
        """As :meth:`leave`, from a signal handler."""
        if self._running_loop is not None:
            self._running_loop.call_soon_threadsafe(self.leave)

    def action_leave(self) -> None:
        """For ctrl+q, on which Textual would quit at once."""
        self.leave()

    # The door for errors

    def complain(self, error: CockpitError) -> None:
        """Show what went wrong and what to do about it."""
        self.notify(notice(error), severity="error", timeout=15)

    @contextmanager
    def contained(self) -> Iterator[None]:
        """An error raised in this block becomes a notice; what follows the block goes on."""
        try:
            yield
        except Exception as error:
            self._handle_exception(error)

    def _handle_exception(self, error: Exception, *, once: bool = False) -> None:
        """The door itself: Textual passes everything here that a worker, a timer or a handler raised.

        The app goes on, unless there is no screen to go on with.

        :param once: it is said once, however often it happens
        """
        if self._ending:
            return
        if self._exit:
            explained(error)  # nobody sees a notice any more, but the details are kept
            return
        pump = active_message_pump.get(None)
        unborn = isinstance(pump, Screen) and not pump.is_mounted
        if not self._running or self._door.storm or (unborn and pump in self.screen_stack[:2]):
            self._give_up(error)
            return
        if isinstance(pump, Screen) and pump is self._broken:
            return  # it is being removed; its further errors follow from the one already shown
        if unborn:
            self._broken = pump
            self.call_later(self._take_away, pump)
        told = self._door.take(error, once=once)
        if told is not None:
            self.complain(told)

    def _cannot_draw(self, error: Exception) -> None:
        self._handle_exception(error, once=True)

    def _take_away(self, screen: Screen[object]) -> None:
        """Close a screen that could not be built; its caller gets no answer."""
        if self.screen is screen:
            screen.dismiss()

    def _give_up(self, error: Exception) -> None:
        """End; :attr:`error` says why once the terminal is back. The run continues."""
        self._ending = True
        why = explained(error)
        self.error = CockpitError(f"app exited: {why.what}", where=why.where, hint=why.hint)
        if self._running:
            self.leave()

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except Exception as error:
            if not self._is_mounted:
                self._give_up(error)
                raise  # there is no app yet: Textual gives the terminal back
            self._handle_exception(error)
            await asyncio.sleep(0)  # one that keeps failing must not starve the others

    # Textual starts scrollbars in the first, all other widgets and screens in the second.

    def _register_child(self, parent: DOMNode, child: Widget, before: int | None, after: int | None) -> None:
        wall(child, self._handle_exception, self._cannot_draw)
        super()._register_child(parent, child, before, after)

    def _start_widget(self, parent: Widget, widget: Widget) -> None:
        wall(widget, self._handle_exception, self._cannot_draw)
        super()._start_widget(parent, widget)
