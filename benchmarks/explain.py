"""``cockpit explain``: what a healthy console costs, with all rules on, against one literal in grep."""

from __future__ import annotations

import random
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.table import Figure, Result
from benchmarks.table import Level as Measured
from cockpit.core.explain.console import Console
from cockpit.core.explain.gate import Gate
from cockpit.core.rules.table import table
from tests.logs.corpus import samples

SIZE = 32 << 20
ROUNDS = 5
BLOCK = 1 << 20
SPEED = "40 MB/s a core"


def run(size: int = SIZE, rounds: int = ROUNDS) -> Result:
    """Measure; needs nothing."""
    data = healthy(size)
    gate = Gate(table())
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "console.log"
        path.write_bytes(data)
        for _ in range(rounds):
            begun = time.process_time()
            console = Console(gate)
            for at in range(0, size, BLOCK):
                console.feed(data[at : at + BLOCK])
            console.finish()
            ours.append(time.process_time() - begun)
            begun = time.perf_counter()
            subprocess.run(["grep", "-c", "Traceback (most", path], stdout=subprocess.PIPE, check=False)
            theirs.append(time.perf_counter() - begun)
    figures = [Figure("CPU of reading it, against grep -c of one literal", ours, theirs, "s")]
    each = [1000 * seconds / (size / 1e6) for seconds in ours]
    level = Measured(f"a MB of a healthy console, all rules on ({SPEED})", each, "ms", 25, "fewer hints")
    return Result(
        "explain",
        f"{size >> 20} MiB of a healthy console of 8 ranks, with {len(table().rows)} rules",
        {"cockpit": "Console.feed in blocks of 1 MiB, one process", "grep": "grep -c 'Traceback (most' FILE"},
        figures,
        levels=[level],
        notes=["The console: steps, NCCL INFO, bars, savings, and 1 % of the samples of healthy logs."],
    )


def healthy(size: int, seed: int = 27) -> bytes:
    """A console of 8 ranks in which nothing fails."""
    rng = random.Random(seed)
    talk = [sample.text.split(b"\n") for sample in samples("healthy")]
    lines: list[bytes] = []
    length = step = 0
    while length < size:
        step += 1
        for rank in range(8):
            more = _said(rng, rank, step, talk)
            lines += more
            length += sum(map(len, more)) + len(more)
    return b"\n".join(lines)[: size - 1] + b"\n"


def _said(rng: random.Random, rank: int, step: int, talk: list[list[bytes]]) -> list[bytes]:
    kind = rng.random()
    if kind < 0.72:
        numbers = step, rng.random(), rng.random(), 1e5 * rng.random()
        line = b"step %d/50000 | loss %.4f | grad_norm %.3f | %.1f tokens/s | mem 61.2 GB" % numbers
        clock = b"[2026-11-20 03:%02d:%02d,123]" % (step // 60 % 60, step % 60)
        return [b"[rank%d]: %s [INFO] %s" % (rank, clock, line)]
    if kind < 0.84:
        other = (rank + 1) % 8
        way = b"%d[%d] -> %d[%d] via P2P/CUMEM/read" % (rank, rank, other, other)
        return [b"gpu01:%d:%d [%d] NCCL INFO Channel %02d/0 : %s" % (4000 + rank, 5000, rank, step % 24, way)]
    if kind < 0.92:
        done = step % 5000, step % 60
        return [b"\rEpoch %d: %d%%|####      | %d/5000 [01:%02d<03:12, 21.3it/s]" % (7, step % 100, *done)]
    if kind < 0.99:
        place = b"/scratch/ada/run-7/step_%d/model-%05d-of-00016.safetensors" % (step, rank)
        return [b"[rank%d]: 2026-11-20 03:00:00,123 - trainer.py:188 - INFO - saved %s" % (rank, place)]
    return rng.choice(talk)[:30]
