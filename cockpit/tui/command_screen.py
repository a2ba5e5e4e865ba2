"""What the screens with commands share: what a command does, or why it cannot; finding one; the last line."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from string import Formatter
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

from textual import events, getters, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from cockpit.core.text import one_line
from cockpit.tui.base_app import BaseApp
from cockpit.tui.commands import REPLAY, Command, Id, in_scope
from cockpit.tui.logs.filter_bar import FilterBar
from cockpit.tui.panes.bar import Bar
from cockpit.tui.panes.dialogs import Answer, Question
from cockpit.tui.panes.finder import Item, command_items
from cockpit.tui.panes.key_bar import SLOTS, Activity, KeyBar

SMALL = (50, 12)
"""Columns and rows below which nothing but their number is shown."""

SIDES = ("-zoom-left", "-zoom-right")
"""The classes of a screen that shows only one side."""


class Handler(NamedTuple):
    """How a screen carries out a command.

    :param do: does it
    :param why_not: why it cannot be done now; empty if it can
    """

    do: Callable[[], object]
    why_not: Callable[[], str] = str


def needs(so: Callable[[], object], why: str) -> Callable[[], str]:
    """For a handler: its command works only while something is so; else ``why``."""
    return lambda: "" if so() else why


@runtime_checkable
class Pane(Protocol):
    """A part of a screen that the keys for moving act on."""

    @property
    def id(self) -> str | None:
        """Its name on the screen."""

    def move(self, rows: int) -> None:
        """Move down by this many rows."""

    def page(self, step: int) -> None:
        """Move down by this many screens."""

    def home(self) -> None:
        """Go to the beginning."""

    def end(self) -> None:
        """Go to the end."""


def bindings(scope: str) -> list[BindingType]:
    """The keys of a screen, for its ``BINDINGS``."""
    return [
        Binding(command.bound, f"command('{command.id}')", id=binding_id(command, scope))
        for command in in_scope(scope)
    ]


def binding_id(command: Command, scope: str) -> str:
    """What a command's keys are called on a screen: in a replay it may have others than elsewhere."""
    return f"{scope}.{command.id}" if scope == REPLAY else command.id


def title(number: str, text: str) -> Content:
    """A title for a frame; nothing in it is markup."""
    return Content.assemble((f"{number} ", "bold") if number else "", one_line(text))


def entitle(pane: Widget, number: str, text: str) -> None:
    """Put a title on the frame of a pane; nothing is drawn if it is there already."""
    made = title(number, text)
    if pane.border_title != made.markup:
        pane.border_title = made


class CommandScreen(Screen[None], inherit_bindings=False):
    """A screen with two sides of panes, a line for a filter and one for keys."""

    SCOPE: ClassVar[str]
    """Whose commands it has."""
    ABOUT: ClassVar[Mapping[str, tuple[str, tuple[str, ...]]]]
    """Title and lines of the help on each pane, by its id; ``{stop}`` stands for the key of that command."""

    DEFAULT_CSS = """
    CommandScreen { layout: vertical; background: $background; }
    CommandScreen #body { height: 1fr; layout: horizontal; }
    CommandScreen #left, CommandScreen #right { height: 1fr; }
    CommandScreen #right { width: 1fr; }
    CommandScreen .pane { border: round $frame; padding: 0 1; }
    CommandScreen .pane { border-title-color: $dim; border-subtitle-color: $dim; }
    CommandScreen.-ascii .pane, CommandScreen.-ascii .pane:focus { border: ascii; }
    CommandScreen .pane:focus { border: round $key; }
    CommandScreen #right > .pane { display: none; height: 1fr; }
    CommandScreen #right > .pane.-shown { display: block; }
    CommandScreen FilterBar { dock: bottom; display: none; }
    CommandScreen FilterBar.-open { display: block; }
    CommandScreen #notice { height: auto; display: none; color: $foreground; padding: 0 1; }
    CommandScreen #notice.-shown { display: block; }
    CommandScreen.-narrow #body { layout: vertical; }
    CommandScreen.-narrow #left { width: 1fr; height: auto; max-height: 40%; }
    CommandScreen.-zoom-left #right, CommandScreen.-zoom-right #left { display: none; }
    CommandScreen.-zoom-left #left { width: 1fr; max-height: 100%; height: 1fr; }
    CommandScreen #small { display: none; }
    CommandScreen.-small > * { display: none; }
    CommandScreen.-small > #small {
        display: block; width: 1fr; height: 1fr; content-align: center middle;
    }
    """

    app = getters.app(BaseApp)
    last_keys: tuple[Id, ...] = ("help", "leave")
    """The keys that stay longest in the last line."""

    def compose(self) -> ComposeResult:
        ascii_only = self.app.glyphs.ascii
        self.set_class(ascii_only, "-ascii")
        yield from self.head()
        yield Static("", id="notice", markup=False)
        with Container(id="body"):
            yield from self.panes()
        yield FilterBar(self.filter_by, id="filter")
        yield from self.above_keys()
        yield KeyBar(ascii_only=ascii_only, id="keys")
        yield Static("", id="small", markup=False)

    # Of each screen

    def head(self) -> ComposeResult:
        """What is above the notice: the first line, and banners."""
        yield Bar(id="top")

    @abstractmethod
    def panes(self) -> ComposeResult:
        """Its panes."""

    def above_keys(self) -> ComposeResult:
        """What there is above the line of the keys."""
        return ()

    def filter_by(self, pattern: str) -> None:
        """Show only what a text that was typed is in, on a screen with a filter."""

    filter_bar = getters.query_one(FilterBar)
    """Where a filter is typed."""

    @abstractmethod
    def own_handlers(self) -> dict[Id, Handler]:
        """Its own commands, and those of every screen that it carries out differently."""

    @abstractmethod
    def places(self) -> Iterator[Item]:
        """Where one can go to by name."""

    @property
    @abstractmethod
    def on_the_right(self) -> str:
        """The id of the pane on the right."""

    @abstractmethod
    def undoable(self) -> Sequence[tuple[object, Callable[[], object]]]:
        """What esc undoes, the nearest first: whether there is anything to undo, and what undoes it."""

    @abstractmethod
    def text_to_copy(self) -> str:
        """What is copied if nothing is selected."""

    @abstractmethod
    def ask_to_leave(self) -> None:
        """Ctrl-C, with nothing selected."""

    @abstractmethod
    def activity(self) -> Activity | None:
        """What goes on in the background."""

    def renamed(self, pane: Pane) -> Mapping[Id, str]:
        """Commands that the last line calls otherwise than the registry does, with this pane in use."""
        return {}

    def draw_after_command(self) -> None:
        """Draw what any command may have changed."""
        self.draw_keys()

    # Commands

    @cached_property
    def handlers(self) -> dict[Id, Handler]:
        """What carries out each command of the screen."""
        return {
            "leave": Handler(self.app.leave),
            "interrupt": Handler(self._interrupt),
            "back": Handler(
                lambda: self.steps_back()[0](), needs(self.steps_back, "nothing to go back from")
            ),
            "down": Handler(lambda: self.pane.move(1)),
            "up": Handler(lambda: self.pane.move(-1)),
            "page_down": Handler(lambda: self.pane.page(1)),
            "page_up": Handler(lambda: self.pane.page(-1)),
            "first": Handler(lambda: self.pane.home()),
            "last": Handler(lambda: self.pane.end()),
            "next_pane": Handler(lambda: self.focus_next(".pane")),
            "previous_pane": Handler(lambda: self.focus_previous(".pane")),
            "copy": Handler(self._copy),
            "screenshot": Handler(self.app.screenshot),
            "zoom": Handler(self.zoom),
            "palette": Handler(self._find_place),
            "help": Handler(lambda: self.app.find("keys", self._items_here())),
            "help_here": Handler(self._help_here),
            **self.own_handlers(),
        }

    @property
    def commands(self) -> list[Command]:
        """The commands of this screen, with a person's own keys, and what leaving does here."""
        title, short = self.app.leave_words
        return [
            replace(command, title=title, short=short) if command.id == "leave" else command
            for command in in_scope(self.SCOPE, self.app.commands.values())
        ]

    def why_not(self, name: Id) -> str:
        """Why a command cannot work now; empty if it can."""
        if self.app.commands[name].changes and self.app.read_only:
            return "read-only"
        return self.handlers[name].why_not()

    def action_command(self, name: Id) -> None:
        """Run a command of the registry, or say why it cannot work."""
        why = self.why_not(name)
        if why and name == "back":
            return  # whoever presses it once more wants nothing else
        if why:
            text = f"{self.app.commands[name].title}: {why}"
            self.notify(text, severity="warning", timeout=4)
            return
        self.handlers[name].do()
        self.draw_after_command()

    def items(self) -> Iterator[Item]:
        """The commands, as they can be found by name."""
        yield from command_items(self.commands, self.why_not, self.action_command)

    def _items_here(self) -> Iterator[Item]:
        """The commands, first those that the help on the pane in use names."""
        title, lines = self.ABOUT[str(self.pane.id)]
        items = {item.name: item for item in self.items()}
        for _, name, _, _ in Formatter().parse(" ".join(lines)):
            if name in items:
                yield replace(items.pop(name), group=f"Here: {title}")
        yield from items.values()

    @property
    def pane(self) -> Pane:
        """The pane that the keys for moving act on: the one with the focus, else the one on the right."""
        for each in self.focused.ancestors_with_self if self.focused is not None else ():
            if isinstance(each, Pane):
                return each
        pane = self.query_one(f"#{self.on_the_right}")
        assert isinstance(pane, Pane)
        return pane

    def _interrupt(self) -> None:
        selected = self.get_selected_text()
        if selected:
            self.app.copy(selected)
        else:
            self.ask_to_leave()

    def left_or_not(self, answer: str | None) -> None:
        """The answer to whether to leave."""
        if answer == "leave":
            self.app.leave()

    def _copy(self) -> None:
        text = self.get_selected_text() or self.text_to_copy()
        if text:
            self.app.copy(text)

    def _find_place(self) -> None:
        runs: list[Item] = []
        with self.app.contained():
            runs = list(self.app.run_items())
        self.app.find("go to", [*self.items(), *self.places(), *runs, *self.app.theme_items()])

    def _help_here(self) -> None:
        name, lines = self.ABOUT[str(self.pane.id)]
        told = [line.format_map(self.app.keys) for line in lines]
        self.app.push_screen(Question(name, told, [Answer("ok", "close", "q")]))

    # The display

    def steps_back(self) -> Sequence[Callable[[], object]]:
        """What esc would undo now, the nearest first."""
        typing = self.filter_bar.display, self.filter_bar.action_cancel
        return [undo for there, undo in (typing, *self.undoable()) if there]

    @property
    def zoomed(self) -> bool:
        """Whether only one side is shown."""
        return any(map(self.has_class, SIDES))

    def zoom(self) -> None:
        """Show only the side of the pane that is in use, or both."""
        if self.zoomed:
            self.unzoom()
        else:
            self.add_class(self._zoomed_on(self.pane.id))

    def unzoom(self) -> None:
        """Show both sides."""
        self.remove_class(*SIDES)

    def _zoomed_on(self, pane: str | None) -> str:
        """The class with which only the side of a pane is shown."""
        return SIDES[not self.query(f"#left #{pane}")]

    @property
    def one_sided(self) -> bool:
        """Whether there is room for one side only."""
        return self.has_class("-one")

    def make_one_sided(self, one: bool) -> None:
        """Show only the side of the pane that is in use, for as long as there is no room for both."""
        before = self.one_sided
        self.set_class(one, "-one")
        if one:
            self.reveal(self.pane.id)
        elif before:
            self.unzoom()

    def reveal(self, pane: str | None) -> None:
        """Show the side that a pane is on; the other one too, unless there is room for one only."""
        shown = self._zoomed_on(pane)
        self.remove_class(*(side for side in SIDES if side != shown))
        if self.one_sided:
            self.add_class(shown)

    def check_size(self, width: int, height: int, more: str = "") -> None:
        """Say that there is too little room, if so.

        :param more: what else there is to say then
        """
        self.set_class(width < SMALL[0] or height < SMALL[1], "-small")
        self.query_one("#small", Static).update(
            f"{width} x {height} is too small for cockpit.\nIt needs {SMALL[0]} x {SMALL[1]}.{more}"
        )

    def draw_notice(self, text: str) -> None:
        """Some words that stay on the screen; none hide their line.

        What is shown already is not shown anew: that would lay out the whole screen, once a second.
        """
        notice = self.query_one("#notice", Static)
        if notice.content != text:
            notice.set_class(bool(text), "-shown")
            notice.update(text)

    def draw_keys(self) -> None:
        """At most six keys that do something now; none while a filter is typed: each is a letter of it."""
        pane = self.pane
        here = () if self.filter_bar.has_focus_within else self.commands
        commands = {
            command.id: command
            for command in sorted(here, key=lambda command: command.footer or 0)
            if command.footer is not None
            and (not command.panes or pane.id in command.panes)
            and not self.why_not(command.id)
        }
        commands |= {
            name: replace(commands[name], short=short)
            for name, short in self.renamed(pane).items()
            if name in commands
        }
        last = [commands[name] for name in self.last_keys if name in commands]
        first = [command for name, command in commands.items() if name not in (*self.last_keys, "leave")]
        self.query_one(KeyBar).show([*first[: SLOTS - len(last)], *last], self.activity())

    @on(events.DescendantFocus)
    def _focus_moved(self) -> None:
        self.draw_keys()

    @on(KeyBar.Pressed)
    def _key_pressed(self, event: KeyBar.Pressed) -> None:
        self.action_command(event.command)
