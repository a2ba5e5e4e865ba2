"""Connect to many nodes and hear from each agent, against ``pdsh`` and ``clush`` running ``true``."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from benchmarks.measure import Cost, client, interleave, timed
from benchmarks.table import Figure, Result
from tests.lab.lab import Lab

SIZES = (64, 16)
ROUNDS = 5


def run(sizes: tuple[int, ...] = SIZES, rounds: int = ROUNDS) -> Result:
    """Measure; needs the lab."""
    figures: list[Figure] = []
    with Lab(nodes=max(sizes)) as lab:
        for size in sizes:
            figures += _size(lab, lab.nodes[:size], rounds)
    return Result(
        "connect",
        "an agent on every node and its first answer",
        {
            "cockpit": "LinkPool.open_all(nodes), one ping an agent, close; a fresh Python with its imports",
            "pdsh": "pdsh -R ssh -f 64 -w NODES true",
            "clush": "clush -w NODES -f 64 true",
        },
        figures,
        notes=[
            "Nodes, their sshds and the client share the cores, so wall is the sum of both ends' work.",
            *(f"{name} is not installed." for name in ("pdsh", "clush") if not shutil.which(name)),
        ],
    )


def _size(lab: Lab, nodes: list[str], rounds: int) -> list[Figure]:
    names = ",".join(nodes)
    sides: dict[str, Callable[[], Cost]] = {"cockpit": lambda: client(lab, "connect", *nodes)}
    if shutil.which("pdsh"):
        sides["pdsh"] = lambda: timed(lab, ["pdsh", "-R", "ssh", "-f", "64", "-w", names, "true"])
    if shutil.which("clush"):
        sides["clush"] = lambda: timed(lab, ["clush", "-w", names, "-f", "64", "true"])
    interleave(sides, 1)  # files into the cache
    costs = interleave(sides, rounds)
    ours = costs.pop("cockpit")
    found = []
    for name, theirs in costs.items():
        wall = [c.wall for c in ours], [c.wall for c in theirs]
        cpu = [c.cpu for c in ours], [c.cpu for c in theirs]
        what = f"{len(nodes)} nodes, against {name}"
        promised = len(nodes) == max(SIZES)
        found.append(Figure(f"{what}: wall", *wall, aim=1.0 if promised else None, missing=_WALL))
        found.append(Figure(f"{what}: client CPU", *cpu, aim=0.2 if promised else None, missing=_CPU))
    return found


_WALL = (
    "an agent that imports less before its first answer: starting one costs a node several times what "
    "`true` does, and here the nodes' work is in the wall time."
)
_CPU = (
    "less to do a node: known_hosts parsed once for all, less code sent before the first answer; about a "
    "third of a second goes into imports, whatever the number of nodes."
)
