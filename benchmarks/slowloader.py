"""Data-parallel training over gloo whose rank 1 has a slow loader, for benchmarks.

``slowloader.py FOLDER STEPS [traceml]``: when rank 0 made its first step, and when its last, in unix seconds,
is in FOLDER. With ``traceml`` it has the lines that TraceML takes.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

ROWS, WIDE = 8, 256
SLOW, USUAL = 0.01, 0.001
"""Seconds that a rank takes to read a row."""


class Rows(Dataset[torch.Tensor]):  # type: ignore[misc]
    """As slow to read as a rank's disk is."""

    def __init__(self, rows: int, seconds: float) -> None:
        self._rows, self._seconds = rows, seconds

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, row: int) -> torch.Tensor:
        time.sleep(self._seconds)
        return torch.full((WIDE,), row / self._rows)


def main(folder: Path, steps: int, traceml: Any = None) -> None:
    """Train so many steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    parts = [part for _ in range(4) for part in (torch.nn.Linear(WIDE, WIDE), torch.nn.Tanh())]
    model = DistributedDataParallel(torch.nn.Sequential(*parts))
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(Rows(ROWS * steps, SLOW if rank == 1 else USUAL), batch_size=ROWS)
    traced: Callable[[Any], Any] = traceml.trace_step if traceml else contextlib.nullcontext
    for number, x in enumerate(loader, 1):
        with traced(model):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        if rank == 0 and number in (1, steps):
            (folder / ("first" if number == 1 else "last")).write_text(str(time.time()))
    dist.barrier()


if __name__ == "__main__":
    if "traceml" in sys.argv:
        import traceml_ai  # type: ignore[import-not-found]

        traceml_ai.init(mode="auto")
        main(Path(sys.argv[1]), int(sys.argv[2]), traceml_ai)
    else:
        main(Path(sys.argv[1]), int(sys.argv[2]))
