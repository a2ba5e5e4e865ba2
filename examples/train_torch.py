#!/usr/bin/env python3
"""Train a very small network with plain PyTorch: data-parallel, on CPU, over gloo.

cockpit run hostfile --launcher torchrun -- train_torch.py --steps 20
"""

from __future__ import annotations

import os
import time

import faults

# Several ranks share few cores here: one thread each. Must be set before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
from batches import batches
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Run all steps of this rank."""
    args = faults.parser("Train with plain PyTorch on CPU.").parse_args()
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29500}.items():
        os.environ.setdefault(name, str(value))
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    faults.say(f"rank {rank} of {dist.get_world_size()} is ready")

    torch.manual_seed(args.seed)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=max(args.steps, 1))
    begin = time.perf_counter()
    for step, x in enumerate(batches(args, rank), 1):
        faults.forward(args, rank, step)
        loss = torch.nn.functional.mse_loss(ddp(x), x[:, :1])
        loss.register_hook(lambda _: faults.backward(args))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lr = schedule.get_last_lr()[0]
        schedule.step()
        took, begin = time.perf_counter() - begin, time.perf_counter()
        faults.say(f"step {step}/{args.steps} loss {loss.item():.4f} lr {lr:.1e} {1000 * took:.0f} ms/step")
    dist.barrier()
    faults.say("done")
    faults.leave()


if __name__ == "__main__":
    main()
