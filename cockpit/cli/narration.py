"""What a person is told beside the output of the ranks: one line an event, on stderr, and the summary."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from cockpit.core.events import Event
from cockpit.core.model import Rank, RankState, RunModel
from cockpit.core.ranks import nodes_text, ranks_text
from cockpit.core.text import sanitise


def say(text: str) -> None:
    """One line of narration, on stderr; remote text in it is made harmless."""
    line = sanitise(text.encode(errors="surrogateescape"), colour=False, limit=2000)
    print(f"cockpit: {line}", file=sys.stderr, flush=True)


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
        elif event.kind == "stage":
            say(f"{node}: {STAGES.get(str(data.get('stage')), str(data.get('stage')))}")
        elif event.kind == "report" and data.get("state") != "ready":
            say(f"{node}: report {data.get('name', '')}: {data.get('state')} {_report_text(data)}")
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
        first = self.model.first_failure()
        if first is not None and first.rank == number and "failed" not in self._told:
            self._told.add("failed")
            say(f"rank {number} on {rank.node} {rank.text}: the first to fail")


STAGES = {
    "term": "asked its ranks to end (SIGTERM)",
    "finalising": "its ranks have ended; the profiler writes its report",
    "kill": "killing what is left (SIGKILL)",
    "sweep": "ending left-over processes of the run",
}


def _report_text(data: Mapping[str, Any]) -> str:
    size = data.get("size")
    return (
        f"{int(size) / 1e6:.1f} MB so far"
        if data.get("state") == "writing" and size
        else str(data.get("text", ""))
    )


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
