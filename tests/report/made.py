"""A run that failed in the night, as its folder has it: two nodes, four ranks, secrets where they may be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cockpit.base.events import Complete
from cockpit.core.pace.past import Apart, PastStep
from cockpit.core.run.events import Event
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry

BEGAN = 1_795_233_881.0
STEPS, STEP_S = 40, 2.0
RUN = "20261121-040441-otter"
NODES = ("gpu01", "gpu02")
TREE = """diff --git a/train.py b/train.py
index 3f2a91c..9d1e0b7 100644
--- a/train.py
+++ b/train.py
@@ -1,3 +1,4 @@ def main():
     model = build()
-    lr = 0.1
+    lr = 0.2
+    steps = 40
     train(model, lr)
"""
"""What tracked files differ from a commit by, as git says it."""
TOKEN = "hf_aBcDeFgHiJkLmNoPqRsTuVwX"
HOSTILE = '<script src="https://evil.example/x.js">alert(1)</script><img src=x onerror=y>&lt;b&gt;\x1b[31m'
LAST = f"FileNotFoundError: [Errno 2] No such file or directory: '/data/{HOSTILE}.bin'"


def loss(step: int) -> float:
    """What rank 0 prints; a spike in between."""
    return 50.0 if step == 17 else 2 + 9 / step


def made(name: str = RUN, *, over: bool = True, hostile: str = HOSTILE) -> RunFolder:
    """Write its folder.

    :param over: whether its nodes have ended; else it goes on, and nobody has failed
    :param hostile: what a rank prints in its last words
    """
    env = {"NCCL_DEBUG": "INFO", "HF_TOKEN": "(secret, 27 characters)"}
    entries = [
        NodeEntry(
            node,
            f"/tmp/{node}",
            [2 * index, 2 * index + 1],
            host=f"{node}.cluster",
            facts={
                "python_version": "3.11.9",
                "torch": f"2.{4 - index}.0",
                "packages": {"numpy": "2.1.0"},
                "installed": 412,
                "installed_hash": "3f2a91c0d2e4b5a6",
            },
        )
        for index, node in enumerate(NODES)
    ]
    plans = [
        {"node": node, "argv": ["torchrun", "--node_rank", str(index), "train.py"], "env": env}
        for index, node in enumerate(NODES)
    ]
    command = ["cockpit", "run", "hosts", "--", "train.py", "--hub-token", TOKEN]
    manifest = Manifest(
        name,
        BEGAN,
        entries,
        "torchrun",
        ["train.py"],
        "/home/ada",
        plans=plans,
        command=command,
        pythons=["/opt/python"],
        transport_options={"config": "/home/ada/.ssh/config"},
    )
    folder = RunFolder.create(manifest)
    for index, entry in enumerate(entries):
        _node(folder, entry, index, over=over, hostile=hostile)
        if over:
            folder.write(Event(BEGAN + 100, entry.name, Complete()))
    (folder.path / "pace.jsonl").write_bytes(b"".join(_step(step).line() for step in range(1, STEPS + 1)))
    folder.close()
    return RunFolder(folder.path)


def _step(step: int) -> PastStep:
    """A step as the ranks noted it; rank 1 is slow in each fourth."""
    slow, span = step % 4 == 0, STEP_S + 0.1 * (step % 5)
    return PastStep(
        0, step, BEGAN + 5 + step * STEP_S, 1, "", span, 1.5, 1.4, 2.0 if slow else 1.5, 1, True, True, False,
        False, (Apart(1, 0.33),) if slow else (), phases=(100, 300, 400, 50, 100, 50),
    )  # fmt: skip


def _node(folder: RunFolder, entry: NodeEntry, index: int, *, over: bool, hostile: str) -> None:
    spool = folder.spool_dir(entry)
    spool.mkdir(parents=True)
    end = BEGAN + 5 + STEPS * STEP_S
    events: list[dict[str, Any]] = [
        {"t": BEGAN + 1, "e": "supervisor_started", "pid": 5, "ticks": 5, "ranks": list(entry.ranks)}
    ]
    started = {"t": BEGAN + 2, "e": "rank_started", "ticks": 7}
    events += [{**started, "rank": rank, "pid": 100 + rank} for rank in entry.ranks]
    if over:
        for rank in entry.ranks:
            code = 1 if rank == 3 else 0
            ended = {"t": end + (rank == 3), "e": "rank_exited", "rank": rank, "pid": 100 + rank}
            events.append({**ended, "code": code, "signal": None, "by": "wrapper"})
        events += [{"t": end + 2, "e": "launcher_exited", "code": index, "signal": None}]
        events += [{"t": end + 3, "e": "ended"}]
    _write(spool / "events.jsonl", events)
    log, times = b"", []
    if index == 0:
        for step in range(1, STEPS + 1):
            log += b"step %d loss %.4f lr 3.0e-04\n" % (step, loss(step))
            times.append({"t": BEGAN + 5 + step * STEP_S, "s": {"rank-0.log": len(log)}})
    (spool / f"rank-{2 * index}.log").write_bytes(log)
    if index == 1 and over:
        words = f"logging in with {TOKEN}\nTraceback (most recent call last):\n"
        words += '  File "/home/ada/train.py", line 9, in <module>\n    load(path)\n'
        words += f"FileNotFoundError: [Errno 2] No such file or directory: '/data/{hostile}.bin'\n"
        (spool / "rank-3.log").write_bytes(words.encode("utf-8", "surrogateescape"))
        times.append({"t": end + 0.5, "s": {"rank-3.log": len(words)}})
    _write(spool / "times.jsonl", times)


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
