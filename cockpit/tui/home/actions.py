"""What the home screen does with a run: again, stop, remove, compare; a look on other nodes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cockpit import paths
from cockpit.base.shell import join, quote
from cockpit.core.ranks import nodes_text
from cockpit.core.run.brief import DAMAGED, GOES_ON, NOT_STARTED, Brief
from cockpit.engine.known_runs import PATIENCE_S, KnownRuns
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.join import Pools
from cockpit.errors import CockpitError
from cockpit.tui.command_screen import CommandScreen
from cockpit.tui.home.prompts import Wanted
from cockpit.tui.home.requested_verb import Wish
from cockpit.tui.home.run_list import RunList
from cockpit.tui.panes.dialogs import Answer, Question
from cockpit.tui.panes.login import LoginDialog

if TYPE_CHECKING:
    from cockpit.engine.launch.relaunch import Again


class Deeds:
    """What is done.

    :param screen: asks, tells, and holds the workers
    :param known: the runs
    :param want: ends the app with a wish, and the run that it is about
    """

    def __init__(self, screen: CommandScreen, known: KnownRuns, want: Callable[[Wish, str], object]) -> None:
        self._screen = screen
        self._known = known
        self._want = want

    def want(self, wish: Wish, chosen: str = "") -> None:
        """End the app with a wish.

        :param chosen: the run that it is about
        """
        self._want(wish, chosen)

    def command(self, brief: Brief | None) -> str:
        """What does the same in a shell."""
        return "cockpit ps -a" if brief is None else join(["cockpit", *self.words(brief)])

    def words(self, brief: Brief) -> Sequence[str]:
        """What watches a run, or a job that has no folder here yet."""
        return self._known.elsewhere.get(brief.run) or ["attach", brief.run]

    def why_not_here(self, brief: Brief | None) -> str:
        """Why nothing is known of a run but that it runs; empty: there is a folder of it here."""
        if brief is None:
            return "no run is listed"
        return "cockpit did not start it" if brief.run in self._known.elsewhere else ""

    # Again

    def again(self, brief: Brief) -> None:
        """Show what would be started, and ask."""
        from cockpit.engine.launch.relaunch import again

        try:
            found = again(RunFolder(paths.runs() / brief.run).manifest, os.environ)
        except CockpitError as error:
            self._screen.app.complain(error)
            return
        lines = [
            join(["cockpit", *found.words]),
            "",
            f"in      {found.cwd}",
            f"nodes   {nodes_text(brief.nodes)}",
        ]
        lines += ["", *found.notes]
        answers = [Answer("no", "no", "n"), Answer("start", "start it", "s", grave=True)]

        def take(answer: str | None) -> None:
            if answer == "start":
                self._ask_secrets(found, brief.run)

        self._screen.app.push_screen(Question(f"run {brief.run} again?", lines, answers), take)

    def _ask_secrets(self, found: Again, run: str) -> None:
        def take(values: Sequence[str] | None) -> None:
            if values is not None:
                env = {**found.env, **dict(zip(found.secrets, values, strict=True))}
                self.want(Wish(found.words, found.cwd, env), run)

        if not found.secrets:
            take(())
            return
        about = ("Not saved with the run. Passed to the ranks, never written to disk.",)
        asked = Wanted("secrets of the run", about, found.secrets, "start")
        self._screen.app.push_screen(LoginDialog(asked), take)

    # Stop

    def why_not_stop(self, brief: Brief | None) -> str:
        """Why a run cannot be stopped; empty: it can."""
        if brief is None:
            return "no run is listed"
        if brief.over:
            return "the run has ended"
        if brief.run in self._known.elsewhere:
            return "cockpit did not start it"
        if brief.foreign:
            return f"cockpit did not start it; type: cockpit stop {quote(brief.run)} --foreign"
        return "" if brief.open else brief.state

    def stop(self, brief: Brief) -> None:
        """Ask whether to stop a run."""
        lines = [f"run    {brief.run}", f"nodes  {nodes_text(brief.nodes)}"]
        lines += [f"ranks  {brief.running} of {brief.ranks} are running", ""]
        if brief.asked is None or brief.unreachable:
            who = nodes_text(brief.unreachable) or "its nodes"
            lines.append(f"From local data: no answer from {who} yet.")
        lines.append("stop: SIGTERM, time to end, time for a profiler to write its report, then SIGKILL.")
        answers = [Answer("stay", "stay", "n"), Answer("stop", "stop the run", "s", grave=True)]

        def take(answer: str | None) -> None:
            if answer == "stop":
                self.want(Wish(["stop", brief.run], prints=True), brief.run)

        self._screen.app.push_screen(Question("stop this run?", lines, answers), take)

    # Remove

    def why_not_remove(self, brief: Brief | None) -> str:
        """Why a run cannot be removed; empty: it can."""
        if brief is None:
            return "no run is listed"
        if brief.run in self._known.elsewhere:
            return "no local data"
        if brief.over or brief.word in (DAMAGED, NOT_STARTED):
            return ""
        return "still running" if brief.word in GOES_ON else "may still be running"

    def remove(self, brief: Brief) -> None:
        """Show what a run takes here and on its nodes, and ask, as the verb does."""
        self.want(Wish(["clean", brief.run], prints=True), brief.run)

    # Compare

    def compare(self, brief: Brief) -> None:
        """Mark a run; of another one, show the two side by side."""
        runs = self._screen.query_one(RunList)
        if not runs.marked or runs.marked == brief.run:
            runs.marked = "" if runs.marked else brief.run
            if runs.marked:
                key = self._screen.app.key_of("compare_runs")
                self._screen.notify(f"{brief.run} is marked; {key} on another run compares them", timeout=4)
        else:
            pair = [RunFolder(paths.runs() / name) for name in (runs.marked, brief.run)]
            self.unmark()
            from cockpit.tui.compare.screen import CompareScreen  # a tenth of a second that few need

            self._screen.app.push_screen(CompareScreen(*sorted(pair, key=lambda each: each.created)))
        runs.rebuild()

    def unmark(self) -> None:
        """Compare nothing."""
        runs = self._screen.query_one(RunList)
        runs.marked = ""
        runs.rebuild()

    # Other nodes

    def look(self) -> None:
        """Ask for nodes, and look there for runs and jobs that are not known here."""

        def take(answer: Sequence[str] | None) -> None:
            if answer and answer[0].strip():
                self._screen.run_worker(self._look(answer[0].strip()), group="look", exclusive=True)

        about = (
            "A hostfile, or nodes as after -w: gpu[01-04],big1. Each is asked for at most "
            f"{PATIENCE_S:g} s; nothing is changed there.",
        )
        asked = Wanted("search which nodes?", about, ("HOSTFILE or NODES",), "look", echo=True)
        self._screen.app.push_screen(LoginDialog(asked), take)

    async def _look(self, text: str) -> None:
        try:
            words = shlex.split(text)
        except ValueError as error:
            self._screen.app.complain(CockpitError(f"cannot be read: {error}", where=text))
            return
        source = words if len(words) == 2 else [text] if os.path.exists(text) else ["-w", text]
        async with Pools(PATIENCE_S) as pools:
            try:
                told = await self._known.look(source, pools)
            except CockpitError as error:
                self._screen.app.complain(error)
                return
        self._screen.notify(told, timeout=8)
