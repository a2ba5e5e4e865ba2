"""What the probe of a rank can do, in words."""

from __future__ import annotations

from cockpit.core.run.states import LIVE, Node, Rank, RankState

RECORDERS = frozenset(("fr_trace_json", "dump_nccl_trace_json"))
"""Handlers of torch's server that tell what its flight recorder has."""


def probe_state(node: Node, rank: Rank) -> tuple[str, str]:
    """``on``, ``off`` or ``waiting``, and why it is not simply on; two empty texts if nobody knows."""
    if not node.probe:
        return "", ""
    if node.probe == "off":
        return "off", "the run was started with --probe off"
    said = rank.probe
    if said is None:
        live = rank.state in LIVE
        if live:
            return "waiting", "torch not reported as imported yet"
        return "off", "the rank ended before torch was reported as imported"
    lacks = {"no recorder": said.server, "no steps": said.steps}
    told = [f"{what}: {why}" for what, why in lacks.items() if why]
    state = "off" if len(told) == len(lacks) else "on"
    if said.phases and not said.steps:
        told.append(f"no phases: {said.phases}")
    if said.window:
        told.append(f"no window of nsys: {said.window}")
    return state, "; ".join(told)


def probe_text(node: Node, rank: Rank) -> str:
    """The same in one sentence; empty if nobody knows."""
    state, why = probe_state(node, rank)
    if state == "waiting":
        return "waiting for torch to be imported"
    return f"{state}: {why}" if why else state


def has_recorder(rank: Rank) -> bool:
    """Whether a rank that runs has a server that tells what its flight recorder has."""
    said = rank.probe
    return (
        rank.state is RankState.RUNNING
        and said is not None
        and not said.server
        and not RECORDERS.isdisjoint(said.handlers)
    )
