"""All commands with their keys: searchable; enter runs one; what cannot work now says why."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from cockpit.tui.commands import Command, shown


class HelpScreen(ModalScreen[str]):
    """The list of commands; dismissed with the id of the one to run, or an empty string.

    :param commands: all of them, with a person's own keys
    :param why_not: why a command cannot work now; empty if it can
    """

    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen > Vertical {
        width: 100; max-width: 98%; height: 90%; border: round $key; background: $surface; padding: 0 1;
        border-title-color: $key; border-subtitle-color: $dim;
    }
    HelpScreen Input { background: $surface; }
    HelpScreen OptionList {
        height: 1fr; background: $surface; padding: 0; scrollbar-size-vertical: 1;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    HelpScreen #about { height: 2; color: $dim; }
    """

    def __init__(self, commands: Sequence[Command], why_not: Callable[[str], str]) -> None:
        super().__init__()
        self._commands = commands
        self._why_not = why_not

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            yield Input(placeholder="type to search", id="search", compact=True)
            found = OptionList(id="list", compact=True)
            # What is typed is always searched for.
            found.can_focus = False
            yield found
            yield Static("", id="about", markup=False)
        box.border_title = " keys "
        box.border_subtitle = " enter runs it · esc closes "

    def on_mount(self) -> None:
        self._fill("")
        self.query_one(Input).focus()

    def _fill(self, wanted: str) -> None:
        options: list[Option] = []
        group = ""
        for command in self._found(wanted.lower().split()):
            keys = " ".join(map(shown, command.keys))
            if command.group != group:
                group = command.group
                options.append(Option(Text(group, style="bold"), disabled=True))
            why = self._why_not(command.id)
            line = Text()
            line.append(f"  {keys:<12} ", style="dim" if why else "bold")
            line.append(command.title, style="dim" if why else "")
            if why:
                line.append(f"  · {why}", style="dim italic")
            options.append(Option(line, id=command.id))
        found = self.query_one(OptionList)
        found.clear_options()
        found.add_options(options or [Option(Text(f"nothing is called {wanted!r}"), disabled=True)])
        found.action_first()

    def _found(self, words: Sequence[str]) -> list[Command]:
        """The commands that are called so; where none is, those whose help says so."""
        names = {c.id: f"{' '.join(map(shown, c.keys))} {c.title} {c.id} {c.group}" for c in self._commands}
        called = [c for c in self._commands if all(word in names[c.id].lower() for word in words)]
        return called or [c for c in self._commands if all(word in c.help.lower() for word in words)]

    @on(Input.Changed)
    def _search(self, event: Input.Changed) -> None:
        self._fill(event.value)

    @on(Input.Submitted)
    def _run_first(self) -> None:
        self.query_one(OptionList).action_select()

    @on(OptionList.OptionSelected)
    def _run(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id or "")

    @on(OptionList.OptionHighlighted)
    def _describe(self, event: OptionList.OptionHighlighted) -> None:
        command = next((each for each in self._commands if each.id == event.option.id), None)
        text = (command.help or f"{command.title[:1].upper()}{command.title[1:]}.") if command else ""
        why = self._why_not(command.id) if command else ""
        self.query_one("#about", Static).update(f"Not now: {why}." if why else text)

    def key_escape(self) -> None:
        """Close."""
        self.dismiss("")

    def key_down(self) -> None:
        """The cursor of the list, also while the search has the focus."""
        self.query_one(OptionList).action_cursor_down()

    def key_up(self) -> None:
        """As above."""
        self.query_one(OptionList).action_cursor_up()

    def key_pagedown(self) -> None:
        """As above."""
        self.query_one(OptionList).action_page_down()  # type: ignore[no-untyped-call]

    def key_pageup(self) -> None:
        """As above."""
        self.query_one(OptionList).action_page_up()  # type: ignore[no-untyped-call]
