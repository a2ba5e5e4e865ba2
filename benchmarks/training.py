"""A process that trains for real, in windows, for benchmarks: a DataLoader, forward, backward, optimizer.

``training.py FOLDER SIZE WINDOWS [traceml]``: window N begins when ``N.go`` is in FOLDER, which has a number
of steps; what they took is in ``N.json`` when it has ended. With ``traceml`` it has the lines TraceML takes.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

SIZES = {"1": (128, 3, 32), "10": (512, 3, 96), "100": (1024, 4, 256)}
"""Width, layers and rows of a batch for a step of about so many milliseconds on one core."""
BATCHES = 20
"""Of an epoch, after which the loader begins anew."""


def prepared(size: str) -> tuple[Any, Any, Iterator[Any]]:
    """A model, its optimizer, and batches without end."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    wide, layers, rows = SIZES[size]
    parts = [part for _ in range(layers) for part in (torch.nn.Linear(wide, wide), torch.nn.Tanh())]
    model = torch.nn.Sequential(*parts)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = DataLoader(TensorDataset(torch.randn(BATCHES * rows, wide)), batch_size=rows)
    return model, optimizer, _without_end(loader)


def main(folder: Path, size: str, windows: int, traceml: Any = None) -> None:
    """Train as told."""
    model, optimizer, data = prepared(size)
    traced: Callable[[Any], Any] = traceml.trace_step if traceml else contextlib.nullcontext
    wall: list[float] = []
    cpu: list[float] = []

    def train(steps: int) -> None:
        began, burnt = time.perf_counter(), time.thread_time()
        for (x,) in islice(data, steps):
            with traced(model):
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
            ended, by_then = time.perf_counter(), time.thread_time()
            wall.append(ended - began)
            cpu.append(by_then - burnt)
            began, burnt = ended, by_then

    train(3)
    _write(folder / "ready", os.getpid())
    for window in range(windows):
        told = folder / f"{window}.go"
        while not told.exists():
            time.sleep(0.005)
        train(2)  # what ran meanwhile has its data in the caches
        wall.clear()
        cpu.clear()
        train(int(told.read_text()))
        _write(folder / f"{window}.json", [1000 * median(wall), 1000 * median(cpu)])


def _without_end(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def _write(path: Path, what: Any) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(what))
    new.rename(path)


if __name__ == "__main__":
    if "traceml" in sys.argv:
        import traceml_ai  # type: ignore[import-not-found]

        traceml_ai.init(mode="auto")
        main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), traceml_ai)
    else:
        main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
