"""Pane 1: the ranks, slowest first, those of a node that are alike in one row; where a step of each goes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from textual.content import Content

from cockpit.core.cutting import cut_middle, cut_sentence
from cockpit.core.masks import mask_of
from cockpit.core.profile.reading import Parts, Row, seconds
from cockpit.core.profile.words import LETTERS, PARTS
from cockpit.core.ranks import mask_within
from cockpit.tui.panes.list_pane import ListPane
from cockpit.tui.panes.text_pane import Line, Piece
from cockpit.tui.profile.view_model import Sampled, Sight

RANKS, NODE = 14, 14
"""Columns that ranks and nodes take at most."""
NUMBER = 10
"""Columns of a number, with the gap before it."""
BAR = 30
"""Columns of a bar at least, but in the narrowest terminals: numbers are left out first, from the right."""
LEAST = 2
"""Numbers that stay: own, data."""

WORDS = {
    "": "ordered",
    "ready": "ready, waiting for the first step",
    "written": "written, not yet summed up",
    "reading": "being summed up on its node",
    "starting": "nsys starts to record",
    "importing": "nsys has written, its report is being made",
}
"""What ranks do, where it is not the word of the state itself."""
NAMES = {"data": "data", "compute": "compute", "communication": "comm", "wait": "waiting"}
"""Of the parts of a bar."""


def bar(parts: Parts, width: int, longest: float, *, letters: bool) -> list[Piece]:
    """Where a step goes, the longest step as wide as that; what nobody does is blank.

    :param letters: instead of colours alone
    """
    pieces, upto, drawn = [], 0.0, 0
    scale = width / longest if longest > 0 else 0.0
    for name, letter in LETTERS:
        upto += getattr(parts, name)
        cells = max(0, min(width, round(upto * scale)) - drawn)
        drawn += cells
        if cells and name in NAMES:
            pieces.append(Piece((letter if letters else "█") * cells, f"profile-{name}"))
        elif cells:
            pieces.append(Piece(" " * cells))
    return [*pieces, Piece(" " * (width - drawn))] if drawn < width else pieces


def legend(*, letters: bool) -> Content:
    """What the colours of a bar mean, for the frame."""
    signs = dict(LETTERS)
    parts: list[str | tuple[str, str]] = []
    for name, word in NAMES.items():
        sign = signs[name] if letters else "■"
        parts += [(sign, f"$profile-{name}"), f" {word}  "]
    return Content.assemble(*parts[:-1], f" {NAMES['wait']}")


class _Shape(NamedTuple):
    """How wide the columns are.

    :param names: numbers that are shown, attributes of Parts
    """

    ranks: int
    node: int
    bar: int
    names: tuple[str, ...]


class RankList(ListPane[Row | Sampled]):
    """One row a rank, or some of a node that are alike.

    :attr:`letters`: bars are drawn with letters instead of colours alone
    """

    letters = False
    left: Mapping[int, float] = {}
    """About how many seconds ranks go on with what they do now, by the first of a row."""
    local: Mapping[int, int] = {}
    """Of each rank its place among those of its node."""

    _shape = _Shape(RANKS, NODE, BAR, tuple(PARTS))
    _longest = 0.0
    _step: float | None = None
    """Seconds of a step of the median rank; None: not known."""
    _steps = 0
    _recorded = False
    """What is said of a rank that is here is no trouble."""

    def show(self, sight: Sight) -> None:
        """Draw the ranks of a profile."""
        reading = sight.reading
        known = [row.parts.took for row in sight.rows if isinstance(row, Row) and row.parts is not None]
        self._longest = max(known, default=0.0)
        self._step, self._steps = reading.parts and reading.parts.took, len(reading.steps)
        self._recorded = sight.collection.kind == "nsys"
        self.show_items(sight.rows)

    def key_of(self, item: Row | Sampled) -> Hashable:
        """The first of its ranks: rows part and join as more come."""
        return item.ranks[0]

    def drawn_from(self, item: Row | Sampled, before: Row | Sampled | None, width: int) -> tuple[object, ...]:
        """Also what all rows depend on."""
        left = round(self.left.get(item.ranks[0], 0.0))
        about = self._shape, self._longest, self._step, self._steps, self.letters, self._recorded
        return item, before is None, width, left, about

    def build(self, width: int) -> Sequence[Line]:
        """The rows, in columns that fit."""
        self._shape = self._fitting(width)
        return super().build(width)

    def _fitting(self, width: int) -> _Shape:
        ranks = max([len("ranks"), *(cell_len(self._ranks(row)) for row in self.items)])
        node = max([len("node"), *(cell_len(self._node(row)) for row in self.items)])
        names = tuple(PARTS)
        while len(names) > LEAST and self._room(width, ranks, node, names) < BAR:
            names = names[:-1]
        return _Shape(ranks, node, max(1, self._room(width, ranks, node, names)), names)

    @staticmethod
    def _room(width: int, ranks: int, node: int, names: Sequence[str]) -> int:
        return width - ranks - node - 4 - NUMBER * len(names)

    def _ranks(self, row: Row | Sampled) -> str:
        """With a sign where colours do not tell who is slow."""
        sign = "! " if row.slow and self.letters else ""
        return sign + mask_within(mask_of(row.ranks), RANKS - len(sign))

    def _node(self, row: Row | Sampled) -> str:
        place = self.local.get(row.ranks[0]) if len(row.ranks) == 1 else None
        return cut_middle(row.node if place is None else f"{row.node}:{place}", NODE)

    def item_lines(self, item: Row | Sampled, before: Row | Sampled | None, width: int) -> Iterator[Line]:
        """The row; above the first one what the columns are."""
        shape = self._shape
        if before is None:
            yield self._head(item, shape)
        role = "odd" if item.slow else "" if len(item.ranks) == 1 else "label"
        left = [
            Piece(_padded(self._ranks(item), shape.ranks + 1), role),
            Piece(_padded(self._node(item), shape.node + 2), "odd" if item.slow else "label"),
        ]
        room = max(1, width - shape.ranks - shape.node - 3)
        if isinstance(item, Sampled):
            number, share = Piece(f"{item.samples:>7,}", "label"), Piece(f"{item.share:>6.0%}  ", role)
            yield Line((*left, number, share, Piece(cut_middle(item.frame, max(1, room - 15)), role)))
        elif item.parts is None:
            yield Line((*left, *self._absent(item, room)))
        else:
            drawn = bar(item.parts, shape.bar, self._longest, letters=self.letters)
            yield Line((*left, *drawn, Piece(" "), *self._numbers(item, item.parts)))

    def _head(self, first: Row | Sampled, shape: _Shape) -> Line:
        text = f"{'ranks':<{shape.ranks}} {'node':<{shape.node}}  "
        if isinstance(first, Sampled):
            text += "samples share  function they are in most often"
        elif self._step is not None:
            step = f"one step, {seconds(self._step, self._step)}, mean of {self._steps}"
            names = "".join(f"{PARTS[name]:>{NUMBER}}" for name in shape.names)
            text += f"{cut_sentence(step, shape.bar):<{shape.bar}} {names}"
        return Line((Piece(text, "head"),), heading=True)

    def _numbers(self, row: Row, parts: Parts) -> Iterator[Piece]:
        for name in self._shape.names:
            text = f"{seconds(getattr(parts, name), self._step or parts.took):>{NUMBER}}"
            blamed = row.slow and name in ("own", row.differs)
            alone = row.slow or (name == "own" and len(row.ranks) == 1)
            yield Piece(text, "odd" if blamed else "" if alone else "label")

    def _absent(self, row: Row, room: int) -> Iterator[Piece]:
        """What ranks do of which nothing is here, or why nothing comes."""
        if row.why:
            text = row.why if row.state in ("", "done") else f"{row.state}: {row.why}"
            role = "label" if self._recorded and row.state == "done" else "warning"
            yield Piece(cut_sentence(text, max(1, room)), role)
            return
        left = self.left.get(row.ranks[0])
        text = WORDS.get(row.state, row.state) + (f", about {left:.0f} s" if left else "")
        yield Piece(cut_sentence(f"· · ·  {text}", max(1, room)), "label")


def _padded(text: str, width: int) -> str:
    return text + " " * max(0, width - cell_len(text))


def title_of(sight: Sight) -> str:
    """``64 · slowest first, alike folded``."""
    many = len({rank for row in sight.rows for rank in row.ranks})
    ordered = "odd ones first" if sight.collection.kind == "cpu" else "slowest first"
    return f"{many} · {ordered}, alike folded"
