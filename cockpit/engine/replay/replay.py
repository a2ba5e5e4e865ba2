"""Shows a run on a board as it was at any moment; it is drawn like one that goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from cockpit.core.logs.causes import TAIL
from cockpit.core.logs.metrics import Metrics
from cockpit.core.pace.pace import Pace
from cockpit.core.replay.marks import CHECKPOINT
from cockpit.core.replay.player import Player
from cockpit.core.run.events import Event
from cockpit.core.run.trends import Trends
from cockpit.engine.records.manifest import planned
from cockpit.engine.replay.recorded import Recorded
from cockpit.engine.run.board import Board
from cockpit.engine.run.past_metrics import told_before
from cockpit.errors import CockpitError


class Replay:
    """Moves a board to moments of a run.

    The states of nodes and ranks, what happened and the log are there at once; :meth:`settle` adds the rest.

    :param recorded: what the run's folder tells
    :param board: shows all that is known, of a run that is not watched
    """

    def __init__(self, recorded: Recorded, board: Board) -> None:
        self.recorded = recorded
        self.player = Player(recorded.begin, recorded.end)
        self.player.seek(recorded.end)
        self.distance_s = 0.0
        """How far lines of the log may be from the moment that is shown, seconds."""
        self._board = board
        self._over = board.model.over
        # As all of it is in the end; what nobody wrote into the journal is in it, too.
        if recorded.judged is not None:
            board.model.judged = recorded.judged
        self._last = board.model.kept(), board.pace, board.trends
        self._metrics: Metrics | None = None
        self._past: Mapping[str, Sequence[tuple[float, float]]] | None = None
        self._settled: float | None = recorded.end
        self._newest: Mapping[str, Event] = {}

    @property
    def whole(self) -> bool:
        """Whether it shows all there is of a run that is over."""
        return self.player.at_end and self._over

    # What is there at once

    def show(self) -> bool:
        """Show the moment at which the player is; return whether the log has become shorter."""
        board, at = self._board, self.player.at
        before = board.book.lines
        if board.moment is None and not self.whole:
            # Nothing of the end is left on the screen.
            self._metrics = None if board.book.loading else board.metrics
            board.pace, board.trends, board.metrics = Pace(board.model.ranks), Trends(), Metrics()
        board.moment = None if self.whole else at
        board.timeline.until = float("inf") if self.whole else at
        self.distance_s = board.book.show_until(board.moment)
        changed: set[str | int] = set()
        if self.player.at_end:
            board.model.become(self._last[0])
        else:
            board.model.become(self.recorded.model_at(at, lambda _, names: changed.update(names)).kept())
            self._measure()
        board.changed(changed)
        marks = self.recorded.marks
        board.saves = (
            [] if self.whole else [one.at for one in marks if one.kind == CHECKPOINT and one.at <= at]
        )
        return board.book.lines < before

    def _measure(self) -> None:
        """What was measured last is still the last, until :meth:`settle` knows better."""
        for node, event in self._newest.items():
            if event.at <= self.player.at and node in self._board.model.nodes:
                self._board.model.apply(event)

    # What takes a moment

    @property
    def settled(self) -> bool:
        """Whether all that is shown is of the same moment."""
        return self._settled == self.player.at

    async def settle(self) -> None:
        """Show pace, measurements and numbers of the log of that moment, too.

        :raises CockpitError: a file of the run cannot be read
        """
        at, board = self.player.at, self._board
        if self.whole:
            _, board.pace, board.trends = self._last
            board.metrics = self._metrics or board.metrics
            self._settled = at
            return
        pace = await self.recorded.pace_at(at)
        trends, newest = Trends(), dict[str, Event]()
        trends.take(planned(board.manifest))
        for event in self.recorded.samples(at, board.model):
            trends.take(event)
            newest[event.node] = event
        metrics = await self._numbers(at)
        board.pace, board.trends, self._newest, self._settled = pace, trends, newest, at
        if metrics is not None:
            board.metrics = metrics
        self._measure()

    async def _numbers(self, at: float) -> Metrics | None:
        """What the logs told of the training by then; None: they are not read yet."""
        book = self._board.book
        if book.loading:
            return None
        if self._past is None:
            try:
                self._past = await told_before(self.recorded.folder, self._board.model)
            except CockpitError:
                self._past = {}  # the log view says what cannot be read
        made = Metrics()
        outputs = dict(book.logs.outputs)
        for number, end in sorted(book.ends().items()):
            if number in outputs and (outputs[number][1] is not None or self._board.manifest.foreign):
                begin = max(0, end - TAIL)
                made.feed(outputs[number][1], book.logs.read(number, begin, end - begin), at)
                await asyncio.sleep(0)
        made.recall(
            {name: [point for point in each if point[0] <= at] for name, each in self._past.items()}, at
        )
        return made
