"""One rank that trains, on a ``gpu`` over NCCL or on the ``cpu`` over gloo, until there is a file ``end``.

It writes to ``own`` how long each step took. Once there is a file ``synchronize`` or ``item``, it waits that
way for its device, which is held for some seconds, with a collective behind that; and says so.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist

HELD_S = 40.0
GPU = sys.argv[1] == "gpu"
DEVICE = "cuda" if GPU else "cpu"
WIDE = 512 if GPU else 64


class Batches(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """They never end."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            yield torch.randn(4096 if GPU else 16, WIDE)


def hold() -> None:
    """Start a kernel that runs for so long."""
    cycles, began = 100_000_000, time.perf_counter()
    torch.cuda._sleep(cycles)
    torch.cuda.synchronize()
    torch.cuda._sleep(int(cycles * HELD_S / (time.perf_counter() - began)))


def wait(how: str) -> None:
    """Wait for the device."""
    numbers = torch.ones(1 << 16, device=DEVICE)
    if GPU:
        hold()
    work = dist.all_reduce(numbers, async_op=True)
    print("waits:", how, flush=True)
    if how == "synchronize" and GPU:
        torch.cuda.synchronize()
    elif how == "item":
        numbers.sum().item()
    work.wait()
    print("goes on", flush=True)


def main() -> None:
    """Train."""
    dist.init_process_group("nccl" if GPU else "gloo")
    if not GPU:
        torch.set_num_threads(1)  # several wait for each other where processors have other things to do
    layers = [torch.nn.Linear(WIDE, WIDE) for _ in range(8)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).to(DEVICE))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    waited: set[str] = set()
    began = time.perf_counter()
    with open("own", "w", buffering=1) as own:
        for batch in torch.utils.data.DataLoader(Batches(), batch_size=None):
            if os.path.exists("end"):
                break
            optimizer.zero_grad()
            loss = model(batch.to(DEVICE)).square().mean()
            loss.backward()
            optimizer.step()
            loss.item()  # a step ends when the device is through with it
            time.sleep(0.02)
            print(time.perf_counter() - began, file=own)
            began = time.perf_counter()
            for how in ("synchronize", "item"):
                if how not in waited and os.path.exists(how):
                    waited.add(how)
                    wait(how)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
