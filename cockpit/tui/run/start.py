"""Until the run is launched: which nodes answered, host keys, errors with what to type."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from rich.text import Text
from textual import getters
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.screen import Screen
from textual.widgets import Static
from textual.worker import Worker, WorkerError, WorkerState

from cockpit.core.text import one_line
from cockpit.engine.links.roll import Roll
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.board import Board
from cockpit.engine.run.session import Session
from cockpit.errors import CockpitError, ManyErrors
from cockpit.transport.base import UnknownHostKey
from cockpit.tui.base_app import BaseApp
from cockpit.tui.error_reporting import explained
from cockpit.tui.panes.dialogs import Answer, Question
from cockpit.tui.run.purpose import Flight, Replaying
from cockpit.tui.run.screen import RunScreen

if TYPE_CHECKING:
    from cockpit.engine.launch.preflight import Diagnosis

SLOW_S = 1.5
"""After this long, the screen says which nodes it is waiting for, and for what."""


class StartScreen(Screen[None]):
    """Shows the progress of a start, and turns into the run's screen.

    :param flight: what to start
    """

    DEFAULT_CSS = """
    StartScreen { align: center middle; background: $background; }
    StartScreen > Vertical {
        width: 84; max-width: 98%; height: auto; max-height: 96%;
        border: round $panel-lighten-2; background: $surface; padding: 1 2;
        border-title-color: $key; border-title-style: bold; border-subtitle-color: $dim;
    }
    StartScreen > Vertical.-failed { border: round $rank-failed; border-title-color: $rank-failed; }
    StartScreen VerticalScroll { height: auto; max-height: 24; }
    """

    app = getters.app(BaseApp)

    def __init__(self, flight: Flight) -> None:
        super().__init__()
        self._flight = flight
        self._began = monotonic()
        self._stage = "connecting"
        self._roll = Roll(flight.nodes)
        self._notes: list[str] = []
        self._found: list[str] = []
        self._board: Board | None = None
        self._taking_off: asyncio.Task[Session] | None = None
        self._asked: Question | None = None  # whether to quit
        self.error: CockpitError | None = None
        """Why the start failed."""

    def compose(self) -> ComposeResult:
        with Vertical() as box, VerticalScroll():
            yield Static("", id="what", markup=False)
        box.border_title = " cockpit "

    def on_mount(self) -> None:
        self._launch()
        self.set_interval(0.2, self._draw)

    def _launch(self) -> None:
        self.error = self.app.error = None
        self._began = monotonic()
        self.query_one(Vertical).remove_class("-failed")
        self._worker = self.run_worker(self._started(), group="start", exit_on_error=False, name="start")
        self._draw()

    def take_off(self) -> asyncio.Task[Session]:
        """Start before the screen is shown; once it is shown, this task is what it waits for."""
        self._taking_off = asyncio.create_task(self._flight.take_off(self))
        return self._taking_off

    async def _started(self) -> Session:
        under_way, self._taking_off = self._taking_off, None
        return await (under_way or self._flight.take_off(self))

    def arrived(self, session: Session) -> RunScreen:
        """The run's screen, now that there is a session."""
        assert self._board is not None
        self.app.session = session
        if session.model.done or session.folder.bundled or isinstance(self._flight, Replaying):
            from cockpit.tui.run.replay_screen import ReplayScreen  # whoever watches a live run does without

            return ReplayScreen(self._board, session, self._flight, self._notes)
        return RunScreen(self._board, session, self._flight, self._notes)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        worker = event.worker
        if worker.name != "start":
            return
        if event.state is WorkerState.SUCCESS and worker.result is not None:
            if self._asked is not None and self._asked.is_current:
                self._asked.action_safe()  # there is no start left to undo
            self.app.switch_screen(self.arrived(worker.result))
        elif event.state is WorkerState.CANCELLED:
            self.app.exit(130)
        elif event.state is WorkerState.ERROR:
            assert worker.error is not None
            self.error = self.app.error = explained(worker.error)
            self._draw()

    # The stages of a start

    def connecting(self, roll: Roll) -> None:
        """Links are being opened."""
        self._roll = roll
        self._stage = "connecting"

    async def trusts(self, keys: Sequence[UnknownHostKey]) -> bool:
        """One question for all nodes whose host key is unknown."""
        lines = [
            "Nobody has logged in to these machines from here yet.",
            "Compare the fingerprints with what your admin says, or with `ssh-keygen -lf` on the node:",
            "",
            *(f"  {key.where:<16} {key.key.split()[0]:<20} {key.fingerprint}" for key in keys),
            "",
            f"Trusted keys go to {keys[0].file}, as with ssh.",
        ]
        answers = (Answer("no", "no, stop here", "n"), Answer("yes", "trust all of them", "y", grave=True))
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def take(given: str | None) -> None:
            if not answer.done():
                answer.set_result(given or "no")

        question = "host key is not known" if len(keys) == 1 else f"{len(keys)} host keys are not known"
        self.app.push_screen(Question(question, lines, answers), take)
        return await answer == "yes"

    def ready(self, notes: Sequence[str], preflight: Diagnosis) -> None:
        """All nodes are fit."""
        from cockpit.core.doctor.diagnosis import told  # not when a run is joined

        self._found = told(preflight.findings)
        self._notes = list(notes)
        if self._found:
            more = len(preflight.findings) - 1
            these = f"{self._found[0]}{f', and {more} more' if more else ''}"
            self._notes.append(f"{these}; {self.app.key_of('doctor')} shows what to do")
        self._stage = "launching"

    def listener(self, folder: RunFolder) -> Board:
        """The board of the run."""
        self._board = Board(folder)
        return self._board

    # Drawing

    def _draw(self) -> None:
        if not self.app.holds(self):
            return
        box = self.query_one(Vertical)
        what = self.query_one("#what", Static)
        if self.error is not None:
            box.add_class("-failed")
            box.border_title = " cannot start "
            box.border_subtitle = " enter try again · q quit "
            error = self.error
            what.update(_errors(error.errors if isinstance(error, ManyErrors) else [error]))
            return
        roll = self._roll
        elapsed = monotonic() - self._began
        text = Text()
        text.append(self._flight.name, style="bold")
        text.append(f"\n\n{self._stage}", style="bold")
        text.append(f" · {roll.counts()} · {elapsed:.0f} s\n")
        for line in self._found:
            text.append("\n").append(one_line(line, limit=300))
        if roll.failed:
            text.append("\n")
            text.append_text(_errors(list(roll.failed.values())))
        if roll.awaited and elapsed > SLOW_S:
            text.append("\nno answer yet:\n", style="bold")
            for line in roll.silent():
                text.append("  ").append(one_line(line, limit=600)).append("\n")
            text.append("Nothing starts until all nodes have answered.\n", style="italic")
        what.update(text)
        box.border_title = " cockpit "
        box.border_subtitle = " q quit "

    def key_q(self) -> None:
        """Quit; if that undoes what was launched, ask first."""
        if self._under_way and self._flight.launches:
            lines = ["Quitting stops whatever has been launched on the nodes so far."]
            answers = (
                Answer("go-on", "keep starting", "k"),
                Answer("quit", "stop it and quit", "s", grave=True),
            )
            self._asked = Question(f"quit while {self._flight.name} is starting?", lines, answers)
            self.app.push_screen(self._asked, self._answered)
        else:
            self._quit()

    @property
    def _under_way(self) -> bool:
        return self._worker.is_running and not self._worker.is_cancelled

    def _answered(self, answer: str | None) -> None:
        if answer == "quit":
            self._quit()

    def _quit(self) -> None:
        if self._under_way:
            self._stage = "undoing the launch"
            self._worker.cancel()
        else:
            self.app.exit(int(self.error.code) if self.error else 130)

    async def take_back(self) -> None:
        """End a start in progress; what was launched is ended with it."""
        self._stage = "undoing the launch"
        self._worker.cancel()
        with suppress(WorkerError):
            await self._worker.wait()

    def key_enter(self) -> None:
        """Try again after an error. No letter does this: what is typed for something else starts nothing."""
        if self.error is not None:
            self._launch()


def _errors(errors: Sequence[CockpitError]) -> Text:
    """Every error as cause and what to type next, in two lines."""
    text = Text()
    for one in errors:
        if one.where:
            text.append(one_line(f"{one.where}: "), style="bold")
        text.append(one_line(one.what, limit=600))
        if one.hint:
            text.append(f"\n  → {one_line(one.hint, limit=300)}", style="italic")
        text.append("\n")
    return text
