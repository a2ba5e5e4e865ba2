"""What the examples with torch train on: random numbers, read through torch's ``DataLoader`` as data is."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import faults
import torch
from torch.utils.data import DataLoader, IterableDataset


class _Batches(IterableDataset[torch.Tensor]):
    """One batch a step, drawn anew; reading takes as long as the flags say."""

    def __init__(self, args: argparse.Namespace, rank: int) -> None:
        self._args = args
        self._rank = rank

    def __iter__(self) -> Iterator[torch.Tensor]:
        drawn = torch.Generator().manual_seed(self._args.seed + 1 + self._rank)
        for step in range(1, self._args.steps + 1):
            faults.read(self._args, self._rank, step)
            yield torch.randn(64, 32, generator=drawn)


def batches(args: argparse.Namespace, rank: int) -> DataLoader[torch.Tensor]:
    """The batches of a rank, as many as there are steps: float32, (64, 32)."""
    return DataLoader(_Batches(args, rank), batch_size=None)
