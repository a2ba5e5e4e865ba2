"""What the run's screen says in a line: trouble, how the run ended, what is waited for, what goes on."""

from __future__ import annotations

import time
from collections.abc import Sequence

from cockpit.core.ranks import nodes_text, ranks_text
from cockpit.core.run.model import RankState, RunModel
from cockpit.core.run.summary import endings
from cockpit.core.text import RemoteText
from cockpit.engine.collect import Collected
from cockpit.errors import CockpitError
from cockpit.tui.look.units import span_text
from cockpit.tui.panes.key_bar import Activity

SHORT_STAGES = {
    "term": "stopping, SIGTERM sent",
    "finalising": "finalising the report",
    "kill": "killing what is left",
    "sweep": "sweeping",
}


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


def trouble_text(trouble: CockpitError, retry: str) -> str:
    """Why nobody watches any more.

    :param retry: the key that tries again
    """
    where = f" ({trouble.where})" if trouble.where else ""
    hint = f"; {trouble.hint}" if trouble.hint else ""
    after = f" · {retry} tries again; the run itself is not touched"
    return RemoteText.of(f"watching paused: {trouble.what}{where}{hint}").shown(limit=400) + after


def silent_writer_text(writer: str, silent_s: float) -> str:
    """Who keeps the spool instead of us, and has stopped to."""
    who = RemoteText.of(writer).shown(limit=200)
    return f"{who}, but nothing for {span_text(silent_s)}: is it suspended? New lines are shown all the same"


def outcome_text(model: RunModel, *, recorded: bool, leave: str) -> str:
    """How the run ended, in one line; this no longer changes.

    :param leave: the key that closes the screen
    """
    times = [model.ended_at(rank) for rank in model.ranks.values() if rank.ended_at]
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(max(times))) if times else "some time ago"
    how = RemoteText.of(endings(model)).shown(limit=400)
    if recorded:
        return f"RECORDED RUN · it ended {when} · nothing here is live · {how}"
    return f"ended {when} · {how} · {leave} closes"


def waiting_text(model: RunModel, age_s: float, *, recorded: bool) -> str:
    """What the run is doing while there is no output.

    :param age_s: seconds since the launch
    """
    if recorded or model.over:
        return "and none will come: the run has ended"
    text = f"{span_text(max(0.0, age_s))} after the launch: "
    starting = [
        rank.rank for rank in model.ranks.values() if rank.state in (RankState.WAITING, RankState.STARTING)
    ]
    if starting:
        return f"{text}waiting for ranks {ranks_text(starting)} to start"
    children = sum(rank.sample.children or 0 for rank in model.ranks.values() if rank.sample)
    more = f", with {children} child processes" if children else "; imports may take a while"
    return f"{text}all ranks run{more}"


def stage_activity(model: RunModel) -> Activity | None:
    """How far a stop is on the nodes that are furthest."""
    # A node may say anything; only stages that we know are shown.
    stages = {
        node.name: node.stage for node in model.nodes.values() if not node.over and node.stage in SHORT_STAGES
    }
    if not stages:
        return None
    stage = max(stages.values(), key=list(SHORT_STAGES).index)
    names = [name for name, each in stages.items() if each == stage]
    return Activity(f"{nodes_text(names)}: {SHORT_STAGES[stage]}")


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
