"""Look at many nodes as the doctor does: until the last finding, and what it costs them."""

from __future__ import annotations

from statistics import median

from benchmarks.measure import client
from benchmarks.table import Level, Result
from tests.lab.lab import Lab

NODES = 64
ROUNDS = 2
AIM_S, NODE_S = 10, 0.2


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


_CODE = "byte code in place of sources where the node has the same Python (docs/decisions.md)"
_MISSING = (
    "cores of the nodes' own: each of them starts a Python, a login shell and a Python of the ranks, "
    "and here they all do so on the same cores."
)
