"""What the run's screen asks before it does something grave."""

from __future__ import annotations

import time

from cockpit.core.ranks import nodes_text, ranks_text
from cockpit.core.run.model import LIVE, RunModel
from cockpit.tui.panes.dialogs import Answer, Question


def stop_question(run: str, model: RunModel) -> Question:
    """Whether to ``stop`` the run, or to ``kill`` one that is being stopped already."""
    nodes = [node.name for node in model.nodes.values() if not node.over]
    alive = [rank.rank for rank in model.ranks.values() if rank.node in nodes and rank.state in LIVE]
    lines = [
        f"run    {run}",
        f"nodes  {nodes_text(nodes)}",
        f"ranks  {ranks_text(alive) or 'none is running'}",
        "",
        "stop: SIGTERM, time to end, time for a profiler to write its report, then SIGKILL.",
    ]
    answers = [Answer("stay", "stay", "n"), Answer("stop", "stop the run", "s", grave=True)]
    if model.stop_reason:
        lines.append("It was asked to stop already. Killing loses a profiler's report.")
        answers.append(Answer("kill", "kill it now", "k", grave=True))
    return Question("stop this run?", lines, answers)


def keep_question(stops_at: float | None) -> Question:
    """Whether to ``keep`` the other ranks running.

    :param stops_at: when the failure policy stops them, unix seconds
    """
    when = time.strftime("%H:%M:%S", time.localtime(stops_at))
    lines = [f"Otherwise they are stopped at {when}, since a rank has failed."]
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
