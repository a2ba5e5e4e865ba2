"""The run's screen over what is recorded of a run: at any moment of it, standing or going on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from cockpit.core.replay.marks import beside
from cockpit.core.replay.places import place_of
from cockpit.engine.replay.recorded import Recorded
from cockpit.engine.replay.replay import Replay
from cockpit.engine.run.board import Board
from cockpit.engine.run.session import Session
from cockpit.errors import CockpitError
from cockpit.tui.command_screen import Handler, bindings, needs
from cockpit.tui.commands import REPLAY, Id, in_scope
from cockpit.tui.run.purpose import Flight, Replaying
from cockpit.tui.run.replay_bar import ReplayBar, Track
from cockpit.tui.run.screen import RunScreen

NEAR_S, FAR_S = 10.0, 300.0
"""Seconds of a short and of a long step."""
SETTLE_S = 0.5
"""Seconds between two times that pace, measurements and numbers of the log are read while it plays."""

HERE = "this is a replay: no node is contacted"
ACTING = ("stop", "keep", "stacks", "profile", "collect", "doctor", "retry")
"""What would ask nodes, or change the run."""


class ReplayScreen(RunScreen, inherit_bindings=False):
    """A run at any moment.

    :param flight: where it begins; of one that is joined, at its end
    """

    SCOPE = REPLAY
    # Panes have these keys for other things, a field for its cursor.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(each.key, each.action, id=each.id, priority=each.key in ("left", "right"))
        for each in Binding.make_bindings(bindings(REPLAY))
    ]

    def __init__(self, board: Board, session: Session, flight: Flight, notes: Sequence[str] = ()) -> None:
        super().__init__(board, session, flight, notes, recorded=True)
        self.replay: Replay | None = None
        """None: the run is still being read."""
        self._alone = isinstance(flight, Replaying)
        self._settles = False
        self._keys_before: dict[str, str] = {}

    def above_keys(self) -> ComposeResult:
        """See :meth:`RunScreen.above_keys`."""
        yield ReplayBar(self.app.glyphs, id="replay")

    def on_mount(self) -> None:
        keys = self.app.keys
        for command in in_scope(REPLAY, self.app.commands.values()):
            if keys[command.id] != command.key:
                self._keys_before[command.id], keys[command.id] = keys[command.id], command.key

    def on_unmount(self) -> None:
        self.app.keys.update(self._keys_before)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that move the cursor of a field are its own."""
        typing = action == "command" and isinstance(self.focused, Input)
        return not typing and super().check_action(action, parameters)

    def _loaded(self) -> None:
        super()._loaded()
        if self.replay is None:
            self.run_worker(self._begin(), group="replay", exclusive=True)
        else:
            self._show()

    async def _begin(self) -> None:
        try:
            recorded = await Recorded.read(self.board.folder)
        except CockpitError as error:
            self.app.complain(error)
            return
        self.replay = Replay(recorded, self.board)
        player = self.replay.player
        if isinstance(self._flight, Replaying):
            player.seek(recorded.begin)
            if self._flight.at:
                await self._go_to(self._flight.at)
            if self._flight.speed is not None:
                player.speed = self._flight.speed
                player.play(time.monotonic())
            self._show()
        self._draw_bar()

    # Moving in time

    def own_handlers(self) -> dict[Id, Handler]:
        """Those of the run, and of the replay."""
        found = super().own_handlers()
        own: dict[Id, Callable[[], object]] = {
            "play": self._play,
            "rewind": partial(self._move_by, -NEAR_S),
            "forward": partial(self._move_by, NEAR_S),
            "rewind_far": partial(self._move_by, -FAR_S),
            "forward_far": partial(self._move_by, FAR_S),
            "slower": partial(self._change_speed, -1),
            "faster": partial(self._change_speed, 1),
            "go_to": self._ask_where,
        }
        ready = needs(lambda: self.replay is not None, "the run is still being read")
        marks = {
            name: Handler(partial(self._to_mark, step), partial(self._no_mark, step))
            for name, step in (("previous_mark", -1), ("next_mark", 1))
        }
        return found | marks | {name: Handler(do, ready) for name, do in own.items()}

    def why_not(self, name: Id) -> str:
        """Why a command cannot work now; none asks nodes or changes the run."""
        return HERE if self._alone and name in ACTING else super().why_not(name)

    def _play(self) -> None:
        assert self.replay is not None
        player = self.replay.player
        if player.plays:
            player.pause()
        else:
            player.play(time.monotonic())
        self._show()

    def _move_by(self, seconds: float) -> None:
        assert self.replay is not None
        self._seek(self.replay.player.at + seconds)

    def _change_speed(self, step: int) -> None:
        assert self.replay is not None
        self.replay.player.faster(step)
        self._draw_bar()

    def _no_mark(self, step: int) -> str:
        if self.replay is None:
            return "the run is still being read"
        if beside(self.replay.recorded.marks, self.replay.player.at, step) is None:
            return f"no failure, stall or checkpoint {'after' if step > 0 else 'before'} this"
        return ""

    def _to_mark(self, step: int) -> None:
        assert self.replay is not None
        mark = beside(self.replay.recorded.marks, self.replay.player.at, step)
        if mark is not None:
            self._seek(mark.at)

    def _ask_where(self) -> None:
        self.filter_bar.open("", self._answered, asks="14:30:05, step 1200, +10m, 2h, end · enter goes there")

    def _answered(self, text: str) -> None:
        """Go where somebody has typed.

        :raises CockpitError: it means nothing
        """
        if text.strip() and self.replay is not None:
            player = self.replay.player
            place_of(text, player.begin, player.at, player.end)
            self.run_worker(self._go_to(text), group="go to", exclusive=True)

    async def _go_to(self, text: str) -> None:
        assert self.replay is not None
        player = self.replay.player
        try:
            at = await self.replay.recorded.at(place_of(text, player.begin, player.at, player.end))
        except CockpitError as error:
            self.app.complain(error)
            return
        self._seek(at)

    @on(ReplayBar.Sought)
    def _sought(self, event: ReplayBar.Sought) -> None:
        if self.replay is not None:
            player = self.replay.player
            self._seek(player.begin + event.share * (player.end - player.begin))

    def _seek(self, at: float) -> None:
        assert self.replay is not None
        self.replay.player.seek(at)
        self._show()

    def show_end(self) -> None:
        """Show all that is known, as for whoever asks how the run ended."""
        if self.replay is not None:
            self.replay.player.pause()
            self.replay.player.seek(self.replay.player.end)
            self.replay.show()

    # Drawing

    def _tick(self) -> None:
        replay = self.replay
        if replay is not None and replay.player.plays and self.app.holds(self):
            if self._drawing.frozen:
                replay.player.hold(time.monotonic())
            else:
                replay.player.tick(time.monotonic())
                self._show(whole=False)
        super()._tick()

    def _show(self, *, whole: bool = True) -> None:
        """Show the moment at which the player is.

        :param whole: draw all of it at once; else what ages is drawn with the next slow tick
        """
        assert self.replay is not None
        if self.replay.show():
            self._log.rewind()
        elif whole:
            self._log.refresh_log()
        if not self._settles and not self.replay.settled:
            self._settles = True
            self.run_worker(self._settle(), group="settle")
        if whole:
            self._slow_tick()
        self._draw_bar()

    async def _settle(self) -> None:
        """Read the rest of the moment that is shown, until that is all of it."""
        replay = self.replay
        assert replay is not None
        try:
            while not replay.settled and self.app.holds(self):
                began = time.monotonic()
                await replay.settle()
                if not replay.player.plays:
                    self._slow_tick()
                    continue
                await _rest(began)
        except CockpitError as error:
            self.app.complain(error)
        finally:
            self._settles = False
            self._draw_bar()

    def _draw_bar(self) -> None:
        replay = self.replay
        if replay is None or not self.app.holds(self):
            return
        player = replay.player
        self.query_one(ReplayBar).show(
            Track(
                player.begin,
                player.end,
                player.at,
                player.speed,
                player.plays,
                replay.recorded.marks,
                replay.distance_s,
                busy=self._settles and not player.plays,
            )
        )

    def ask_to_leave(self) -> None:
        """Nothing depends on who looks at a recorded run."""
        self.app.leave()


async def _rest(began: float) -> None:
    """Reading takes at most half of the time."""
    took = time.monotonic() - began
    await asyncio.sleep(max(SETTLE_S, took))
