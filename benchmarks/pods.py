"""Pods by ``kubectl exec``, against kubectl itself: connecting, a round trip, a long log.

Needs the cluster of ``make k8s`` (:mod:`tests.kube.cluster`), up.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import FOLDER, BenchmarkError, Cost, check, interleave, run_files, timed_here
from benchmarks.table import Figure, Level, Result
from tests.kube.cluster import cluster
from tests.kube.real import pods

SIZES = (3, 16)
SIZE = 100 << 20
ROUNDS = 5
LOG_ROUNDS = 3
_LINES = """
import os, sys
made = b"".join(os.urandom(48).hex().encode() + b"\\n" for _ in range(10000))
os.makedirs("/tmp/bench")
with open("/tmp/bench/rank-0.log", "wb") as file:
    while file.tell() < %d:
        file.write(made)
os.execvp("sh", ["sh", "-c", "cat /tmp/bench/rank-0.log; touch /tmp/done; exec sleep infinity"])
"""


def unavailable() -> str | None:
    """Why this machine cannot measure it, or None if it can."""
    if cluster.running() is None:
        return "the cluster is not up; type: python -m tests.kube.cluster up"
    return None


def run() -> Result:
    """Measure; needs the cluster."""
    figures: list[Figure] = []
    trips: list[float] = []
    for size in SIZES:
        idle = pods.Object(pods.stateful(f"bench{size}", size, spread=False))
        try:
            idle.create()
            names = idle.running()
            sides: dict[str, Callable[[], Cost]] = {
                "ours": partial(_client, idle.word, "connect", *names),
                "theirs": _each(names),
            }
            interleave(sides, 1)  # files into the cache
            costs = interleave(sides, ROUNDS)
            if size == SIZES[0]:
                trips = [
                    1000 * float(_client(idle.word, "trips", names[0]).said["seconds"]) for _ in range(ROUNDS)
                ]
        finally:
            idle.delete()
        for what, attribute in (("wall", "wall"), ("client CPU", "cpu")):
            ours, theirs = ([getattr(cost, attribute) for cost in costs[side]] for side in sides)
            figures.append(Figure(f"{size} pods, an agent and its first answer: {what}", ours, theirs))
    rates = _logs()
    figures.append(Figure(f"{SIZE >> 20} MiB of a log, bytes/s", rates["ours"], rates["theirs"], "MB/s"))
    return Result(
        "pods",
        "pods of a Kubernetes job (cockpit) against kubectl alone (other)",
        {
            "cockpit": "Reach('kubectl'): one question for all pods, then a kubectl exec -i for each; a log "
            "from its file in the pod",
            "kubectl": "kubectl exec POD -- true for each pod, side by side; kubectl logs POD",
        },
        figures,
        [Level("a round trip, median of 300", trips, "ms")],
        notes=[
            "Kubernetes 1.20.2, three nodes; control plane, nodes and client share the cores.",
            "A client's CPU is that of its whole process tree, the kubectls included.",
        ],
    )


def _client(pods_of: str, *words: str) -> Cost:
    reach = json.dumps(["kubectl", {"context": "dev", "pods": pods_of}])
    env = {**cluster.environment(), "PYTHONPATH": str(FOLDER.parent), "BENCH_REACH": reach}
    with tempfile.TemporaryDirectory(prefix="cockpit-bench-") as state:
        argv = [sys.executable, "-m", "benchmarks.client", *words]
        cost = timed_here(argv, {**env, "XDG_STATE_HOME": state})
        if "file" in cost.said:  # it goes with the folder
            check(Path(cost.said["file"]), _digest())
        return cost


def _digest() -> str:
    return pods.asked("exec", "talks", "--", "sha256sum", "/tmp/bench/rank-0.log").split()[0]


def _each(names: list[str]) -> Callable[[], Cost]:
    """What a person types to reach all pods: kubectl for each, side by side."""
    line = "".join(f"kubectl --context=dev exec {name} -- true & " for name in names) + "wait"
    return lambda: timed_here(["sh", "-c", line], cluster.environment())


def _logs() -> dict[str, list[float]]:
    made: dict[str, Any] = pods.pod("talks", [sys.executable, "-c", _LINES % SIZE])
    talks = pods.Object(made)
    try:
        talks.create()
        talks.running()
        cluster.until("the log", lambda: not _exec("test", "-e", "/tmp/done"))
        boot_id = _exec_said("cat", "/proc/sys/kernel/random/boot_id").strip()
        ticks = int(_exec_said("cat", "/proc/1/stat").rpartition(")")[2].split()[19])
        for name, text in run_files("talks", boot_id, 1, ticks).items():
            done = cluster.kubectl(
                "exec", "-i", "talks", "--", "sh", "-c", f"cat >/tmp/bench/{name}", stdin=text
            )
            if done.returncode:
                raise BenchmarkError(done.stderr)
        size = int(_exec_said("stat", "-c", "%s", "/tmp/bench/rank-0.log"))
        digest = _digest()

        def ours() -> float:
            return size / 1e6 / float(_client(talks.word, "logs", "talks", "/tmp/bench").said["seconds"])

        def theirs() -> float:
            with tempfile.TemporaryDirectory(prefix="cockpit-bench-") as folder:
                output = f"{folder}/log"
                cost = timed_here(
                    ["kubectl", "--context=dev", "logs", "talks"], cluster.environment(), output
                )
                check(Path(output), digest)
            return size / 1e6 / cost.wall

        return interleave({"ours": ours, "theirs": theirs}, LOG_ROUNDS)
    finally:
        talks.delete()


def _exec(*words: str) -> int:
    return cluster.kubectl("exec", "talks", "--", *words).returncode


def _exec_said(*words: str) -> str:
    return pods.asked("exec", "talks", "--", *words)
