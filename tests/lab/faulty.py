#!/usr/bin/env python3
"""Training with a fault in one rank, on CPU over gloo, for tests of what stacks tell.

    torchrun --nproc-per-node 4 tests/lab/faulty.py --fault lock --rank 2 --step 5

A fault ends, and training goes on, when the rank gets SIGUSR1 (``stop``: SIGCONT). While it trains, a rank
can be told to have a fault at its next step: by the real-time signal ``SIGRTMIN + 1 + KINDS.index(kind)``.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

KINDS = (
    "sleep",
    "loop",
    "lock",
    "stop",
    "gil",
    "read",
    "loader",
    "worker",
    "mismatch",
    "slow",
    "kill",
    "exit",
    "raise",
    "keep",
)
"""Every fault. ``loader``: the process that should bring the data is dead; ``worker``: a worker of torch's
DataLoader is stopped; ``mismatch``: another collective than all others; ``slow``: ten times as long a step,
until released; ``kill``: SIGKILL; ``exit``: an early end with status 0; ``raise``: an exception;
``keep``: none yet: whoever kills the rank afterwards leaves its peers waiting, see ``leaves``."""

WARM = 3
"""Steps after which a rank says that it is ready: the first ones wait at other places than all later ones."""

MODES = ("ddp", "all_reduce", "deepspeed")


class Released(Exception):
    """A fault is over."""


pending = ""


def say(text: str) -> None:
    """Print one line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def release(number: int, frame: object) -> None:
    """SIGUSR1: end the fault that this rank has."""
    raise Released


def arm(number: int, frame: object) -> None:
    """A real-time signal: have this fault at the next step."""
    global pending
    pending = KINDS[number - signal.SIGRTMIN - 1]


def sleeps() -> None:
    """Sleep for ever."""
    time.sleep(1e6)


def loops() -> None:
    """Compute for ever."""
    number = 0
    while True:
        number += 1


def takes_lock() -> None:
    """Wait for a lock that another thread never gives back."""
    lock = threading.Lock()
    threading.Thread(target=holds_lock, args=(lock,), name="holder", daemon=True).start()
    while not lock.locked():
        time.sleep(0.01)
    with lock:
        pass


def holds_lock(lock: threading.Lock) -> None:
    """Take the lock and keep it."""
    with lock:
        threading.Event().wait()


def stops() -> None:
    """SIGSTOP, as a debugger or a scheduler does it."""
    os.kill(os.getpid(), signal.SIGSTOP)


def holds_gil() -> None:
    """A C function that sleeps and keeps the GIL."""
    ctypes.PyDLL(None).sleep(1_000_000)


def reads() -> None:
    """Read what never comes."""
    path = os.path.join(tempfile.mkdtemp(), "shard-00007.bin")
    os.mkfifo(path)
    number = os.open(path, os.O_RDWR)
    try:
        os.read(number, 1)
    finally:
        os.close(number)
        os.unlink(path)
        os.rmdir(os.path.dirname(path))


def next_batch() -> None:
    """Wait for a batch of a process that is dead."""
    queue: multiprocessing.Queue[int] = multiprocessing.get_context("fork").Queue()
    loader = multiprocessing.get_context("fork").Process(target=dies, daemon=True)
    loader.start()
    try:
        queue.get()
    finally:
        loader.join()


def dies() -> None:
    """What a loader does that runs out of memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def next_item() -> None:
    """Wait for torch's DataLoader, whose worker is stopped."""
    import torch.utils.data

    class Data:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            stops()
            return index

    batches = iter(torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context="fork"))
    try:
        next(batches)
    finally:
        # Its own teardown would wait for the worker.
        for worker in batches._workers:
            worker.kill()


def broadcasts() -> None:
    """Another collective than all others are in."""
    import torch

    torch.distributed.broadcast(torch.zeros(1), src=torch.distributed.get_rank())


def leaves() -> None:
    """Make what this rank has open stay open in a child, when it leaves early or is killed.

    Without the child the peers' connections would be closed, and gloo would end them at once; NCCL does not.
    """
    if os.fork() == 0:
        os.setsid()
        for number in range(3):
            os.close(number)
        time.sleep(600)
        os._exit(0)


def killed() -> None:
    """Die as the out-of-memory killer has it."""
    leaves()
    os.kill(os.getpid(), signal.SIGKILL)


def exits() -> NoReturn:
    """End early, with success."""
    leaves()
    os._exit(0)


def raises() -> NoReturn:
    """End as most programs do."""
    leaves()
    raise RuntimeError("as it was told to")


HAVE: dict[str, Callable[[], None]] = {
    "sleep": sleeps,
    "loop": loops,
    "lock": takes_lock,
    "stop": stops,
    "gil": holds_gil,
    "read": reads,
    "loader": next_batch,
    "worker": next_item,
    "mismatch": broadcasts,
    "kill": killed,
    "exit": exits,
    "raise": raises,
    "keep": leaves,
}


def have(kind: str, rank: int, step: int) -> None:
    """Have a fault; return when it is over."""
    say(f"rank {rank}: {kind} at step {step}")
    with contextlib.suppress(Released):
        HAVE[kind]()
    say(f"rank {rank}: {kind} is over")


def trained(mode: str) -> Callable[[], None]:
    """Set up the process group and a model; return what makes one step."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    if mode == "deepspeed":
        return with_deepspeed(model)
    torch.distributed.init_process_group("gloo")
    return with_ddp(model) if mode == "ddp" else with_all_reduce(model)


def with_deepspeed(model: Any) -> Callable[[], None]:
    """ZeRO stage 2."""
    import deepspeed
    import torch

    # It would be compiled, for a minute.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo")
    config = {
        "train_micro_batch_size_per_gpu": 8,
        "zero_optimization": {"stage": 2},
        "steps_per_print": 10**9,
    }
    optimizer = torch.optim.AdamW(model.parameters())
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)

    def step() -> None:
        engine.backward(engine(torch.randn(8, 32)).square().mean())
        engine.step()

    return step


def with_ddp(model: Any) -> Callable[[], None]:
    """Gradients are reduced inside the backward pass."""
    import torch

    ddp = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        ddp(torch.randn(8, 32)).square().mean().backward()
        optimizer.step()

    return step


def with_all_reduce(model: Any) -> Callable[[], None]:
    """Gradients are reduced by hand; without an optimizer, which takes seconds to import."""
    import torch

    def step() -> None:
        model(torch.randn(8, 32)).square().mean().backward()
        for parameter in model.parameters():
            torch.distributed.all_reduce(parameter.grad)

    return step


def main() -> None:
    """Train until killed."""
    global pending
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=KINDS)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--step", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--mode", choices=MODES, default="ddp")
    parser.add_argument("--local_rank", type=int)
    args = parser.parse_args()
    rank = int(os.environ["RANK"])
    step_once = trained(args.mode)
    signal.signal(signal.SIGUSR1, release)
    for number in range(len(KINDS)):
        signal.signal(signal.SIGRTMIN + 1 + number, arm)
    slow = False
    for step in range(1, args.steps + 1):
        if (args.fault, args.rank, args.step) == (args.fault or "", rank, step):
            pending = args.fault
        if pending:
            kind, pending = pending, ""
            if kind == "slow":
                slow = not slow
            else:
                have(kind, rank, step)
        time.sleep(0.5 if slow else 0.05)
        step_once()
        if step == WARM:
            say(f"rank {rank} is ready")
    os._exit(0)


if __name__ == "__main__":
    main()
