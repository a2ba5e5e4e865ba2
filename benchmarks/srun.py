"""Nodes by steps of a SLURM job, against the same nodes over ssh: connecting, a round trip, a long log."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from benchmarks.measure import Cost, check, client, fake_run, fill, interleave
from benchmarks.table import Figure, Result
from tests.lab.lab import Lab
from tests.lab.slurm import Slurm

NODES = 16
SIZE = 300 << 20
ROUNDS = 5
LOG_ROUNDS = 3
_LOG = "rank-0.log"


def unavailable() -> str | None:
    """Why this machine cannot measure it, or None if it can."""
    return Lab.unavailable() or Slurm.unavailable()


def run() -> Result:
    """Measure; needs the lab and SLURM."""
    with Lab(nodes=NODES) as lab, Slurm(lab) as slurm:
        job = slurm.allocate(f"-N{NODES}")
        ways = {"srun": {**slurm.env, "BENCH_REACH": json.dumps(["srun", {"job": job}])}, "ssh": {}}
        interleave(_sides(lab, ways, "connect", *lab.nodes), 1)  # files into the cache
        costs = interleave(_sides(lab, ways, "connect", *lab.nodes), ROUNDS)
        trips = interleave(_sides(lab, ways, "trips", lab.nodes[0]), ROUNDS)
        rates = _logs(lab, ways)
    wall, cpu = (
        {way: [getattr(cost, what) for cost in costs[way]] for way in ways} for what in ("wall", "cpu")
    )
    trip = {way: [1000 * float(cost.said["seconds"]) for cost in trips[way]] for way in ways}
    return Result(
        "srun",
        "steps of a SLURM job (cockpit) against ssh (other), both by cockpit",
        {
            "cockpit": "Reach('srun', job): an srun --overlap for each node",
            "ssh": "Reach('auto'): a connection of asyncssh to each node",
        },
        [
            Figure(f"{NODES} nodes, an agent and its first answer: wall", wall["srun"], wall["ssh"]),
            Figure("the same: client CPU", cpu["srun"], cpu["ssh"]),
            Figure("a round trip, median of 300", trip["srun"], trip["ssh"], "ms"),
            Figure(f"{SIZE >> 20} MiB of a log, bytes/s", rates["srun"], rates["ssh"], "MB/s"),
        ],
        notes=[
            "SLURM 22.05.8, tracking by linuxproc; slurmctld, slurmds, sshds and the client share the cores.",
            "A client's CPU is that of its whole process tree, the sruns included.",
        ],
    )


Ways = Mapping[str, Mapping[str, str]]


def _sides(lab: Lab, ways: Ways, *words: str) -> dict[str, Callable[[], Cost]]:
    def side(env: Mapping[str, str]) -> Callable[[], Cost]:
        return lambda: client(lab, *words, env=env)

    return {name: side(env) for name, env in ways.items()}


def _logs(lab: Lab, ways: Ways) -> dict[str, list[float]]:
    node, folder = lab.nodes[0], "/tmp/bench/running"
    digest = fill(lab, fake_run(lab, node, folder, alive=True) / _LOG, SIZE)

    def rate(follow: Callable[[], Cost]) -> float:
        said = follow().said
        check(lab.node_path(None, said["file"]), digest)
        return SIZE / 1e6 / float(said["seconds"])

    def side(follow: Callable[[], Cost]) -> Callable[[], float]:
        return lambda: rate(follow)

    follows = _sides(lab, ways, "logs", node, folder)
    return interleave({name: side(follow) for name, follow in follows.items()}, LOG_ROUNDS)
