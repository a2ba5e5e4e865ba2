"""What the example scripts share: their common flags, and the faults they can be told to have.

A script that is run by its path finds this module beside itself.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import NamedTuple, NoReturn


class Fault(NamedTuple):
    """A fault of one global rank, from one step on (steps count from 1)."""

    rank: int
    step: int
    seconds: float = 1.0


def fault(text: str) -> Fault:
    """Read ``RANK@STEP`` or ``RANK@STEP:SECONDS``.

    :raises argparse.ArgumentTypeError: anything else
    """
    try:
        rank, _, rest = text.partition("@")
        step, _, seconds = rest.partition(":")
        return Fault(int(rank), int(step), float(seconds or 1))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: want RANK@STEP or RANK@STEP:SECONDS") from None


def parser(description: str, step_time: float = 0.0) -> argparse.ArgumentParser:
    """Make a parser with the flags that every example takes.

    :param step_time: default of ``--step-time``, in seconds
    """
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--steps", type=int, default=20, metavar="N")
    made.add_argument(
        "--step-time", type=float, default=step_time, metavar="S", help="sleep S seconds in each step"
    )
    made.add_argument(
        "--crash", type=fault, metavar="RANK@STEP", help="that rank raises RuntimeError at that step"
    )
    made.add_argument("--hang", type=fault, metavar="RANK@STEP", help="that rank stops for ever at that step")
    made.add_argument(
        "--slow",
        type=fault,
        metavar="RANK@STEP[:S]",
        help="from that step on, that rank takes S seconds longer to read a batch (default 1)",
    )
    made.add_argument("--seed", type=int, default=0, metavar="N")
    # DeepSpeed's launcher and old torch launchers put this in; the environment says the same.
    made.add_argument("--local_rank", "--local-rank", type=int, default=None, help=argparse.SUPPRESS)
    return made


def env_int(name: str, default: int) -> int:
    """Read a number that a launcher sets (``RANK``, ``WORLD_SIZE``, …)."""
    return int(os.environ.get(name, default))


def env(name: str, default: str) -> str:
    """Read a word that a launcher sets (``MASTER_ADDR``, …)."""
    return os.environ.get(name, default)


def say(text: str) -> None:
    """Print one line at once, also when nobody set PYTHONUNBUFFERED."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def hang(rank: int, step: int) -> None:
    """Never return. The name is what a stack dump of this rank shows."""
    say(f"injected fault: rank {rank} hangs at step {step}")
    while True:
        time.sleep(3600)


READING, BACKWARD = 0.15, 0.5
"""Of the time that a step takes; the forward pass takes the rest."""


def read(args: argparse.Namespace, rank: int, step: int) -> None:
    """Take the time to read a batch; longer, where ``--slow`` names this rank and step."""
    time.sleep(READING * args.step_time)
    if args.slow and rank == args.slow.rank and step >= args.slow.step:
        time.sleep(args.slow.seconds)


def forward(args: argparse.Namespace, rank: int, step: int) -> None:
    """Take the time of a forward pass, and have the fault that is due on this rank in this step.

    :raises RuntimeError: ``--crash`` names this rank and step
    """
    time.sleep((1 - READING - BACKWARD) * args.step_time)
    if args.crash and (rank, step) == args.crash[:2]:
        raise RuntimeError(f"injected fault: rank {rank} crashes at step {step}")
    if args.hang and (rank, step) == args.hang[:2]:
        hang(rank, step)


def backward(args: argparse.Namespace) -> None:
    """Take the time of a backward pass."""
    time.sleep(BACKWARD * args.step_time)


def leave() -> NoReturn:
    """End this rank at once, with exit status 0, after a last barrier over all ranks.

    Tearing gloo down aborts a rank (SIGABRT) now and then, when a peer closes the same connection at the same
    moment. A rank that ends without a teardown closes nothing while its threads still run.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
