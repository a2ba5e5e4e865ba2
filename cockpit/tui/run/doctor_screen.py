"""The doctor's screen: what differs between the nodes of a run, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from textual import getters, work
from textual.binding import BindingType
from textual.worker import Worker

from cockpit.core.doctor.diagnosis import checked, line, verdict
from cockpit.core.finding import Finding
from cockpit.core.rules.explanation import translated
from cockpit.core.text import one_line
from cockpit.engine.launch.preflight import Diagnosis
from cockpit.engine.links.roll import Roll
from cockpit.errors import CockpitError
from cockpit.tui.command_screen import Handler, Pane, bindings, needs
from cockpit.tui.commands import DOCTOR, Id
from cockpit.tui.list_screen import ListScreen
from cockpit.tui.panes.bar import Bar
from cockpit.tui.panes.key_bar import Activity
from cockpit.tui.panes.line import Part
from cockpit.tui.panes.list_pane import ListPane
from cockpit.tui.panes.text_pane import Line, Piece, hanging

EVIDENCE = 8
"""Lines of evidence of one finding."""


class FindingList(ListPane[Finding]):
    """Findings, the worst first."""

    SIGNS: ClassVar[dict[str, tuple[str, str]]] = {
        "error": ("✖", "X"),
        "warning": ("!", "!"),
        "info": ("·", "-"),
    }
    """By severity, for terminals with and without Unicode: never colour alone."""

    EMPTY_ROLE = ""

    foot = ""
    """What is said below them."""

    def build(self, width: int) -> Sequence[Line]:
        """The findings, and what was checked."""
        lines = [*super().build(width)]
        if self.foot:
            lines += [Line(heading=True)]
            lines += [line._replace(heading=True) for line in hanging((), self.foot, width, "label")]
        return lines

    def key_of(self, item: Finding) -> Hashable:
        """What it is, and about whom."""
        return item.id, item.nodes

    def item_lines(self, item: Finding, before: Finding | None, width: int) -> Iterator[Line]:
        """Nodes and what is so; below it evidence and steps."""
        if before is not None:
            yield Line(heading=True)
        sign = self.SIGNS.get(item.severity, ("?", "?"))[self.ascii_only]
        role = item.severity if item.severity in ("error", "warning") else "label"
        yield from hanging((Piece(f"{sign} ", role),), _shown(line(item)), width, "title")
        more = len(item.evidence) - EVIDENCE
        below = [*filter(None, (item.detail, item.meaning)), *item.evidence[:EVIDENCE]]
        below += [f"and {more} more"] if more > 0 else []
        for text in below:
            yield from hanging((Piece("    "),), _shown(text), width, "label")
        arrow = "->" if self.ascii_only else "→"
        for step in item.steps:
            yield from hanging((Piece(f"  {arrow} ", "label"),), _shown(step.text), width)

    def copy_text(self) -> str:
        """What to type first against the finding under the cursor."""
        item = self.current
        step = item.steps[0] if item and item.steps else None
        return step.command or step.reason if step else super().copy_text()


def _shown(text: str) -> str:
    return one_line(text, limit=2000)


TICK_S = 0.2

ABOUT: dict[str, tuple[str, tuple[str, ...]]] = {
    "findings": (
        "findings",
        (
            "What differs between nodes: the minority is named, or, if there is no majority, every node.",
            "And what is wrong with a single node. Nothing is changed on any node.",
            "",
            "up, down: findings · {open} copies the first step · {look_again} checks again · {back}: back",
        ),
    )
}


class DoctorScreen(ListScreen):
    """All nodes, looked at as it opens.

    :param examine: asks them
    :param roll: who has answered so far
    :param command: what does the same in a shell
    :param root: there is no screen below this one to go back to
    """

    SCOPE = DOCTOR
    ABOUT = ABOUT
    BINDINGS: ClassVar[list[BindingType]] = bindings(DOCTOR)

    LIST = FindingList
    PANE = "findings"
    HEADING = "nodes: differences and faults"

    _list = getters.query_one(FindingList)

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

    def begin(self) -> None:
        """See :class:`ListScreen`."""
        self._look()
        self.set_interval(TICK_S, self.draw)

    @property
    def _is_looking(self) -> bool:
        return self._looking is not None and self._looking.is_running

    def _look(self) -> None:
        self._looking = self._ask()

    @work(group="doctor", exclusive=True)
    async def _ask(self) -> None:
        try:
            found = await self._examine()
        except CockpitError as error:
            self.app.complain(error)
        else:
            told = tuple(translated(each, self.app.config.language) for each in found.findings)
            self._found = replace(found, findings=told)

    def draw(self) -> None:
        """See :class:`ListScreen`."""
        if not self.app.holds(self):
            return
        self.query_one(Bar).tell([Part(((self._state(), "strong"),))])
        pane = self._list
        pane.empty = [self._state()]
        pane.foot = "" if self._is_looking or not self._found else checked(self._found.looks)
        pane.show_items(self._found.findings if self._found else ())
        self.draw_keys()

    def _state(self) -> str:
        """All of it in a line: how far it has got, or what came of it."""
        if self._is_looking:
            return f"checking the nodes: {self._roll().counts()}"
        return verdict(self._found.looks, self._found.findings) if self._found else "no results"

    # What each command does, and why it may not

    def own_handlers(self) -> dict[Id, Handler]:
        """Those of the findings."""
        one = needs(lambda: self._list.current, "nothing is wrong")
        return {
            **super().own_handlers(),
            "look_again": Handler(
                self._look, needs(lambda: not self._is_looking, "the nodes are being asked")
            ),
            "open": Handler(lambda: self.action_command("copy"), one),
            "copy_command": Handler(lambda: self.app.copy(self._command)),
        }

    def renamed(self, pane: Pane) -> Mapping[Id, str]:
        """What opening is called here."""
        return {"open": "copy step"}

    def undoable(self) -> Sequence[tuple[object, Callable[[], object]]]:
        """What esc undoes: the screen."""
        return [(not self._root, self.dismiss)]

    def ask_to_leave(self) -> None:
        """Ctrl-C: there is nothing here to lose."""
        if self._root:
            self.app.leave()
        else:
            super().ask_to_leave()

    def activity(self) -> Activity | None:
        """Who is awaited."""
        roll = self._roll()
        share = (len(roll.answered) + len(roll.failed)) / max(1, roll.total)
        return Activity("asking the nodes", share) if self._is_looking else None
