"""A report fetched and verified, against ``scp`` and ``sha256sum`` at both ends."""

from __future__ import annotations

import os
import time

from benchmarks.measure import check, client, fake_run, fill, interleave, timed
from benchmarks.table import Figure, Result
from tests.lab.lab import Lab

SIZE = 1 << 30
ROUNDS = 3


def run() -> Result:
    """Measure; needs the lab."""
    with Lab(nodes=1) as lab:
        node = lab.nodes[0]
        folder = "/tmp/bench/collect"
        report = f"{folder}/reports/report.nsys-rep"
        digest = fill(lab, fake_run(lab, node, folder) / os.path.relpath(report, folder), SIZE)

        def ours() -> float:
            cost = client(lab, "collect", node, folder, f"/tmp/reports-{time.monotonic_ns()}")
            check(lab.node_path(None, cost.said["file"]), digest)
            return cost.wall

        def theirs() -> float:
            copy = f"/tmp/copy-{time.monotonic_ns()}"
            steps = f"scp -q {node}:{report} {copy} && ssh {node} sha256sum {report} && sha256sum {copy}"
            cost = timed(lab, ["sh", "-c", steps])
            check(lab.node_path(None, copy), digest)
            return cost.wall

        walls = interleave({"cockpit": ours, "scp": theirs}, ROUNDS)
    ours_, theirs_ = ([SIZE / 1e6 / wall for wall in each] for each in walls.values())
    return Result(
        "collect",
        "1 GiB of a profiler's report, here and verified",
        {
            "cockpit": "engine.collect: fetch, hash both sides, rename; a fresh Python, link included",
            "scp": "scp -q NODE:FILE COPY && ssh NODE sha256sum FILE && sha256sum COPY",
        },
        [Figure("bytes/s, whole command", ours_, theirs_, "MB/s", 1.0, True, _SLOW)],
        notes=["Both ends' files are in memory."],
    )


_SLOW = "larger and fewer frames, and hashing in a thread of its own."
