"""The columns and cells of the rank grid, as pieces of lines for a pane of some width.

The role of a piece may have a suffix ``+first``, ``+mark`` or ``+cursor``, which is laid over its colour.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rich.cells import cell_len, set_cell_size

from cockpit.core.cutting import cut_middle
from cockpit.core.run.model import LIVE, Node, Rank, RankState, RunModel
from cockpit.core.run.slow_links import SLOW_S
from cockpit.core.text import one_line
from cockpit.tui.look.glyphs import UNICODE, Glyphs, state_name, stopped
from cockpit.tui.panes.text_pane import Piece
from cockpit.tui.run import meters
from cockpit.tui.run.rank_lines import Paces, RankLook, rank_line

Mark = tuple[str, int | None]
"""A node, or a rank on it."""

GROUP = 4
"""Ranks between two gaps, which make a row easier to count."""

EDGE = 2
"""Columns before a node's name: the cursor, and whether it is marked."""

STAGES = {
    "term": ("stopping", "stop"),
    "finalising": ("finalising", "report"),
    "kill": ("killing", "kill"),
    "sweep": ("sweeping", "sweep"),
}
"""What is said about a node that is being stopped, in full and in short."""

LINKS = (12, 7)
"""Columns of what is said about links, and where there is little room."""


@dataclass(frozen=True)
class Columns:
    """How a pane's width is divided.

    :param name: columns of a node's name
    :param per_line: ranks in one line; a node with more takes several
    :param meters: the measures that have a meter
    :param link: columns of the link; 0: it is not drawn
    :param least: columns that all of it takes at least
    """

    name: int
    per_line: int
    meters: tuple[str, ...]
    link: int
    least: int = 0

    @property
    def cells_at(self) -> int:
        """The column of the first rank."""
        return EDGE + self.name + 1

    @property
    def all(self) -> int:
        """Columns of all of it."""
        return max(self.least, self.cells_at + self.cells + meters.WIDE * len(self.meters) + self.link)

    @property
    def cells(self) -> int:
        """Columns of a line's ranks."""
        return _room(self.per_line)

    def lines(self, ranks: int) -> int:
        """Lines that a node with this many ranks takes."""
        return max(1, -(-ranks // self.per_line))

    def rank_at(self, x: int) -> int | None:
        """Which rank of a line is drawn in a given column of the pane."""
        at = x - self.cells_at
        if not 0 <= at < self.cells or at % (GROUP + 1) == GROUP:
            return None
        place = at - at // (GROUP + 1)
        return place if place < self.per_line else None


def _room(ranks: int) -> int:
    """Columns for this many ranks, below their heading."""
    return max(len("ranks"), _span(ranks))


def _span(ranks: int) -> int:
    return ranks + max(0, ranks - 1) // GROUP


def columns_for(width: int, name: int, ranks: int, drawn: tuple[str, ...], *, link: bool) -> Columns:
    """Divide a width.

    Room is made by leaving out meters, by cutting names, and finally by wrapping: each rank is always drawn,
    and the link if there is any room.

    :param name: columns of the longest name
    :param ranks: of the node that has the most
    :param drawn: the measures to draw, the most important first
    :param link: whether there is anything to say about links
    """
    ranks = max(1, ranks)
    cuts = dict.fromkeys(min(name, most) for most in (24, 12, 8))
    links = LINKS if link else (0,)
    tries = [(count, cut) for cut in cuts for count in range(len(drawn), 0, -1)] + [(0, cut) for cut in cuts]
    for count, cut in tries:
        left = width - EDGE - cut - 1 - _room(ranks) - meters.WIDE * count
        for room in links:
            if left >= room:
                return Columns(cut, ranks, drawn[:count], room)
    return _wrapped(width, min(name, 12 if width >= 40 else 8), links[-1])


def _wrapped(width: int, name: int, link: int) -> Columns:
    room = width - EDGE - name - 1
    if room - link < _span(GROUP):
        link = 0
    room = max(1, room - link)
    count = (room + 1) // (GROUP + 1) * GROUP
    # People count a node's ranks in eights.
    count = count // 8 * 8 or count or room
    return Columns(name, count, (), link)


@dataclass(frozen=True)
class Look:
    """Everything but the model that a line depends on.

    :param first: the rank that failed first
    :param cursor: what the cursor is on, if it is visible
    :param slow: ranks that run, but slower than the others
    :param missing: ranks for which the others wait, while the run stands still
    :param held: the others
    :param names: what nodes are called here, if not by their full name
    :param slow_s: the round trip from which a link counts as slow
    :param now: unix seconds
    :param paces: what is said beside nodes and ranks; None: there is no room for it
    """

    glyphs: Glyphs = UNICODE
    first: int | None = None
    cursor: Mark | None = None
    marks: frozenset[Mark] = frozenset()
    slow: frozenset[int] = frozenset()
    missing: frozenset[int] = frozenset()
    held: frozenset[int] = frozenset()
    names: Mapping[str, str] = field(default_factory=dict)
    slow_s: float = SLOW_S
    now: float = 0.0
    paces: Paces | None = None


def short_names(names: Iterable[str]) -> dict[str, str]:
    """What nodes are called when there is little room: without their common domain."""
    labels = {name: one_line(name).split(".") for name in names}
    shared = min((len(parts) for parts in labels.values()), default=1) - 1
    if any(parts[-1].isdigit() for parts in labels.values()):
        shared = 0  # addresses
    while shared and len({tuple(parts[-shared:]) for parts in labels.values()}) > 1:
        shared -= 1
    return {name: ".".join(parts[: len(parts) - shared]) for name, parts in labels.items()}


def head_line(columns: Columns, paces: Paces | None = None) -> list[Piece]:
    """What the columns are."""
    text = " " * EDGE + set_cell_size("node", columns.name) + " " + set_cell_size("ranks", columns.cells)
    text += "".join(f" {name:<{meters.WIDE - 1}}" for name in columns.meters)
    head = Piece(text + (f"{'link':>{columns.link}}" if columns.link else ""), "head")
    return [head] if paces is None else [_wide(head, columns), paces.head()]


def _wide(head: Piece, columns: Columns) -> Piece:
    return Piece(head.text.ljust(columns.all), head.role)


def node_line(node: Node, part: int, model: RunModel, columns: Columns, look: Look) -> list[Piece]:
    """One line of a node.

    :param part: which one, if it takes several; after them come its ranks, if they have lines of their own
    """
    lines = columns.lines(len(node.ranks))
    if look.paces is not None and part >= lines:
        return _rank_line(node, node.ranks[part - lines], model, columns, look, look.paces)
    pieces = [*_edge(node, part, look), *_name(node, part, columns, look)]
    start = part * columns.per_line
    numbers = node.ranks[start : start + columns.per_line]
    pieces += _cells(node, numbers, model.ranks, look)
    pieces.append(Piece(" " * (columns.cells - _span(len(numbers)))))
    if part == 0:
        for name in columns.meters:
            pieces += meters.meter(node, name, look.now, ascii_only=look.glyphs.ascii)
        pieces.append(_link(node, columns, look))
        if look.paces is not None and node.ranks:
            pieces += [Piece(" " * (columns.all - sum(cell_len(piece.text) for piece in pieces)))]
            pieces += look.paces.of(node.ranks)
    return pieces


def _rank_line(
    node: Node, number: int, model: RunModel, columns: Columns, look: Look, paces: Paces
) -> list[Piece]:
    mark = node.name, number
    over = ("+mark" if mark in look.marks else "") + ("+cursor" if look.cursor == mark else "")
    here = RankLook(look.glyphs, look.slow, over)
    return list(rank_line(model.ranks[number], node, paces, here, columns.all + paces.width))


def stale(node: Node) -> bool:
    """Whether what is known about a node is stale: its link is down, and it has not ended."""
    return node.link in ("stale", "gone") and not node.over


def _edge(node: Node, part: int, look: Look) -> Iterator[Piece]:
    """The cursor, and ``◆`` if the node is marked, ``◇`` if one of its ranks is."""
    ascii_only = look.glyphs.ascii
    here = look.cursor is not None and look.cursor[0] == node.name
    yield Piece((">" if ascii_only else "▌") if here else " ", "cursor")
    sign = " "
    if look.marks and part == 0:
        if (node.name, None) in look.marks:
            sign = "*" if ascii_only else "◆"
        elif any(name == node.name for name, _ in look.marks):
            sign = "+" if ascii_only else "◇"
    yield Piece(sign, "mark")


def _name(node: Node, part: int, columns: Columns, look: Look) -> Iterator[Piece]:
    if part:
        # Below the name: the first rank of this line, to find one's way in a large node.
        yield Piece(f"{node.ranks[part * columns.per_line]:>{columns.name}} "[-columns.name - 1 :], "head")
        return
    here = look.cursor is not None and look.cursor[0] == node.name
    text = cut_middle(
        look.names.get(node.name) or one_line(node.name), columns.name, "~" if look.glyphs.ascii else "…"
    )
    yield Piece(
        set_cell_size(text, columns.name + 1), "chosen" if here else "stale" if stale(node) else "node"
    )


def _cells(node: Node, numbers: tuple[int, ...], ranks: Mapping[int, Rank], look: Look) -> list[Piece]:
    """The ranks of a line; those that look the same are one piece."""
    old = stale(node)
    pieces: list[Piece] = []
    text, role = "", ""
    for place, rank_number in enumerate(numbers):
        rank = ranks[rank_number]
        state = state_name(rank)
        sign = str(getattr(look.glyphs, state))
        if rank_number == look.first:
            sign, state = look.glyphs.failed, "failed+first"
        elif state == "failed":
            # Only the rank that failed first has the failure sign: it stands out among later failures.
            sign, state = look.glyphs.killed, "killed"
        elif state == "killed" and stopped(rank):
            state = "dim"
        elif old and rank.state in LIVE:
            state = "stale"
        elif rank_number in look.missing and rank.state is RankState.RUNNING:
            sign, state = look.glyphs.look, "slow+first"
        elif rank_number in look.held and rank.state is RankState.RUNNING:
            sign, state = look.glyphs.held, "waiting"
        elif rank_number in look.slow and rank.state is RankState.RUNNING:
            sign, state = look.glyphs.look, "slow"
        if (node.name, rank_number) in look.marks:
            state += "+mark"
        if look.cursor == (node.name, rank_number):
            state += "+cursor"
        gap = place and place % GROUP == 0
        if state == role and not (gap and "+" in role):
            text += f" {sign}" if gap else sign
            continue
        if text:
            pieces.append(Piece(text, role))
        if gap:
            pieces.append(Piece(" "))
        text, role = sign, state
    pieces.append(Piece(text, role))
    return pieces


def link_is_said(nodes: Collection[Node], look: Look) -> bool:
    """Whether there is anything to say about a link; that all nodes have ended is said elsewhere."""
    said = {_link_words(node, look)[0] for node in nodes}
    return said not in ({""}, {"ended"}, set())


def _link(node: Node, columns: Columns, look: Look) -> Piece:
    long, short, role = _link_words(node, look)
    # Keep a blank between the link and what precedes it.
    text = long if len(long) < columns.link else short[: max(0, columns.link - 1)]
    return Piece(f"{text:>{columns.link}}" if columns.link else "", role)


def _link_words(node: Node, look: Look) -> tuple[str, str, str]:
    """What to say about a link, the same in short, and its role."""
    if node.lost:
        return "lost", "lost", "link-gone"
    if node.ended:
        return "ended", "ended", "link-ok"
    if node.link in ("stale", "gone"):
        age = ago(look.now - node.link_since) if node.link_since else ""
        return f"{node.link} {age}".rstrip(), f"!{age}" if age else node.link, f"link-{node.link}"
    if node.stage:
        return *STAGES.get(node.stage, STAGES["term"]), "link-stale"
    if node.link != "ok":
        return ("linking", "...", "link-ok") if look.glyphs.ascii else ("linking", "…", "link-ok")
    if node.rtt_s is None or node.rtt_s < look.slow_s:
        return "", "", "link-ok"  # as it should be: only the unusual is said
    text = ago(node.rtt_s)
    return text, text, "link-stale"


def ago(seconds: float) -> str:
    """A time span in at most five columns: ``16ms``, ``1.2s``, ``34s``, ``12min``, ``3h``, ``4d``."""
    seconds = max(0.0, seconds)
    if not seconds < 1e8:
        return "?"  # years, or not a number at all
    if seconds < 0.9995:
        return f"{max(1, round(seconds * 1000))}ms"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    if seconds < 99.5:
        return f"{seconds:.0f}s"
    if seconds < 5970:
        return f"{seconds / 60:.0f}min"
    return f"{seconds / 3600:.0f}h" if seconds < 172_800 else f"{seconds / 86_400:.0f}d"
