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
    if said is None or is_importing(rank):
        if rank.state in LIVE:
            return "waiting", "torch not reported as imported yet" if said is None else "importing torch"
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
        return why if rank.probe is not None else "waiting for torch to be imported"
    return f"{state}: {why}" if why else state


def is_importing(rank: Rank) -> bool:
    """Whether a rank has begun to import torch, and has not been heard to have done so."""
    said = rank.probe
    return said is not None and not (said.torch or said.server or said.steps)


def notes_steps(rank: Rank) -> bool:
    """Whether the probe of a rank notes its steps, once there are any."""
    return rank.probe is not None and not rank.probe.steps and not is_importing(rank)


def has_recorder(rank: Rank) -> bool:
    """Whether a rank that runs has a server that tells what its flight recorder has."""
    said = rank.probe
    return (
        rank.state is RankState.RUNNING
        and said is not None
        and not said.server
        and not RECORDERS.isdisjoint(said.handlers)
    )
