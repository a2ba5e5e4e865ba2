"""Two runs side by side: what differs, and loss and step time as curves over each other."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator, Mapping
from typing import ClassVar, NamedTuple

from textual import events, getters, work
from textual.binding import BindingType
from textual.widget import Widget

from cockpit.core.compare.model import Comparison, Profiles
from cockpit.core.compare.words import (
    TREES,
    difference_line,
    ended_lines,
    measure_row,
    profile_tables,
    tree_lines,
    unrecorded_lines,
)
from cockpit.core.report.words import compare_command
from cockpit.core.text import one_line
from cockpit.engine.compare.gather import comparison_of
from cockpit.engine.records.folder import RunFolder
from cockpit.errors import CockpitError
from cockpit.tui.command_screen import Handler, Pane, bindings, needs, title
from cockpit.tui.commands import COMPARE, Id
from cockpit.tui.compare.curves import CurvePane
from cockpit.tui.list_screen import ListScreen
from cockpit.tui.panes.bar import Bar
from cockpit.tui.panes.key_bar import Activity
from cockpit.tui.panes.line import Part
from cockpit.tui.panes.list_pane import ListPane
from cockpit.tui.panes.text_pane import Line, Piece, hanging

NARROW = 110
"""Columns below which the curves are above the list."""

MEASURES = 10
"""Numbers of steps that are listed."""


class Entry(NamedTuple):
    """A line of the list.

    :param part: under which heading it is
    :param see: what to type to see more; empty: nothing
    """

    part: str
    text: str
    role: str = ""
    see: str = ""


class DifferenceList(ListPane[Entry]):
    """What differs, what stands out, numbers, how each ended."""

    EMPTY_ROLE = ""

    def key_of(self, item: Entry) -> Hashable:
        """What it says."""
        return item

    def item_lines(self, item: Entry, before: Entry | None, width: int) -> Iterator[Line]:
        """A heading above the first of each part."""
        if before is None or before.part != item.part:
            if before is not None:
                yield Line(heading=True)
            yield Line((Piece(item.part, "title"),), heading=True)
        yield from hanging((Piece("  "),), one_line(item.text, limit=2000), width, item.role)
        if item.see:
            yield from hanging((Piece("    see: ", "label"),), one_line(item.see, limit=500), width, "label")

    def copy_text(self) -> str:
        """What to type to see more of what the cursor is on, else its line."""
        return self.current.see if self.current and self.current.see else super().copy_text()


def entries(made: Comparison) -> Iterator[Entry]:
    """All that the list has."""
    for one in made.differences:
        yield Entry("what differs", difference_line(one), "", one.see)
    yield from (Entry("what differs", text, "label") for text in unrecorded_lines(made))
    yield from (Entry("in short", text) for text in made.said)
    for measure in made.pace[:MEASURES]:
        name, before, after, ratio, sign = map(str.strip, measure_row(measure))
        more = "  ".join(filter(None, (ratio, sign)))
        text = f"{name}: {before or '-'} → {after or '-'}  {more}".rstrip()
        yield Entry("pace", text, "warning" if measure.beyond else "label")
    if made.profiles is not None:
        yield from profile_entries(made.profiles)
    yield from (Entry(TREES, text, "label") for text in tree_lines(made))
    for side, report in (("before", made.before), ("after", made.after)):
        yield from (Entry(f"{side}: {report.run}", text) for text in ended_lines(report))


def profile_entries(found: Profiles) -> Iterator[Entry]:
    """Where a step goes in the newest profiles of both, and their operations, what differs most first."""
    yield from (Entry("profiles", text) for text in (f"before: {found.before}", f"after: {found.after}"))
    yield from (Entry("profiles", text, "label") for text in found.notes)
    for table in profile_tables(found):
        for name, before, after, *more in table.rows:
            values = f"{before or '-'} → {after or '-'}"
            text = f"{name.strip()}: {values}  {'  '.join(filter(None, more))}"
            yield Entry(f"profiles: {table.title}", text.rstrip(), "label")


ABOUT: dict[str, tuple[str, tuple[str, ...]]] = {
    "curves": (
        "curves",
        (
            "Loss and step time of both runs on the same scale, by step, or by tokens or samples if a step",
            "of one run has more of them; what is far above all later values is cut off.",
            "",
            "{next_pane}: the list · {zoom}: this side alone · {back}: back",
        ),
    ),
    "differences": (
        "differences",
        (
            "What stands out, recorded differences, numbers of steps, the newest profiles, how each ended.",
            "What is not recorded may differ as well.",
            "",
            "up, down: lines · {open} copies what shows more · {copy_command} copies the command",
            "{next_pane}: the curves · {zoom}: this side alone · {back}: back",
        ),
    ),
}


class CompareScreen(ListScreen):
    """Two runs, read as it opens; no node is asked.

    :param before: the run that the other one is held against
    """

    SCOPE = COMPARE
    ABOUT = ABOUT
    BINDINGS: ClassVar[list[BindingType]] = bindings(COMPARE)
    DEFAULT_CSS = """
    CompareScreen #left { display: block; width: 1fr; }
    CompareScreen.-narrow #left { width: 1fr; height: auto; max-height: 60%; }
    CompareScreen.-narrow #curves { height: auto; }
    CompareScreen #curves { scrollbar-size-horizontal: 0; }
    """

    LIST = DifferenceList
    PANE = "differences"
    HEADING = "differences"

    _list = getters.query_one(DifferenceList)
    _curves = getters.query_one(CurvePane)

    def __init__(self, before: RunFolder, after: RunFolder) -> None:
        super().__init__()
        self._before = before
        self._after = after
        self.last_keys = ("back", "help")
        self._made: Comparison | None = None
        self._trouble = ""

    def left_panes(self) -> Iterator[Widget]:
        """The curves."""
        curves = CurvePane(ascii_only=self.app.glyphs.ascii, id="curves")
        curves.border_title = title("", "curves")
        yield curves

    def begin(self) -> None:
        """See :class:`ListScreen`."""
        self._read()

    @work(group="compare", exclusive=True)
    async def _read(self) -> None:
        """Both runs, off this loop: all that was recorded of them is read."""
        try:
            self._made = await asyncio.to_thread(
                lambda: asyncio.run(comparison_of(self._before, self._after))
            )
        except CockpitError as error:
            self._trouble = str(error)
            self.app.complain(error)
        self.draw()

    def draw(self) -> None:
        """See :class:`ListScreen`."""
        if not self.app.holds(self):
            return
        names = Part(((f"{self._before.name} → {self._after.name}", "strong"),))
        self.query_one(Bar).tell([names, Part(((self._state, ""),), 1)])
        self._list.empty = [self._state]
        self._list.show_items(() if self._made is None else tuple(entries(self._made)))
        self._curves.show(self._made, self._state)
        self.draw_keys()

    @property
    def _state(self) -> str:
        if self._made is not None:
            return self._made.said[0]
        return self._trouble or "reading both runs"

    def on_resize(self, event: events.Resize) -> None:
        """Beside each other, if there is room."""
        self.set_class(event.size.width < NARROW, "-narrow")
        super().on_resize(event)

    # What each command does, and why it may not

    def own_handlers(self) -> dict[Id, Handler]:
        """Those of the list."""
        more = needs(lambda: self._list.current and self._list.current.see, "there is no more to see of it")
        return {
            **super().own_handlers(),
            "zoom": Handler(self.zoom),
            "open": Handler(lambda: self.action_command("copy"), more),
            "copy_command": Handler(lambda: self.app.copy(self._command)),
        }

    @property
    def _command(self) -> str:
        return compare_command(self._before.name, self._after.name)

    def renamed(self, pane: Pane) -> Mapping[Id, str]:
        """What opening is called here."""
        return {"open": "copy command"}

    def activity(self) -> Activity | None:
        """Reading takes a while, of long runs."""
        return Activity("reading both runs") if self._made is None and not self._trouble else None
