"""What the examples with torch train on: random numbers, read through torch's ``DataLoader`` as data is."""

from __future__ import annotations

import argparse

import faults
import torch
from torch.utils.data import DataLoader


class _Batches:
    """One batch a step, drawn anew; reading takes as long as the flags say."""

    def __init__(self, args: argparse.Namespace, rank: int) -> None:
        self._args = args
        self._rank = rank
        self._drawn = torch.Generator().manual_seed(args.seed + 1 + rank)

    def __len__(self) -> int:
        return int(self._args.steps)

    def __getitem__(self, at: int) -> torch.Tensor:
        faults.read(self._args, self._rank, at + 1)
        return torch.randn(64, 32, generator=self._drawn)


def batches(args: argparse.Namespace, rank: int) -> DataLoader[torch.Tensor]:
    """The batches of a rank, as many as there are steps: float32, (64, 32)."""
    return DataLoader(_Batches(args, rank), batch_size=None)
