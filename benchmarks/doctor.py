"""Look at nodes as the doctor does, and as a launch does: until the last finding, and what it costs them."""

from __future__ import annotations

from statistics import median

from benchmarks.measure import client
from benchmarks.table import Level, Result
from tests.lab.lab import Lab

NODES = 64
ROUNDS = 2
FEW = 8
AIM_S, NODE_S, MORE_S = 10, 0.2, 0.1


def run() -> Result:
    """Measure; needs the lab."""
    with Lab(nodes=NODES) as lab:
        client(lab, "doctor", *lab.nodes[:2])  # files into the cache
        costs = [client(lab, "doctor", *lab.nodes) for _ in range(ROUNDS)]
        one = [client(lab, "checked") for _ in range(ROUNDS)]
    silent = max(cost.said["unreachable"] + cost.said["no_answer"] for cost in costs)
    return Result(
        "doctor",
        f"{NODES} nodes looked at, from the command to the last finding",
        {"cockpit": "examine(pool, wanted) on links of its own, close; a fresh Python with its imports"},
        levels=[
            Level(f"{NODES} nodes: wall", [cost.wall for cost in costs], "s", AIM_S, _MISSING),
            Level(f"{NODES} nodes: client CPU", [cost.cpu for cost in costs], "s"),
            Level(
                "CPU on each node, its agent included",
                [cost.said["node_s"] for cost in one],
                "s",
                NODE_S,
                _CODE,
            ),
        ],
        notes=[
            "Nodes, their sshds and the client share the cores, so wall is the sum of both ends' work.",
            f"Wall is {median(cost.wall for cost in costs) / AIM_S:.2f} of the aim.",
            f"At most {silent} nodes or checks gave no answer in time.",
        ],
    )


def preflight() -> Result:
    """Measure; needs the lab."""
    with Lab(nodes=FEW) as lab:
        client(lab, "connect", *lab.nodes)  # files into the cache
        said = [client(lab, "preflight", *lab.nodes).said for _ in range(ROUNDS)]
    sides = {side: [value for each in said for value in each[side]] for side in ("with", "without")}
    more = [a - b for a, b in zip(sides["with"], sides["without"], strict=True)]
    return Result(
        "preflight",
        f"{FEW} nodes asked before a launch, with the look at their condition and without",
        {
            "with": "prepare(job, links, …) on open links",
            "without": "prepare(job, links, …, looks=False), as with --no-preflight",
        },
        levels=[
            Level("with: wall", sides["with"], "s"),
            Level("without: wall", sides["without"], "s"),
            Level("what the look adds, round by round", more, "s", MORE_S, _SHARED),
        ],
        notes=["Both sides use the same links by turns; nodes and client share the cores."],
    )


_SHARED = "cores of the nodes' own: what they look at beside their facts is done on the same cores"
_CODE = "its login shell, two Pythons that are started, and what they import (docs/decisions.md)"
_MISSING = (
    "cores of the nodes' own: each of them starts a Python, a login shell and a Python of the ranks, "
    "and here they all do so on the same cores."
)
