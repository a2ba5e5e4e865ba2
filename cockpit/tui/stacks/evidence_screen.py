"""What was kept of a run's ranks: its snapshots, those that nodes took while nobody watched included."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from rich.cells import cell_len
from textual import getters, on, work
from textual.binding import BindingType
from textual.worker import Worker

from cockpit.base.shell import quote
from cockpit.core.text import one_line
from cockpit.core.time_text import clock
from cockpit.engine.stacks.listed import Listed, listed
from cockpit.engine.stacks.take import ReplayedStacks
from cockpit.errors import CockpitError
from cockpit.tui.command_screen import Handler, Pane, bindings, needs
from cockpit.tui.commands import KEPT, Id
from cockpit.tui.list_screen import ListScreen
from cockpit.tui.panes.bar import Bar
from cockpit.tui.panes.key_bar import Activity
from cockpit.tui.panes.line import Part
from cockpit.tui.panes.list_pane import ListPane
from cockpit.tui.panes.text_pane import Line, Piece, hanging
from cockpit.tui.stacks.screen import StackScreen

EVIDENCE = 3
"""Lines of evidence of one verdict."""

_INDENT = " " * 2


class EvidenceList(ListPane[Listed]):
    """Snapshots, the newest first."""

    EMPTY_ROLE = ""

    def key_of(self, item: Listed) -> Hashable:
        """Where it is."""
        return item.path

    def item_lines(self, item: Listed, before: Listed | None, width: int) -> Iterator[Line]:
        """When and why it was taken; who holds up the others, where, and on what evidence."""
        if before is not None:
            yield Line(heading=True)
        found, head = item.found, item.head
        sure = "" if found.certainty == "unsure" and not found.evidence else found.certainty
        when = f"{moment(head.until)}  "
        by = f"saved by the nodes: {head.by_nodes}" if head.by_nodes else "taken by a cockpit"
        samples = f" · {head.samples} samples" if head.samples > 1 else ""
        room = max(1, width - cell_len(when) - len(sure) - 2)
        by = one_line(by + samples, limit=2000)
        if cell_len(by) > room:
            by = by[: room - 1] + ("~" if self.ascii_only else "…")
        gap = " " * max(2, width - cell_len(when) - cell_len(by) - len(sure))
        certainty = {"sure": "running", "likely": "spark"}.get(sure, "warning")
        pieces = [Piece(when, "time"), Piece(by, "label")]
        yield Line((*pieces, Piece(gap), Piece(sure, certainty)) if sure else tuple(pieces))
        odd = "odd" if found.ranks and found.severity != "info" else "title"
        yield from hanging((Piece(_INDENT),), one_line(found.what, limit=2000), width, odd)
        if found.where:
            yield from hanging((Piece(f"{_INDENT}at ", "label"),), one_line(found.where, limit=500), width)
        for text in found.evidence[:EVIDENCE]:
            yield from hanging((Piece(_INDENT),), one_line(text, limit=500), width, "label")


def moment(at: float | None) -> str:
    """The time of day; with its date where that is not today's."""
    if at is None:
        return "--:--:--"
    return clock(at, time.time())


LOOK_S = 1.0
"""Seconds between two looks at whether there are more."""

ABOUT: dict[str, tuple[str, tuple[str, ...]]] = {
    "kept": (
        "evidence",
        (
            "What the ranks were doing when they stalled, or when one failed: saved by the nodes, whether",
            "or not anybody watched, by the cockpit that watched, or because a person asked.",
            "",
            "up, down: snapshots · {open} its stacks · {copy_command} copies its command · {back}: back",
        ),
    )
}


class EvidenceScreen(ListScreen):
    """The snapshots of one run, the newest first.

    :param run: its name
    :param root: the folder that they are in
    :param why_none: says why there is none
    :param live: asks the ranks, see :class:`StackScreen`
    """

    SCOPE = KEPT
    ABOUT = ABOUT
    BINDINGS: ClassVar[list[BindingType]] = bindings(KEPT)

    LIST = EvidenceList
    PANE = "kept"
    HEADING = "what the ranks were doing"

    _list = getters.query_one(EvidenceList)

    def __init__(
        self, run: str, root: Path, why_none: Callable[[], str], *, live: Handler | None = None
    ) -> None:
        super().__init__()
        self._run = run
        self._root = root
        self._why_none = why_none
        self._live = live
        self.last_keys = ("back", "help")
        self._found: Sequence[Listed] | None = None
        self._read_from: object = None
        self._reading: Worker[None] | None = None

    def begin(self) -> None:
        """See :class:`ListScreen`."""
        self._look()
        self.set_interval(LOOK_S, self._look)

    def _look(self) -> None:
        """Read, unless that still goes on: a slow disk may take longer than the time between two looks."""
        if self._reading is None or self._reading.is_finished:
            self._reading = self._read()

    @work(group="kept")
    async def _read(self) -> None:
        """Read them again if there are others than before."""
        names = await asyncio.to_thread(_names, self._root)
        if names != self._read_from:
            found = await asyncio.to_thread(listed, self._root)
            self._found, self._read_from = found[::-1], names
        self.draw()

    def draw(self) -> None:
        """See :class:`ListScreen`."""
        if not self.app.holds(self):
            return
        self.query_one(Bar).tell([Part(((self._run, "strong"),)), Part(((self._state(), ""),))])
        self._list.empty = ["reading what was saved"] if self._found is None else [self._why_none()]
        self._list.show_items(self._found or ())
        self.draw_keys()

    def _state(self) -> str:
        if not self._found:
            return "nothing was saved" if self._found is not None else ""
        count = len(self._found)
        oldest = self._found[-1].head.until
        since = "" if oldest is None else f" since {moment(oldest)}"
        return f"evidence: {count} snapshot{'s' * (count > 1)}{since}"

    # What each command does, and why it may not

    def own_handlers(self) -> dict[Id, Handler]:
        """Those of the list."""
        return {
            **super().own_handlers(),
            "open": Handler(self._open, needs(lambda: self._list.current, "nothing was saved")),
            "copy_command": Handler(lambda: self.app.copy(self._command)),
        }

    @property
    def _command(self) -> str:
        item = self._list.current
        return f"cockpit stacks {quote(str(item.path)) if item else f'{quote(self._run)} --list'}"

    def _open(self) -> None:
        item = self._list.current
        assert item is not None
        try:
            stacks = ReplayedStacks(item.path)
        except CockpitError as error:
            self.app.complain(error)
            return
        self.app.push_screen(StackScreen(stacks, live=self._live))

    def renamed(self, pane: Pane) -> Mapping[Id, str]:
        """What opening is called here."""
        return {"open": "its stacks"}

    def activity(self) -> Activity | None:
        """Nothing goes on here."""
        return None

    @on(ListPane.Opened)
    def _opened(self, event: ListPane.Opened) -> None:
        self.action_command("open")


def _names(root: Path) -> tuple[tuple[str, int], ...]:
    """What is there, and when each was written: one that is made anew may say more."""
    found = []
    for file in sorted(root.glob("*/snapshot.json")):
        try:
            found.append((file.parent.name, file.stat().st_mtime_ns))
        except OSError:
            continue
    return tuple(found)
