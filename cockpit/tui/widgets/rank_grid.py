"""Nodes and ranks at a glance: one row a node, one cell a rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from cockpit.core.model import Node, RunModel
from cockpit.core.text import RemoteText
from cockpit.tui.glyphs import UNICODE, Glyphs, state_name
from cockpit.tui.spark import bar

Mark = tuple[str, int | None]
"""A node, or a rank on it."""

GROUP = 4
"""Ranks between two gaps: a row is easier to count so."""

STATES = ("waiting", "starting", "running", "done", "failed", "killed", "lost")


@dataclass(frozen=True)
class _Columns:
    """Widths and places of the columns, for one width of the grid."""

    name: int
    ranks: int
    bars: bool
    link: int

    @property
    def cells(self) -> int:
        """Where the first rank's cell is."""
        return 2 + self.name + 1


class RankGrid(ScrollView, can_focus=True):
    """The grid; its rows are in the order of the hostfile and never move.

    :param model: the run's model; drawn again by :meth:`update_model`
    :param glyphs: signs for states
    """

    DEFAULT_CSS = """
    RankGrid {
        height: auto; overflow-x: hidden; scrollbar-size-vertical: 1;
        & > .rank-grid--node { color: $foreground; }
        & > .rank-grid--head { color: $dim; }
        & > .rank-grid--chosen { color: $key; text-style: bold; }
        & > .rank-grid--mark { color: $key; text-style: bold; }
        & > .rank-grid--waiting { color: $rank-waiting; }
        & > .rank-grid--starting { color: $rank-starting; }
        & > .rank-grid--running { color: $rank-running; }
        & > .rank-grid--done { color: $rank-done; }
        & > .rank-grid--failed { color: $rank-failed; }
        & > .rank-grid--killed { color: $rank-killed; }
        & > .rank-grid--lost { color: $rank-lost; }
        & > .rank-grid--stale { color: $rank-stale; }
        & > .rank-grid--link-ok { color: $link-ok; }
        & > .rank-grid--link-stale { color: $link-stale; }
        & > .rank-grid--link-gone { color: $link-gone; }
        & > .rank-grid--bar { color: $rank-running; }
        & > .rank-grid--gpu { color: $key; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"rank-grid--{name}"
        for name in (
            *STATES,
            *("node", "head", "chosen", "mark", "stale", "link-ok", "link-stale", "link-gone", "bar", "gpu"),
        )
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
        Binding("left", "step(-1)", "Rank before", show=False),
        Binding("right", "step(1)", "Next rank", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home", "home", "First node", show=False),
        Binding("end", "end", "Last node", show=False),
    ]

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
        self._model = model
        self._names: list[str] = []
        self._rows: dict[str, int] = {}
        self._first: int | None = None
        self._now = 0.0
        self._cursor: tuple[int, int | None] = (0, None)
        self._shown = False
        """Whether anybody has moved the cursor: only then something is selected."""
        self.marks: frozenset[Mark] = frozenset()
        self._styles: dict[str, Style] = {}

    # What is drawn

    def update_model(self, model: RunModel, changed: set[str | int] | None, now: float) -> None:
        """Draw what changed; None: every row, since all of them age.

        :param now: unix seconds
        """
        self._model, self._now = model, now
        if len(self._names) != len(model.nodes):
            self._names = list(model.nodes)
            self._rows = {name: row for row, name in enumerate(self._names)}
            self.virtual_size = Size(self.size.width, len(self._names) + 1)
            self.refresh(layout=True)
            return
        first = model.first_failure()
        number = first.rank if first else None
        if changed is None or number != self._first:
            self._first = number
            self.refresh()
            return
        for name in {self._node_of(item) for item in changed}:
            if name in self._rows:
                self._refresh_row(self._rows[name])

    def _node_of(self, item: str | int) -> str:
        if isinstance(item, str):
            return item
        rank = self._model.ranks.get(item)
        return rank.node if rank else ""

    def _refresh_row(self, row: int) -> None:
        y = row + 1 - self.scroll_offset.y
        if 0 < y < self.size.height:
            self.refresh(Region(0, y, self.size.width, 1))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as there are nodes, and the head."""
        return max(2, len(self._names) + 1)

    def on_mount(self) -> None:
        self.update_model(self._model, None, self._now)

    def notify_style_update(self) -> None:
        """Another theme: other colours."""
        super().notify_style_update()
        self._styles.clear()

    def _style(self, name: str) -> Style:
        style = self._styles.get(name)
        if style is None:
            style = self._styles[name] = self.get_component_rich_style(f"rank-grid--{name}")
        return style

    def _columns(self) -> _Columns:
        width = self.size.width
        most = max((len(node.ranks) for node in self._model.nodes.values()), default=0)
        longest = max((cell_len(name) for name in self._names), default=4)
        cells = most + max(0, (most - 1) // GROUP)
        bars = width >= 38
        link = 7 if width >= 30 else 0
        rest = width - 3 - (12 if bars else 0) - link
        name = max(4, min(longest, 20, rest - min(cells, rest // 2) - 1))
        return _Columns(name, max(1, rest - name - 1), bars, link)

    def render_line(self, y: int) -> Strip:
        """The head stays, the rows scroll."""
        width = self.size.width
        base = self.rich_style
        columns = self._columns()
        if y == 0:
            return Strip(self._head(columns)).adjust_cell_length(width, base).apply_style(base)
        row = y - 1 + self.scroll_offset.y
        if row >= len(self._names):
            return Strip.blank(width, base)
        node = self._model.nodes[self._names[row]]
        segments = [
            *self._label(row, node, columns),
            *self._cells(row, node, columns),
            *self._facts(node, columns),
        ]
        return Strip(segments).adjust_cell_length(width, base).apply_style(base)

    def _head(self, columns: _Columns) -> list[Segment]:
        style = self._style("head")
        text = f"  {'node':<{columns.name}} {'ranks':<{columns.ranks}}"
        text += " cpu mem gpu" if columns.bars else ""
        return [Segment(text, style), Segment(f"{'link':>{columns.link}}" if columns.link else "", style)]

    def _label(self, row: int, node: Node, columns: _Columns) -> list[Segment]:
        name = RemoteText.of(node.name).shown()
        if cell_len(name) > columns.name:
            name = name[: columns.name - 1] + ("~" if self.glyphs.ascii else "…")
        here = self._shown and row == self._cursor[0]
        marked = (node.name, None) in self.marks
        sign = ("*" if self.glyphs.ascii else "◆") if marked else " "
        edge = (">" if self.glyphs.ascii else "▌") if here else " "
        dim = node.link in ("stale", "gone") and not node.done
        style = "chosen" if here else "stale" if dim else "node"
        return [
            Segment(edge, self._style("chosen")),
            Segment(sign, self._style("mark")),
            Segment(name + " " * (columns.name - cell_len(name) + 1), self._style(style)),
        ]

    def _cells(self, row: int, node: Node, columns: _Columns) -> list[Segment]:
        stale = node.link in ("stale", "gone") and not node.done
        segments = []
        used = 0
        start = self._shift(row, node, columns)
        for place, number in enumerate(node.ranks[start:], start):
            gap = " " if place > start and place % GROUP == 0 else ""
            if used + len(gap) + 1 > columns.ranks:
                break
            rank = self._model.ranks[number]
            style = self._style("stale" if stale else state_name(rank))
            if number == self._first:
                style += Style(bold=True)
            if (node.name, number) in self.marks:
                style += Style(underline=True, bold=True)
            if self._shown and self._cursor == (row, place):
                style += Style(reverse=True)
            sign = self.glyphs.of(rank)
            if number == self._first and rank.failed:
                sign = self.glyphs.failed
            elif rank.failed and sign == self.glyphs.failed:
                # The one that failed first stands out among those that failed after it.
                sign = self.glyphs.killed
            segments += [Segment(gap), Segment(sign, style)] if gap else [Segment(sign, style)]
            used += len(gap) + 1
        return [*segments, Segment(" " * (columns.ranks - used))]

    def _shift(self, row: int, node: Node, columns: _Columns) -> int:
        """The first rank shown where a node has more than fit: the one under the cursor stays in view."""
        room = max(GROUP, (columns.ranks + 1) * GROUP // (GROUP + 1) // GROUP * GROUP)
        if len(node.ranks) <= room or row != self._cursor[0] or self._cursor[1] is None:
            return 0
        return max(0, self._cursor[1] // room * room)

    def _facts(self, node: Node, columns: _Columns) -> list[Segment]:
        segments = []
        if columns.bars:
            segments = self._bars(node)
        if columns.link:
            text, style = self._link(node)
            segments.append(Segment(f"{text:>{columns.link}}", self._style(style)))
        return segments

    def _bars(self, node: Node) -> list[Segment]:
        sample = node.sample
        cores = max(1.0, float(sample.get("cores") or 0.0) or float(len(node.ranks) or 1))
        total = float(sample.get("memory_total_bytes") or 0)
        shares: list[float | None] = [
            min(1.0, float(sample["load"]) / cores) if "load" in sample else None,
            float(sample.get("memory_bytes") or 0) / total if total else None,
            _gpu_share(node),
        ]
        stale = node.link in ("stale", "gone")
        segments = []
        for share, style in zip(shares, ("bar", "bar", "gpu"), strict=True):
            sign = " " if share is None else bar(share, self.glyphs.ascii)
            segments += [Segment("   "), Segment(sign, self._style("stale" if stale else style))]
        return segments

    def _link(self, node: Node) -> tuple[str, str]:
        if node.done or node.ended:
            return ("lost", "link-gone") if node.lost else ("ended", "link-ok")
        if node.link == "ok":
            text = "ok" if node.rtt_s is None else _short(node.rtt_s)
            return text, "link-stale" if (node.rtt_s or 0) > 1 else "link-ok"
        if node.link == "connecting":
            return "…" if not self.glyphs.ascii else "...", "link-ok"
        age = f" {_short(max(0.0, self._now - node.link_since))}" if node.link_since else ""
        return f"{node.link}{age}", f"link-{node.link}"

    # Moving

    @property
    def selected(self) -> Mark | None:
        """What the cursor is on; None until somebody has moved it."""
        return self._under_cursor() if self._shown else None

    @property
    def first(self) -> Mark | None:
        """The first rank of the run: what one looks at before anything is selected."""
        node = next(iter(self._model.nodes.values()), None)
        return None if node is None else (node.name, node.ranks[0] if node.ranks else None)

    def _under_cursor(self) -> Mark | None:
        row, place = self._cursor
        if row >= len(self._names):
            return None
        node = self._model.nodes[self._names[row]]
        return node.name, None if place is None or place >= len(node.ranks) else node.ranks[place]

    def select(self, node: str, rank: int | None) -> None:
        """Put the cursor on a node or rank."""
        if node not in self._rows:
            return
        place = None if rank is None else self._model.nodes[node].ranks.index(rank)
        self._place(self._rows[node], place, tell=False)

    def unselect(self) -> None:
        """Nothing is selected; the cursor keeps its place, unseen."""
        self._shown = False
        self._cursor = (self._cursor[0], None)
        self.refresh()

    def _place(self, row: int, place: int | None, *, tell: bool = True) -> None:
        if not self._names:
            return
        row = max(0, min(row, len(self._names) - 1))
        ranks = self._model.nodes[self._names[row]].ranks
        place = None if place is None or not ranks else min(place, len(ranks) - 1)
        self._cursor, self._shown = (row, place), True
        top, room = self.scroll_offset.y, max(1, self.size.height - 1)
        if row < top:
            self.scroll_to(y=row, animate=False)
        elif row >= top + room:
            self.scroll_to(y=row - room + 1, animate=False)
        self.refresh()
        chosen = self._under_cursor()
        if tell and chosen is not None:
            self.post_message(self.Selected(*chosen))

    def move(self, rows: int) -> None:
        """Go to another node; the first move only shows where the cursor is."""
        row, place = self._cursor
        self._place(row + (rows if self._shown else 0), place)

    def step(self, ranks: int) -> None:
        """Go to another rank of the node; before the first one is the node as a whole."""
        row, place = self._cursor
        if place is None:
            self._place(row, 0 if ranks > 0 else None)
        else:
            self._place(row, None if place + ranks < 0 else place + ranks)

    def page(self, step: int) -> None:
        """A screen of nodes up or down."""
        self.move(step * max(1, self.size.height - 2))

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

    def action_move(self, rows: int) -> None:
        """Of the arrow keys."""
        self.move(rows)

    def action_step(self, ranks: int) -> None:
        """Of the arrow keys."""
        self.step(ranks)

    def action_page(self, step: int) -> None:
        """Of the page keys."""
        self.page(step)

    def action_home(self) -> None:
        """Of the home key."""
        self.home()

    def action_end(self) -> None:
        """Of the end key."""
        self.end()

    # The mouse

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is None or offset.y == 0:
            return
        row = offset.y - 1 + self.scroll_offset.y
        if row >= len(self._names):
            return
        self._place(row, self._place_at(row, offset.x))
        chosen = self._under_cursor()
        if event.chain == 2 and chosen is not None:
            self.post_message(self.Opened(*chosen))

    def _place_at(self, row: int, x: int) -> int | None:
        columns = self._columns()
        node = self._model.nodes[self._names[row]]
        at = x - columns.cells
        if not 0 <= at < columns.ranks or at % (GROUP + 1) == GROUP:
            return None
        place = self._shift(row, node, columns) + at - at // (GROUP + 1)
        return place if place < len(node.ranks) else None


def _gpu_share(node: Node) -> float | None:
    shares = [
        float(gpu["utilisation_percent"]) for gpu in node.gpus if gpu.get("utilisation_percent") is not None
    ]
    return sum(shares) / len(shares) / 100 if shares else None


def _short(seconds: float) -> str:
    """``16ms``, ``1.2s``, ``34s``, ``12min``, ``3h``."""
    if seconds < 0.9995:
        return f"{max(1, round(seconds * 1000))}ms"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    if seconds < 99.5:
        return f"{seconds:.0f}s"
    return f"{seconds / 60:.0f}min" if seconds < 5970 else f"{seconds / 3600:.0f}h"
