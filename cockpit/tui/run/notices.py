"""What the run's screen says in a line: trouble, how the run ended, what is waited for, what goes on.

And what it asks before it does something grave.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cockpit.core.pace.heat import STALL
from cockpit.core.ranks import nodes_text, ranks_text
from cockpit.core.run.model import LIVE, RunModel
from cockpit.core.run.summary import endings
from cockpit.core.text import one_line
from cockpit.core.time_text import span_text
from cockpit.engine.run.board import Board
from cockpit.engine.run.session import Session
from cockpit.errors import CockpitError
from cockpit.tui.panes.dialogs import Answer, Question
from cockpit.tui.panes.key_bar import Activity

if TYPE_CHECKING:
    from cockpit.engine.collect import Collected

SHORT_STAGES = {
    "term": "stopping, SIGTERM sent",
    "finalising": "finalising the report",
    "kill": "killing what is left",
    "sweep": "sweeping",
}

BEHIND = 1_000_000
"""If more bytes of logs than this are outstanding, it is shown."""

FRESH_S = 10.0
"""Seconds since the last step in which a run certainly has not stalled; else three times the usual."""

LACKING_S = 5.0
"""Seconds that the spool may lack what has arrived here before its writer is called silent."""


class Since:
    """For how long something has been so."""

    def __init__(self) -> None:
        self._since: float | None = None

    def tell(self, so: bool, now: float) -> float | None:
        """Whether it is so now; gives the seconds that it has been, None if it is not."""
        if not so:
            self._since = None
        elif self._since is None:
            self._since = now
        return None if self._since is None else now - self._since


class Notice:
    """The line that stays: trouble here, a frozen display, how a run ended, who writes the spool if not we.

    :param keys: the key of each command, by its name
    :param recorded: the run is looked at from disk
    """

    def __init__(self, board: Board, session: Session, keys: Mapping[str, str], *, recorded: bool) -> None:
        self._board = board
        self._session = session
        self._keys = keys
        self._recorded = recorded
        self._outcome = ""
        self._lacking = Since()

    def text(self, trouble: CockpitError | None, *, frozen: bool) -> str:
        """What it says; empty if there is nothing to say.

        :param trouble: why nobody watches any more
        :param frozen: nothing else on the screen changes
        """
        if trouble is not None:
            where = f" ({trouble.where})" if trouble.where else ""
            hint = f"; {trouble.hint}" if trouble.hint else ""
            after = f" · {self._keys['retry']} tries again; the run itself is not touched"
            return one_line(f"watching paused: {trouble.what}{where}{hint}", limit=400) + after
        if frozen:
            return f"FROZEN · the display is paused, the run continues · {self._keys['freeze']} resumes"
        if self._board.moment is not None:
            go_to = self._keys["go_to"]
            return f"REPLAY · nothing here is live, no node is contacted · {go_to} goes to a moment"
        if self._recorded or self._board.model.over:
            self._outcome = self._outcome or self._tell_outcome()
            return self._outcome
        if waiting := self._session.pool.waiting:
            nodes = one_line(nodes_text(waiting), limit=200)
            return f"{nodes}: login required again · {self._keys['retry']} logs in; the run continues"
        if self._session.alone:
            return one_line(self._session.alone, limit=400)
        return "" if self._session.writer else self._reading_along()

    def _tell_outcome(self) -> str:
        """How the run ended, in one line; this no longer changes."""
        model = self._board.model
        times = [model.ended_at(rank) for rank in model.ranks.values() if rank.ended_at]
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(max(times))) if times else "some time ago"
        how = one_line(endings(model), limit=400)
        if self._recorded:
            return f"RECORDED RUN · it ended {when} · nothing here is live · {how}"
        return f"ended {when} · {how}"

    def _reading_along(self) -> str:
        """Who writes the spool instead of us, and whether it still does."""
        silent = self._lacking.tell(self._board.book.logs.lacks(), time.time())
        if silent is None or silent < LACKING_S:
            return "another cockpit controls this run: this one watches"
        who = one_line(self._board.folder.writer.held(), limit=200)
        return f"{who}, but nothing for {span_text(silent)}: is it suspended? New lines are still shown"


def waiting_text(board: Board, now: float, *, recorded: bool) -> str:
    """What the run is doing while there is no output, in lines.

    :param now: unix seconds
    """
    model = board.model
    notes = dict.fromkeys(note for node in model.nodes.values() for note in node.notes)
    if board.manifest.foreign is not None and notes:
        # Others started it, and the notes say where its output goes.
        return one_line("; ".join(notes), limit=600)
    if recorded or model.over:
        return "the run has ended"
    if board.pace.front is not None:
        return "others have printed" if board.shown.lines else "ranks make steps, but print nothing"
    age = span_text(max(0.0, now - board.manifest.created))
    return "\n".join([f"{age} after the launch:", *board.doing(now)])


def nodes_activity(board: Board, behind: int) -> Activity | None:
    """What the nodes do: how far a stop is where it is furthest, a build, logs that are on their way.

    :param behind: bytes of logs that are outstanding
    """
    # A node may say anything; only stages that we know are shown.
    nodes = [node for node in board.model.nodes.values() if not node.over]
    stages = {node.name: node.stage for node in nodes if node.stage in SHORT_STAGES}
    if stages:
        stage = max(stages.values(), key=list(SHORT_STAGES).index)
        names = [name for name, each in stages.items() if each == stage]
        return Activity(f"{nodes_text(names)}: {SHORT_STAGES[stage]}")
    if board.building:
        name, since = min(board.building.values(), key=lambda one: one[1])
        return Activity(f"building op {name}, {board.now - since:.0f} s")
    return Activity(f"{behind / 1e6:,.1f} MB of logs behind") if behind > BEHIND else None


def calm_activity(board: Board, now: float) -> Activity | None:
    """That the run goes on and no rank is slow, as far as both are known; None: it is not, or more is wrong.

    :param now: unix seconds
    """
    model, pace = board.model, board.pace
    front = pace.front
    if front is None or model.over or model.asked_to_stop or model.watch.state not in ("", "going"):
        return None
    wrong = model.first_failure() or model.notices or pace.slow() or pace.late()
    if wrong or any(node.link in ("stale", "gone") for node in model.nodes.values() if not node.over):
        return None
    if now - front[1] > max(FRESH_S, STALL * (pace.usual() or 0.0)):
        return None
    # Whole steps are alike on all ranks, whoever is slow; if ranks wait a lot, somebody lets them.
    alike = pace.works and not pace.lags and ((by := pace.bound()) is None or by.word != "wait-bound")
    return Activity("no stall · no slow rank" if alike else "no stall")


def collect_activity(collected: Collected) -> Activity:
    """How far the collecting of reports is."""
    total = sum(report.size for report in collected.reports)
    here = sum(min(report.here, report.size) for report in collected.reports)
    under_way = [report.node for report in collected.reports if report.state == "fetching"]
    text = f"collecting {nodes_text(under_way)}" if under_way else "collecting"
    return Activity(text, here / total if total else None)


def collected_text(collected: Collected) -> tuple[str, Sequence[str]]:
    """What was collected, and what could not be."""
    here = [report for report in collected.reports if report.state == "collected"]
    size = sum(report.size for report in here) / 1e6
    problems = [
        f"{report.node}: {report.state} {report.why}" for report in collected.reports if report not in here
    ]
    problems += [f"{node}: no report: {why}" for node, why in collected.missing.items()]
    return f"{len(here)} reports, {size:,.1f} MB, verified: {collected.folder}", problems


def stop_question(run: str, model: RunModel, *, controls: bool = True) -> Question:
    """Whether to ``stop`` the run, or to ``kill`` one that is being stopped already.

    :param controls: whether this cockpit controls it; another one may
    """
    nodes = [node.name for node in model.nodes.values() if not node.over]
    alive = [rank.rank for rank in model.ranks.values() if rank.node in nodes and rank.state in LIVE]
    lines = [
        f"run    {run}",
        f"nodes  {nodes_text(nodes)}",
        f"ranks  {ranks_text(alive) or 'none is running'}",
        "",
        "stop: SIGTERM, time to end, time for a profiler to write its report, then SIGKILL.",
    ]
    if not controls:
        lines.append("Another cockpit controls the run; it is stopped all the same.")
    answers = [Answer("stay", "stay", "n"), Answer("stop", "stop the run", "s", grave=True)]
    if model.asked_to_stop:
        lines.append("It was already asked to stop. Killing it loses a profiler's report.")
        answers.append(Answer("kill", "kill it now", "k", grave=True))
    return Question("stop this run?", lines, answers)


def keep_question(stops_at: float | None) -> Question:
    """Whether to ``keep`` the other ranks running.

    :param stops_at: when the failure policy stops them, unix seconds
    """
    when = time.strftime("%H:%M:%S", time.localtime(stops_at))
    lines = [f"Otherwise they are stopped at {when}, since a rank failed."]
    answers = [Answer("no", "no", "n"), Answer("keep", "keep them running", "k", grave=True)]
    return Question("keep the other ranks running?", lines, answers)


def leave_question(leaving: str, *, may_stop: bool) -> Question:
    """Whether to ``leave``, or to ``stop`` the run.

    :param leaving: what leaving does to the run
    """
    answers = [Answer("stay", "stay", "c"), Answer("leave", "leave", "l")]
    title = "leave or stay?"
    if may_stop:
        answers.append(Answer("stop", "stop the run …", "s"))
        title = "leave, stop or stay?"
    return Question(title, [f"Leaving: {leaving}."], answers)
