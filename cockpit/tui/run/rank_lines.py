"""Lines of the rank grid where there is room for one a rank: how far each is, and what it works in a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from rich.cells import set_cell_size

from cockpit.core.pace.pace import Pace, RankPace
from cockpit.core.pace.rows import Row
from cockpit.core.run.model import Node, Rank, RankState
from cockpit.core.text import one_line
from cockpit.tui.look.glyphs import Glyphs, state_name, stopped
from cockpit.tui.pace.table import aged, columns_for, heading, table, told
from cockpit.tui.panes.text_pane import Piece

LEAST = 60
"""Columns from which on a rank can have a line of its own."""

INDENT, NAME = 4, 10
"""Columns before a rank's number, and that this one takes with its noun."""

RANK = INDENT + NAME + 24
"""Columns that a rank and its state take before the table."""

ROLES = {"label": "number", "pace-slow": "slow", "warning": "scarce"}
"""What pieces of the table mean here."""


@dataclass(frozen=True)
class Paces:
    """What is said beside nodes and ranks.

    :param missing: ranks for which the others wait, while the run stands still
    :param held: the others
    :param now: unix seconds; None: the run is over, nothing gets older
    :param dead: ranks that have ended
    """

    pace: Pace
    missing: frozenset[int] = frozenset()
    held: frozenset[int] = frozenset()
    now: float | None = None
    dead: frozenset[int] = frozenset()

    @cached_property
    def columns(self) -> Mapping[str, int]:
        """The columns of the table, and how wide each is."""
        return columns_for(1000, self.pace, stalled=bool(self.missing))

    @property
    def width(self) -> int:
        """Columns of all of it."""
        return sum(self.columns.values())

    @cached_property
    def _excess(self) -> Mapping[int, float]:
        return {one.rank: one.excess for one in (*self.pace.slow(), *self.pace.late())}

    def head(self) -> Piece:
        """The names of the columns."""
        return Piece(heading(self.columns, work=self.pace.works).text, "head")

    def of(self, ranks: tuple[int, ...]) -> Iterator[Piece]:
        """The table's part for some ranks: of several, the worst in each respect."""
        paces = {rank: self.pace.of(rank) for rank in ranks}
        live = (pace for rank, pace in paces.items() if rank not in self.dead)
        sign = next((pace for pace in live if pace.sign is not None), None)
        if sign is not None and len(ranks) == 1:
            yield from self._sign(sign)
            return
        row = told(Row((), ranks), paces, self._excess, self.now, self.dead)
        for text, role in table(row, self.columns, stalled=False, waits=self._role(ranks)):
            yield Piece(text, ROLES.get(role, role))

    def _sign(self, pace: RankPace) -> Iterator[Piece]:
        """Where no step of a rank is known: when it went on last, and how far behind that is."""
        sign = pace.sign
        assert sign is not None
        now = self.now if self.now is not None else sign.seen_at
        texts = {
            "age": f"~{'>' if sign.least else ''}{aged(sign.age_s(now))}",
            "behind": f"~-{sign.behind:,}" if sign.behind else "",
        }
        for name, wide in self.columns.items():
            text = texts.get(name, "")
            yield Piece((text if len(text) <= wide else "").rjust(wide), "number")

    def _role(self, ranks: tuple[int, ...]) -> str:
        if not self.missing:
            return ""
        return "missing" if self.missing.issuperset(ranks) else "waiting"


@dataclass(frozen=True)
class RankLook:
    """How one rank's line looks.

    :param over: what is laid over its number, as a suffix of a role: ``+cursor``
    """

    glyphs: Glyphs
    slow: frozenset[int] = field(default_factory=frozenset)
    over: str = ""


def rank_line(rank: Rank, node: Node, paces: Paces, look: RankLook, width: int) -> Iterator[Piece]:
    """What is left of the table in the line of a rank, and that.

    :param width: columns of all of it
    """
    glyphs, runs = look.glyphs, rank.state is RankState.RUNNING
    sign, role, word = str(getattr(glyphs, state_name(rank))), state_name(rank), rank.text
    if runs and rank.rank in paces.missing:
        sign, role, word = glyphs.look, "slow", "missing"
    elif runs and rank.rank in paces.held:
        sign, role, word = glyphs.held, "waiting", "waiting"
    elif runs and rank.rank in look.slow:
        sign, role, word = glyphs.look, "slow", "slow"
    elif stopped(rank):
        role = "dim"
    if node.link in ("stale", "gone") and not node.over:
        role = "stale"
    here, name = "+cursor" in look.over, f"rank {rank.rank}"
    yield Piece(((">" if glyphs.ascii else "▌") if here else " ").ljust(INDENT), "cursor")
    yield Piece(name, "node" + look.over)
    head = INDENT + max(len(name) + 1, NAME)
    yield Piece(" " * (head - INDENT - len(name)))
    room = max(0, width - paces.width - head)
    yield Piece(set_cell_size(f"{sign} {one_line(word, limit=200)}", room), role)
    yield from paces.of((rank.rank,))
