"""A screen of a single list over the others: its frame, and what all such screens do alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget

from cockpit.tui.command_screen import CommandScreen, Handler, title
from cockpit.tui.commands import Id
from cockpit.tui.panes.finder import Item
from cockpit.tui.panes.list_pane import ListPane


class ListScreen(CommandScreen):
    """A top bar, a list, and the keys; ``esc`` goes back to the screen below."""

    LIST: ClassVar[type[ListPane[Any]]]
    PANE: ClassVar[str]
    """The id of the list, and its name in the help."""
    HEADING: ClassVar[str]
    """What the list is of."""

    DEFAULT_CSS = """
    ListScreen #left { display: none; }
    """

    def begin(self) -> None:
        """The screen is there: start what fills the list."""
        raise NotImplementedError

    def draw(self) -> None:
        """Show what is known now."""
        raise NotImplementedError

    def panes(self) -> ComposeResult:
        """See :meth:`CommandScreen.panes`."""
        yield Vertical(*self.left_panes(), id="left")
        with Vertical(id="right"):
            yield self.LIST(ascii_only=self.app.glyphs.ascii, id=self.PANE)

    def left_panes(self) -> Iterator[Widget]:
        """What is beside the list, of a screen that shows it."""
        return iter(())

    def on_mount(self) -> None:
        shown = self.query_one(f"#{self.PANE}")
        shown.add_class("-shown")
        shown.border_title = title("", self.HEADING)
        shown.focus()
        self.begin()
        self.call_after_refresh(self.draw)

    def on_resize(self, event: events.Resize) -> None:
        self.check_size(*event.size)

    def own_handlers(self) -> dict[Id, Handler]:
        """What none of them can do."""
        return {"zoom": Handler(self.zoom, lambda: "there is only one pane")}

    def places(self) -> Iterator[Item]:
        """There is nowhere to go."""
        return iter(())

    @property
    def on_the_right(self) -> str:
        """The one pane."""
        return self.PANE

    def text_to_copy(self) -> str:
        """What the cursor is on."""
        return self.query_one(self.LIST).copy_text()

    def undoable(self) -> Sequence[tuple[object, Callable[[], object]]]:
        """What esc undoes: the screen."""
        return [(True, self.dismiss)]

    def ask_to_leave(self) -> None:
        """Ctrl-C: there is nothing here to lose."""
        self.dismiss()
