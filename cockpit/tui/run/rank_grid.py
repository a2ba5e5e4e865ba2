"""The rank grid as a widget: scrolling, cursor, marks, folding; its columns are in ``grid_lines``."""

from __future__ import annotations

import copy
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip

from cockpit.core.finding import Finding
from cockpit.core.pace.pace import Pace
from cockpit.core.run.failure import blamed
from cockpit.core.run.model import RunModel
from cockpit.core.run.slow_links import SLOW_S, slow_from
from cockpit.core.run.states import renewed
from cockpit.tui.look.glyphs import UNICODE, Glyphs
from cockpit.tui.panes.moving_pane import MovingPane
from cockpit.tui.panes.text_pane import Piece
from cockpit.tui.run import meters
from cockpit.tui.run.grid_lines import (
    EDGE,
    Columns,
    Look,
    Mark,
    columns_for,
    head_line,
    link_is_said,
    node_line,
    short_names,
)
from cockpit.tui.run.rank_lines import LEAST, RANK, Paces

ACROSS, GAP = 2, 2
"""Nodes side by side where panes are stacked, and the columns between them."""

HEAD, NOTE = -1, -2
"""What stays in place of lines: the names of the columns, and what is said of all nodes."""

MANY = 8
"""At most this many rows are redrawn one by one: beyond that, redrawing all at once is less work."""


@dataclass(frozen=True)
class _Layout:
    """Which lines the nodes take.

    :param starts: the first line of each node, followed by the total number of lines
    :param ranked: each rank has a line of its own, below its node's
    :param across: nodes side by side, each in one line; the first column has the first half of them
    """

    width: int
    columns: Columns
    starts: Sequence[int]
    ranked: bool = False
    across: int = 1

    @property
    def tall(self) -> int:
        """Lines of all of it."""
        return -(-self.starts[-1] // self.across)

    @property
    def step(self) -> int:
        """Columns from one node to the one beside it."""
        return self.columns.all + GAP

    def at(self, line: int, x: int = 0) -> tuple[int, int] | None:
        """The node of a line, as its place in the order, and which of its lines it is.

        :param x: the column of the pane
        """
        line += min(x // self.step, self.across - 1) * self.tall
        if not 0 <= line < self.starts[-1]:
            return None
        row = bisect_right(self.starts, line) - 1
        return row, line - self.starts[row]

    def top(self, row: int) -> int:
        """The first line of a node."""
        return self.starts[row] % self.tall if self.across > 1 else self.starts[row]


class RankGrid(MovingPane):
    """The grid; its rows are in the order of the hostfile and never move.

    :param model: the run's model; drawn again by :meth:`update_model`
    :param glyphs: signs for states
    """

    DEFAULT_CSS = """
    RankGrid { height: auto; overflow-x: hidden; scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [("left,h", "step(-1)"), ("right,l", "step(1)")]

    @dataclass
    class Selected(Message):
        """A person moved to a node, or to a rank on it."""

        node: str
        rank: int | None

    @dataclass
    class Opened(Message):
        """A node or rank was opened by a double click."""

        node: str
        rank: int | None

    @dataclass
    class Marked(Message):
        """The marks changed."""

        marks: frozenset[Mark]

    def __init__(self, model: RunModel, *, glyphs: Glyphs = UNICODE, id: str | None = None) -> None:
        super().__init__(id=id)
        self.glyphs = glyphs
        self.marks: frozenset[Mark] = frozenset()
        self.slow: frozenset[int] = frozenset()
        """Ranks that are slower than the others, as of the next time that every row is drawn."""
        self.missing: frozenset[int] = frozenset()
        """Ranks for which the others wait, while the run stands still."""
        self.held: frozenset[int] = frozenset()
        """The others."""
        self.pace: Pace | None = None
        """How far ranks are, for lines of their own; they have some while only this side is shown."""
        self.ended = False
        """The run is over: nothing gets older."""
        self.dead: frozenset[int] = frozenset()
        """Ranks that have ended."""
        self._model = model
        self._only: Mapping[str, tuple[int, ...]] | None = None
        """The ranks of each node that is shown; None: all of them."""
        self._names: list[str] = []
        self._rows: dict[str, int] = {}
        self._short: dict[str, str] = {}
        self._measured: list[meters.Measured] = []
        """What is said of all nodes."""
        self._needed: dict[str, float] = {}
        """Until when each meter is drawn, unix seconds."""
        self._linked = False
        """Whether there is anything to say about a link."""
        self._first: int | None = None
        self._judged: Finding | None = None
        self._now = 0.0
        self._slow_s = SLOW_S
        self._cursor: tuple[int, int | None] = (0, None)
        """The node, as its place in the order, and the rank's place on it."""
        self._shown = False
        """Whether anybody has moved the cursor: only then is something selected."""
        self._laid: _Layout | None = None
        self._strips: dict[int, tuple[list[Piece], Strip]] = {}
        """What was last drawn in each line; -1 is the head."""

    # What is drawn

    def update_model(self, model: RunModel, changed: set[str | int] | None, now: float) -> None:
        """Draw what changed; None: every row, since all of them age.

        :param now: unix seconds
        """
        self._model, self._now = self._narrowed(model), now
        names = list(self._model.nodes)
        if names != self._names or self._laid is None:
            self._names, self._laid = names, None
            self._rows = {name: row for row, name in enumerate(names)}
            self._short = short_names(names)
            changed = None
        if changed is None:
            self._slow_s = slow_from(model)
            self._measure()
            if self._full_size != self.virtual_size:
                self._lay_out()
        if changed is None or self._judged is not model.judged or self._may_be_first(changed):
            self._judged, failed = model.judged, blamed(model, model.judged)
            first = failed.rank if failed else None
            if first != self._first:
                self._first, changed = first, None
        if changed is None:
            self._refresh_aged()
            return
        seen = self._seen()
        rows = {self._rows.get(self._node_of(item), -1) for item in changed} & seen
        if len(rows) > max(MANY, len(seen) // 2):
            self.refresh()
            return
        for row in rows:
            self._refresh_row(row)

    def narrow(self, shown: Mapping[str, tuple[int, ...]] | None) -> None:
        """From the next drawing on show only these ranks of these nodes; nothing is selected until then.

        :param shown: in the run's order; None: all of them
        """
        self.unselect()
        self._only, self._laid, self._cursor = shown, None, (0, None)
        self.scroll_to(y=0, animate=False)
        self.refresh()  # also the lines that nothing is in any more

    def _narrowed(self, model: RunModel) -> RunModel:
        """The model with the nodes that are shown, and the ranks of each."""
        if self._only is None:
            return model
        view = copy.copy(model)
        view.nodes = {name: renewed(model.nodes[name], ranks=ranks) for name, ranks in self._only.items()}
        return view

    def _measure(self) -> None:
        """How nodes differ, and which columns that takes."""
        nodes, now = list(self._model.nodes.values()), self._now
        before = self._drawn(), self._linked, bool(self._measured)
        if self.ended:  # how busy its nodes were last says nothing of them now
            self._measured, self._needed = [], {}
        else:
            self._measured = meters.measured(nodes, self._short, now)
        self._needed |= {one.name: now + meters.LASTS_S for one in self._measured if one.odd or one.high}
        self._linked = link_is_said(nodes, self._look())
        if before != (self._drawn(), self._linked, bool(self._measured)):
            self._laid = None

    def _drawn(self) -> tuple[str, ...]:
        """The measures that have a meter."""
        return tuple(name for name in meters.MEASURES if self._needed.get(name, -math.inf) >= self._now)

    def _refresh_aged(self) -> None:
        """Redraw the visible lines that are not what was drawn last."""
        lines = range(self.size.height)
        aged = [y for y in lines if not self._is_drawn(y)]
        if len(aged) > len(lines) // 2:
            self.refresh()
        elif aged:
            self.refresh(*[Region(0, y, self.size.width, 1) for y in aged])

    def _is_drawn(self, y: int) -> bool:
        line, pieces = self._pieces(y)
        before = self._strips.get(line)
        return not pieces or (before is not None and before[0] == pieces)

    def _seen(self) -> set[int]:
        """The visible nodes, as their places in the order."""
        layout, top = self._layout, self.scroll_offset.y
        seen: set[int] = set()
        for x in range(0, layout.step * layout.across, layout.step):
            first = layout.at(top, x)
            last = layout.at(min(top + self._rows_shown, layout.tall) - 1, x)
            seen |= {*range(first[0], (last or (len(self._names) - 1,))[0] + 1)} if first else set()
        return seen

    @property
    def _rows_shown(self) -> int:
        """Lines that scroll: all but the head and what is said of all nodes."""
        return max(1, self.size.height - 1 - bool(self._measured))

    def _may_be_first(self, changed: set[str | int]) -> bool:
        """Whether the first failure may now be a different one.

        Checking thousands of ranks takes long. What only shifts times (a clock that is measured more
        accurately) can wait until all rows are drawn.
        """
        ranks = self._model.ranks
        return any(
            item == self._first or ranks[item].failed
            for item in changed
            if isinstance(item, int) and item in ranks
        )

    def _node_of(self, item: str | int) -> str:
        if isinstance(item, str):
            return item
        rank = self._model.ranks.get(item)
        return rank.node if rank else ""

    def _refresh_row(self, row: int) -> None:
        """Redraw a node if it is visible."""
        layout = self._layout
        top = layout.top(row) + 1 - self.scroll_offset.y
        end = top + layout.starts[row + 1] - layout.starts[row]
        top, end = max(1, top), min(end, 1 + self._rows_shown)
        if top < end:
            self.refresh(Region(0, top, self.size.width, end - top))

    def on_mount(self) -> None:
        self.update_model(self._model, None, self._now)

    def on_resize(self) -> None:
        self._lay_out()

    def notify_style_update(self) -> None:
        """A new theme has new colours."""
        super().notify_style_update()
        self._strips.clear()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as the nodes take, and the head."""
        return max(2, self._layout_for(width).tall + 1 + bool(self._measured))

    @property
    def _layout(self) -> _Layout:
        width = self.scrollable_content_region.width
        if self._laid is None or self._laid.width != width or self._laid.ranked != self._ranked(width):
            self._laid = self._layout_for(width)
            self._strips.clear()
        return self._laid

    def _layout_for(self, width: int) -> _Layout:
        nodes = self._model.nodes.values()
        name = max(map(cell_len, self._short.values()), default=4)
        ranked = self._ranked(width)
        paces = self._paces() if ranked else None
        room = width - (0 if paces is None else paces.width)
        most = max((len(node.ranks) for node in nodes), default=1)
        how = max(4, name), most, self._drawn()
        columns, across = columns_for(room, *how, link=self._linked), 1
        columns = replace(columns, least=min(room, RANK)) if ranked else columns
        if len(nodes) > ACROSS and not ranked and self.screen.has_class("-narrow"):
            beside = columns_for((room - GAP) // ACROSS, *how, link=self._linked)
            if beside.per_line >= most and beside.name >= columns.name:
                columns, across = beside, ACROSS
        tall = (columns.lines(len(node.ranks)) + ranked * len(node.ranks) for node in nodes)
        return _Layout(width, columns, [0, *accumulate(tall)], ranked, across)

    def _ranked(self, width: int) -> bool:
        """Whether each rank has a line of its own."""
        return self.pace is not None and width >= LEAST and self.screen.has_class("-zoom-left")

    def _paces(self) -> Paces | None:
        if self.pace is None:
            return None
        return Paces(self.pace, self.missing, self.held, None if self.ended else self._now, self.dead)

    @property
    def _full_size(self) -> Size:
        return Size(self._layout.width, self._layout.tall + 1 + bool(self._measured))

    def _lay_out(self) -> None:
        """Take as many lines as are needed, and keep the cursor in sight."""
        if not self._layout.width:
            return  # so many lines as no columns take would bring a scrollbar, which stays
        size = self._full_size
        if size != self.virtual_size:
            self.virtual_size = size
            self.refresh(layout=True)
        if self._shown:
            self._scroll_to_cursor()

    def render_line(self, y: int) -> Strip:
        """The head stays, the rows scroll."""
        line, pieces = self._pieces(y)
        width = self._layout.width
        return self._strip(line, pieces, width) if pieces else Strip.blank(width, self.style_of(""))

    def _pieces(self, y: int) -> tuple[int, list[Piece]]:
        """Which line is shown in this row, and what it says; below the last one: nothing."""
        layout = self._layout
        if y > self._rows_shown:
            return NOTE, self._note(layout.width)
        line = y - 1 + self.scroll_offset.y if y else HEAD
        look = self._look()
        pieces: list[Piece] = []
        for x in range(0, layout.step * layout.across, layout.step):
            if y == 0:
                added = head_line(layout.columns, look.paces)
            elif (at := layout.at(line, x)) is not None:
                node = self._model.nodes[self._names[at[0]]]
                added = node_line(node, at[1], self._model, layout.columns, look)
            else:
                break
            if x:  # below the one above
                pieces.append(Piece(" " * (x - sum(cell_len(piece.text) for piece in pieces))))
            pieces += added
        return line, pieces

    def _look(self) -> Look:
        return Look(
            self.glyphs,
            self._first,
            self.selected,
            self.marks,
            self.slow,
            self.missing,
            self.held,
            self._short,
            self._slow_s,
            self._now,
            self._paces() if self._laid is not None and self._laid.ranked else None,
        )

    def _note(self, width: int) -> list[Piece]:
        """What is said of all nodes, as far as there is room; first that in which they differ."""
        nodes = self._model.nodes.values()
        texts = [one.text for one in self._measured]
        if not self._linked and any(node.link == "ok" for node in nodes if not node.over):
            texts.append("links ok")
        said = ""
        for text in texts:
            more = f"{said} · {text}" if said else text
            if EDGE + cell_len(more) > width:
                break
            said = more
        return [Piece(" " * EDGE + said, "label")]

    def _strip(self, line: int, pieces: list[Piece], width: int) -> Strip:
        """A line; the same object as before if nothing changed, so that what is made from it is kept."""
        before = self._strips.get(line)
        if before is not None and before[0] == pieces and before[1].cell_length == width:
            return before[1]
        segments = [Segment(text, self.style_of(role)) for text, role in pieces if text]
        left = width - sum(segment.cell_length for segment in segments)
        if left > 0:
            segments.append(Segment(" " * left, self.style_of("")))
        strip = Strip(segments, width) if left >= 0 else Strip(segments).adjust_cell_length(width)
        self._strips[line] = pieces, strip
        return strip

    # Moving

    @property
    def selected(self) -> Mark | None:
        """What the cursor is on; None until somebody has moved it."""
        return self._under_cursor() if self._shown else None

    @property
    def first(self) -> Mark | None:
        """The first rank of the run: what is shown before anything is selected."""
        node = next(iter(self._model.nodes.values()), None)
        return None if node is None else (node.name, node.ranks[0] if node.ranks else None)

    def _under_cursor(self) -> Mark | None:
        row, place = self._cursor
        if row >= len(self._names):
            return None
        node = self._model.nodes[self._names[row]]
        return node.name, None if place is None or place >= len(node.ranks) else node.ranks[place]

    def select(self, node: str, rank: int | None) -> None:
        """Put the cursor on a node or rank; one that is not part of the run changes nothing."""
        if node not in self._rows:
            return
        ranks = self._model.nodes[node].ranks
        place = ranks.index(rank) if rank is not None and rank in ranks else None
        self._place(self._rows[node], place, tell=False)

    def unselect(self) -> None:
        """Nothing is selected; the cursor keeps its node, unseen."""
        self._shown = False
        self._cursor = (self._cursor[0], None)
        if self._names:
            self._refresh_row(self._cursor[0])

    def _place(self, row: int, place: int | None, *, tell: bool = True) -> None:
        if not self._names:
            return
        row = max(0, min(row, len(self._names) - 1))
        ranks = self._model.nodes[self._names[row]].ranks
        place = None if place is None or not ranks else max(0, min(place, len(ranks) - 1))
        before = self._cursor[0]
        self._cursor, self._shown = (row, place), True
        self._scroll_to_cursor()
        for each in {before, row}:
            self._refresh_row(each)
        chosen = self._under_cursor()
        if tell and chosen is not None:
            self.post_message(self.Selected(*chosen))

    def _line(self) -> int:
        """The line the cursor is in."""
        row, place = self._cursor
        layout = self._layout
        if layout.ranked and place is not None:
            return layout.starts[row] + self._own_lines(row) + place
        return layout.top(row) + (place or 0) // layout.columns.per_line

    def _own_lines(self, row: int) -> int:
        """Lines of a node before those of its ranks."""
        return self._layout.columns.lines(len(self._model.nodes[self._names[row]].ranks))

    def _scroll_to_cursor(self) -> None:
        line, top, room = self._line(), self.scroll_offset.y, self._rows_shown
        if line < top:
            self.scroll_to(y=line, animate=False)
        elif line >= top + room:
            self.scroll_to(y=line - room + 1, animate=False)

    def move(self, rows: int) -> None:
        """Go to the node above or below, or to the line of the same node; the first move shows the cursor."""
        row, place = self._cursor
        if not self._shown or not self._names:
            self._place(row, place)
        elif self._layout.across > 1 or (place is None and not self._layout.ranked):
            self._place(row + rows, place)
        else:
            self._to_line(self._line() + rows)

    def _to_line(self, line: int) -> None:
        """Go to another line, and stay in the column."""
        at = self._layout.at(max(0, min(line, self._layout.starts[-1] - 1)))
        if at is None:
            return
        (row, part), per_line, place = at, self._layout.columns.per_line, self._cursor[1]
        if self._layout.ranked:
            own = part - self._own_lines(row)
            self._place(row, own if own >= 0 else None)
            return
        self._place(row, None if place is None else part * per_line + place % per_line)

    def action_step(self, ranks: int) -> None:
        """Go to another rank of the node; before the first one is the node as a whole."""
        row, place = self._cursor
        if place is None:
            self._place(row, 0 if ranks > 0 else None)
        else:
            self._place(row, None if place + ranks < 0 else place + ranks)

    def page(self, step: int) -> None:
        """A screen of nodes up or down."""
        rows = step * max(1, self._rows_shown - 1)
        if self._shown and self._names and self._layout.across > 1:
            self._place(self._cursor[0] + rows, self._cursor[1])
        elif self._shown and self._names:
            self._to_line(self._line() + rows)
        else:
            self.move(0)

    def home(self) -> None:
        """The first node."""
        self._place(0, self._cursor[1])

    def end(self) -> None:
        """The last node."""
        self._place(len(self._names) - 1, self._cursor[1])

    def toggle_mark(self) -> None:
        """Mark or unmark what the cursor is on, and go to the next one."""
        under = self._under_cursor()
        if under is None:
            return
        self.marks = self.marks ^ {under}
        self.post_message(self.Marked(self.marks))
        row, place = self._cursor
        if place is None:
            self._place(row + 1, None, tell=False)
        else:
            self._place(row, place + 1, tell=False)

    def clear_marks(self) -> None:
        """No marks."""
        self.marks = frozenset()
        self.post_message(self.Marked(self.marks))
        self.refresh()

    # The mouse

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is None or not 0 < offset.y <= self._rows_shown:
            return
        layout = self._layout
        at = layout.at(offset.y - 1 + self.scroll_offset.y, offset.x)
        if at is None:
            return
        row, part = at
        columns = layout.columns
        place = columns.rank_at(offset.x % layout.step if layout.across > 1 else offset.x)
        if self._layout.ranked and part >= self._own_lines(row):
            place = part - self._own_lines(row)
        elif place is not None:
            place += part * columns.per_line
            if place >= len(self._model.nodes[self._names[row]].ranks):
                place = None
        self._place(row, place)
        chosen = self._under_cursor()
        if event.chain == 2 and chosen is not None:
            self.post_message(self.Opened(*chosen))
