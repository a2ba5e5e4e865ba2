"""Runs with known differences, as their folders have them: each is that of ``tests.report.made``, changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from cockpit.core.pace.past import PastStep
from cockpit.engine.launch.code import FILE as CODE
from cockpit.engine.records.folder import RunFolder
from tests.report.made import BEGAN, STEP_S, made

HEALTHY = "20261120-010203-heron"
FAILED = "20261121-040441-otter"
DAY = 86_400.0

Loss = Callable[[int], float]


def usual(step: int) -> float:
    """A loss that falls, with a little noise that is the same in each run."""
    return 2 + 9 / step + 0.01 * (step * 7919 % 13 - 6) / 6


def ripple(step: int) -> float:
    """Seconds by which steps differ."""
    return 0.1 * (step % 5)


def run(
    name: str,
    *,
    days: float = 0.0,
    healthy: bool = True,
    program: tuple[str, ...] = ("train.py", "--lr", "0.1"),
    loss: Loss = usual,
    steps: int = 40,
    slower: float = 1.0,
    tokens: float | None = None,
    commit: str = "4f2a90c1d3e5" + "0" * 28,
    facts: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    **manifest: Any,
) -> RunFolder:
    """Write its folder.

    :param days: when it began, after :data:`BEGAN`
    :param healthy: all ranks exited 0; else rank 3 failed
    :param slower: times by which each step takes longer
    :param tokens: a second, as its log says; None: it does not
    :param facts: of each node, instead of the usual ones
    """
    folder = made(name)
    path = folder.path / "manifest.json"
    told = json.loads(path.read_text())
    told |= {"created": BEGAN + days * DAY, "program": list(program), **manifest}
    told["command"] = ["cockpit", "run", "hosts", "--name", name, "--", *program]
    for node in told["nodes"]:
        node["facts"] |= {"torch": "2.4.0", "driver": "550.54.15", **(facts or {})}
    for plan in told["plans"]:
        plan["env"] = {"NCCL_DEBUG": "INFO", "MASTER_PORT": str(hash(name) % 1000), **(env or {})}
    path.write_text(json.dumps(told))
    (folder.path / CODE).write_text(json.dumps({"commit": commit}))
    _numbers(folder, loss, steps, slower, tokens)
    if healthy:
        for file in folder.path.glob("spool/*/events.jsonl"):
            file.write_text(file.read_text().replace('"code": 1', '"code": 0'))
        (folder.path / "spool" / "0001-gpu02" / "rank-3.log").write_text("")
    return RunFolder(folder.path)


def _numbers(folder: RunFolder, loss: Loss, steps: int, slower: float, tokens: float | None) -> None:
    spool, log, times, pace = folder.path / "spool" / "0000-gpu01", b"", [], b""
    more = "" if tokens is None else f" tokens/s {tokens:.1f}"
    for step in range(1, steps + 1):
        at = BEGAN + 5 + step * STEP_S * slower
        log += f"step {step} loss {loss(step):.4f} lr 3.0e-04{more}\n".encode()
        times.append({"t": at, "s": {"rank-0.log": len(log)}})
        span = (STEP_S + ripple(step)) * slower
        pace += PastStep(
            0, step, at, 1, "", span, 1.5, 1.4, 1.5, 1, True, True, False, False, (),
            phases=(100, 300, 400, 50, 100, 50),
        ).line()  # fmt: skip
    (spool / "rank-0.log").write_bytes(log)
    (spool / "times.jsonl").write_text("".join(json.dumps(each) + "\n" for each in times))
    (folder.path / "pace.jsonl").write_bytes(pace)
