"""What pools of real runs have in common: options, shards, a folder of what was told, the head of a score."""

from __future__ import annotations

import argparse
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def parser(name: str, doc: str | None, score: Path) -> argparse.ArgumentParser:
    """The options of a pool.

    :param name: ``slowpool``
    :param score: the file that ``--write`` keeps the table in
    """
    made = argparse.ArgumentParser(prog=f"python -m tests.{name}", description=doc)
    made.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="to see them again")
    made.add_argument("--shard", default="1/1", metavar="I/N", help="only each Nth run, from the Ith on")
    made.add_argument("--folder", type=Path, help=f"for what was told ({name}-SEED in the temp folder)")
    made.add_argument("--write", action="store_true", help=f"keep the table in {score.name}")
    return made


def folder_of(name: str, args: argparse.Namespace) -> Path:
    """Where what was told is kept; from here on SIGTERM is an interrupt, so that runs are stopped."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder: Path = args.folder or Path(tempfile.gettempdir()) / f"{name}-{args.seed}"
    folder.mkdir(exist_ok=True)
    print(f"seed {args.seed}, {folder}", flush=True)
    return folder


def shard_of(found: Sequence[T], shard: str) -> list[T]:
    """A part of them: each ``N``th, from the ``I``th on.

    :param shard: ``I/N``
    """
    first, _, count = shard.partition("/")
    return list(found[int(first) - 1 :: int(count)])


def when(seed: int | None, loads: Sequence[float]) -> str:
    """``2026-11-22, commit fc31cb6, seed 4711, load 15 to 42``."""
    words = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    told = f"{time.strftime('%Y-%m-%d')}, commit {commit}" + (f", seed {seed}" if seed is not None else "")
    return f"{told}, load {min(loads):.0f} to {max(loads):.0f}" if loads else told
