"""Numbers as a real run has them, for pictures: they vary, and lines come one after another.

Snapshots have plainer ones: what differs in them is to be what somebody has changed. All of it is the same
each time.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

SAMPLED_S = 120
"""For how long nodes were measured before, once a second."""

STEP_S = 0.56

FIRST, LAST = 1180, 1216
"""Steps in the log."""

AGE_S = 2660.0
"""Since ranks started, where the last of these steps took 2 s."""

STOOD_S = 52.0
"""Since the last step of a run that stands still."""

FOUND = {
    "what": "rank 13 did not join all_reduce",
    "detail": "It is in read() on /data/c4/shard-00007.bin and cannot be interrupted: "
    "a disk or a network file system.",
    "evidence": [
        "63 ranks in all_reduce for 50 s, same in 2 of 2 samples, 1.0 s apart",
        "rank 13 has not moved either",
    ],
}
"""What the watch finds there: the same as the stack screen beside it."""


def name(created: float, word: str = "otter") -> str:
    """The name of a run, which begins with the time of its start."""
    return time.strftime(f"%Y%m%d-%H%M%S-{word}", time.gmtime(created))


def samples(node: str, ranks: Sequence[int], stuck: int) -> Iterator[tuple[float, dict[str, Any]]]:
    """What was measured on a node: how many seconds ago, and the fields of the event.

    :param stuck: the rank that does nothing since the run stands still; -1: none
    """
    dice = random.Random(node)
    load = dice.uniform(8.2, 10.4)
    memory = dice.uniform(292, 318)
    for ago in range(SAMPLED_S, -1, -1):
        saving = 20 <= ago % 45 < 23  # the GPUs are idle, and the pages of the file fill the memory
        load += dice.uniform(-0.25, 0.25) + (9.2 - load) / 20
        memory += 0.9 if saving else (304 - memory) / 60 + dice.uniform(-0.1, 0.1)
        node_wide = {
            "load": round(load, 2),
            "cores": 32,
            "memory_bytes": round(memory * (1 << 30)),
            "memory_total_bytes": 512 << 30,
            "disk_free_bytes": 900 << 30,
        }
        of_ranks = {
            rank: {
                "cpu_percent": round(dice.uniform(88, 101) - 30 * saving, 1),
                "rss_bytes": round((30.2 + rank % 8 * 0.13 + 0.9 * math.sin(ago / 19 + rank)) * (1 << 30)),
                "threads": 42,
                "children": 4,
            }
            for rank in ranks
        }
        gpus = [
            {
                "index": index,
                "name": "H200",
                "utilisation_percent": dice.randint(4, 20) if saving else dice.randint(91, 99),
                "memory_bytes": round((133 + index * 0.3 + dice.uniform(-1, 1)) * (1 << 30)),
                "memory_total_bytes": 140 << 30,
                "processes": {},
            }
            for index in range(len(ranks))
        ]
        if stuck in of_ranks and ago < STOOD_S:
            of_ranks[stuck]["cpu_percent"] = gpus[stuck % 8]["utilisation_percent"] = 0
        yield float(ago), {"sample": node_wide, "ranks": of_ranks, "gpus": gpus}


def steps(ago_s: float) -> Iterator[tuple[int, float, float]]:
    """Steps, how many seconds each took, and how many seconds ago it was over; the last one ``ago_s``."""
    dice = random.Random("steps")
    took = {step: STEP_S + dice.gauss(0, 0.012) for step in range(FIRST, LAST + 1)}
    left = sum(took.values()) + ago_s
    for step, span in took.items():
        left -= span
        yield step, span, left


def loss(step: int) -> float:
    """Of all ranks."""
    return 1.9 + 2.6 * math.exp(-step / 800) + random.Random(f"loss/{step}").gauss(0, 0.0025)


def said(step: int, rank: int, took_s: float, *, tokens: bool = False) -> str:
    """What a rank prints of a step that took so long; at its end tokens, or else the time."""
    own = loss(step) + random.Random(f"loss/{step}/{rank}").gauss(0, 0.003)
    lr = 3e-4 * (1 + math.cos(math.pi * step / 5000)) / 2
    text = f"step {step}/5000 loss {own:.{3 if tokens else 4}f} lr {lr:.2e}"
    if tokens:
        return f"{text} tokens/s {6_130_000 / took_s + random.Random(f'tokens/{step}').gauss(0, 2250):.0f}\n"
    return f"{text} step_time {took_s:.3f}\n"


def environ(rank: int, world: int) -> dict[str, str]:
    """What a rank was started with."""
    return {
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "LOCAL_RANK": str(rank % 8),
        "LOCAL_WORLD_SIZE": "8",
        "MASTER_ADDR": "gpu01",
        "MASTER_PORT": "29500",
        "NCCL_DEBUG": "WARN",
        "NCCL_IB_HCA": "mlx5_0,mlx5_1,mlx5_2,mlx5_3",
        "OMP_NUM_THREADS": "8",
        "PYTHONUNBUFFERED": "1",
        "RANK": str(rank),
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "WORLD_SIZE": str(world),
    }
