"""The doctor's screen: what differs between the nodes of a run, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import ClassVar

from textual import events, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.widgets import Static
from textual.worker import Worker

from cockpit.core.doctor.diagnosis import verdict
from cockpit.engine.launch.preflight import Diagnosis
from cockpit.engine.links.roll import Roll
from cockpit.errors import CockpitError
from cockpit.tui.command_screen import CommandScreen, Handler, Pane, bindings, needs, title
from cockpit.tui.commands import DOCTOR, Id
from cockpit.tui.logs.filter_bar import FilterBar
from cockpit.tui.panes.bar import Bar
from cockpit.tui.panes.finder import Item
from cockpit.tui.panes.key_bar import Activity, KeyBar
from cockpit.tui.panes.line import Part
from cockpit.tui.run.finding_list import FindingList

TICK_S = 0.2

ABOUT: dict[str, tuple[str, tuple[str, ...]]] = {
    "findings": (
        "findings",
        (
            "What differs between nodes: the minority is named, or, if there is no majority, every node.",
            "And what is wrong with a single node. Nothing is changed on any node.",
            "",
            "up, down: findings · {open} copies the first step · {look_again} looks again · {back} goes back",
        ),
    )
}


class DoctorScreen(CommandScreen):
    """All nodes, looked at as it opens.

    :param examine: asks them
    :param roll: who has answered so far
    :param command: what does the same in a shell
    :param root: there is no screen below this one to go back to
    """

    SCOPE = DOCTOR
    ABOUT = ABOUT
    BINDINGS: ClassVar[list[BindingType]] = bindings(DOCTOR)

    DEFAULT_CSS = """
    DoctorScreen #left { display: none; }
    """

    def __init__(
        self,
        examine: Callable[[], Awaitable[Diagnosis]],
        roll: Callable[[], Roll],
        command: str,
        *,
        root: bool = False,
    ) -> None:
        super().__init__()
        self._examine = examine
        self._roll = roll
        self._command = command
        self._root = root
        self.last_keys = ("leave" if root else "back", "help")
        self._looking: Worker[None] | None = None
        self._found: Diagnosis | None = None

    def compose(self) -> ComposeResult:
        yield Bar(id="top")
        yield Static("", id="notice", markup=False)
        with Container(id="body"):
            yield Vertical(id="left")
            with Vertical(id="right"):
                yield FindingList(ascii_only=self.app.glyphs.ascii, id="findings")
        yield FilterBar(lambda text: None, id="filter")
        yield KeyBar(ascii_only=self.app.glyphs.ascii, id="keys")
        yield Static("", id="small", markup=False)

    def on_mount(self) -> None:
        if self.app.glyphs.ascii:
            self.add_class("-ascii")
        for name in ("pane", "-shown"):
            self._list.add_class(name)
        self._list.border_title = title("", "nodes: differences and faults")
        self._list.focus()
        self._look()
        self.set_interval(TICK_S, self._draw)
        self.call_after_refresh(self._draw)

    def on_resize(self, event: events.Resize) -> None:
        self.check_size(*event.size)

    @property
    def _list(self) -> FindingList:
        return self.query_one(FindingList)

    @property
    def _is_looking(self) -> bool:
        return self._looking is not None and self._looking.is_running

    def _look(self) -> None:
        self._looking = self._ask()

    @work(group="doctor", exclusive=True)
    async def _ask(self) -> None:
        try:
            self._found = await self._examine()
        except CockpitError as error:
            self.app.complain(error)

    def _draw(self) -> None:
        if not self.app.holds(self):
            return
        self.query_one(Bar).tell([Part(((self._state(), "strong"),))])
        pane = self._list
        pane.empty = [self._state()]
        pane.show_items(self._found.findings if self._found else ())
        self.draw_keys()

    def _state(self) -> str:
        """All of it in a line: how far it has got, or what came of it."""
        if self._is_looking:
            return f"looking at the nodes: {self._roll().counts()}"
        return verdict(self._found.looks, self._found.findings) if self._found else "no results"

    # What each command does, and why it may not

    def own_handlers(self) -> dict[Id, Handler]:
        """Those of the findings."""
        one = needs(lambda: self._list.current, "nothing is wrong")
        return {
            "look_again": Handler(
                self._look, needs(lambda: not self._is_looking, "the nodes are being asked")
            ),
            "open": Handler(lambda: self.action_command("copy"), one),
            "copy_command": Handler(lambda: self.app.copy(self._command)),
            "zoom": Handler(self.zoom, lambda: "there is one pane only"),
        }

    def renamed(self, pane: Pane) -> Mapping[Id, str]:
        """What opening is called here."""
        return {"open": "copy step"}

    def places(self) -> Iterator[Item]:
        """There is nowhere to go."""
        return iter(())

    @property
    def on_the_right(self) -> str:
        """The one pane."""
        return "findings"

    def undoable(self) -> Sequence[tuple[object, Callable[[], object]]]:
        """What esc undoes: the screen."""
        return [(not self._root, self.dismiss)]

    def text_to_copy(self) -> str:
        """The first step against the finding under the cursor."""
        return self._list.copy_text()

    def ask_to_leave(self) -> None:
        """Ctrl-C: there is nothing here to lose."""
        if self._root:
            self.app.leave()
        else:
            self.dismiss()

    def activity(self) -> Activity | None:
        """Who is awaited."""
        roll = self._roll()
        share = (len(roll.answered) + len(roll.failed)) / max(1, roll.total)
        return Activity("asking the nodes", share) if self._is_looking else None
