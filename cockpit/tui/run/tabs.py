"""The right side of the run's screen: the log, the detail, events, commands and pace, one at a time.

A view is a pane and what it is narrowed to, which ``-`` goes back to.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from rich.cells import cell_len
from textual import getters, on
from textual.app import ComposeResult
from textual.content import Content

from cockpit.core.logs.query import Query
from cockpit.core.ranks import ranks_text
from cockpit.core.text import one_line
from cockpit.tui.commands import Id
from cockpit.tui.logs.filter_bar import filter_mark
from cockpit.tui.logs.view import LogView
from cockpit.tui.pace.pane import PacePane
from cockpit.tui.panes.column import Column
from cockpit.tui.run.command_list import CommandList
from cockpit.tui.run.detail import Detail
from cockpit.tui.run.event_list import EventList
from cockpit.tui.run.grid_lines import Mark

TABS: tuple[Id, ...] = ("log", "detail", "events", "commands", "pace")
"""Panes on the right, each with the name of the command that shows it."""


FRAME = 6
"""Columns of a frame beside the words on it."""
MERGED = ", merged by time"
"""Goes first where there is no room for all that the log says of itself."""


@dataclass(frozen=True)
class View:
    """A pane and what it is narrowed to.

    :param chosen: a node, and a rank on it or None for all of them; None: the whole run
    """

    tab: str = "log"
    chosen: Mark | None = None


def narrowed(
    chosen: Mark | None, marks: Collection[Mark], nodes: Mapping[str, Sequence[int]]
) -> tuple[Query, str]:
    """Whose lines the log shows, and what that is called.

    :param marks: if there are any, they count, not what is chosen
    :param nodes: the ranks of each
    """
    if marks:
        ranks = (nodes[node] if rank is None else [rank] for node, rank in marks)
        wanted = frozenset(chain.from_iterable(ranks))
        # Nodes have consoles, ranks have not: a set is of the ones or the others.
        whole = all(rank is None for _, rank in marks)
        query = Query(nodes=frozenset(node for node, _ in marks)) if whole else Query(wanted)
        return query, f"marked: ranks {ranks_text(wanted)}"
    if chosen is None:
        return Query(), f"all ranks{MERGED}"
    node, rank = chosen
    if rank is not None:
        return Query(frozenset({rank})), f"rank {rank} · {node}"
    return Query(nodes=frozenset({node})), f"{node} · ranks {ranks_text(nodes[node])}"


def stepped(chosen: Mark | None, step: int, nodes: Mapping[str, Sequence[int]]) -> Mark:
    """The rank after what is chosen, or before it (``step`` -1); after the last comes the first."""
    homes = {rank: node for node, ranks in nodes.items() for rank in ranks}
    ranks = sorted(homes)
    if chosen is not None and chosen[1] is not None:
        number = ranks[(ranks.index(chosen[1]) + step) % len(ranks)]
    else:
        # A node may have none: a login node with the output of a job.
        among = (chosen and nodes[chosen[0]]) or ranks
        number = among[0 if step > 0 else -1]
    return homes[number], number


PAST = 50
"""Views that one can go back to."""

PARTS = {"pace": 0.66, "log": 0.34}
"""The parts that the map, and the log below it, have at least, if there are not enough rows for both."""


class Tabs(Column):
    """Five panes, and what they were before.

    :param ranks: those of each node
    :param keys: the key of each command, by its name
    """

    log_view = getters.query_one(LogView)
    """The log."""
    events = getters.query_one("#events", EventList)
    """The events."""

    def __init__(
        self,
        ranks: Mapping[str, Sequence[int]],
        keys: Mapping[str, str],
        *,
        ascii_only: bool = False,
        id: str | None = None,
    ) -> None:
        super().__init__(PARTS, id=id)
        self._ranks = ranks
        self._keys = keys
        self._ascii = ascii_only
        self._marks: Collection[Mark] = ()
        self._filled: int | None = None
        self.view = View()
        """What is shown."""
        self.past: list[View] = []
        """What was shown before, the newest last."""

    def compose(self) -> ComposeResult:
        yield Detail(ascii_only=self._ascii, id="detail")
        yield EventList(ascii_only=self._ascii, id="events")
        yield CommandList(id="commands")
        yield PacePane(ascii_only=self._ascii, id="pace")
        yield LogView(id="log")

    def on_mount(self) -> None:
        """Every pane has the names of all of them on its frame, to read and to click."""
        for tab in TABS:
            self.query_one(f"#{tab}").border_title = self._names(tab)

    def _names(self, shown: str) -> str:
        names = []
        for name in TABS:
            action = "b $key" if name == shown else f"@click=screen.command('{name}')"
            names.append(f"[{action}]{self._keys[name]} {name}[/]")
        return "  ".join(names)

    def show(self, view: View, *, remember: bool = True) -> None:
        """Show a pane, narrowed to what is chosen or marked."""
        if remember:
            self.past = [*self.past[-PAST:], self.view]
        self.view = view
        for tab in TABS:
            self.query_one(f"#{tab}").set_class(tab == view.tab, "-shown")
        # Who is slow, and what it prints: the log is below the map where there is room for both.
        self.log_view.set_class(view.tab == "pace", "-below")
        if view.tab != "log":
            self.strip(False)
        self.entitle()
        self.narrow(self._marks)

    def fit(self) -> None:
        """Give the rows that the log below the map does not fill to the map."""
        rows = self.log_view.filled
        if rows != self._filled and self.log_view.has_class("-below"):
            self._filled = rows
            self.log_view.refresh(layout=True)

    def strip(self, shown: bool) -> None:
        """Show the run's past above the log, or do not."""
        pane = self.query_one(PacePane)
        shown = shown and self.view.tab == "log"
        if shown != pane.has_class("-strip"):
            pane.set_class(shown, "-strip")
            pane.can_focus = not shown  # nothing in it moves
            self.entitle()

    def entitle(self) -> None:
        """The topmost pane has the names of all of them, and the log below another one its own."""
        pane, tab = self.query_one(PacePane), self.view.tab
        # One line has no frame.
        strip = pane.has_class("-strip") and not self.screen.has_class("-narrow")
        pane.border_title = self._names("log" if strip else "pace")
        below, key = strip or tab == "pace", self._keys["log"]
        self.log_view.border_title = (
            f"[@click=screen.command('log')]{key} log[/]" if below else self._names("log")
        )

    def narrow(self, marks: Collection[Mark]) -> None:
        """Make the log show the right sources: what is marked, else what is chosen."""
        self._marks = marks
        self.log_view.show(*self.narrowed())
        self.say_status()

    def narrowed(self) -> tuple[Query, str]:
        """Whose lines the log shows, and what that is called."""
        return narrowed(self.view.chosen, self._marks, self._ranks)

    @property
    def filtered(self) -> LogView | EventList:
        """What a filter narrows: the events while they are shown, else the log."""
        return self.events if self.view.tab == "events" else self.log_view

    def filter(self, pattern: str, pane: LogView | EventList | None = None) -> None:
        """Show only lines or events that match.

        :param pane: None: of what is shown
        :raises CockpitError: it is not a regular expression
        """
        (pane or self.filtered).set_filter(pattern)
        self.say_status()

    @on(LogView.StatusChanged)
    def say_status(self) -> None:
        """What the log shows, and whether it follows."""
        log = self.log_view
        head = Content.assemble(filter_mark(log.filter), " " if log.filter else "")
        status = one_line(f"{log.title} · {log.status}")
        if head.cell_length + cell_len(status) > log.outer_size.width - FRAME:
            status = status.replace(MERGED, "", 1)
        log.border_subtitle = Content.assemble(head, status)
