"""What a person is told beside the output of the ranks: one line an event, on stderr, and the summary."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from cockpit.core.events import Event
from cockpit.core.model import Rank, RankState, RunModel
from cockpit.core.ranks import nodes_text, ranks_text
from cockpit.core.text import RemoteText


def say(text: str) -> None:
    """One line of narration, on stderr; remote text in it is made harmless."""
    print(f"cockpit: {RemoteText.of(text).shown(limit=2000)}", file=sys.stderr, flush=True)


def survivor_text(node: str, process: Mapping[str, Any]) -> str:
    """One line about a process that no signal ended."""
    name, pid, state = (process.get(field) for field in ("name", "pid", "state"))
    return f"{node}: survivor: {name} (pid {pid}, state {state})"


class Narrator:
    """Tells events of one run.

    :param model: the run's model, to which an event told has been applied already
    """

    def __init__(self, model: RunModel) -> None:
        self.model = model
        self._told: set[str] = set()

    def tell(self, event: Event) -> None:
        """Say what an event means to a person, if anything."""
        data, node = event.data, event.node
        if event.kind == "link" and data["state"] != "ok":
            say(f"{node}: link lost, the run goes on; reconnecting ({data.get('why')})")
        elif event.kind == "link" and node in self._told:
            say(f"{node}: link is back")
        elif event.kind in ("rank_exited", "rank_lost"):
            self._rank_ended(int(data["rank"]))
        elif event.kind == "stop_asked":
            say(f"stopping: {data.get('reason')}")
        elif event.kind == "stop_requested" and not self.model.stop_reason:
            say(f"{node}: asked to stop by {data.get('by')}: {data.get('reason')}")
        elif event.kind == "stage":
            say(f"{node}: {STAGES.get(str(data.get('stage')), str(data.get('stage')))}")
        elif event.kind == "report" and data.get("state") != "ready":
            say(f"{node}: report {data.get('name', '')}: {_report_text(data)}")
        elif event.kind == "survivors":
            for process in data.get("procs", ()):
                say(survivor_text(node, process))
        elif event.kind in ("note", "supervisor_gone", "node_lost"):
            say(f"{node}: {data.get('text') or data.get('why') or 'its supervisor was killed'}")
        if event.kind == "link":
            self._told.add(node)

    def _rank_ended(self, number: int) -> None:
        rank = self.model.ranks.get(number)
        if rank is None or not rank.failed:
            return
        # Its place in time is settled by clocks: records of earlier failures may still come.
        first = self.model.first_failure()
        if first is not None and first.rank == number:
            say(f"rank {number} on {rank.node} {rank.text}: first failure so far")


STAGES = {
    "term": "asked its ranks to end (SIGTERM)",
    "finalising": "its ranks have ended; the profiler writes its report",
    "kill": "killing what is left (SIGKILL)",
    "sweep": "ending processes that the run left behind",
}


def _report_text(data: Mapping[str, Any]) -> str:
    size, state = int(data.get("size") or 0), data.get("state")
    if state == "writing":
        return f"being written, {size / 1e6:.1f} MB so far"
    return f"{state}: {data['text']}" if data.get("text") else str(state)


def summary(model: RunModel, run: str) -> list[str]:
    """What a person needs to know at the end, the cause first."""
    lines = []
    first = model.first_failure()
    if first is not None:
        lines.append(f"first to fail: rank {first.rank} on {first.node}, {first.text}{_moment(model, first)}")
        lines.append(f"its output: cockpit logs {run} --rank {first.rank}")
    others: dict[str, list[int]] = {}
    for rank in model.ranks.values():
        if rank is not first:
            others.setdefault(rank.text, []).append(rank.rank)
    ended = "; ".join(f"{_ranks(numbers)} {text}" for text, numbers in sorted(others.items()))
    if ended:
        lines.append(f"others: {ended}" if first else ended)
    odd = [node for node in model.nodes.values() if node.launcher_code]
    if odd and first is None and not any(rank.failed for rank in model.ranks.values()):
        words = f"{nodes_text([node.name for node in odd])}: the launcher ended with {odd[0].launcher_code}"
        lines.append(f"{words}, although its ranks exited 0: cockpit logs {run} has its words")
    lost = [node.name for node in model.nodes.values() if node.lost]
    if lost:
        lines.append(f"lost: {nodes_text(lost)}: {model.nodes[lost[0]].lost}")
    return lines


def _ranks(numbers: list[int]) -> str:
    return f"rank{'s' if len(numbers) > 1 else ''} {ranks_text(numbers)}"


def _moment(model: RunModel, rank: Rank) -> str:
    if rank.state is RankState.LOST or not rank.ended_at:
        return ""
    at = model.ended_at(rank)
    return time.strftime(" at %H:%M:%S", time.localtime(at)) + f".{int(at % 1 * 1000):03d}"
