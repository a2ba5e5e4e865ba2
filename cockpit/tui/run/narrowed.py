"""Nodes and ranks narrowed to those that a text means: what the grid shows then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cockpit.core.masks import mask_of, ranks_of
from cockpit.core.narrowing import Narrowing, Search
from cockpit.core.run.model import RunModel
from cockpit.engine.run.board import Board
from cockpit.tui.command_screen import CommandScreen
from cockpit.tui.look.glyphs import state_name
from cockpit.tui.run.rank_grid import RankGrid


class Narrowed:
    """What of a run the grid of its screen shows."""

    def __init__(self, screen: CommandScreen, board: Board) -> None:
        self._screen = screen
        self._board = board
        self._narrowing = Narrowing("")
        self._shown: Mapping[str, tuple[int, ...]] | None = None
        """The ranks of each node that is shown; None: all of them."""
        self.text = ""
        """What it is narrowed to; empty: all is shown."""

    @property
    def _model(self) -> RunModel:
        return self._board.model

    @property
    def _grid(self) -> RankGrid:
        return self._screen.query_one(RankGrid)

    def narrow(self, text: str) -> None:
        """Narrow it to what a text means.

        :raises CockpitError: it means nothing
        """
        self._narrowing, self.text = Narrowing(text), text.strip()
        self.draw(None, self._board.now)

    def draw(self, changed: set[str | int] | None, now: float) -> None:
        """Draw what changed; None: everything, and who is shown is looked at again."""
        grid, before, chosen = self._grid, self._shown, self._grid.selected
        if changed is None:
            self._shown = self._found() if self.text else None
        if self._shown == before:
            grid.update_model(self._model, changed, now)
            return
        grid.narrow(self._shown)
        grid.update_model(self._model, None, now)
        if chosen is not None:
            grid.select(*chosen)

    @property
    def counts(self) -> Sequence[str]:
        """How many nodes and ranks there are, and how many of them are shown: whole, and ever shorter."""
        nodes, ranks = f"{len(self._model.nodes)}", f"{len(self._model.ranks)}"
        if self._shown is None:
            return f"{nodes} · ranks {ranks}", nodes
        some = f"{len(self._shown)}", f"{sum(map(len, self._shown.values()))}"
        whole = f"{some[0]} of {nodes} · ranks {some[1]} of {ranks}"
        return whole, f"{some[0]}/{nodes} · ranks {some[1]}/{ranks}", f"{some[0]}/{nodes}"

    def _found(self) -> dict[str, tuple[int, ...]]:
        nodes = self._model.nodes
        masks = {name: mask_of(node.ranks) for name, node in nodes.items()}
        found = frozenset(ranks_of(self._narrowing.ranks(masks, self._about)))
        shown = ((name, tuple(filter(found.__contains__, node.ranks))) for name, node in nodes.items())
        return {name: ranks for name, ranks in shown if ranks}

    def _about(self, search: Search) -> int:
        """The ranks of which a search finds something in node, number, state or link."""
        grid, nodes = self._grid, self._model.nodes
        marks = (("slow", grid.slow), ("missing", grid.missing), ("waiting", grid.held))
        mask = 0
        for number, rank in self._model.ranks.items():
            more = " ".join(word for word, ranks in marks if number in ranks)
            link = nodes[rank.node].link
            if search(f"{rank.node} rank {number} {state_name(rank)} {rank.text} {more} {link}"):
                mask |= 1 << number
        return mask
